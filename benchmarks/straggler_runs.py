"""Real small jobs with stragglers on this machine, for `antdt.py --real` and `hot_ps.py`.

A job of processes trains Wide&Deep on Census for some passes, under the policy ``fixed-plan``. What
changes is only what the solution against stragglers does, in auto mode. Faults begin once all nodes train,
and stay with the process: what replaces it runs freely, as on another machine. The paper's minutes are
seconds here (`SHORT_S` for its 5 minutes).

The completion time counts from there to the end of the training, so that the start of processes and the final
evaluation, which are alike in all methods, dilute nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from dlrover_nb.core.connect import connect
from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.planner.policies import POLICIES
from dlrover_nb.core.rundir.journal import read_events
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.stragglers import Pace
from dlrover_nb.core.structs.views.events import JobSubmitted
from dlrover_nb.testing import faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

SHORT_S = 5.0
LIMIT_S = 900.0
N_REPLAY = 3
LOOK_S = 0.1  # between two snapshots: the moment at which training ends is known no better
RESTART = "stop-and-restart"  # of the whole job, when the straggler is known: the baseline of practice


@dataclass(frozen=True)
class Outcome:
    """What became of one run."""

    method: str
    jct_s: float
    auc: float
    n_row: int  # of all passes, done
    n_expected: int
    cpu_s: float  # of the processes that live at the end, the master too
    actions: tuple[str, ...]
    watch_s: float  # CPU time of finding stragglers and deciding on them

    @property
    def is_exact(self) -> bool:
        return self.n_row == self.n_expected


@dataclass(frozen=True)
class Case:
    """A job and its faults: what each named node suffers from the moment at which all train."""

    spec: JobSpec
    faults: tuple[tuple[str, Any], ...] = ()


def spec_of(name: str, *, sync: Sync, n_worker: int, n_ps: int, n_epoch: int, **more: Any) -> JobSpec:
    plan = ResourcePlan(RolePlan(n_worker, 0.3, 1024), RolePlan(n_ps, more.pop("ps_cpu", 0.3), 1024))
    return JobSpec(
        name,
        plan=plan,
        sync=sync,
        n_epoch=n_epoch,
        policy="fixed-plan",
        straggler_window_s=SHORT_S,
        checkpoint_every_s=10.0,
        **more,
    )


def run(case: Case, method: str, number: int) -> Outcome:
    """Run a job by one method: a solution of the product, or `RESTART`."""
    solution = SolutionName.NONE if method == RESTART else SolutionName(method)
    mode = Mode.MANUAL if solution is SolutionName.NONE else Mode.AUTO
    name = f"{case.spec.name}-{method}-{number}-{os.getpid()}"  # a run that was cut off may be resumed
    spec = replace(case.spec, name=name, stragglers=solution, mode=mode)
    with contextlib.closing(_Cluster()) as cluster:
        handle = cluster.core.submit(spec)
        _until(handle, _all_train)
        began_s, actions = time.monotonic(), list[str]()
        with contextlib.ExitStack() as block:
            for node, way in case.faults:
                block.enter_context(faults.slow(handle, node, way))
            if method == RESTART and case.faults:
                _until(handle, lambda now: _is_found(now, case) or _is_trained(now))
                actions.append("stopped and begun again")
                handle.stop()
                again = replace(spec, name=f"{name}-again", start_from=StartFrom(name, rows=True))
                handle = cluster.core.submit(again)
            _until(handle, _is_trained)
            jct_s, cpu_s = time.monotonic() - began_s, _cpu_s()
        end = handle.wait(LIMIT_S)
        if end.phase is not JobPhase.SUCCEEDED or end.evaluation is None:
            raise SystemExit(f"{name} ended otherwise: {end.phase}: {end.message}")
        actions += [f"{d.by}: {d.words}" for d in end.decisions if d.action is not None]
        n_row = end.train.n_sample_done + end.train.n_sample_skipped
        watch_s = min(_watch_s(Path(end.folder)) for _ in range(N_REPLAY))
    n_total = end.train.n_sample_total
    return Outcome(method, jct_s, end.evaluation.auc, n_row, n_total, cpu_s, tuple(actions), watch_s)


def _watch_s(folder: Path) -> float:
    """Return the CPU time that watching for stragglers takes in the job's controller.

    Replayed from its journal, a controller makes the same calls again. So the part can be measured alone,
    while two whole runs differ by more than it costs.
    """
    events, total_s = read_events(folder), 0.0
    first = next(events)
    assert isinstance(first, JobSubmitted)
    controller = Controller(first, policy=POLICIES[first.spec.policy])

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **kwargs: Any) -> Any:
            nonlocal total_s
            began_s = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                total_s += time.perf_counter() - began_s

        return measured

    for part, names in (("_nodes", ("reported",)), ("_mitigations", ("is_due", "review", "observe"))):
        for name in names:
            watcher = getattr(controller, part)
            setattr(watcher, name, timed(getattr(watcher, name)))
    for event in events:
        controller.handle(event)
    return total_s


class _Cluster:
    """The local cluster, in this process."""

    def __init__(self) -> None:
        self.core = connect("local", cpus=8)

    def close(self) -> None:
        self.core.shutdown(force=True)


def _until(handle: JobHandle, holds: Callable[[JobSnapshot], object]) -> JobSnapshot:
    end_s = time.monotonic() + LIMIT_S
    while not holds(now := handle.snapshot()):
        if (now.phase.is_final and now.phase is not JobPhase.SUCCEEDED) or time.monotonic() > end_s:
            raise SystemExit(f"the job did not come so far: {now.phase}: {now.message}")
        time.sleep(LOOK_S)
    return now


def _all_train(now: JobSnapshot) -> bool:
    plan, reports = now.spec.plan, [node for node in now.nodes if node.last and node.last.n_iter]
    counts = [sum(node.role is role for node in reports) for role in Role]
    return counts == [plan.role(role).count for role in Role] and now.train.n_sample_done > 0


def _is_trained(now: JobSnapshot) -> bool:
    return now.train.todo == now.train.doing == 0 and now.train.n_sample_done > 0


def _is_found(now: JobSnapshot, case: Case) -> bool:
    """Whether the monitor has named a node with a fault that lasts."""
    slowed = {node for node, _ in case.faults}
    return any(each.node in slowed and each.pace is Pace.PERSISTENT for each in now.stragglers)


def _cpu_s() -> float:
    """Return what the processes of a job, its master too, have used so far."""
    total_s = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total_s += times.user + times.system
    return total_s


def interleaved(case: Case, methods: tuple[str, ...], n: int) -> Iterator[Outcome]:
    """Run each method once, then again, so that a slower hour of the machine is one for all."""
    for number in range(n):
        for method in methods:
            outcome = run(case, method, number)
            print(
                f"{outcome.method:17} {outcome.jct_s:6.1f} s  AUC {outcome.auc:.4f}  "
                f"{'exact' if outcome.is_exact else 'NOT EXACT'}  {'; '.join(outcome.actions)}",
                flush=True,
            )
            yield outcome

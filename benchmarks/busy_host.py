"""Plans on a busy host: real jobs of this machine, quiet, beside constant and beside alternating load.

The load is busy loops that this benchmark starts, pins one to each processor, and ends. A job is led through
plans by hand; each change is predicted by the fit so far (walk-forward) and measured until the next one. Then
auto mode leads jobs that begin small, and jobs that begin on the best plan. Predictions and outcomes are
compared without what the host took; `seen_*` are of speeds as the clock saw them.

speed_beside_load   speed of 3 workers beside 2 busy loops over that of a quiet host, in turn in one job
cores_beside_load   cores that they used in the one and the other
rmsle_*             of predictions of plans before they ran: quiet, constant, alternating
inside_share        share of those that lay in their 90 % bands, with n_outcome of them
seen_rmsle_*        the same with speeds as measured, without taking off what the host took
auto_last_over_best speed of auto mode's last plan over that of the best plan in that condition (the least)
returns             how often a job in auto mode went back to a plan that it had left, mean over jobs
slower_than_begun   jobs in auto mode, begun on the best plan, that ended on one slower by more than 3 %
cpu_ms_per_step     processor time of an iteration of a worker, by condition: it hardly changes

By default only the first two, in a minute: a walk through the plans takes five.

    python benchmarks/busy_host.py [--conditions quiet] [--blocks 1] [--whole]
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
from lengths import parsed, print_figures

from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.connect import connect
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.decisions.decisions import Outcome
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

CONDITIONS = ("quiet", "constant", "alternating")
WALK = ((1, 1), (2, 1), (3, 1), (3, 2), (2, 2), (1, 2), (2, 1), (3, 2), (1, 1), (3, 1), (2, 2), (3, 1))
BEST = (3, 1)  # of a quiet host, as the walk finds
ON_S = OFF_S = 15.0  # of the alternating load; no multiple of a plan's time
LONG_S = 600.0
BLOCK_S, SETTLE_S = 12.0, 3.0  # what is measured of each, and left out before
SPIN = "import os,sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


def plan_of(n_worker: int, n_ps: int) -> ResourcePlan:
    return ResourcePlan(worker=RolePlan(n_worker, 0.5, 1024), ps=RolePlan(n_ps, 0.25, 512))


def job(name: str, begin: tuple[int, int], mode: Mode) -> JobSpec:
    """Return the demo's job, for as long as it is watched."""
    bounds = PlanBounds(max_workers=3, max_ps=2, worker_cpus=(0.5,), ps_cpus=(0.25,))
    return JobSpec(name=name, plan=plan_of(*begin), bounds=bounds, mode=mode, n_epoch=10_000)


@contextlib.contextmanager
def load(condition: str) -> Iterator[None]:
    """Keep each processor busy with one loop, always or every other `ON_S` seconds."""
    cores = sorted(os.sched_getaffinity(0))[:2] if condition != "quiet" else []
    loops = [subprocess.Popen([sys.executable, "-c", SPIN, str(core)]) for core in cores]
    over = threading.Event()

    def alternate() -> None:
        while not over.wait(ON_S):
            for way, wait_s in ((signal.SIGSTOP, OFF_S), (signal.SIGCONT, 0.0)):
                for each in loops:
                    each.send_signal(way)
                if over.wait(wait_s):
                    return

    thread = threading.Thread(target=alternate)
    if condition == "alternating":
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()
        for each in loops:
            each.kill()
            each.wait()


@dataclass(frozen=True)
class Run:
    """What one job did."""

    condition: str
    end: JobSnapshot
    speeds: dict[tuple[int, int], float]  # as measured, by plan

    @property
    def predicted(self) -> tuple[Outcome, ...]:
        """Outcomes of plans that did not run before."""
        seen, first = {self.end.markers[0].plan}, []
        for outcome in self.end.outcomes:
            if outcome.predicted is not None and outcome.plan not in seen:
                first.append(outcome)
            seen.add(outcome.plan)
        return tuple(first)


def key(plan: ResourcePlan) -> tuple[int, int]:
    return plan.worker.count, plan.ps.count


def until(handle: JobHandle, wanted: Any, limit_s: float = LONG_S) -> JobSnapshot:
    end_s = time.monotonic() + limit_s
    while True:
        snapshot = handle.snapshot()
        if wanted(snapshot):
            return snapshot
        if time.monotonic() > end_s or snapshot.phase.is_final:
            raise RuntimeError(
                f"the job stands at {snapshot.phase} {snapshot.message}: {snapshot.story[-5:]}"
            )
        time.sleep(0.5)  # polled, as any client does


def walked(cluster: Cluster, condition: str, hold_s: float) -> Run:
    """Lead a job through the plans by hand."""
    with load(condition):
        handle = cluster.submit(job(f"walk-{condition}", WALK[0], Mode.MANUAL))
        until(handle, lambda s: s.fit is not None)
        time.sleep(hold_s / 2)  # of measuring the first plan
        for plan in (plan_of(*step) for step in WALK[1:]):
            handle.decide(Scale.to(plan))
            until(handle, lambda s, to=plan: s.running == to and not s.measuring and not s.under_way)
            time.sleep(hold_s / 2)  # of measuring it further: an outcome follows all its windows
        return _end(handle, condition)


def beside_load(cluster: Cluster, n_block: int) -> dict[str, Any]:
    """Compare a quiet host with a loaded one in turn, as the speed of machines changes by the minute."""
    handle = cluster.submit(job("beside", BEST, Mode.MANUAL))
    until(handle, lambda s: s.fit is not None)
    blocks: dict[str, list[tuple[float, float]]] = {"quiet": [], "constant": []}
    for _ in range(n_block):
        for condition, of_condition in blocks.items():
            with load(condition):
                of_condition.append(block(handle))
    handle.stop()
    handle.wait(60)
    pairs = zip(blocks["constant"], blocks["quiet"], strict=True)
    cores = {condition: statistics.median(c for _, c in some) for condition, some in blocks.items()}
    return {
        "speed_beside_load": round(statistics.median(b / q for (b, _), (q, _) in pairs), 3),
        "cores_beside_load": {condition: round(each, 2) for condition, each in cores.items()},
    }


def block(handle: JobHandle) -> tuple[float, float]:
    """Return a job's rows a second and the cores that it uses, for the length of a block."""
    time.sleep(SETTLE_S)  # workers go on with what they had begun
    first, begin_s = handle.snapshot(), time.monotonic()
    nodes = [psutil.Process(node.pid) for node in first.nodes if node.pid]
    used_s = -sum(sum(node.cpu_times()[:2]) for node in nodes)
    time.sleep(BLOCK_S)  # while it is measured
    used_s += sum(sum(node.cpu_times()[:2]) for node in nodes)
    span_s = time.monotonic() - begin_s
    return (handle.snapshot().train.n_sample_done - first.train.n_sample_done) / span_s, used_s / span_s


def steered(cluster: Cluster, condition: str, begin: tuple[int, int], span_s: float) -> Run:
    """Let auto mode lead a job."""
    with load(condition):
        handle = cluster.submit(job(f"auto-{condition}-{begin[0]}", begin, Mode.AUTO))
        until(handle, lambda s: s.fit is not None)
        time.sleep(span_s)  # that auto mode has for its decisions
        return _end(handle, condition)


def _end(handle: JobHandle, condition: str) -> Run:
    handle.stop()
    snapshot = handle.wait(60)
    by_plan: dict[tuple[int, int], list[float]] = {}
    for sample in snapshot.samples:
        by_plan.setdefault(key(sample.plan), []).append(sample.samples_per_s)
    return Run(condition, snapshot, {plan: statistics.median(some) for plan, some in by_plan.items()})


def rmsle(ratios: Sequence[float]) -> float | None:
    return round(math.sqrt(statistics.fmean(math.log(r) ** 2 for r in ratios)), 3) if ratios else None


def figures_of_walks(walks: Sequence[Run]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for condition in CONDITIONS:
        outcomes = [o for run in walks if run.condition == condition for o in run.predicted]
        clean = [1 + (o.error or 0.0) for o in outcomes]
        seen = [o.predicted.samples_per_s / o.measured_samples_per_s for o in outcomes if o.predicted]
        figures |= {f"rmsle_{condition}": rmsle(clean), f"seen_rmsle_{condition}": rmsle(seen)}
        figures[f"errors_{condition}"] = [round(100 * (r - 1)) for r in clean]
        samples = [s for run in walks if run.condition == condition for s in run.end.samples]
        cpu_s = [s.cpu_s for s in samples if s.cpu_s]
        figures[f"cpu_ms_per_step_{condition}"] = round(1e3 * statistics.median(cpu_s), 1) if cpu_s else None
        shares = [s.host_share for s in samples]
        figures[f"host_share_{condition}"] = round(statistics.fmean(shares), 3) if shares else None
    return figures


def returns(snapshot: JobSnapshot) -> int:
    plans = Counter(key(marker.plan) for marker in snapshot.markers)
    return sum(n - 1 for n in plans.values())


def figures_of_auto(runs: Sequence[Run], walks: Sequence[Run]) -> dict[str, Any]:
    figures: dict[str, Any] = {"returns": None, "auto_last_over_best": None, "auto_plans": []}
    lasts, slower = [], 0
    for run in runs:
        beside = [walk.speeds for walk in walks if walk.condition == run.condition]
        plans = [key(marker.plan) for marker in run.end.markers]
        figures["auto_plans"].append([run.condition, *(f"{w}w+{p}p" for w, p in plans)])
        if not beside:
            continue
        last = beside[0].get(plans[-1], 0.0) / max(beside[0].values())
        if plans[0] == BEST:
            slower += beside[0].get(plans[-1], 0.0) < 0.97 * beside[0].get(BEST, 0.0)
        else:
            lasts.append(last)
    if runs:
        figures["returns"] = statistics.fmean(returns(run.end) for run in runs)
        figures["auto_last_over_best"] = round(min(lasts), 3) if lasts else None
        figures["slower_than_begun"] = slower
    return figures


def measured(n_block: int, hold_s: float, auto_s: float, conditions: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="dl") as home:
        for name in ("STATE", "DATA", "CONFIG"):
            os.environ[f"XDG_{name}_HOME"] = f"{home}/{name.lower()}"
        cluster = connect("local", cpus=3.0)
        try:
            beside = beside_load(cluster, n_block)
            walks = [walked(cluster, condition, hold_s) for condition in conditions]
            autos = [
                steered(cluster, condition, begin, auto_s)
                for condition in conditions
                for begin in ((1, 1), BEST)
                if auto_s > 0
            ]
        finally:
            cluster.shutdown(force=True)
    outcomes = [o for run in (*walks, *autos) for o in run.end.outcomes if o.predicted is not None]
    inside = [bool(o.inside_band) for o in outcomes]
    return {
        **beside,
        **figures_of_walks(walks),
        **figures_of_auto(autos, walks),
        "n_outcome": len(outcomes),
        "inside_share": round(statistics.fmean(inside), 3) if inside else None,
        "load_average": [round(each, 1) for each in os.getloadavg()],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--hold-s", type=float, default=12.0, help="how long a plan runs besides its measurement"
    )
    parser.add_argument("--auto-s", type=float, default=0.0, help="of each job in auto mode; 0: none")
    parser.add_argument("--conditions", nargs="*", default=(), choices=CONDITIONS, help="of plans")
    parser.add_argument("--blocks", type=int, default=1, help="pairs of a quiet and a loaded time")
    options = parsed(parser, auto_s=150.0, conditions=CONDITIONS, blocks=6)
    figures = measured(options.blocks, options.hold_s, options.auto_s, options.conditions)
    print_figures("busy_host", figures)


if __name__ == "__main__":
    main()

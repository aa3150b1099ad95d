"""From node reports to steady windows: which measurements a fit may use.

A window holds about two seconds of reports of all workers of one running plan. Windows are left out while a
change settles, and until NEARCHUS's test holds: coefficient of variation < 5 % over 5 consecutive windows. On
a machine that is never that steady, windows count after `n_patience` windows, with their scatter. Once
steady, every further window of the plan counts.

Each window is divided into what the plan did and what the host's other load took (`host_share`): of a
worker's own work, and of its waits for PS in the part that PS themselves lost. Speeds are compared without
it, as neighbors come and go whatever the plan is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core.controller.measured.host_share import MOST_LOST, HostTally, job_cores, others_part
from dlrover_nb.core.planner.predictions.host import weight_of
from dlrover_nb.core.structs.cluster.host_load import HostLoad
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role
from dlrover_nb.core.structs.training.samples import NodeSample, ProfileSample

if TYPE_CHECKING:
    from collections.abc import Collection

    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.structs.job.job import JobSpec


@dataclass(slots=True)
class _Tally:
    """Work of one worker in the open window."""

    n_sample: int = 0
    n_iter: int = 0
    window_s: float = 0.0
    compute_s: float = 0.0
    wait_s: float = 0.0  # for PS
    total_s: float = 0.0  # of all parts but idleness
    iter_s: float = 0.0  # of all parts: the window, but for what of an iteration is under way at its ends
    host: HostTally = field(default_factory=HostTally)

    def add(self, sample: NodeSample, cpu: float) -> None:
        """Add a report of the worker, which has `cpu` cores."""
        self.host.add(sample, cpu)
        split, n = sample.split, sample.n_iter
        self.n_sample += sample.n_sample
        self.n_iter += n
        self.window_s += sample.window_s
        self.compute_s += n * split.compute_s
        self.wait_s += n * (split.lookup_s + split.update_s)
        self.total_s += n * (split.total_s - split.idle_s)
        self.iter_s += n * split.total_s

    def lost_s(self, others: float) -> float:
        """Return how many of the seconds of its iterations others took."""
        window_s = self.host.window_s
        return self.host.lost_s(others) * self.iter_s / window_s if window_s > 0 else 0.0


class SteadyWindows:
    """Builds windows of the running plan and returns those that count.

    Parameters
    ----------
    settings
        Durations and the stability test.
    spec
        The job, of which m of Eq. 1 follows for so many workers. The record and not its method, as a snapshot
        must hold it.
    """

    def __init__(self, settings: ControllerSettings, spec: JobSpec) -> None:
        self._settings = settings
        self._spec = spec
        self._plan: ResourcePlan | None = None
        self._judged: ResourcePlan | None = None  # the last plan that was in place
        self._from_s = 0.0
        self._tallies: dict[str, _Tally] = {}
        self._ps: dict[str, HostTally] = {}
        self._opened_s: float | None = None
        self._recent: deque[ProfileSample] = deque(maxlen=settings.n_stable)
        self._n_window = 0
        self._steady = False
        self._loads: deque[HostLoad] = deque(maxlen=settings.n_stable)

    @property
    def host(self) -> HostLoad | None:
        """What other work on the job's hosts left to it over the last windows; None: not known."""
        loads = self._loads
        if not loads:
            return None
        names = (each.name for each in fields(HostLoad))
        return HostLoad(*(fmean(getattr(load, name) for load in loads) for name in names))

    def restart(self, plan: ResourcePlan | None, at_s: float) -> None:
        """Restart with the plan that runs from `at_s` on (None: no plan is in place).

        A plan that goes on after a pause, as for a checkpoint, is as steady as it was.
        """
        self._plan, self._from_s = plan, at_s + self._settings.settle_s
        self._tallies, self._ps, self._opened_s = {}, {}, None
        if plan is None or plan == self._judged:
            return
        self._judged = plan
        self._recent.clear()
        self._n_window, self._steady = 0, False

    @property
    def n_waiting(self) -> int:
        """Windows of the running plan that do not count yet, because it is not steady; 0 once they do."""
        return 0 if self._steady else self._n_window

    def add(self, sample: NodeSample, at_s: float) -> tuple[ProfileSample, ...]:
        """Add one report; return the windows that count from now on (mostly none or one)."""
        plan = self._plan
        starts_s = at_s - sample.window_s
        if plan is None or starts_s < self._from_s:
            return ()
        if sample.role is Role.PS:
            self._ps.setdefault(sample.node, HostTally()).add(sample, plan.ps.cpu)
        if sample.role is not Role.WORKER:
            return ()
        if self._opened_s is None:
            self._opened_s = starts_s
        self._tallies.setdefault(sample.node, _Tally()).add(sample, plan.worker.cpu)
        if not self._may_close(plan, at_s - self._opened_s):
            return ()
        window = self._close(plan, at_s)
        return self._judge(window) if window is not None else ()

    def _may_close(self, plan: ResourcePlan, open_s: float) -> bool:
        s = self._settings
        if open_s >= s.max_window_s:
            return True
        if open_s < s.window_s or len(self._tallies) < plan.worker.count:
            return False
        newest_first = reversed(self._tallies.values())  # those have done least: this is asked at each report
        return all(t.n_iter >= s.min_window_iter and t.window_s >= s.window_s / 2 for t in newest_first)

    def _close(self, plan: ResourcePlan, at_s: float) -> ProfileSample | None:
        """Return the window, None when not exactly the plan's workers trained in it."""
        tallies, ps = self._tallies, self._ps
        opened_s = at_s if self._opened_s is None else self._opened_s
        self._tallies, self._ps, self._opened_s = {}, {}, None
        if len(tallies) != plan.worker.count or any(t.n_sample == 0 for t in tallies.values()):
            return None
        speed = sum(t.n_sample / t.window_s for t in tallies.values() if t.window_s > 0)
        batch = self._spec.batch_of(plan.worker.count)
        parts = _parts(tallies.values(), ps.values())
        self._note_load(plan, parts.host_share, [*(t.host for t in tallies.values()), *ps.values()])
        n_iter = sum(t.n_iter for t in tallies.values())
        return ProfileSample(
            at_s,
            at_s - opened_s,
            plan,
            batch,
            speed,
            parts.compute_share,
            parts.wait_share,
            host_share=parts.host_share,
            cpu_s=sum(t.host.cpu_s for t in tallies.values()) / n_iter if n_iter else None,
        )

    def _note_load(self, plan: ResourcePlan, share: float, nodes: Collection[HostTally]) -> None:
        if all(node.is_known for node in nodes):
            of_job = job_cores(nodes)
            given = sum(node.given_cores for node in nodes)
            wanted = sum(node.wanted_cores(others_part(node, of_job)) for node in nodes)
            self._loads.append(HostLoad(share, given, wanted, weight_of(plan)))

    def _judge(self, window: ProfileSample) -> tuple[ProfileSample, ...]:
        if self._steady:
            return (window,)
        self._recent.append(window)
        self._n_window += 1
        if not (self._is_stable() or self._n_window >= self._settings.n_patience):
            return ()
        self._steady = True
        return tuple(self._recent)

    def _is_stable(self) -> bool:
        if len(self._recent) < self._settings.n_stable:
            return False
        speeds = [w.plan_samples_per_s for w in self._recent]
        return pstdev(speeds) < self._settings.stable_cv * fmean(speeds)


class _Parts(NamedTuple):
    """Parts of an iteration: the first two of the plan's (None: not known), the third of the measured one."""

    compute_share: float | None
    wait_share: float | None
    host_share: float


def _parts(tallies: Collection[_Tally], ps: Collection[HostTally]) -> _Parts:
    """Divide an iteration of the workers between computing, waiting for PS, and the host's other load.

    Workers of PS always compute and wait: where one of the two is zero, the iteration was not divided, and
    what is in the other is only the time that a slow node lost.
    """
    compute_s, wait_s, total_s = (
        sum(getattr(t, name) for t in tallies) for name in ("compute_s", "wait_s", "total_s")
    )
    is_divided = compute_s > 0 and wait_s > 0
    own_s = late_s = 0.0
    if total_s > 0 and all(t.host.is_known for t in tallies):
        of_job = job_cores([*(t.host for t in tallies), *ps])
        lost_s = sum(t.lost_s(others_part(t.host, of_job)) for t in tallies)
        own_s = min(lost_s, MOST_LOST * (total_s - wait_s))
        late = [p.lost_s(others_part(p, of_job)) / p.busy_s for p in ps if p.is_known and p.busy_s > 0]
        late_s = wait_s * min(fmean(late), MOST_LOST) if late else 0.0
    rest_s = total_s - own_s - late_s
    host_share = 1 - rest_s / total_s if total_s > 0 else 0.0
    if not is_divided:
        return _Parts(None, None, host_share)
    own_compute_s = max(compute_s - own_s, 0.0)
    return _Parts(min(own_compute_s / rest_s, 1.0), min((wait_s - late_s) / rest_s, 1.0), host_share)

"""Measurements so far: steady samples of all plans, memory per role, pauses of transitions."""

from __future__ import annotations

from collections import deque
from math import inf
from statistics import median
from typing import TYPE_CHECKING

from dlrover_nb.core.controller.windows import SteadyWindows
from dlrover_nb.core.memory import MemorySeries, Outlook, Report, memory_line, needed_mib
from dlrover_nb.core.planner import transition_kind
from dlrover_nb.core.structs.resources import ResourcePlan, Role, diff

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.samples import NodeSample, ProfileSample
    from dlrover_nb.core.structs.snapshot import MemoryLine

PLANNED_SPAN_S = 60.0  # of memory reports before they enlarge a plan: start-up growth is no trend
MAX_RAISE = 1.5  # of a node's memory at once
PUBLISH_S, PUBLISH_SHARE = (
    2.0,
    0.2,
)  # between forecasts for views: at least, and as a share of the plan's time


class Measurement:
    """Collects reports of one job.

    Attributes
    ----------
    plan
        What runs; None while nodes are missing.
    n_seen
        Steady samples so far, including those no longer kept.
    """

    def __init__(self, settings: ControllerSettings, spec: JobSpec, n_sample_total: int) -> None:
        self._settings = settings
        self._n_sample_total = n_sample_total
        self._n_epoch = spec.n_epoch
        self._n_sample_done = 0
        self._windows = SteadyWindows(settings, spec.batch_size)
        self._samples: dict[ResourcePlan, deque[ProfileSample]] = {}
        self._memory: dict[Role, MemorySeries] = {}
        self._node_mib: dict[Role, dict[str, float]] = {}
        self._pauses: list[tuple[str, float]] = []
        self._worker_samples_per_s: dict[str, float] = {}
        self._published: tuple[MemoryLine, ...] = ()
        self._restarted_s, self._publish_s = 0.0, -inf
        self.plan: ResourcePlan | None = None
        self.n_seen = 0

    def restart(self, plan: ResourcePlan | None, at_s: float) -> None:
        """Record that another plan (None: none) is in place from now on."""
        self.plan = plan
        self._windows.restart(plan, at_s)
        self._node_mib = {role: {} for role in Role}
        self._memory = {role: MemorySeries() for role in Role}
        self._worker_samples_per_s = {}
        self._published, self._restarted_s, self._publish_s = (), at_s, -inf

    def progress(self, n_sample_done: int) -> None:
        """Record how many samples are trained."""
        self._n_sample_done = n_sample_done

    @property
    def n_left(self) -> int:
        """Samples still to train."""
        return max(self._n_sample_total - self._n_sample_done, 0)

    def paused(self, before: ResourcePlan, after: ResourcePlan, pause_s: float) -> None:
        """Record how long a transition stopped the training."""
        self._pauses.append((transition_kind(diff(before, after)), pause_s))

    def add(self, sample: NodeSample, at_s: float) -> tuple[ProfileSample, ...]:
        """Add a report; return the steady samples that it completes."""
        if self._memory and sample.memory_mib > 0:  # 0: not known, as of an external job
            nodes = self._node_mib[sample.role]
            nodes[sample.node] = sample.memory_mib
            self._memory[sample.role].add(Report(at_s, self._n_sample_done, max(nodes.values())))
        if sample.role is Role.WORKER and sample.window_s > 0:
            self._worker_samples_per_s[sample.node] = sample.n_sample / sample.window_s
        new = self._windows.add(sample, at_s)
        for window in new:
            kept = self._samples.setdefault(window.plan, deque(maxlen=self._settings.n_kept))
            kept.append(window)
            self.n_seen += 1
        return new

    @property
    def worker_samples_per_s(self) -> Mapping[str, float]:
        """Speed of each worker of the present plan in its last report; a copy."""
        return dict(self._worker_samples_per_s)

    @property
    def n_waiting(self) -> int:
        """Windows of the running plan that do not count yet, as it is not steady."""
        return self._windows.n_waiting

    @property
    def samples(self) -> tuple[ProfileSample, ...]:
        """All kept samples, plan by plan."""
        return tuple(sample for kept in self._samples.values() for sample in kept)

    @property
    def pauses(self) -> tuple[tuple[str, float], ...]:
        """Kind and seconds of each transition so far."""
        return tuple(self._pauses)

    def samples_per_s(self, plan: ResourcePlan | None) -> float | None:
        """Return the recent throughput of a plan, None when it was never steady."""
        kept = self._samples.get(plan) if plan else None
        return median(s.samples_per_s for s in list(kept)[-5:]) if kept else None

    @property
    def published_memory(self) -> tuple[MemoryLine, ...]:
        """The memory line of each role that reported under the present plan, by the last forecast."""
        return self._published

    def publish_memory(self, at_s: float) -> None:
        """Forecast memory for views, if that is due: rarely enough to cost little."""
        if at_s >= self._publish_s:
            self.forecast_memory(at_s)

    def forecast_memory(self, at_s: float) -> tuple[MemoryLine, ...]:
        """Forecast the memory of each role that reported under the present plan; publish and return it."""
        self._published = self._memory_lines()
        if self._published:
            most_s = max(PUBLISH_S, self._settings.memory_check_s / 2)
            wait_s = PUBLISH_SHARE * (at_s - self._restarted_s)
            self._publish_s = at_s + min(max(wait_s, PUBLISH_S), most_s)
        return self._published

    def _memory_lines(self) -> tuple[MemoryLine, ...]:
        if self.plan is None:
            return ()
        speed = self.samples_per_s(self.plan)
        lines = (
            memory_line(
                role,
                self.plan.role(role).memory_mib,
                series.reports,
                outlook=None if speed is None else Outlook(self._growth_end(role), speed),
            )
            for role, series in self._memory.items()
        )
        return tuple(line for line in lines if line is not None)

    def memory_needs(self, lines: Iterable[MemoryLine]) -> tuple[tuple[Role, int], ...]:
        """Return the memory per node that plans should have, for roles whose need exceeds it."""
        likely = self._settings.oom_threshold
        needed = ((line, needed_mib(line, likely=likely)) for line in lines)
        return tuple(
            (line.role, min(mib, int(line.limit_mib * MAX_RAISE)))
            for line, mib in needed
            if self._memory[line.role].span_s >= PLANNED_SPAN_S and mib > line.limit_mib
        )

    def _growth_end(self, role: Role) -> int:
        """Return the samples at which the growth of a role ends.

        New keys occur in the first epoch only, so they add nothing to a parameter server afterwards. Growth
        in later epochs has another cause, and is assumed to continue to the end, as a worker's is.
        """
        first = self._n_sample_total // self._n_epoch
        is_new = role is Role.PS and self._n_sample_done < first
        return first if is_new else self._n_sample_total

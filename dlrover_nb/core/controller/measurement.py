"""What was measured so far: steady samples of all plans, memory per role, pauses of transitions."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING

from dlrover_nb.core.controller.windows import SteadyWindows
from dlrover_nb.core.memory import memory_line, needed_mib
from dlrover_nb.core.planner import transition_kind
from dlrover_nb.core.structs.resources import ResourcePlan, Role, diff

if TYPE_CHECKING:
    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.samples import NodeSample, ProfileSample
    from dlrover_nb.core.structs.snapshot import MemoryLine

N_MEMORY_POINT = 600
PLANNED_SPAN_S = 60.0  # of memory reports before a plan is made larger for them: start-up growth is no trend
MAX_RAISE = 1.5  # of a node's memory at once


class Measurement:
    """Collects reports of one job.

    Attributes
    ----------
    plan
        What runs; None while nodes are missing.
    n_seen
        Steady samples so far, those no longer kept included.
    """

    def __init__(self, settings: ControllerSettings, spec: JobSpec, n_sample_total: int) -> None:
        self._settings = settings
        self._n_sample_total = n_sample_total
        self._n_sample_done = 0
        self._progress_at_s = 0.0
        self._windows = SteadyWindows(settings, spec.batch_size)
        self._samples: dict[ResourcePlan, deque[ProfileSample]] = {}
        self._memory: dict[Role, deque[tuple[float, float]]] = {}
        self._node_mib: dict[Role, dict[str, float]] = {}
        self._pauses: list[tuple[str, float]] = []
        self.plan: ResourcePlan | None = None
        self.n_seen = 0

    def restart(self, plan: ResourcePlan | None, at_s: float) -> None:
        """Note that another plan (None: none) is in place from now on."""
        self.plan = plan
        self._windows.restart(plan, at_s)
        self._node_mib = {role: {} for role in Role}
        self._memory = {role: deque(maxlen=N_MEMORY_POINT) for role in Role}

    def progress(self, n_sample_done: int, at_s: float) -> None:
        """Note how many samples are trained."""
        self._n_sample_done, self._progress_at_s = n_sample_done, at_s

    @property
    def n_left(self) -> int:
        """Samples still to train."""
        return max(self._n_sample_total - self._n_sample_done, 0)

    def paused(self, before: ResourcePlan, after: ResourcePlan, pause_s: float) -> None:
        """Note how long a transition stopped the training."""
        self._pauses.append((transition_kind(diff(before, after)), pause_s))

    def add(self, sample: NodeSample, at_s: float) -> tuple[ProfileSample, ...]:
        """Take a report in; return the steady samples that it completes."""
        if self._memory:
            nodes = self._node_mib[sample.role]
            nodes[sample.node] = sample.memory_mib
            self._memory[sample.role].append((at_s, max(nodes.values())))
        new = self._windows.add(sample, at_s)
        for window in new:
            kept = self._samples.setdefault(window.plan, deque(maxlen=self._settings.n_kept))
            kept.append(window)
            self.n_seen += 1
        return new

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

    def memory(self, at_s: float) -> tuple[MemoryLine, ...]:
        """Return the memory line of each role that reported under the present plan."""
        if self.plan is None:
            return ()
        left_s = self._left_s(at_s)
        lines = (
            memory_line(role, self.plan.role(role).memory_mib, points, left_s=left_s)
            for role, points in self._memory.items()
        )
        return tuple(line for line in lines if line is not None)

    def memory_needs(self, at_s: float) -> tuple[tuple[Role, int], ...]:
        """Return the memory per node that plans should have, for roles that outgrow theirs."""
        return tuple(
            (line.role, min(needed_mib(line), int(line.limit_mib * MAX_RAISE)))
            for line in self.memory(at_s)
            if self._span_s(line.role) >= PLANNED_SPAN_S and needed_mib(line) > line.limit_mib
        )

    def _span_s(self, role: Role) -> float:
        points = self._memory[role]
        return points[-1][0] - points[0][0] if points else 0.0

    def _left_s(self, at_s: float) -> float | None:
        """Return the seconds that training goes on, None when the speed is not known."""
        speed = self.samples_per_s(self.plan)
        if speed is None:
            return None
        return max(self.n_left / speed - max(at_s - self._progress_at_s, 0.0), 0.0)

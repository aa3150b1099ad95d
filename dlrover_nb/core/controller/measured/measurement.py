"""Measurements so far: steady samples of all plans, memory per role, pauses of transitions.

Of each living node the last report counts (`LastReports`). No report says that a node was lost, and nodes
that replace others have new names. But a plan says how many nodes there are: where more than those have
reported, the one that was silent for longest is lost. Rejected: to drop nodes by the age of their reports, as
after a pause of all nodes the first one would be alone.

Of the evaluations of a job with early stopping (`QualityLog`) there are 200 at most (`deadline.stop_rule`),
so all are kept. A rollback undoes those of the samples that are trained again. A job without the rule has
none, and no forecast.
"""

from __future__ import annotations

from collections import deque
from math import inf
from statistics import median
from typing import TYPE_CHECKING

from dlrover_nb.core.controller.measured.older_windows import OlderWindows
from dlrover_nb.core.controller.measured.startup import RunStart
from dlrover_nb.core.controller.measured.use_log import UseLog
from dlrover_nb.core.controller.measured.windows import SteadyWindows
from dlrover_nb.core.deadline.remaining import Extent, forecast
from dlrover_nb.core.memory import (
    COPIES_WITH_PEERS,
    MIN_SPAN_S,
    Course,
    Judgement,
    MemorySeries,
    MemoryUse,
    Outlook,
    Report,
    judged,
    memory_line,
    most_by_end,
    needed_mib,
    shown,
    work_course,
)
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dlrover_nb.core.bottleneck import JobUse
    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.structs.cluster.host_load import HostLoad
    from dlrover_nb.core.structs.decisions.actions import SetSize
    from dlrover_nb.core.structs.job.early_stopping import StopForecast
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.training.samples import NodeSample, ProfileSample
    from dlrover_nb.core.structs.views.events import QualityMeasured
    from dlrover_nb.core.structs.views.past_jobs import TransitionKind
    from dlrover_nb.core.structs.views.snapshot import MemoryLine

N_PAUSE = 100  # pauses of each kind of transition that are kept: their median is used
MAX_RAISE = 1.5  # of a node's memory at once
START_S, START_SHARE = 60.0, 0.5  # of a series: at most so much of it is the start of the nodes
PUBLISH_S, PUBLISH_SHARE = 2.0, 0.2  # between forecasts: at least, and as a share of the plan's time
FULL_SHARE = 1 / 6  # of the time until a node may be full: until the next forecast


class QualityLog:
    """Collects the evaluations of one job.

    Attributes
    ----------
    n_seen
        Evaluations so far, also those that were undone.
    """

    def __init__(self, spec: JobSpec, n_sample_total: int) -> None:
        self._rule, self._n_epoch = spec.early_stopping, spec.n_epoch
        self._n_train = n_sample_total // spec.n_epoch
        self._points: list[tuple[int, float]] = []
        self.n_seen = 0

    def add(self, event: QualityMeasured) -> None:
        """Add an evaluation; without a rule it counts for nothing."""
        if self._rule is None:
            return
        self.undo_from(event.n_sample_done)
        self._points.append((event.n_sample_done, event.value))
        self.n_seen += 1

    def undo_from(self, n_sample: int) -> None:
        """Forget evaluations after so many samples, or more."""
        while self._points and self._points[-1][0] >= n_sample:
            self._points.pop()

    def outlook(self, n_sample_done: int) -> StopForecast | None:
        """Return where the job is likely to end; None without a rule."""
        if self._rule is None:
            return None
        return forecast(self._points, self._rule, Extent(n_sample_done, self._n_train, self._n_epoch))


class LastReports:
    """A figure of each node, of as many nodes as a plan has."""

    def __init__(self) -> None:
        self._figures: dict[str, float] = {}
        self._heard_s: dict[str, float] = {}

    def add(self, node: str, figure: float, at_s: float, *, n_node: int) -> None:
        """Replace a node's figure; beyond `n_node` nodes forget those that were silent for longest."""
        self._figures[node], self._heard_s[node] = figure, at_s
        while len(self._figures) > max(n_node, 1):
            lost = min(self._heard_s, key=self._heard_s.__getitem__)
            del self._figures[lost], self._heard_s[lost]

    @property
    def figures(self) -> Mapping[str, float]:
        """The figure of each node, in the order of their first reports."""
        return self._figures


def without_start(reports: tuple[Report, ...]) -> tuple[Report, ...]:
    """Return the reports without those of the nodes' start: what a process loads then is no growth."""
    span_s = reports[-1].at_s - reports[0].at_s
    from_s = reports[0].at_s + max(min(START_S, START_SHARE * span_s, span_s - MIN_SPAN_S), 0.0)
    return tuple(report for report in reports if report.at_s >= from_s)


class Measurement:
    """Collects reports of one job.

    Attributes
    ----------
    plan
        What runs; None while nodes are missing.
    n_seen
        Steady samples so far, including those no longer kept.
    n_change
        How often the job's speed changed under the same plan.
    quality
        Its evaluations, where it may stop early.
    """

    def __init__(self, settings: ControllerSettings, spec: JobSpec, n_sample_total: int) -> None:
        self._settings = settings
        self._n_sample_total = n_sample_total
        self._n_epoch = spec.n_epoch
        self._n_sample_done = 0
        self.quality = QualityLog(spec, n_sample_total)
        self._windows = SteadyWindows(settings, spec)
        self._use = UseLog(settings.settle_s, spec.link_gbit_per_s, spec.tuning.nearchus)
        self._samples: dict[ResourcePlan, deque[ProfileSample]] = {}
        self._older = OlderWindows()
        self._run = RunStart()  # of the running plan, since it was changed to
        self._starting_s: set[float] = set()  # times of windows in which nodes still started
        self._memory = {role: MemorySeries() for role in Role}
        self._last_mib = {role: LastReports() for role in Role}
        self._parameter_mib = LastReports()
        self._parameters = MemorySeries()  # of all PS together, under all plans
        self._own_mib = 0.0  # the most that a PS held beside its parameters
        self._n_copy = 1 if spec.checkpoint_every_s > 0 else 0  # of its parameters, that a PS keeps
        self._kept_mib = dict.fromkeys(Role, 0.0)  # the most that a node kept for others
        self._pauses: list[tuple[str, float]] = []
        self._last_speed = LastReports()
        self._published: tuple[MemoryLine, ...] = ()
        self._judgements: dict[Role, Judgement] = {}  # of each role's memory under the present plan
        self._restarted_s, self._publish_s = 0.0, -inf
        self.plan: ResourcePlan | None = None
        self._remembered: ResourcePlan | None = None  # the last plan that was in place
        self.n_seen = self.n_change = 0

    def restart(self, plan: ResourcePlan | None, at_s: float) -> None:
        """Record that another plan (None: none) is in place from now on.

        After a pause of the same plan its memory goes on where it was: each checkpoint pauses, and a leak of
        hours would never be seen in what is reported between two of them. So does that of a role of which the
        other plan has as many nodes of the same size.
        """
        self.plan = plan
        self._windows.restart(plan, at_s)
        self._use.restart(plan, at_s)
        if plan is None or plan == self._remembered:
            return
        before, self._remembered, self._run = self._remembered, plan, RunStart()
        for role in Role:
            if before is None or before.role(role) != plan.role(role):
                self._begin_memory(role)
        self._last_speed = LastReports()
        self._published, self._restarted_s, self._publish_s = (), at_s, -inf

    def _begin_memory(self, role: Role) -> None:
        """Forget the memory of a role's nodes, as there are others or they have another size."""
        self._last_mib[role], self._memory[role] = LastReports(), MemorySeries()
        self._judgements.pop(role, None)
        if role is Role.PS:
            self._parameter_mib = LastReports()

    def resize(self, sizes: Iterable[SetSize], at_s: float) -> None:
        """Record the sizes of all nodes that do not have their role's."""
        self._use.resize(sizes, at_s)

    def keep_size(self, node: str) -> None:
        """Record that a node keeps its size until the plan changes: a user decided so, or it had to."""
        self._use.keep(node)

    def progress(self, n_sample_done: int) -> None:
        """Record how many samples are trained."""
        if n_sample_done < self._n_sample_done:  # a rollback
            self.quality.undo_from(n_sample_done + 1)
        first = self._n_sample_total // self._n_epoch
        if self._n_sample_done < first <= n_sample_done:  # what grew in it, the keys, grows no longer
            self._memory[Role.PS], self._parameters = MemorySeries(), MemorySeries()
            self._judgements.pop(Role.PS, None)
        self._n_sample_done = n_sample_done

    @property
    def stop(self) -> StopForecast | None:
        """Where the job is likely to end; None: it has no rule to stop early."""
        return self.quality.outlook(self._n_sample_done)

    @property
    def n_left(self) -> int:
        """Samples still to train, if it does not stop early."""
        return max(self._n_sample_total - self._n_sample_done, 0)

    def paused(self, kind: TransitionKind, pause_s: float) -> None:
        """Record how long a transition stopped the training."""
        alike = [i for i, (other, _) in enumerate(self._pauses) if other == kind]
        if len(alike) >= N_PAUSE:
            del self._pauses[alike[0]]
        self._pauses.append((kind, pause_s))

    def add(self, sample: NodeSample, at_s: float) -> tuple[ProfileSample, ...]:
        """Add a report; return the steady samples that it completes."""
        self._use.add(sample, at_s)
        if self.plan is not None:
            self._note(sample, at_s, self.plan.role(sample.role).count)
        new = self._windows.add(sample, at_s)
        if len(new) > 1:  # the plan has become steady: its memory can be forecast to the end of the job
            self._publish_s = at_s
        for window in new:
            self._keep(window)
        return new

    def _note(self, sample: NodeSample, at_s: float, n_node: int) -> None:
        """Note the memory of a node, and the speed of a worker; that of lost nodes counts no longer."""
        if sample.memory_mib > 0:  # 0: not known, as of an external job
            last = self._last_mib[sample.role]
            last.add(sample.node, sample.memory_mib, at_s, n_node=n_node)
            largest_mib = max(last.figures.values())
            self._memory[sample.role].add(Report(at_s, self._n_sample_done, largest_mib))
        self._kept_mib[sample.role] = max(self._kept_mib[sample.role], sample.copy_mib)
        if sample.copy_mib > 0:
            self._n_copy = COPIES_WITH_PEERS
        if sample.role is Role.PS:
            self._note_parameters(sample, at_s, n_node)
        if sample.role is Role.WORKER and sample.window_s > 0:
            self._last_speed.add(sample.node, sample.n_sample / sample.window_s, at_s, n_node=n_node)

    def _keep(self, window: ProfileSample) -> None:
        """Keep a steady window; the oldest one of its plan goes into the sums where there are enough."""
        windows = self._samples.setdefault(window.plan, deque(maxlen=self._settings.n_kept))
        if len(windows) == self._settings.n_kept:
            self._leave(windows)
        windows.append(window)
        self._note_start(window)
        self.n_seen += 1
        if self._older.compare(self._started(windows), self._samples.values()):
            self.n_change += 1

    def _leave(self, windows: deque[ProfileSample]) -> None:
        if windows[0].at_s in self._starting_s:
            self._starting_s.remove(windows[0].at_s)
        else:
            self._older.leave(windows[0], self._started(windows))

    def _note_start(self, window: ProfileSample) -> None:
        """Judge anew which of the first windows of the run are its nodes' start."""
        if self._run.add(window):
            self._starting_s.difference_update(w.at_s for w in self._run.started)
            self._starting_s.update(w.at_s for w in self._run.windows[: self._run.n])

    def _started(self, windows: Iterable[ProfileSample]) -> list[ProfileSample]:
        """Return the windows without those in which nodes still started."""
        return [w for w in windows if w.at_s not in self._starting_s]

    @property
    def host(self) -> HostLoad | None:
        """What other work on the job's hosts leaves to it; None: not known."""
        return self._windows.host

    @property
    def worker_samples_per_s(self) -> Mapping[str, float]:
        """Speed of each worker of the present plan in its last report; a copy."""
        return dict(self._last_speed.figures)

    @property
    def use(self) -> JobUse | None:
        """What the nodes of the present plan use of it; None before a plan is in place."""
        return self._use.use

    @property
    def n_waiting(self) -> int:
        """Windows of the running plan that do not count yet, as it is not steady."""
        return self._windows.n_waiting

    @property
    def samples(self) -> tuple[ProfileSample, ...]:
        """All kept samples, plan by plan."""
        return tuple(sample for windows in self._samples.values() for sample in windows)

    @property
    def evidence(self) -> tuple[ProfileSample, ...]:
        """All that the fit may use: older windows of each plan in one row, at the job's present speed."""
        return self._older.evidence({plan: self._started(windows) for plan, windows in self._samples.items()})

    @property
    def pauses(self) -> tuple[tuple[str, float], ...]:
        """Kind and seconds of the last transitions of each kind."""
        return tuple(self._pauses)

    def samples_per_s(self, plan: ResourcePlan | None) -> float | None:
        """Return the recent throughput of a plan, None when it was never steady."""
        windows = self._samples.get(plan) if plan else None
        return median(s.samples_per_s for s in list(windows)[-5:]) if windows else None

    @property
    def published_memory(self) -> tuple[MemoryLine, ...]:
        """The memory line of each role that reported under the present plan, by the last forecast."""
        return self._published

    def publish_memory(self, at_s: float) -> bool:
        """Forecast memory for views, if that is due (rarely enough to cost little); return whether it was."""
        is_due = at_s >= self._publish_s
        if is_due:
            self.forecast_memory(at_s)
        return is_due

    def forecast_memory(self, at_s: float) -> tuple[MemoryLine, ...]:
        """Forecast the memory of each role that reported under the present plan; publish and return it."""
        lines, before = self._memory_lines(), {line.role: line for line in self._published}
        self._judgements = {line.role: self._judged(line, at_s) for line in lines}
        self._published = tuple(
            shown(line, self._judgements[line.role], before.get(line.role)) for line in lines
        )
        if lines:
            most_s = max(PUBLISH_S, self._settings.memory_check_s / 2)
            soonest_s = min((line.full_in_s for line in lines if line.full_in_s is not None), default=inf)
            wait_s = min(PUBLISH_SHARE * (at_s - self._restarted_s), FULL_SHARE * soonest_s)
            self._publish_s = at_s + min(max(wait_s, PUBLISH_S), most_s)
        return self._published

    def _judged(self, line: MemoryLine, at_s: float) -> Judgement:
        before = self._judgements.get(line.role, Judgement())
        course = work_course(self._memory[line.role].reports, self._speed, before.evidence_s)
        return judged(before, line, course, at_s, likely=self._settings.oom_threshold)

    @property
    def _speed(self) -> float:
        """Samples per second of the present plan; until it is steady, by the last reports; 0: not known."""
        return self.samples_per_s(self._remembered) or sum(self._last_speed.figures.values())

    @property
    def filling(self) -> frozenset[Role]:
        """Roles whose nodes run out of memory, by the last judgement."""
        return frozenset(role for role, each in self._judgements.items() if each.course is Course.FILLS)

    @property
    def staying(self) -> frozenset[Role]:
        """Roles whose memory no judgement expects to grow to the limit, or none was made of yet."""
        growing = {role for role, each in self._judgements.items() if each.course is not Course.STAYS}
        return frozenset(Role) - growing

    def _memory_lines(self) -> tuple[MemoryLine, ...]:
        """Return the forecasts; until the plan is steady, by the speed of the last reports.

        A node that fills meanwhile is killed all the same: a job that is never steady (a checkpoint every few
        seconds, a busy machine) must not go without a forecast to its end.
        """
        plan = self._remembered
        if plan is None:
            return ()
        speed = self._speed
        lines = (
            memory_line(
                role,
                plan.role(role).memory_mib,
                without_start(series.reports),
                outlook=Outlook(self._growth_end(role), speed) if speed else None,
            )
            for role, series in self._memory.items()
            if series.reports
        )
        return tuple(line for line in lines if line is not None)

    def memory_needs(self) -> tuple[tuple[Role, int], ...]:
        """Return the memory per node that plans should have, for roles that run out of theirs."""
        likely = self._settings.oom_threshold
        needed = ((line, needed_mib(line, likely=likely)) for line in self._published)
        return tuple(
            (line.role, min(mib, int(line.limit_mib * MAX_RAISE)))
            for line, mib in needed
            if mib > line.limit_mib and line.role in self.filling
        )

    def memory_uses(self) -> tuple[MemoryUse, ...]:
        """Return what nodes hold and will hold at most, of roles that were measured for long enough."""
        plan = self._remembered
        uses = () if plan is None else (self._worker_use(plan.worker.count), self._ps_use(plan.ps.count))
        return tuple(use for use in uses if use is not None)

    def _worker_use(self, n_node: int) -> MemoryUse | None:
        reports = self._memory[Role.WORKER].reports
        most = most_by_end(reports, self._growth_end(Role.WORKER))
        if most is None:
            return None
        own = most + self._kept_mib[Role.WORKER]
        return MemoryUse(Role.WORKER, n_node, max(r.memory_mib for r in reports), own)

    def _ps_use(self, n_node: int) -> MemoryUse | None:
        """Return the use of PS: parameters over all plans so far, and each one's own part.

        What grows beside the parameters shows in the reports of the present plan only: once these suffice,
        all that they forecast beyond the parameters counts as each one's own.
        """
        end, reports = self._growth_end(Role.PS), self._memory[Role.PS].reports
        shared = most_by_end(self._parameters.reports, end)
        if shared is None or not reports:
            return None
        parts = self._parameter_mib.figures.values()
        shared *= max(parts) * len(parts) / sum(parts)  # as the fullest one has more than its part
        own = max(self._own_mib, (most_by_end(reports, end) or 0.0) - shared / n_node)
        used = max(r.memory_mib for r in reports)
        return MemoryUse(Role.PS, n_node, used, own, shared, n_copy=self._n_copy)

    def _note_parameters(self, sample: NodeSample, at_s: float, n_node: int) -> None:
        """Note the parameters of a PS; all together once each has reported under the present plan."""
        self._parameter_mib.add(sample.node, sample.parameter_mib, at_s, n_node=n_node)
        self._own_mib = max(self._own_mib, sample.memory_mib - sample.parameter_mib)
        parts = self._parameter_mib.figures.values()
        if len(parts) == n_node and min(parts) > 0:
            self._parameters.add(Report(at_s, self._n_sample_done, sum(parts)))

    def _growth_end(self, role: Role) -> int:
        """Return the samples at which the growth of a role ends.

        New keys occur in the first epoch only, so they add nothing to a parameter server afterwards. Growth
        in later epochs has another cause, and is assumed to continue to the end, as a worker's is.
        """
        first = self._n_sample_total // self._n_epoch
        is_new = role is Role.PS and self._n_sample_done < first
        return first if is_new else self._n_sample_total

"""Which nodes of a running job are slow and what would help, from the telemetry that any client can ask for.

The monitor and the solutions are those that a controller would use. The windows are AntDT's for a job that
has reported for long enough; of a short one they are as long as give each window some reports.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from statistics import median
from typing import TYPE_CHECKING

from dlrover_nb.core.straggler.methods import find_rule, find_solution
from dlrover_nb.core.straggler.monitor import Monitor, MonitorSettings
from dlrover_nb.core.straggler.situation import Situation, WorkerState
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from dlrover_nb.core.straggler.monitor import NodeTimes
    from dlrover_nb.core.structs.decisions.actions import Proposed
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.training.batch_cost import BatchCost
    from dlrover_nb.core.structs.training.stragglers import Straggler
    from dlrover_nb.core.structs.views.snapshot import SeriesChunk

LEAST_SHORT_S = 10.0
SCATTER = 0.05  # of a mini-batch that is computed from a speed and a time
SHORT_SHARE = 0.25  # of the time that is known, where that is short
_PARTS = tuple(each.name for each in fields(TimeSplit))


@dataclass(frozen=True, slots=True)
class Review:
    """Stragglers of a job, with the numbers that say so, and what a solution asks for.

    Parameters
    ----------
    settings
        Windows and rule.
    times
        Means of each node over the short window, workers first.
    findings
        The slow nodes.
    proposed
        What the solution asks for; empty: nothing.
    solution
        Its name.
    """

    settings: MonitorSettings
    times: tuple[NodeTimes, ...]
    findings: tuple[Straggler, ...]
    proposed: tuple[Proposed, ...]
    solution: str

    def others_s(self, node: NodeTimes) -> float | None:
        """Return the mean time of the other nodes of its role; None: it is alone."""
        others = [each.work_s for each in self.times if each.role is node.role and each.node != node.node]
        return sum(others) / len(others) if others else None


def review(
    series: SeriesChunk | None,
    nodes: Collection[str],
    spec: JobSpec,
    *,
    solution: str | None = None,
    of_controller: tuple[Straggler, ...] = (),
    costs: Mapping[str, BatchCost] | None = None,
) -> Review:
    """Review the telemetry of a job.

    Parameters
    ----------
    series
        Recent reports of its nodes.
    nodes
        Those that are there now, others are left out; empty: not known, as of a simulated job.
    spec
        The job: how its workers keep in step, their batch where reports do not tell, its rule and windows.
    solution
        Name of what is asked for actions; None: that of the job.
    of_controller
        The slow nodes by the job's controller, which watches over longer windows; where it has found some,
        these count instead of what the reports say. Empty: it has found none, or does not watch.
    costs
        Of mini-batches by worker, where they were measured.

    Raises
    ------
    InvalidValueError
        When there is no solution of that name.
    """
    solution = solution or spec.stragglers
    answer, rule = find_solution(solution), find_rule(spec.straggler_rule)
    reports = [each for each in _reports(series) if not nodes or each.node in nodes]
    settings = _fitted(MonitorSettings.of(spec), reports)
    monitor, end_s = Monitor(settings, rule), max((each.at_s for each in reports), default=0.0)
    for each in reports:
        monitor.observe(each, each.at_s)
    times = tuple(each for role in (Role.WORKER, Role.PS) for each in monitor.times(role, end_s))
    findings = of_controller or monitor.findings(end_s)
    sizes = _sizes(reports, end_s - settings.short_s, spec.batch_size)
    workers = tuple(
        WorkerState(each.node, sizes.get(each.node, spec.batch_size), each.samples_per_s or None).with_cost(
            (costs or {}).get(each.node), is_full=solution == SolutionName.ANTDT_DD
        )
        for each in times
        if each.role is Role.WORKER
    )
    ps = tuple(each.node for each in times if each.role is Role.PS)
    situation = Situation(spec.sync, workers, ps, tuning=spec.tuning.antdt, is_fixed=spec.deterministic)
    proposed = answer(findings, situation) if workers else ()
    return Review(settings, times, findings, proposed, solution)


def _fitted(settings: MonitorSettings, reports: Sequence[NodeSample]) -> MonitorSettings:
    """Return settings with windows that a job's reports fill, in the same proportion."""
    if not reports:
        return settings
    known_s = max(each.at_s for each in reports) - min(each.at_s for each in reports)
    short_s = min(settings.short_s, max(LEAST_SHORT_S, SHORT_SHARE * known_s))
    return replace(settings, short_s=short_s, long_s=settings.long_s * short_s / settings.short_s)


def _sizes(reports: Iterable[NodeSample], since_s: float, usual: int) -> dict[str, int]:
    """Return the mini-batch of each worker by its reports since a time; about the `usual` one is that one."""
    reported: dict[str, list[float]] = {}
    for each in reports:
        if each.role is Role.WORKER and each.at_s >= since_s and each.n_sample:
            reported.setdefault(each.node, []).append(each.n_sample / each.window_s * each.iter_s)
    medians = {node: median(sizes) for node, sizes in reported.items()}
    return {n: usual if abs(x - usual) <= SCATTER * usual else max(1, round(x)) for n, x in medians.items()}


def _reports(series: SeriesChunk | None) -> Iterator[NodeSample]:
    """Yield the reports of a series, in order; one that tells no time of an iteration is left out."""
    columns = series.node if series is not None else {}
    rows = zip(*columns.values(), strict=True)
    before: dict[str, float] = {}
    for row in (dict(zip(columns, row, strict=True)) for row in rows):
        node, at_s, iter_s = str(row["node"]), float(row["at_s"]), float(row["iter_s"])
        window_s = at_s - before.get(node, at_s - iter_s)
        before[node] = at_s
        if not (iter_s > 0 and window_s > 0):
            continue
        split = {name: float(row.get(name) or 0.0) for name in _PARTS}
        yield NodeSample(
            node=node,
            role=Role(str(row["role"])),
            at_s=at_s,
            window_s=window_s,
            n_iter=max(1, round(window_s / iter_s)),
            n_sample=round(float(row.get("samples_per_s") or 0.0) * window_s),
            iter_s=iter_s,
            split=TimeSplit(**split),
            cpu_cores=float(row.get("cpu_cores") or 0.0),
            memory_mib=float(row.get("memory_mib") or 0.0),
        )

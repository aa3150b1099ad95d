"""Points of the load of a cluster over time, and how they merge with age.

Of jobs all is kept, merged; of the load of machines nothing is worth keeping for long: it answers what
happened today, and how full the cluster is over a week. So points merge to minutes after a day, to hours
after a week, and are dropped after a month. That bounds a machine to about 1,440 x 6 + 24 x 23 points, beside
the newest day.

A merged point holds means, weighted by the samples that each point stands for, so that merging twice is the
same as merging once. What was not known at some of the moments is the mean of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.cluster.cluster_load import Amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.structs.cluster.cluster_load import ClusterLoad, MachineLoad

ALL = ""  # the name of all machines together
DAY_S = 86_400.0
KEPT_S = 30 * DAY_S
LEVELS = ((DAY_S, 60.0), (7 * DAY_S, 3600.0))  # age, and the stretch of the clock that one point then covers


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """Load of one machine, or of all, at a moment or as the mean of `n_sample` moments up to it."""

    machine: str
    at_s: float
    has: Amount | None
    by_jobs: Amount | None
    idle: Amount | None
    used: Amount | None
    n_sample: int = 1


def points_of(load: ClusterLoad, at_s: float) -> tuple[LoadPoint, ...]:
    """Return a point of all machines together, and one of each; none where no machine is visible."""
    each = tuple(_point(machine.name, machine, at_s) for machine in load.machines)
    return (_point(ALL, load, at_s), *each) if each else ()


def _point(name: str, of: ClusterLoad | MachineLoad, at_s: float) -> LoadPoint:
    return LoadPoint(name, at_s, of.has, of.by_jobs, of.idle, of.used)


def thinned(points: Iterable[LoadPoint], at_s: float) -> list[LoadPoint]:
    """Return the points as they should be at `at_s`, by machine and time."""
    groups: dict[tuple[str, float, float], list[LoadPoint]] = {}
    for point in sorted(points, key=lambda p: (p.machine, p.at_s)):
        age_s = at_s - point.at_s
        if age_s <= KEPT_S:
            span_s = max((span for older_s, span in LEVELS if age_s > older_s), default=0.0)
            moment = point.at_s // span_s if span_s else point.at_s
            groups.setdefault((point.machine, span_s, moment), []).append(point)
    return [group[0] if len(group) == 1 else _merged(group) for group in groups.values()]


def _merged(points: Sequence[LoadPoint]) -> LoadPoint:
    return LoadPoint(
        points[-1].machine,
        points[-1].at_s,
        _mean([(p.has, p.n_sample) for p in points]),
        _mean([(p.by_jobs, p.n_sample) for p in points]),
        _mean([(p.idle, p.n_sample) for p in points]),
        _mean([(p.used, p.n_sample) for p in points]),
        sum(p.n_sample for p in points),
    )


def _mean(weighted: Iterable[tuple[Amount | None, int]]) -> Amount | None:
    amounts = [(amount, n) for amount, n in weighted if amount is not None]
    if not amounts:
        return None
    n_all = sum(n for _, n in amounts)
    return Amount(
        sum(amount.cpu * n for amount, n in amounts) / n_all,
        sum(amount.memory_mib * n for amount, n in amounts) / n_all,
    )

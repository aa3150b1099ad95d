"""Compaction of the series of a run with its age: fewer, longer rows with the same totals.

A row per minute of every job of a team is more than is ever read. Of an old series, three facts matter: how
much was trained, on which nodes, and the maximum of memory. So rows merge: spans and samples are summed
(speed is their quotient, so Σ speed x span is unchanged), memory keeps its maximum. Rows merge only where
they are adjacent and the node counts are the same, so that pauses and changes of plan remain visible.

Deleting old rows was rejected: merged to a day each they cost about as much as the run's own row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.views.past_jobs import SeriesRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DAY_S = 86_400.0
TOUCH_S = 0.001  # rows that end and begin this close together are adjacent; a larger gap is not rounding


@dataclass(frozen=True, slots=True)
class Thinning:
    """Rows that ended more than `older_s` seconds ago are merged to spans of up to `span_s` seconds."""

    older_s: float
    span_s: float

    def __post_init__(self) -> None:
        if not (self.older_s >= 0 and self.span_s > 0):
            raise InvalidValueError(
                f"thinning must be by age >= 0 and span > 0, got {self.older_s} and {self.span_s}"
            )


THINNING = (Thinning(7 * DAY_S, 600), Thinning(30 * DAY_S, 3600), Thinning(365 * DAY_S, DAY_S))


def thinned(rows: Iterable[SeriesRow], at_s: float, levels: Iterable[Thinning]) -> list[SeriesRow]:
    """Return one run's rows as they should be at `at_s`, oldest first."""
    series = sorted(rows, key=lambda row: row.at_s)
    for level in sorted(levels, key=lambda level: level.span_s):
        before_s = at_s - level.older_s
        old = [row for row in series if row.at_s <= before_s]
        series = [*_merged(old, level.span_s), *series[len(old) :]]
    return series


def _merged(rows: Iterable[SeriesRow], span_s: float) -> list[SeriesRow]:
    groups: list[list[SeriesRow]] = []
    for row in rows:
        if groups and _belongs(groups[-1], row, span_s):
            groups[-1].append(row)
        else:
            groups.append([row])
    return [group[0] if len(group) == 1 else _merge(group) for group in groups]


def _belongs(group: Sequence[SeriesRow], row: SeriesRow, span_s: float) -> bool:
    """Whether a row continues a group: same counts, same stretch of the clock, no gap."""
    first, last = group[0], group[-1]
    gap_s = row.at_s - row.span_s - last.at_s
    return (
        (first.workers, first.ps) == (row.workers, row.ps)
        and (first.at_s - first.span_s) // span_s == (row.at_s - row.span_s) // span_s
        and abs(gap_s) < TOUCH_S
    )


def _merge(rows: Sequence[SeriesRow]) -> SeriesRow:
    span_s = sum(row.span_s for row in rows)
    return SeriesRow(
        at_s=rows[-1].at_s,
        span_s=span_s,
        samples_per_s=sum(row.samples_per_s * row.span_s for row in rows) / span_s,
        workers=rows[0].workers,
        ps=rows[0].ps,
        worker_memory_mib=max(row.worker_memory_mib for row in rows),
        ps_memory_mib=max(row.ps_memory_mib for row in rows),
        worker_cpu=max(row.worker_cpu for row in rows),
        ps_cpu=max(row.ps_cpu for row in rows),
    )

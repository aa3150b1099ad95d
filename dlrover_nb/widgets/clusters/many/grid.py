"""Throughput of many jobs on one grid of times: the wide table behind one chart. Pure.

One row per tick at first. A chart has a few hundred pixels, so when there are too many rows each two are
merged and from then on a row covers twice as many ticks; when a row covers `MAX_STRIDE` ticks the oldest rows
are dropped. Of several values the one that differs most from the row before is kept: this preserves spikes
and dips, unlike the greatest value or the mean. Unknown values are NaN, a gap.

A browser holds a copy. Three numbers determine what it lacks: rows are numbered from the first ever, the
`epoch` rises when old rows changed, and a column's version when it was filled from a job's history.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

N_ROW = 600
N_BACK = 200  # of them at first for the time before the view was opened
MAX_STRIDE = 64  # ticks in a row: 600 rows are then ten hours at a tick a second
LEAST_GAP_S, GAP_FACTOR = 5.0, 4.0  # as in `series`: shorter pauses are jitter of the reports
NAN = math.nan


@dataclass(frozen=True, slots=True)
class Wide:
    """A copy of the grid at one moment.

    Parameters
    ----------
    first
        Number of the oldest row.
    y
        A column per job.
    slot
        Index of each job's line in the chart: small numbers, reused when a job has left.
    """

    epoch: int
    first: int
    t_s: list[float]
    y: dict[str, list[float]]
    slot: dict[str, int]
    version: dict[str, int]

    @property
    def end(self) -> int:
        """Number of the row after the newest one."""
        return self.first + len(self.t_s)

    def since(self, origin_s: float) -> Wide:
        """Return the same with times relative to `origin_s`, to a tenth of a second: short on the wire."""
        return replace(self, t_s=[round(t_s - origin_s, 1) for t_s in self.t_s])


class Grid:
    """The table while it grows.

    Parameters
    ----------
    n_row
        The most rows.
    """

    def __init__(self, n_row: int = N_ROW) -> None:
        self._n_row = n_row
        self._epoch = self._first = self._n_tick = self._n_version = 0
        self._stride = 1
        self._t_s: list[float] = []
        self._y: dict[str, list[float]] = {}
        self._slot: dict[str, int] = {}
        self._version: dict[str, int] = {}

    @property
    def names(self) -> frozenset[str]:
        """The jobs that have a column."""
        return frozenset(self._y)

    def open_back(self, from_s: float, now_s: float, n: int = N_BACK) -> None:
        """Begin with empty rows from `from_s` on, to be filled with the histories of jobs."""
        step_s = (now_s - from_s) / n
        if not self._t_s and step_s > 0:
            self._t_s = [from_s + (i + 1) * step_s for i in range(n - 1)]

    def add(self, t_s: float, values: Mapping[str, float]) -> None:
        """Add the values of a tick; one not later than the last is ignored."""
        if self._t_s and t_s <= self._t_s[-1]:
            return
        for name in values:
            self._make_room(name)
        if 0 < self._n_tick < self._stride:
            self._widen_last(t_s, values)
        else:
            self._append(t_s, values)
        self._n_tick += 1
        if len(self._t_s) > self._n_row:
            self._shorten()

    def drop(self, name: str) -> None:
        """Remove a job."""
        for table in (self._y, self._slot, self._version):
            table.pop(name, None)

    def fill(self, name: str, t_s: Sequence[float], y: Sequence[float]) -> None:
        """Fill a job's unknown rows from its history, oldest first."""
        if name not in self._y or not t_s:
            return
        column, held_s = self._y[name], gap_s(t_s)
        resampled = self._resample(t_s, y, held_s)
        self._y[name] = [
            old if math.isfinite(old) else new for old, new in zip(column, resampled, strict=True)
        ]
        self._renew(name)

    def copy(self) -> Wide:
        """Return the present table."""
        columns = {name: column[:] for name, column in self._y.items()}
        return Wide(self._epoch, self._first, self._t_s[:], columns, dict(self._slot), dict(self._version))

    def _make_room(self, name: str) -> None:
        if name in self._y:
            return
        slots = set(self._slot.values())
        self._slot[name] = next(i for i in range(len(slots) + 1) if i not in slots)
        self._y[name] = [NAN] * len(self._t_s)
        self._renew(name)

    def _renew(self, name: str) -> None:
        """Give a column a new unique version, since a name may be reused."""
        self._n_version += 1
        self._version[name] = self._n_version

    def _append(self, t_s: float, values: Mapping[str, float]) -> None:
        self._n_tick = 0
        self._t_s.append(t_s)
        for name, column in self._y.items():
            column.append(values.get(name, NAN))

    def _widen_last(self, t_s: float, values: Mapping[str, float]) -> None:
        self._t_s[-1] = t_s
        for name, column in self._y.items():
            before = column[-2] if len(column) > 1 else NAN
            column[-1] = moved_most(before, (column[-1], values.get(name, NAN)))

    def _shorten(self) -> None:
        if self._stride >= MAX_STRIDE:
            self._first += 1
            del self._t_s[0]
            for column in self._y.values():
                del column[0]
            return
        self._stride, self._n_tick = 2 * self._stride, self._n_tick + self._stride * (1 - len(self._t_s) % 2)
        self._epoch, self._first = self._epoch + 1, 0
        self._y = {name: _halved(column) for name, column in self._y.items()}
        self._t_s = [self._t_s[min(i + 1, len(self._t_s) - 1)] for i in range(0, len(self._t_s), 2)]

    def _resample(self, t_s: Sequence[float], y: Sequence[float], held_s: float) -> list[float]:
        """Return a value for each row: of those since the row before, or the last one if it is recent."""
        out: list[float] = []
        start = 0
        for row_s in self._t_s:
            end = bisect_right(t_s, row_s)
            if end > start:
                out.append(moved_most(out[-1] if out else NAN, y[start:end]))
            else:
                is_recent = end > 0 and row_s - t_s[end - 1] <= held_s
                out.append(y[end - 1] if is_recent else NAN)
            start = end
        return out


def gap_s(t_s: Sequence[float]) -> float:
    """Return how long a report is valid; a longer pause is a gap."""
    steps = [b - a for a, b in pairwise(t_s) if b > a]
    return max(LEAST_GAP_S, GAP_FACTOR * median(steps)) if steps else LEAST_GAP_S


def moved_most(before: float, values: Iterable[float]) -> float:
    """Return the value farthest from the one before; the greatest where that is unknown."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return NAN
    if not math.isfinite(before):
        return max(finite)
    return max(finite, key=lambda value: (abs(value - before), value))


def _halved(column: list[float]) -> list[float]:
    out: list[float] = []
    for i in range(0, len(column), 2):
        out.append(moved_most(out[-1] if out else NAN, column[i : i + 2]))
    return out

"""Columns in the browser, updated by the smallest sufficient message."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bokeh.models import ColumnDataSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = "t"  # the column of a shared x


class Source:
    """Columns of one length.

    `show` sends nothing, the rows appended (`stream` with rollover) after a corrected last row (`patch`), the
    columns that differ, or everything.
    """

    def __init__(self, **columns: list[object]) -> None:
        self.model = ColumnDataSource(columns)

    def show(self, new: Mapping[str, Sequence[object]]) -> bool:
        """Make the browser's columns equal to `new`; return whether anything was sent."""
        old = self.model.data
        if set(old) != set(new):
            self.model.data = {name: list(column) for name, column in new.items()}
            return True
        n_old, n_new = _length(old), _length(new)
        first = {name: _first_difference(old[name], new[name]) for name in new}
        at = min(first.values(), default=0)
        if at == n_old == n_new:
            return False
        if n_old and n_new >= n_old and at >= n_old - 1:
            self._append(new, n_old, [name for name in new if first[name] < n_old])
        elif n_old == n_new:
            self.model.data.update({name: list(new[name]) for name in new if first[name] < n_old})
        else:
            self.model.data = {name: list(column) for name, column in new.items()}
        return True

    def clear(self) -> bool:
        """Remove all rows; return whether anything was sent."""
        return self.show({name: [] for name in self.model.data})

    def _append(self, new: Mapping[str, Sequence[object]], n_old: int, corrected: list[str]) -> None:
        if corrected:
            self.model.patch({name: [(n_old - 1, new[name][n_old - 1])] for name in corrected})
        tail = {name: list(column[n_old:]) for name, column in new.items()}
        if _length(tail):
            self.model.stream(tail, rollover=_length(new))


def with_gaps(
    t_s: Sequence[float],
    areas: Mapping[str, Sequence[float]],
    lines: Mapping[str, Sequence[float]] | None = None,
) -> dict[str, list[object]]:
    """Return columns in which areas end at a gap: Bokeh's areas go straight over NaN, where lines break.

    Each run of rows without `areas` becomes two rows of height zero, at the ends of known data.
    """
    lines = lines or {}
    rows: list[tuple[float, list[float], list[float]]] = []
    finite = [all(math.isfinite(column[i]) for column in areas.values()) for i in range(len(t_s))]
    for i, t in enumerate(t_s):
        if finite[i]:
            if rows and not finite[i - 1]:
                rows.append((t, [0.0] * len(areas), [math.nan] * len(lines)))
            rows.append((t, [c[i] for c in areas.values()], [c[i] for c in lines.values()]))
        elif rows and finite[i - 1]:
            rows.append((rows[-1][0], [0.0] * len(areas), [math.nan] * len(lines)))
    columns: dict[str, list[object]] = {"t": [t for t, _, _ in rows]}
    columns |= {name: [row[1][i] for row in rows] for i, name in enumerate(areas)}
    return columns | {name: [row[2][i] for row in rows] for i, name in enumerate(lines)}


def _length(columns: Mapping[str, Sequence[object]]) -> int:
    return len(next(iter(columns.values()), ()))


def _first_difference(a: Sequence[object], b: Sequence[object]) -> int:
    """Return the first row that differs; the length of the shorter one if none does."""
    n = min(len(a), len(b))
    return next((i for i in range(n) if not _same(a[i], b[i])), n)


def _same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b):
        return True
    return bool(a == b)

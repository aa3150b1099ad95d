"""Converts telemetry rows to chart data: decimated, with gaps where reports are missing.

Long series are thinned to the least and the greatest value of each time bucket, so that spikes survive.
Buckets are aligned to absolute multiples of a power of two of seconds: a bucket once complete never changes,
so a live chart can append instead of sending everything again.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import SeriesChunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

T = TypeVar("T")

N_BUCKET = 300
N_STATIC = 100  # of a chart saved in a notebook: every kB counts, and 600 px show no more
N_SEEN = 400  # buckets of a long line; it has some 500 pixels
MOST_LINES = 8  # at a time: up to here each node has its own line
LEAST_GAP_S = 5.0  # shorter pauses are jitter of the reports
MOST_ROWS = 16  # of a table of nodes; a chart of more nodes shows the extreme ones
_GAP_FACTOR = 4.0  # times the usual interval of reports


@dataclass(frozen=True, slots=True)
class Trace:
    """One line of a chart; y is NaN in a gap."""

    t_s: tuple[float, ...]
    y: tuple[float, ...]


def trace(t_s: Sequence[float], y: Sequence[float], *, n_bucket: int = N_BUCKET) -> Trace:
    """Return the line through (t_s, y): ordered, thinned, broken where reports are missing."""
    rows = sorted((t, v) for t, v in zip(t_s, y, strict=True) if math.isfinite(t))
    rows = _thin(rows, n_bucket)
    limit_s = _gap_s([t for t, _ in rows])
    out: list[tuple[float, float]] = []
    for t, v in rows:
        if out and t - out[-1][0] > limit_s:
            out.append((out[-1][0] + limit_s / 2, math.nan))
        out.append((t, v))
    return Trace(tuple(t for t, _ in out), tuple(v for _, v in out))


def few(
    t_s: Sequence[float], y: Sequence[float], *, n_bucket: int = N_SEEN
) -> tuple[Sequence[float], Sequence[float]]:
    """Return what can be seen of a very long line: the least and the greatest of each bucket, and gaps (NaN).

    A line of up to four points to a bucket is returned as it is.
    """
    if len(t_s) <= 4 * n_bucket:
        return t_s, y
    times, values = np.asarray(t_s, float), np.asarray(y, float)
    bucket = np.floor((times - times[0]) / ((times[-1] - times[0]) / n_bucket)).astype(int)
    order = np.lexsort((values, bucket))  # NaN behind all numbers of its bucket
    is_gap = np.isnan(values[order])
    extremes = []
    for rows in (order[~is_gap], order[is_gap]):
        first = np.flatnonzero(np.diff(bucket[rows], prepend=-1))
        last = np.append(first[1:], len(rows)) - 1
        extremes += [rows[first], rows[last]] if len(rows) else []
    shown = np.unique(np.concatenate(extremes))
    return times[shown].tolist(), values[shown].tolist()


def _gap_s(t_s: Sequence[float]) -> float:
    steps = [b - a for a, b in itertools.pairwise(t_s) if b > a]
    return max(LEAST_GAP_S, _GAP_FACTOR * median(steps)) if steps else LEAST_GAP_S


def bucket_s(span_s: float, n_bucket: int, least_s: float = 1.0) -> float:
    """Return the bucket width: `least_s` times a power of two, at most `n_bucket` of them in the span."""
    width = least_s
    while span_s / width > n_bucket:
        width *= 2
    return width


def _thin(rows: list[tuple[float, float]], n_bucket: int) -> list[tuple[float, float]]:
    if len(rows) <= 2 * n_bucket:
        return rows
    width = bucket_s(rows[-1][0] - rows[0][0], n_bucket)
    buckets: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        buckets.setdefault(math.floor(row[0] / width), []).append(row)
    return [row for group in buckets.values() for row in _extremes(group)]


def _extremes(group: list[tuple[float, float]]) -> list[tuple[float, float]]:
    finite = [row for row in group if math.isfinite(row[1])]
    if not finite:
        return group[:1]
    low, high = min(finite, key=lambda r: r[1]), max(finite, key=lambda r: r[1])
    return [low] if low == high else sorted((low, high))


@dataclass(frozen=True, slots=True)
class WideTable:
    """Several nodes on one time grid: the wide table that one chart source holds.

    `values[node]` has the length of `t_s`, NaN where that node did not report.
    """

    t_s: tuple[float, ...]
    values: dict[str, tuple[float, ...]]


class Merge(StrEnum):
    """How several values in one bucket are combined."""

    GREATEST = "greatest"
    MEAN = "mean"


def widen(
    t_s: Sequence[float] | Floats,
    node: Sequence[str],
    y: Sequence[float] | Floats,
    *,
    n_bucket: int = N_BUCKET,
    merge: Merge = Merge.GREATEST,
) -> WideTable:
    """Put rows (time, node, value) on one grid; values that are NaN count as missing."""
    if not len(t_s):
        return WideTable((), {})
    names = sorted(set(node), key=natural)
    code = codes(node, names)
    middle, bucket = on_grid(np.asarray(t_s, float), code, n_bucket)
    shape = (len(names), len(middle))
    grid = _merged(shape, code * shape[1] + bucket, np.asarray(y, float), merge)
    return WideTable(tuple(middle.tolist()), {name: tuple(grid[i].tolist()) for i, name in enumerate(names)})


def on_grid(t_s: Floats, code: Integers, n_bucket: int) -> tuple[Floats, Integers]:
    """Return the middles of the buckets that cover all times, and each row's bucket."""
    width = bucket_s(float(np.ptp(t_s)), n_bucket, _report_every_s(t_s, code))
    bucket = np.floor(t_s / width).astype(np.int64)
    first = int(bucket.min())
    middle = np.arange(int(bucket.max()) - first + 1, dtype=np.float64)
    middle = (middle + first + 0.5) * np.float64(width)
    return middle, bucket - first


def codes(node: Sequence[str], names: Sequence[str]) -> Integers:
    """Return each row's node as its index in `names`."""
    number = {name: i for i, name in enumerate(names)}
    return np.fromiter((number[name] for name in node), np.int64, len(node))


def _merged(shape: tuple[int, int], cell: Integers, values: Floats, merge: Merge) -> Floats:
    """Return a table of `shape` from values and the flat index of their cells; NaN where there is none."""
    is_finite = np.isfinite(values)
    cell, values = cell[is_finite], values[is_finite]
    grid = np.full(shape[0] * shape[1], np.nan)
    if merge is Merge.GREATEST:
        np.fmax.at(grid, cell, values)
    else:
        count = np.bincount(cell, minlength=len(grid))
        np.divide(np.bincount(cell, values, len(grid)), count, out=grid, where=count > 0)
    return grid.reshape(shape)


def _report_every_s(t_s: Floats, code: Integers) -> float:
    """Return a grid width (a power of two of seconds) that a node's reports fill without holes."""
    order = np.lexsort((t_s, code))
    steps = np.diff(t_s[order])[np.diff(code[order]) == 0]
    steps = steps[steps > 0]
    usual = float(np.median(steps)) if len(steps) else 1.0
    return float(2.0 ** math.ceil(math.log2(max(1.0, 1.25 * usual))))


def is_many(wide: WideTable) -> bool:
    """Whether there are too many nodes for a line each: at one time, or over time."""
    now = zip(*wide.values.values(), strict=True)
    at_once = max((sum(map(math.isfinite, values)) for values in now), default=0)
    return at_once > MOST_LINES or len(wide.values) > 2 * MOST_LINES


@dataclass(frozen=True, slots=True)
class Spread:
    """Least, median and greatest of several nodes over time; NaN where none of them reported."""

    t_s: tuple[float, ...]
    low: tuple[float, ...]
    mid: tuple[float, ...]
    high: tuple[float, ...]


def spread(wide: WideTable) -> Spread:
    """Return the summary of many lines that could not be distinguished."""
    grid = np.array([*wide.values.values()], float).reshape(len(wide.values), len(wide.t_s))
    is_filled = np.isfinite(grid).any(axis=0) if len(grid) else np.zeros(len(wide.t_s), bool)
    edges = np.full((3, len(wide.t_s)), np.nan)
    if is_filled.any():
        edges[:, is_filled] = np.nanquantile(grid[:, is_filled], (0.0, 0.5, 1.0), axis=0)
    low, mid, high = (tuple(edge.tolist()) for edge in edges)
    return Spread(wide.t_s, low, mid, high)


def natural(name: str) -> tuple[str, int, str]:
    """Sort key under which worker-2 comes before worker-10."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return (stem, int(digits) if digits else -1, name)


def summary_rows(
    t_s: Sequence[float], y: Sequence[float], n_row: int
) -> list[tuple[float, float, float, float]]:
    """Return (end, mean, least, greatest) of `n_row` equal spans of time, empty ones left out."""
    times, values = np.asarray(t_s, float), np.asarray(y, float)
    is_finite = np.isfinite(values)
    times, values = times[is_finite], values[is_finite]
    if not len(times):
        return []
    start = float(times.min())
    width = (float(times.max()) - start) / n_row or 1.0
    span = np.minimum(((times - start) / width).astype(int), n_row - 1)
    count, total = np.bincount(span, minlength=n_row), np.bincount(span, values, n_row)
    least, greatest = np.full(n_row, np.inf), np.full(n_row, -np.inf)
    np.minimum.at(least, span, values)
    np.maximum.at(greatest, span, values)
    ends = start + width * np.arange(1, n_row + 1)
    mean = np.clip(total / np.maximum(count, 1), least, greatest)  # a sum's last bit may leave them
    return [*zip(*(column[count > 0].tolist() for column in (ends, mean, least, greatest)), strict=True)]


@dataclass(frozen=True, slots=True)
class NodeRows:
    """Node rows of a chunk, as arrays: time, node, whether it is a PS, and any column of numbers."""

    at_s: Floats
    node: tuple[str, ...]
    is_ps: Flags
    _numbers: dict[str, list[float | str]]
    _arrays: dict[str, Floats] = field(default_factory=dict)

    def column(self, name: str) -> Floats:
        """Return a column; all NaN where the chunk has none (it is from an older master)."""
        if name not in self._arrays:
            numbers = self._numbers.get(name)
            nothing = np.full(len(self.node), np.nan)
            self._arrays[name] = nothing if numbers is None else np.asarray(numbers, float)
        return self._arrays[name]

    @property
    def ps_by_name(self) -> dict[str, bool]:
        """Which nodes are PS."""
        return dict(zip(self.node, self.is_ps.tolist(), strict=True))

    def kept(self, keep: Flags) -> list[str]:
        """Return the nodes of the rows that are marked."""
        return list(itertools.compress(self.node, keep))


class _Same:
    """A chunk as a key by identity: comparing contents would be expensive."""

    def __init__(self, chunk: SeriesChunk) -> None:
        self.chunk = chunk

    def __hash__(self) -> int:
        return id(self.chunk)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.chunk is self.chunk


def node_rows(series: SeriesChunk | None, job: str = "") -> NodeRows:
    """Return the node rows of a chunk; the prefix `job` is removed from their names.

    Several charts draw the same chunk, so the last ones are kept: turning an hour of reports into arrays
    takes longer than drawing them.
    """
    return _node_rows(_Same(series or SeriesChunk(0, {}, {})), job)


@lru_cache(maxsize=4)
def _node_rows(key: _Same, job: str) -> NodeRows:
    columns = key.chunk.node
    short = {name: short_name(str(name), job) for name in set(columns.get("node", ()))}
    node = tuple(short[name] for name in columns.get("node", ()))
    role = columns.get("role") or [name.split("-")[0] for name in node]
    is_ps = np.fromiter((r == Role.PS for r in role), bool, len(node))
    return NodeRows(np.asarray(columns.get("at_s", ()), float), node, is_ps, columns)


def short_name(node: str, job: str) -> str:
    """Return a node's name within its job."""
    return node.removeprefix(f"{job}-") if job else node


class Window:
    """Telemetry gathered by cursor: the newest rows, at most `n_row` of the job and `n_node_row` of nodes."""

    def __init__(self, n_row: int = 20_000, n_node_row: int = 60_000) -> None:
        self._n_row, self._n_node_row = n_row, n_node_row
        self._job: dict[str, list[float]] = {}
        self._node: dict[str, list[float | str]] = {}
        self._ages: dict[str, list[float | str]] = {}
        self.cursor = 0
        self._lost = 0

    def add(self, chunk: SeriesChunk) -> None:
        """Append a chunk that was requested with this window's cursor."""
        self._job = _joined(self._job, chunk.job, self._n_row)
        self._node = _joined(self._node, chunk.node, self._n_node_row)
        self._ages = _joined(self._ages, chunk.ages, self._n_node_row)
        self.cursor, self._lost = chunk.cursor, self._lost + chunk.lost

    def chunk(self) -> SeriesChunk:
        """Return all rows held; lists are shared and never changed in place."""
        return SeriesChunk(self.cursor, self._job, self._node, self._lost, self._ages)


def _joined(old: dict[str, list[T]], new: dict[str, list[T]], n: int) -> dict[str, list[T]]:
    if not any(new.values()):
        return old
    return {name: (old.get(name, []) + column)[-n:] for name, column in new.items()}

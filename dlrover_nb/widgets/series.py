"""From telemetry rows to what a chart can draw: decimated, with gaps where nothing was heard.

Long series are thinned to the least and the greatest value of each time bucket, so that spikes survive.
Buckets are aligned to absolute multiples of a power of two of seconds: a bucket once complete never changes,
so a live chart can append instead of sending everything again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.core.structs.snapshot import SeriesChunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

T = TypeVar("T")

N_BUCKET = 300
LEAST_GAP_S = 5.0  # silence shorter than this is jitter of the reports
_GAP_FACTOR = 4.0  # times the usual distance of two reports


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


def _gap_s(t_s: Sequence[float]) -> float:
    steps = [b - a for a, b in pairwise(t_s) if b > a]
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

    `values[node]` has the length of `t_s`, NaN where that node said nothing.
    """

    t_s: tuple[float, ...]
    values: dict[str, tuple[float, ...]]


def widen(
    t_s: Sequence[float], node: Sequence[str], y: Sequence[float], *, n_bucket: int = N_BUCKET
) -> WideTable:
    """Put rows (time, node, value) on one grid; of several values in a bucket the greatest counts."""
    if not t_s:
        return WideTable((), {})
    width = bucket_s(max(t_s) - min(t_s), n_bucket, _report_every_s(t_s, node))
    cells: dict[str, dict[int, float]] = {name: {} for name in sorted(set(node), key=natural)}
    for t, name, v in zip(t_s, node, y, strict=True):
        at = math.floor(t / width)
        cells[name][at] = max(v, cells[name].get(at, -math.inf))
    first, last = math.floor(min(t_s) / width), math.floor(max(t_s) / width)
    span = range(first, last + 1)
    return WideTable(
        tuple((at + 0.5) * width for at in span),
        {name: tuple(column.get(at, math.nan) for at in span) for name, column in cells.items()},
    )


def _report_every_s(t_s: Sequence[float], node: Sequence[str]) -> float:
    """Return a grid width (a power of two of seconds) that a node's reports fill without holes."""
    by_node: dict[str, list[float]] = {}
    for t, name in zip(t_s, node, strict=True):
        by_node.setdefault(name, []).append(t)
    steps = [b - a for times in by_node.values() for a, b in pairwise(sorted(times)) if b > a]
    usual = median(steps) if steps else 1.0
    return float(2.0 ** math.ceil(math.log2(max(1.0, 1.25 * usual))))


def natural(name: str) -> tuple[str, int, str]:
    """Sort key under which worker-2 comes before worker-10."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    return (stem, int(digits) if digits else -1, name)


def summary_rows(
    t_s: Sequence[float], y: Sequence[float], n_row: int
) -> list[tuple[float, float, float, float]]:
    """Return (end, mean, least, greatest) of `n_row` equal spans of time, empty ones left out."""
    rows = [(t, v) for t, v in zip(t_s, y, strict=True) if math.isfinite(v)]
    if not rows:
        return []
    start, end = min(t for t, _ in rows), max(t for t, _ in rows)
    width = (end - start) / n_row or 1.0
    spans: list[list[float]] = [[] for _ in range(n_row)]
    for t, v in rows:
        spans[min(int((t - start) / width), n_row - 1)].append(v)
    return [
        (start + (i + 1) * width, fmean(span), min(span), max(span)) for i, span in enumerate(spans) if span
    ]


@dataclass(frozen=True, slots=True)
class NodeRows:
    """Node columns of a chunk, typed."""

    at_s: tuple[float, ...]
    node: tuple[str, ...]
    memory_mib: tuple[float, ...]


def node_rows(series: SeriesChunk | None) -> NodeRows:
    """Return the node columns that charts use."""
    columns = series.node if series else {}
    return NodeRows(
        tuple(_floats(columns.get("at_s", ()))),
        tuple(map(str, columns.get("node", ()))),
        tuple(_floats(columns.get("memory_mib", ()))),
    )


def _floats(values: Iterable[float | str]) -> Iterable[float]:
    return (float(v) for v in values)


class Window:
    """Telemetry gathered by cursor: the newest rows, at most `n_row` of the job and `n_node_row` of nodes."""

    def __init__(self, n_row: int = 20_000, n_node_row: int = 60_000) -> None:
        self._n_row, self._n_node_row = n_row, n_node_row
        self._job: dict[str, list[float]] = {}
        self._node: dict[str, list[float | str]] = {}
        self.cursor = 0
        self._lost = 0

    def add(self, chunk: SeriesChunk) -> None:
        """Append a chunk that was asked for with this window's cursor."""
        self._job = _joined(self._job, chunk.job, self._n_row)
        self._node = _joined(self._node, chunk.node, self._n_node_row)
        self.cursor, self._lost = chunk.cursor, self._lost + chunk.lost

    def chunk(self) -> SeriesChunk:
        """Return all rows held; lists are shared and never changed in place."""
        return SeriesChunk(self.cursor, self._job, self._node, self._lost)


def _joined(old: dict[str, list[T]], new: dict[str, list[T]], n: int) -> dict[str, list[T]]:
    if not any(new.values()):
        return old
    return {name: (old.get(name, []) + column)[-n:] for name, column in new.items()}

"""Rows that each worker trained against its speed (AntDT, Figs. 3 and 16).

Shards go to the worker that is free, so a worker at half the speed trains half the rows, and points lie on a
line from zero. A worker below the line was there for a part of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.series import MOST_LINES, MOST_ROWS, codes, natural, node_rows
from dlrover_nb.widgets.svg.marks import Drawing, Line, Plot, Points
from dlrover_nb.widgets.svg.palette import BLUE, INK

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

TITLE = "Rows trained and speed"
ALIKE = 1.05  # times the smallest: less is no difference
EMPTY = "No worker has finished a mini-batch yet."


@dataclass(frozen=True, slots=True)
class Worker:
    """What a worker trained, and how fast it was while it did: without pauses and waits for rows."""

    name: str
    n_row: int
    samples_per_s: float


@dataclass(frozen=True, slots=True)
class Columns:
    """Data of the chart, over `span_s` seconds of reports."""

    workers: tuple[Worker, ...]
    span_s: float = 0.0

    @property
    def n_row(self) -> int:
        """Rows of all workers together."""
        return sum(each.n_row for each in self.workers)

    @property
    def rows_per_speed(self) -> float:
        """Rows that a worker trained for each sample per second: the slope of the line, in seconds."""
        return self.n_row / (sum(each.samples_per_s for each in self.workers) or 1.0)

    @property
    def words(self) -> str:
        """Say what the chart shows."""
        if not self.workers:
            return EMPTY
        over = f"in the last {units.duration(self.span_s)}"
        if len(self.workers) == 1:
            return f"{self.workers[0].name} trained all {self.n_row:,} rows {over}."
        speeds = [each.samples_per_s for each in self.workers]
        rows = [each.n_row for each in self.workers]
        faster, more = max(speeds) / max(min(speeds), 1e-9), max(rows) / max(min(rows), 1)
        if max(faster, more) < ALIKE:
            return f"{len(rows)} workers trained {self.n_row:,} rows {over}, all about as many and as fast."
        return (
            f"{len(rows)} workers trained {self.n_row:,} rows {over}: the fastest worker is "
            f"{units.number(faster, 2)} times as fast as the slowest; the largest share of rows is "
            f"{units.number(more, 2)} times the smallest."
        )


def columns(snapshot: JobSnapshot, series: SeriesChunk | None) -> Columns:
    """Return the chart's data."""
    rows = node_rows(series, snapshot.spec.name)
    samples, sizes = (np.nan_to_num(rows.column(name)) for name in ("n_sample", "batch_size"))
    keep = ~rows.is_ps & (samples > 0) & (sizes > 0)
    if not keep.any():
        return Columns(())
    names = sorted({*rows.kept(keep)}, key=natural)
    code = codes(rows.kept(keep), names)
    trained_s = samples[keep] / sizes[keep] * np.nan_to_num(rows.column("iter_s")[keep])
    n_row, busy_s = (np.bincount(code, each, len(names)) for each in (samples[keep], trained_s))
    speed = n_row / np.maximum(busy_s, 1e-9)
    workers = (Worker(*each) for each in zip(names, n_row.astype(int).tolist(), speed.tolist(), strict=True))
    return Columns(tuple(workers), float(np.ptp(rows.at_s[keep])))


def marks(data: Columns) -> Drawing:
    """Describe the chart."""
    speeds = [each.samples_per_s for each in data.workers]
    end = max(speeds, default=1.0)
    is_named = len(speeds) <= MOST_LINES
    layers = (
        Line((0.0, end), (0.0, end * data.rows_per_speed), INK, "in proportion to speed", "4 3"),
        Points(
            x=speeds,
            y=[float(each.n_row) for each in data.workers],
            color=BLUE,
            label="worker",
            titles=[_line(each) for each in data.workers],
            labels=[each.name for each in data.workers] if is_named else (),
        ),
    )
    plot = Plot(TITLE, data.words, "samples/s of the worker", "rows", layers, height=270)
    return Drawing(TITLE, data.words, (plot,), "" if data.workers else EMPTY)


def _line(worker: Worker) -> str:
    return f"{worker.name}: {worker.n_row:,} rows at {units.rate(worker.samples_per_s)}"


def data_table(data: Columns) -> Table:
    """Return the same numbers as a table; of many workers, those with the fewest rows."""
    shown = sorted(data.workers, key=lambda each: each.n_row)[:MOST_ROWS]
    rows = tuple(
        (
            each.name,
            f"{each.n_row:,}",
            units.percent(each.n_row / max(data.n_row, 1), 1),
            units.number(each.samples_per_s),
        )
        for each in shown
    )
    return Table(TITLE, ("worker", "rows", "share", "samples/s"), rows, data.words)


CHART = chart("consumed", TITLE, columns=columns, marks=marks, data_table=data_table, is_heavy=True)

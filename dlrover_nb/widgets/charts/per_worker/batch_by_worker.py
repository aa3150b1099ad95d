"""Mini-batch of each worker over time (AntDT, Fig. 12): what a policy or a person gave to slow workers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.charts.per_worker.worker_lines import worker_lines
from dlrover_nb.widgets.charts.plan_starts import plan_starts
from dlrover_nb.widgets.series import MOST_ROWS, Merge, WideTable, node_rows, widen
from dlrover_nb.widgets.svg.marks import Band, Drawing, Line, Plot, Rule

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

TITLE = "Mini-batch per worker"
EMPTY = "No worker has reported a mini-batch yet."


@dataclass(frozen=True, slots=True)
class Columns:
    """Data of the chart, times in seconds since the job's start."""

    sizes: WideTable
    plans: tuple[Rule, ...] = ()

    @property
    def last(self) -> dict[str, float]:
        """The last size of each worker."""
        finite = {name: [*filter(math.isfinite, y)] for name, y in self.sizes.values.items()}
        return {name: y[-1] for name, y in finite.items() if y}

    @property
    def words(self) -> str:
        """Say what the chart shows."""
        sizes = self.last.values()
        if not sizes:
            return EMPTY
        if min(sizes) == max(sizes):
            return f"All workers train mini-batches of {units.number(min(sizes))} samples."
        return f"Mini-batches have {units.number(min(sizes))} to {units.number(max(sizes))} samples."


def columns(snapshot: JobSnapshot, series: SeriesChunk | None) -> Columns:
    """Return the chart's data.

    The last mini-batch of a shard may be smaller: the greatest mean of a stretch of time is the size that was
    set.
    """
    rows = node_rows(series, snapshot.spec.name)
    sizes = rows.column("batch_size")
    is_known = ~rows.is_ps & (np.nan_to_num(sizes) > 0)
    t_s = rows.at_s[is_known] - snapshot.started_at_s
    wide = widen(t_s, rows.kept(is_known), np.round(sizes[is_known]), merge=Merge.GREATEST)
    return Columns(wide, plan_starts(snapshot) if wide.t_s else ())


def marks(data: Columns) -> Drawing:
    """Describe the chart."""
    layers = (*map(_stepped, worker_lines(data.sizes, band="smallest to largest")), *data.plans)
    plot = Plot(TITLE, data.words, "time since start", "samples", layers, x_is_time=True, height=250)
    return Drawing(TITLE, data.words, (plot,), "" if data.sizes.t_s else data.words)


def _stepped(line: Band | Line) -> Band | Line:
    """Return the line of a worker with steps: a size holds until the next one is set."""
    return replace(line, step=True) if isinstance(line, Line) and line.is_node else line


def data_table(data: Columns) -> Table:
    """Return the sizes as a table; of many workers, the smallest ones."""
    names = sorted(data.last, key=lambda name: data.last[name])[:MOST_ROWS]
    rows = tuple(_row(name, [*filter(math.isfinite, data.sizes.values[name])]) for name in names)
    return Table(f"{TITLE} (samples)", ("worker", "last", "least", "greatest"), rows, data.words)


def _row(name: str, y: list[float]) -> tuple[str, ...]:
    return (name, *(units.number(value) for value in (y[-1], min(y), max(y))))


CHART = chart("batches", TITLE, columns=columns, marks=marks, data_table=data_table, is_heavy=True)

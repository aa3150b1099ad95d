"""Throughput of each worker over time; of many workers, the slowest, the median and the fastest.

Fifty lines cannot be distinguished by color or dash, so above a few workers the chart shows their band, and
the table names those at its edges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.charts.per_worker.worker_lines import worker_lines
from dlrover_nb.widgets.charts.plan_starts import plan_starts
from dlrover_nb.widgets.series import (
    MOST_ROWS,
    N_BUCKET,
    N_STATIC,
    Merge,
    WideTable,
    is_many,
    node_rows,
    widen,
)
from dlrover_nb.widgets.svg.marks import Drawing, Plot, Rule

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

TITLE = "Throughput per worker"


@dataclass(frozen=True, slots=True)
class Columns:
    """Data of the chart, times in seconds since the job's start."""

    workers: WideTable
    plans: tuple[Rule, ...] = ()

    @property
    def is_many(self) -> bool:
        """Whether there are too many for a line each."""
        return is_many(self.workers)

    @property
    def title(self) -> str:
        """The title, with the number of workers where they are not shown one by one."""
        n = len(self.workers.values)
        return f"{TITLE}: slowest, median and fastest of {n}" if self.is_many else TITLE


def columns(snapshot: JobSnapshot, series: SeriesChunk | None, *, n_bucket: int = N_BUCKET) -> Columns:
    """Return the chart's data; a report of several seconds counts as its mean."""
    rows = node_rows(series, snapshot.spec.name)
    is_worker = ~rows.is_ps
    t_s = rows.at_s[is_worker] - snapshot.started_at_s
    speed = rows.column("samples_per_s")[is_worker]
    wide = widen(t_s, rows.kept(is_worker), speed, n_bucket=n_bucket, merge=Merge.MEAN)
    return Columns(wide, plan_starts(snapshot) if wide.t_s else ())


def marks(data: Columns) -> Drawing:
    """Describe the chart."""
    layers = (*worker_lines(data.workers), *data.plans)
    plot = Plot(data.title, _words(data), "time since start", "samples/s", layers, x_is_time=True, height=250)
    empty = "" if data.workers.t_s else "No worker has reported yet."
    return Drawing(data.title, plot.desc, (plot,), empty)


def _words(data: Columns) -> str:
    last = [v for v in (_last(y) for y in data.workers.values.values()) if v is not None]
    total = f"together {units.rate(sum(last))}" if last else "nothing measured yet"
    return f"Training throughput of {len(data.workers.values)} workers over time; last reports {total}."


def _last(y: tuple[float, ...]) -> float | None:
    return next((v for v in reversed(y) if math.isfinite(v)), None)


def data_table(data: Columns) -> Table:
    """Return the same numbers as a table; of many workers, the slowest ones."""
    speeds = {
        name: finite for name, y in data.workers.values.items() if (finite := [*filter(math.isfinite, y)])
    }
    names = list(speeds)
    if len(names) > MOST_ROWS:
        names = sorted(names, key=lambda name: fmean(speeds[name]))[:MOST_ROWS]
    rows = tuple(_row(name, speeds[name]) for name in names)
    n_more = len(speeds) - len(rows)
    note = f"The {len(rows)} slowest; {n_more} more workers are not shown." if n_more else ""
    return Table(TITLE, ("worker", "last samples/s", "mean", "least", "greatest"), rows, note)


def _row(name: str, y: list[float]) -> tuple[str, ...]:
    return (name, *(units.number(v) for v in (y[-1], fmean(y), min(y), max(y))))


CHART = chart(
    "workers",
    TITLE,
    columns=columns,
    marks=marks,
    data_table=data_table,
    static_columns=partial(columns, n_bucket=N_STATIC),
    is_heavy=True,
)

"""A chart: the number of nodes over time. Live and static views draw it from the same marks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts import chart
from dlrover_nb.widgets.svg.marks import Drawing, Line, Plot
from dlrover_nb.widgets.svg.palette import BLUE, RED

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

TITLE = "Nodes"


@dataclass(frozen=True)
class Columns:
    """One entry for each second: time since the start in seconds, and nodes of each role."""

    t: tuple[float, ...]
    workers: tuple[float, ...]
    ps: tuple[float, ...]


def columns(snapshot: JobSnapshot, series: SeriesChunk | None = None) -> Columns:
    """Return the chart's data."""
    job = series.job if series is not None else {}
    t = tuple(at_s - snapshot.started_at_s for at_s in job.get("at_s", ()))
    return Columns(t, tuple(job.get("workers", ())), tuple(job.get("ps", ())))


def marks(data: Columns) -> Drawing:
    """Describe the drawing."""
    layers = (Line(data.t, data.workers, BLUE, label="workers"), Line(data.t, data.ps, RED, label="PS"))
    plot = Plot(TITLE, "Nodes of each role over time.", "time since start", "nodes", layers, x_is_time=True)
    return Drawing(TITLE, plot.desc, (plot,), "" if data.t else "No measurement yet.")


def data_table(data: Columns) -> Table:
    """Return the last numbers as a table."""
    rows = ((f"{data.t[-1]:.0f} s", f"{data.workers[-1]:g}", f"{data.ps[-1]:g}"),) if data.t else ()
    return Table(TITLE, ("at", "workers", "PS"), rows)


CHART = chart("nodes", TITLE, columns=columns, marks=marks, data_table=data_table)

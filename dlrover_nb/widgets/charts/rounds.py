"""Quality on held-out rows, evaluated between the passes of a job that stops early."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.svg.marks import Drawing, Line, Plot, Points
from dlrover_nb.widgets.svg.palette import BLUE, RED

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

TITLE = "Quality on held-out rows"
EMPTY = "Evaluated between passes only where a job stops early; else once, at its end."


@dataclass(frozen=True, slots=True)
class Columns:
    """One entry per evaluation."""

    n_pass: tuple[float, ...]
    auc: tuple[float, ...]
    log_loss: tuple[float, ...]
    n_sample: tuple[int, ...]


def columns(snapshot: JobSnapshot, series: SeriesChunk | None = None) -> Columns:  # noqa: ARG001 - one signature for all charts
    """Return the chart's data."""
    rounds = snapshot.rounds
    return Columns(
        tuple(float(r.n_pass) for r in rounds),
        tuple(r.evaluation.auc for r in rounds),
        tuple(r.evaluation.log_loss for r in rounds),
        tuple(r.evaluation.n_sample for r in rounds),
    )


def marks(data: Columns) -> Drawing:
    """Describe the chart: a small plot for each measure."""
    best = f"; best AUC {max(data.auc):.4f}" if data.auc else ""
    desc = f"AUC and log loss after {len(data.n_pass)} evaluations{best}."
    panels = (_plot(data, "AUC", data.auc), _plot(data, "log loss", data.log_loss))
    return Drawing(TITLE, desc, panels, "" if data.n_pass else EMPTY, n_column=2)


def _plot(data: Columns, name: str, y: tuple[float, ...]) -> Plot:
    color, shape = (BLUE, "circle") if name == "AUC" else (RED, "square")
    layers = (Line(data.n_pass, y, color), Points(data.n_pass, y, color, shape=shape))
    last = f": last {y[-1]:.4f}" if y else ""
    return Plot(
        f"{name}{last}", f"{name} after each pass{last}.", "passes", name, layers, x_ticks=data.n_pass,
        y_from_zero=False, width=340, height=200,
    )  # fmt: skip


def data_table(data: Columns) -> Table:
    """Return the same numbers as a table."""
    rows = tuple(
        (f"{p:g}", f"{auc:.4f}", f"{loss:.4f}", f"{n:,}")
        for p, auc, loss, n in zip(data.n_pass, data.auc, data.log_loss, data.n_sample, strict=True)
    )
    note = "" if rows else EMPTY
    return Table(TITLE, ("after pass", "AUC", "log loss", "held-out rows"), rows, note)


CHART = chart("rounds", TITLE, columns=columns, marks=marks, data_table=data_table)

"""Quality on held-out rows, evaluated between the passes of a job that stops early."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets import svg
from dlrover_nb.widgets.blocks import StaticChart, Table
from dlrover_nb.widgets.charts.chart import Chart

if TYPE_CHECKING:
    from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk

TITLE = "Quality on held-out rows"
EMPTY = "Evaluated between passes only where a job stops early; else once, at its end."


@dataclass(frozen=True, slots=True)
class Columns:
    """One entry an evaluation."""

    n_pass: tuple[float, ...]
    auc: tuple[float, ...]
    log_loss: tuple[float, ...]
    n_sample: tuple[int, ...]


def columns(snapshot: JobSnapshot) -> Columns:
    """Return the chart's data."""
    rounds = snapshot.rounds
    return Columns(
        tuple(float(r.n_pass) for r in rounds),
        tuple(r.evaluation.auc for r in rounds),
        tuple(r.evaluation.log_loss for r in rounds),
        tuple(r.evaluation.n_sample for r in rounds),
    )


def static(data: Columns) -> str:
    """Return both measures as one SVG."""
    if not data.n_pass:
        return svg.nothing(TITLE, EMPTY)
    best = max(data.auc)
    words = f"AUC and log loss after {len(data.n_pass)} evaluations; best AUC {best:.4f}."
    return svg.grid(TITLE, words, [_plot(data, "AUC", data.auc), _plot(data, "log loss", data.log_loss)])


def _plot(data: Columns, name: str, y: tuple[float, ...]) -> svg.Plot:
    color, shape = (svg.BLUE, "circle") if name == "AUC" else (svg.RED, "square")
    layers = (svg.Line(data.n_pass, y, color), svg.Points(data.n_pass, y, color, shape=shape))
    words = f"{name} after each pass, last {y[-1]:.4f}."
    return svg.Plot(
        f"{name}: last {y[-1]:.4f}", words, "passes", name, layers, x_ticks=data.n_pass, y_from_zero=False,
        width=340, height=200,
    )  # fmt: skip


def data_table(data: Columns) -> Table:
    """Return the same numbers as a table."""
    rows = tuple(
        (f"{p:g}", f"{auc:.4f}", f"{loss:.4f}", f"{n:,}")
        for p, auc, loss, n in zip(data.n_pass, data.auc, data.log_loss, data.n_sample, strict=True)
    )
    note = "" if rows else EMPTY
    return Table(TITLE, ("after pass", "AUC", "log loss", "held-out rows"), rows, note)


class Figure:
    """Live drawing: two small figures from one source."""

    def __init__(self) -> None:
        from bokeh.layouts import row  # noqa: PLC0415 - bokeh only when drawn live

        from dlrover_nb.widgets.charts import kit  # noqa: PLC0415

        self._source = kit.Source(x=[], auc=[], log_loss=[])
        self._figures = [
            kit.plain_figure(name, "passes", name, tools="reset") for name in ("AUC", "log loss")
        ]
        looks = (("auc", svg.BLUE, "circle"), ("log_loss", svg.RED, "square"))
        for fig, (column, color, marker) in zip(self._figures, looks, strict=True):
            fig.update(height=kit.HEIGHT - 60, min_width=200)
            fig.yaxis.formatter.format = "0.0000"
            fig.line("x", column, source=self._source.model, color=color, width=2)
            fig.scatter("x", column, source=self._source.model, color=color, marker=marker, size=8)
        self.root = row(*self._figures, sizing_mode="stretch_width")

    def update(self, snapshot: JobSnapshot, series: SeriesChunk | None) -> bool:  # noqa: ARG002 - one signature
        """Show the evaluations so far."""
        data = columns(snapshot)
        for fig, name, y in zip(self._figures, ("AUC", "Log loss"), (data.auc, data.log_loss), strict=True):
            fig.title.text = f"{name}: last {y[-1]:.4f}" if y else f"{name}: not evaluated between passes"
        return self._source.show({"x": [*data.n_pass], "auc": [*data.auc], "log_loss": [*data.log_loss]})


def picture(snapshot: JobSnapshot, series: SeriesChunk | None) -> StaticChart:  # noqa: ARG001 - one signature for all charts
    """Return the static chart with its table."""
    data = columns(snapshot)
    return StaticChart(static(data), data_table(data))


CHART = Chart("rounds", TITLE, picture, Figure)

"""Predicted against measured throughput of every applied plan, with the predicted bands.

A point on the diagonal was predicted exactly. The band of a good prediction crosses the diagonal: it contains
the measurement. A hit is a circle, a miss a hollow diamond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Table
from dlrover_nb.widgets.charts.chart import chart
from dlrover_nb.widgets.svg.marks import Drawing, Line, Plot, Points
from dlrover_nb.widgets.svg.palette import BLUE, INK, RED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.history.runs.prediction_scores import Score
    from dlrover_nb.core.structs.decisions.candidates import Prediction
    from dlrover_nb.core.structs.decisions.decisions import Outcome
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

TITLE = "Predicted and measured"
N_TWIN_ROW = 24


@dataclass(frozen=True, slots=True)
class Dot:
    """One applied plan with its prediction as it was shown, and its speed with the host as predicted.

    `name` is its job or decision.
    """

    name: str
    plan: str
    predicted: Prediction
    measured: float

    @property
    def is_hit(self) -> bool:
        """Whether the band contains the measurement."""
        return self.predicted.low <= self.measured <= self.predicted.high

    @property
    def error(self) -> float | None:
        """Predicted over measured minus 1; None for a job without progress."""
        return self.predicted.samples_per_s / self.measured - 1 if self.measured > 0 else None

    @property
    def words(self) -> str:
        """The summary as one line."""
        p = self.predicted
        return (
            f"{self.name}, {self.plan}: predicted {units.number(p.samples_per_s)} "
            f"({units.interval(p.low, p.high)}), measured {units.rate(self.measured)}"
        )


@dataclass(frozen=True, slots=True)
class Columns:
    """Data of the chart."""

    dots: tuple[Dot, ...]
    n_outcome: int
    words: str


def columns_of(outcomes: Sequence[tuple[str, Outcome]]) -> Columns:
    """Return the chart's data of outcomes with their names, oldest first."""
    from dlrover_nb.core.history.runs.prediction_scores import score  # noqa: PLC0415 - it imports the database's client

    dots = tuple(
        Dot(name, o.plan.short, o.predicted, o.comparable_samples_per_s)
        for name, o in outcomes
        if o.predicted is not None
    )
    words = score_words(score([o for _, o in outcomes])) if outcomes else "No applied plan was measured yet."
    return Columns(dots, len(outcomes), words)


def score_words(score: Score) -> str:
    """Describe the accuracy of the predictions."""
    if not score.n_predicted or score.inside is None:
        return f"{score.n_outcome} applied plans were measured, none of them with a prediction."
    n_inside = round(score.inside * score.n_predicted)
    return (
        f"{n_inside} of {score.n_predicted} measurements lay in the predicted 90 % band; "
        f"the median error is {units.percent(score.median_error, 1)}."
    )


def columns(snapshot: JobSnapshot, series: SeriesChunk | None = None) -> Columns:  # noqa: ARG001 - one signature for all charts
    """Return the chart's data of one job."""
    return columns_of([(o.decision, o) for o in snapshot.outcomes])


def limits(dots: Sequence[Dot]) -> tuple[float, ...]:
    """Return the ends of the diagonal; none without plans."""
    values = [v for d in dots for v in (d.measured, d.predicted.samples_per_s)]
    return (min(values), max(values)) if values else ()


def marks(data: Columns) -> Drawing:
    """Describe the chart."""
    ends = limits(data.dots)
    layers = (
        Line(ends, ends, INK, "exactly as predicted", "4 3"),
        _points([d for d in data.dots if d.is_hit], BLUE, "circle", "inside the 90 % band"),
        _points([d for d in data.dots if not d.is_hit], RED, "diamond", "outside"),
    )
    n_hit = sum(d.is_hit for d in data.dots)
    title = f"{TITLE}: {n_hit} of {len(data.dots)} in the 90 % band" if data.dots else TITLE
    plot = Plot(
        title, data.words, "measured samples/s", "predicted samples/s", layers, y_from_zero=False, height=300
    )
    return Drawing(TITLE, data.words, (plot,), "" if data.dots else data.words)


def _points(dots: list[Dot], color: str, shape: str, label: str) -> Points:
    return Points(
        x=[d.measured for d in dots],
        y=[d.predicted.samples_per_s for d in dots],
        color=color,
        label=label,
        shape=shape,
        size=4.0 if shape == "circle" else 5.0,
        hollow=shape != "circle",
        low=[d.predicted.low for d in dots],
        high=[d.predicted.high for d in dots],
        titles=[d.words for d in dots],
    )


def data_table(data: Columns, of: str = "decision") -> Table:
    """Return the same numbers as a table: the newest, where there are many."""
    rows = tuple(
        (
            d.name,
            units.unbroken(d.plan),
            units.number(d.predicted.samples_per_s),
            units.interval(d.predicted.low, d.predicted.high),
            units.number(d.measured),
            units.signed_percent(d.error),
            "yes" if d.is_hit else "no",
        )
        for d in data.dots[-N_TWIN_ROW:]
    )
    head = (of, "plan", "predicted samples/s", "90 % band", "measured", "error", "in band")
    return Table("Predicted and measured (samples/s)", head, rows, data.words)


CHART = chart("scores", TITLE, columns=columns, marks=marks, data_table=data_table)

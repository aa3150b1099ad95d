"""Predicted against measured throughput of every plan that was applied, with the bands that were promised.

A point on the diagonal was predicted exactly. The band of a good prediction crosses the diagonal: it holds
the measurement. A hit is a circle, a miss a hollow diamond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets import svg, units
from dlrover_nb.widgets.blocks import StaticChart, Table
from dlrover_nb.widgets.charts.chart import Chart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.history.scores import Score
    from dlrover_nb.core.structs.decisions import Outcome, Prediction
    from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk

TITLE = "Predicted and measured"
N_TWIN_ROW = 24


@dataclass(frozen=True, slots=True)
class Dot:
    """One applied plan with its prediction; `name` says of which job or decision."""

    name: str
    plan: str
    predicted: Prediction
    measured: float

    @property
    def is_hit(self) -> bool:
        """Whether the band held the measurement."""
        return self.predicted.low <= self.measured <= self.predicted.high

    @property
    def error(self) -> float | None:
        """Predicted over measured minus 1; None of a job that stood still."""
        return self.predicted.samples_per_s / self.measured - 1 if self.measured > 0 else None

    @property
    def words(self) -> str:
        """The whole in a line."""
        p = self.predicted
        return (
            f"{self.name}, {self.plan}: predicted {units.number(p.samples_per_s)} "
            f"({units.interval(p.low, p.high)}), measured {units.rate(self.measured)}"
        )


@dataclass(frozen=True, slots=True)
class Columns:
    """What the chart shows."""

    dots: tuple[Dot, ...]
    n_outcome: int
    words: str


def columns(outcomes: Sequence[tuple[str, Outcome]]) -> Columns:
    """Return the chart's data of outcomes with their names, oldest first."""
    from dlrover_nb.core.history.scores import score  # noqa: PLC0415 - its package brings the database's client

    dots = tuple(
        Dot(name, o.plan.short, o.predicted, o.measured_samples_per_s)
        for name, o in outcomes
        if o.predicted is not None
    )
    words = score_words(score([o for _, o in outcomes])) if outcomes else "No applied plan was measured yet."
    return Columns(dots, len(outcomes), words)


def score_words(score: Score) -> str:
    """Say how good the predictions were."""
    if not score.n_predicted or score.inside is None:
        return f"{score.n_outcome} applied plans were measured, none of them with a prediction."
    n_inside = round(score.inside * score.n_predicted)
    return (
        f"{n_inside} of {score.n_predicted} measurements lay in the predicted 90 % band; "
        f"the median error is {units.percent(score.median_error, 1)}."
    )


def of_job(snapshot: JobSnapshot) -> Columns:
    """Return the chart's data of one job."""
    return columns([(o.decision, o) for o in snapshot.outcomes])


def limits(dots: Sequence[Dot]) -> tuple[float, float]:
    """Return the ends of the diagonal."""
    values = [v for d in dots for v in (d.measured, d.predicted.samples_per_s)]
    return (min(values), max(values)) if values else (0.0, 1.0)


def static(data: Columns) -> str:
    """Return the chart as SVG."""
    if not data.dots:
        return svg.nothing(TITLE, data.words)
    ends = limits(data.dots)
    layers = (
        svg.Line(ends, ends, svg.INK, "exactly as predicted", "4 3"),
        _points([d for d in data.dots if d.is_hit], svg.BLUE, "circle", "measured inside the 90 % band"),
        _points([d for d in data.dots if not d.is_hit], svg.RED, "diamond", "outside"),
    )
    plot = svg.Plot(
        TITLE, data.words, "measured samples/s", "predicted samples/s", layers, y_from_zero=False, height=300
    )
    return svg.draw(plot)


def _points(dots: list[Dot], color: str, shape: str, label: str) -> svg.Points:
    return svg.Points(
        x=[d.measured for d in dots],
        y=[d.predicted.samples_per_s for d in dots],
        color=color,
        label=label if dots else "",
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


class Figure:
    """Live drawing: one source for the plans, one for the diagonal."""

    def __init__(self) -> None:
        from dlrover_nb.widgets.charts import kit  # noqa: PLC0415 - bokeh only when drawn live

        self.root = kit.plain_figure(TITLE, "measured samples/s", "predicted samples/s", tools="reset")
        self._dots = kit.Source(x=[], y=[], low=[], high=[], color=[], marker=[], words=[], kind=[])
        self._diagonal = kit.Source(x=[], y=[])
        self.root.line(
            "x", "y", source=self._diagonal.model, color=svg.INK, line_dash=kit.DASH,
            legend_label="exactly as predicted",
        )  # fmt: skip
        self.root.xaxis.formatter = kit.numbers()
        source = self._dots.model
        self.root.segment("x", "low", "x", "high", source=source, color="color", alpha=0.6)
        dots = self.root.scatter(
            "x", "y", source=source, color="color", marker="marker", size=10, legend_field="kind"
        )
        self.root.add_tools(kit.words_hover(dots))
        kit.place_legend(self.root)

    def update(self, snapshot: JobSnapshot, series: SeriesChunk | None) -> bool:  # noqa: ARG002 - one signature
        """Show the outcomes so far."""
        data = of_job(snapshot)
        n_hit = sum(d.is_hit for d in data.dots)
        hits = f"{n_hit} of {len(data.dots)} in the 90 % band" if data.dots else "nothing yet"
        self.root.title.text = f"{TITLE}: {hits}"
        ends = [*limits(data.dots)] if data.dots else []
        changed = [self._diagonal.show({"x": ends, "y": ends}), self._dots.show(_columns_of(data.dots))]
        return any(changed)


def _columns_of(dots: Sequence[Dot]) -> dict[str, list[object]]:
    return {
        "x": [d.measured for d in dots],
        "y": [d.predicted.samples_per_s for d in dots],
        "low": [d.predicted.low for d in dots],
        "high": [d.predicted.high for d in dots],
        "color": [svg.BLUE if d.is_hit else svg.RED for d in dots],
        "marker": ["circle" if d.is_hit else "diamond" for d in dots],
        "words": [d.words for d in dots],
        "kind": ["inside the 90 % band" if d.is_hit else "outside" for d in dots],
    }


def picture(snapshot: JobSnapshot, series: SeriesChunk | None) -> StaticChart:  # noqa: ARG001 - one signature for all charts
    """Return the static chart with its table."""
    data = of_job(snapshot)
    return StaticChart(static(data), data_table(data))


CHART = Chart("scores", TITLE, picture, Figure)

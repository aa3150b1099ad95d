"""Accuracy of predictions over jobs: the scoreboard as a view."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Paragraph, StaticChart, Table, Tone, View
from dlrover_nb.widgets.charts import scores as charts
from dlrover_nb.widgets.svg import svg_drawing

if TYPE_CHECKING:
    from dlrover_nb.core.history.runs.prediction_scores import Score, Scoreboard

HEAD = ("job", "plans applied", "predicted", "in the 90 % band", "median error", "bias")
NOTE = "Bias: median of predicted over measured minus 1; above zero, throughput was overestimated."


NO_SCORE = (
    "No applied plan was measured yet. A job on a real cluster is scored when a proposal is accepted, "
    "or auto mode sets a plan, and then runs for a while:"
)
HOW = ("%dlrover plan", "%dlrover apply")


def scores_view(scoreboard: Scoreboard) -> View:
    """Return the score of all jobs together, and of each."""
    if not scoreboard.total.n_outcome:
        return View("Prediction scoreboard", (Paragraph(NO_SCORE, Tone.HINT, HOW),))
    rows = [score_row(job, score) for job, score in scoreboard.jobs]
    rows += [score_row("all", scoreboard.total)] if len(rows) != 1 else []
    table = Table("Predicted against measured, by job", HEAD, tuple(rows), NOTE)
    blocks: list[Block] = [Paragraph(charts.score_words(scoreboard.total)), table]
    if scoreboard.total.n_predicted:
        data = charts.columns_of(scoreboard.outcomes)
        data_table = replace(charts.data_table(data, "job"), note="")  # it is shown above
        blocks.insert(1, StaticChart(svg_drawing.draw(charts.marks(data)), data_table))
    return View("Prediction scoreboard", tuple(blocks))


def score_row(name: str, score: Score) -> tuple[str, ...]:
    """Return a score as a row under `HEAD`."""
    return (
        name,
        f"{score.n_outcome}",
        f"{score.n_predicted}",
        units.percent(score.inside),
        units.percent(score.median_error, 1),
        units.signed_percent(score.bias),
    )

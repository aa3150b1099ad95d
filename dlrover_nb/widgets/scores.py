"""How good predictions were, over jobs: the scoreboard as a view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Paragraph, Picture, Table, View
from dlrover_nb.widgets.charts import scores as charts

if TYPE_CHECKING:
    from dlrover_nb.core.history.scores import Score, Scoreboard

HEAD = ("job", "plans applied", "predicted", "in the 90 % band", "median error", "bias")
NOTE = "Bias: median of predicted over measured minus 1; above zero, too much was promised."


def scores_view(scoreboard: Scoreboard) -> View:
    """Return the score of all jobs together, and of each."""
    if not scoreboard.total.n_outcome:
        text = "No applied plan was measured yet: a score needs one that ran."
        return View("Prediction scoreboard", (Paragraph(text),))
    rows = [score_row(job, score) for job, score in scoreboard.jobs]
    rows += [score_row("all", scoreboard.total)] if len(rows) != 1 else []
    table = Table("Predicted against measured, by job", HEAD, tuple(rows), NOTE)
    blocks: list[Block] = [Paragraph(charts.score_words(scoreboard.total)), table]
    if scoreboard.total.n_predicted:
        data = charts.columns(scoreboard.outcomes)
        blocks.insert(1, Picture(charts.static(data), charts.twin(data, "job")))
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

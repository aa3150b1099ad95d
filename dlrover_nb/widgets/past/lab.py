"""A lab as a view: three pictures, the figures of all contenders, and the notes that belong to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.lab import MEASURES
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Lead, Paragraph, StaticChart, Table, View
from dlrover_nb.widgets.svg import svg_drawing
from dlrover_nb.widgets.svg.marks import Drawing, Line, Plot, Points
from dlrover_nb.widgets.svg.palette import CYCLE, DASHES

if TYPE_CHECKING:
    from dlrover_nb.core.lab import Figure, LabResult, Score

SHAPES = ("circle", "square", "diamond", "triangle")
STARTS = ("start_workers", "start_ps")  # shown where some contender starts jobs warm
SHARES = ("cpu_use", "cluster_use", "paused", "in_time", *STARTS)  # shown in percent
SHOWN = (
    "jct_mean_h", "jct_p95_h", "queued_mean_h", "cost", "cpu_use", "cluster_use", "fairness", "changes",
    "in_time",
)  # fmt: skip
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
NOTE = (
    "Each figure is the median over seeds, with the 90 % interval of that median; one seed has none. Beside "
    "the first means the mean completion time over that of the first contender, seed by seed."
)
ANSWERS = "The lab asks policies at fewer moments than a job's controller does, and no user decides in it."


def lab_view(result: LabResult) -> View:
    """Return the comparison."""
    blocks: list[Block] = [Lead(_best_words(result)), Facts(_facts(result))]
    blocks.append(StaticChart(svg_drawing.draw(marks(result)), _quantiles(result)))
    blocks.append(_figures(result))
    if result.published:
        rows = tuple(result.published.items())
        blocks.append(Table("What the paper has", ("figure", "published"), rows))
    blocks += [Paragraph(note) for note in (*result.notes, ANSWERS)]
    return View("Lab" if result.name == "lab" else f"Lab {result.name}", tuple(blocks))


def marks(result: LabResult) -> Drawing:
    """Describe the pictures: time against cost, completion times of all jobs, and the cluster over time."""
    desc = "Contenders side by side: their cost and completion times, and what they hold of the cluster."
    return Drawing("Contenders", desc, (_trade(result), _distribution(result), _use(result)))


def _best_words(result: LabResult) -> str:
    best = min(result.scores, key=lambda score: score.figures["jct_mean_h"].median)
    first = result.scores[0]
    time = f"{units.number(best.figures['jct_mean_h'].median)} h"
    if best is first:
        return f"{best.contender} completed jobs soonest, after {time} in the mean."
    less = 1 - best.ratio.median
    sure = "" if best.ratio.high < 1 else ", which other seeds may not confirm"
    return (
        f"{best.contender} completed jobs soonest, after {time} in the mean: {units.percent(less)} sooner "
        f"than {first.contender}{sure}."
    )


def _facts(result: LabResult) -> tuple[tuple[str, str], ...]:
    return (
        ("workload", result.workload),
        ("jobs in a run", f"{result.n_job:,}"),
        ("seeds", ", ".join(map(str, result.seeds))),
    )


def _figures(result: LabResult) -> Table:
    starts = STARTS if any(run.is_warm for run in result.runs) else ()
    names = [
        name for name in (*SHOWN, *starts) if any(score.figures[name].is_there for score in result.scores)
    ]
    head = ("contender", "beside the first", *(_head(name, result.currency) for name in names))
    rows = tuple(
        (
            score.contender,
            _cell(score.ratio),
            *(_cell(score.figures[name], is_share=name in SHARES) for name in names),
        )
        for score in result.scores
    )
    return Table("Figures", head, rows, NOTE)


def _head(name: str, currency: str) -> str:
    measure = MEASURES[name]
    unit = currency if measure.unit == "money" else measure.unit
    return f"{measure.words}, {unit}" if unit else measure.words


def _cell(figure: Figure, *, is_share: bool = False) -> str:
    if not figure.is_there:
        return "-"
    words = units.percent if is_share else units.number
    middle, low, high = (words(value) for value in (figure.median, figure.low, figure.high))
    return middle if low == high else f"{middle} ({low} to {high})"


def _quantiles(result: LabResult) -> Table:
    head = ("contender", *(f"{units.percent(share)} within, h" for share in QUANTILES))
    rows = tuple(
        (score.contender, *(units.number(_quantile(score, share)) for share in QUANTILES))
        for score in result.scores
    )
    return Table("Completion times of all jobs", head, rows)


def _quantile(score: Score, share: float) -> float:
    even = np.linspace(0, 1, len(score.quantiles_h))
    return float(np.interp(share, even, score.quantiles_h))


def _look(i: int) -> tuple[str, str]:
    return CYCLE[i % len(CYCLE)], DASHES[i % len(DASHES)]


def _trade(result: LabResult) -> Plot:
    points = []
    for i, score in enumerate(result.scores):
        cost, time = score.figures["core_h"], score.figures["jct_mean_h"]
        points.append(
            Points(
                (cost.median,),
                (time.median,),
                _look(i)[0],
                score.contender,
                SHAPES[i % len(SHAPES)],
                5.0,
                low=(time.low,),
                high=(time.high,),
                titles=(score.contender,),
            )
        )
    desc = "Mean completion time over the core hours that all jobs reserved; down and left is better."
    return Plot(
        "Time against cores",
        desc,
        "core hours reserved",
        "hours to complete, mean",
        tuple(points),
        height=260,
    )


def _distribution(result: LabResult) -> Plot:
    shares = tuple(float(x) for x in np.linspace(0, 100, len(result.scores[0].quantiles_h)))
    lines = tuple(
        Line(score.quantiles_h[:-1], shares[:-1], _look(i)[0], score.contender, _look(i)[1])
        for i, score in enumerate(result.scores)
    )
    desc = "Share of jobs that completed within so many hours of their submission; left is better."
    return Plot("Completed jobs", desc, "hours from submission", "% of jobs", lines, height=260)


def _use(result: LabResult) -> Plot:
    lines = tuple(
        Line(
            tuple(hour for hour, _ in score.use),
            tuple(100 * share for _, share in score.use),
            _look(i)[0],
            score.contender,
            _look(i)[1],
        )
        for i, score in enumerate(result.scores)
    )
    desc = "Share of the cluster's cores that jobs hold, of the first seed."
    return Plot("Use of the cluster", desc, "hours", "% of cores reserved", lines, height=220)

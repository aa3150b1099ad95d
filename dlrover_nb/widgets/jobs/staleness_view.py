"""How old the gradients of a job are, how far its workers are apart, and what each of them trains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.telemetry import mean_ages_until
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Paragraph, Table, View
from dlrover_nb.widgets.charts import CHARTS
from dlrover_nb.widgets.charts.per_worker.age_rows import NO_AGES

if TYPE_CHECKING:
    from dlrover_nb.core.structs.training.gradient_ages import MeanAges
    from dlrover_nb.core.structs.views.snapshot import Evaluation, JobSnapshot, SeriesChunk
    from dlrover_nb.widgets.blocks import Block

_PASSES_SAY = "Quality on the held-out rows, and mean ages of the gradients until then."
_OF_AGES, _OF_WORKERS = ("staleness", "distance"), ("batches", "consumed")


@dataclass(frozen=True, slots=True)
class PassQuality:
    """Quality on the held-out rows after some passes, and the mean ages of the gradients until then.

    `n_pass` is None at the end, after all that was trained.
    """

    n_pass: int | None
    evaluation: Evaluation
    ages: MeanAges


def passes_of(snapshot: JobSnapshot, series: SeriesChunk | None) -> tuple[PassQuality, ...]:
    """Return the quality of each evaluation; none where no ages are known."""
    if series is None:
        return ()
    rounds = [(each.n_pass, each.evaluation, each.at_s) for each in snapshot.rounds]
    last = [] if snapshot.evaluation is None else [(None, snapshot.evaluation, math.inf)]
    return tuple(
        PassQuality(n_pass, evaluation, ages)
        for n_pass, evaluation, at_s in (*rounds, *last)
        if (ages := mean_ages_until(series, at_s)) is not None
    )


def _passes_blocks(snapshot: JobSnapshot, series: SeriesChunk | None) -> tuple[Table, ...]:
    rows = tuple(
        (
            "the end" if each.n_pass is None else str(each.n_pass),
            f"{each.evaluation.auc:.4f}",
            f"{each.evaluation.log_loss:.4f}",
            units.number(each.ages.updates),
            units.duration(each.ages.seconds),
            units.number(each.ages.row_updates),
        )
        for each in passes_of(snapshot, series)
    )
    head = ("after pass", "AUC", "log loss", "mean age", "in time", "of single rows")
    return (Table("Quality beside the age of gradients", head, rows, _PASSES_SAY),) if rows else ()


def staleness_blocks(snapshot: JobSnapshot, series: SeriesChunk | None) -> tuple[Block, ...]:
    """Return what is known: ages only where a parameter server has reported some."""
    names = (*(_OF_AGES if _has_ages(series) else ()), *_OF_WORKERS)
    charts = tuple(CHARTS[name].static(snapshot, series) for name in names)
    return (*charts, *_passes_blocks(snapshot, series))


def staleness_view(snapshot: JobSnapshot, series: SeriesChunk | None) -> View:
    """Return all of it, or why it is not known."""
    blocks = (*no_ages_blocks(snapshot, series), *staleness_blocks(snapshot, series))
    return View(f"Staleness of {snapshot.title}", blocks)


def no_ages_blocks(snapshot: JobSnapshot, series: SeriesChunk | None) -> tuple[Block, ...]:
    """Return why ages are not known; empty: they are."""
    return () if _has_ages(series) else (Paragraph(_why_no_ages(snapshot)),)


def _has_ages(series: SeriesChunk | None) -> bool:
    return series is not None and bool(series.ages.get("at_s"))


def _why_no_ages(snapshot: JobSnapshot) -> str:
    if snapshot.simulated:
        return "Simulated nodes apply no gradients, so these have no age."
    if snapshot.spec.foreign is not None or not snapshot.target.ps.count:
        return "Only parameter servers of our own count how old gradients are; this job has none."
    return NO_AGES

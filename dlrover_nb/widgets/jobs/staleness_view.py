"""How old the gradients of a job are, how far its workers are apart, and what each of them trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.widgets.blocks import Paragraph, View
from dlrover_nb.widgets.charts import CHARTS
from dlrover_nb.widgets.charts.per_worker.age_rows import NO_AGES

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.widgets.blocks import Block

_OF_AGES, _OF_WORKERS = ("staleness", "distance"), ("batches", "consumed")


def staleness_blocks(snapshot: JobSnapshot, series: SeriesChunk | None) -> tuple[Block, ...]:
    """Return what is known: ages only where a parameter server has reported some."""
    names = (*(_OF_AGES if _has_ages(series) else ()), *_OF_WORKERS)
    return tuple(CHARTS[name].static(snapshot, series) for name in names)


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

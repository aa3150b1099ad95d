"""What the brain of a cluster decided, as a view: what each job should get, and which job got it instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Paragraph, Table, Tone, View

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.brain import BrainRound, JobShare, QueuedJob

QUEUE_HEAD = ("place", "job", "owner", "asks for", "starts with", "why")
HEAD = ("job", "owner", "runs", "should get", "cores", "at most", "why not more")
NO_JOBS = "No job in auto mode can be planned now."


def brain_view(brain_round: BrainRound) -> View:
    """Return one round."""
    facts = [
        ("planned by", f"{brain_round.by}, term {brain_round.term}, round {brain_round.number}"),
        (
            "jobs",
            f"{len(brain_round.shares)} of {len(brain_round.shares) + len(brain_round.apart)} planned",
        ),
        (
            "choice",
            "as before: no other is clearly better" if brain_round.is_kept else "new in this round",
        ),
    ]
    blocks: list[Block] = [Facts(tuple(facts))]
    if brain_round.note:
        blocks.append(Paragraph(brain_round.note, Tone.WARNING))
    rows = tuple(_row(share) for share in brain_round.shares)
    blocks.append(Table("What each job should get", HEAD, rows) if rows else Paragraph(NO_JOBS))
    if brain_round.queue:
        blocks.append(Table("The queue", QUEUE_HEAD, tuple(_queue_row(each) for each in brain_round.queue)))
    if brain_round.apart:
        blocks.append(Table("Jobs left out", ("job", "why"), brain_round.apart))
    return View(f"The brain of {brain_round.cluster}", tuple(blocks))


def _queue_row(queued: QueuedJob) -> tuple[str, ...]:
    return (
        str(queued.place.place) if queued.admitted is None else "starts",
        queued.job,
        queued.owner or units.MISSING,
        queued.asked.short,
        units.MISSING if queued.admitted is None else queued.admitted.short,
        f"refused: {queued.refused}" if queued.refused else queued.place.why or units.MISSING,
    )


def _row(share: JobShare) -> tuple[str, ...]:
    more = share.added_cores
    quota = "anything" if share.quota == Quota() else str(share.quota)
    return (
        share.job,
        share.owner or units.MISSING,
        share.now.short,
        share.meant.short if share.meant != share.now else "the same",
        f"{more:+g}" if more else units.MISSING,
        f"refused: {share.refused}" if share.refused else quota,
        share.why or units.MISSING,
    )

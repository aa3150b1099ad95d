"""What the brain decided last, on the page *Cluster*: who gives up cores, who gets them, who waits.

A brain names its cluster as its own address has it, which need not be the name here. So the round is found by
its jobs: the newest one that is about jobs of this cluster. What it says of others is left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import DlroverError
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Paragraph, Tone
from dlrover_nb.widgets.clusters.brain import brain_view

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dlrover_nb.core.structs.views.brain import BrainRound
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.dashboard.page import Visit
    from dlrover_nb.widgets.blocks import Block

RECENT_S = 1800.0  # a round that says nothing new is kept each quarter of an hour
NONE = "No brain has planned for these jobs in the last half hour; `dlrover-nb server brain` starts one."


def brain_blocks(visit: Visit, jobs: Sequence[JobSummary]) -> tuple[Block, ...]:
    """Return the newest round of planning for these jobs."""
    now_s = visit.team.now_s()
    try:
        rounds = visit.team.rounds.recent(now_s - RECENT_S)
    except DlroverError as error:
        return (Paragraph(f"We do not know what it decided: {error.text}", Tone.HINT),)
    shown = about(rounds, {job.name for job in jobs})
    if shown is None:
        return (Paragraph(NONE, Tone.HINT),)
    ago = Paragraph(f"Decided {units.duration(max(now_s - shown.at_s, 0.0))} ago.", Tone.HINT)
    return ago, *brain_view(shown).blocks


def about(rounds: Sequence[BrainRound], jobs: Collection[str]) -> BrainRound | None:
    """Return the round that is about most of these jobs, cut down to them; None: none is about any."""

    def cut(brain_round: BrainRound) -> BrainRound:
        return replace(
            brain_round,
            shares=tuple(each for each in brain_round.shares if each.job in jobs),
            apart=tuple(each for each in brain_round.apart if each[0] in jobs),
            queue=tuple(each for each in brain_round.queue if each.job in jobs),
        )

    def n_job(brain_round: BrainRound) -> int:
        return len(brain_round.shares) + len(brain_round.apart) + len(brain_round.queue)

    largest = max(
        map(cut, rounds), key=lambda brain_round: (n_job(brain_round), brain_round.at_s), default=None
    )
    return largest if largest is not None and n_job(largest) else None

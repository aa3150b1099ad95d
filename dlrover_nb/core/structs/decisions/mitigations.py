"""Actions against stragglers of one job through time: proposed, decided, carried out or refused."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs.decisions.actions import ActionChoice
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus


@dataclass(frozen=True, slots=True)
class Mitigation:
    """One action against stragglers; `id` (``m1``, ``m2``, …) is unique in its job.

    It has the life of a proposal (`core.controller.plans.proposals`). One that a user ordered without a
    proposal begins as accepted.

    Parameters
    ----------
    id, job
        Its names.
    action
        What to do.
    why
        The numbers that say so, as a sentence.
    cost
        What it costs the job, in words.
    created_at_s
        When it was proposed or ordered.
    gain
        Expected share by which the job trains faster; None: unknown.
    status, closed_at_s, note
        As of a proposal.
    decision
        Id of the decision that ordered it; empty: none.
    """

    id: str
    job: str
    action: ActionChoice
    why: str
    cost: str
    created_at_s: float
    gain: float | None = None
    status: ProposalStatus = ProposalStatus.PENDING
    closed_at_s: float | None = None
    note: str = ""
    decision: str = ""

    @property
    def words(self) -> str:
        """The action in a sentence."""
        return self.action.words

    @property
    def is_open(self) -> bool:
        """Whether it waits for a decision."""
        return self.status is ProposalStatus.PENDING

    @property
    def is_under_way(self) -> bool:
        """Whether it was ordered and has not ended."""
        return self.status in {ProposalStatus.ACCEPTED, ProposalStatus.APPLYING}

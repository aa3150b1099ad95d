"""The life cycle of a proposal, and of an action against stragglers, as a table of transitions.

PENDING -> ACCEPTED | OVERRIDDEN | REJECTED | SUPERSEDED | EXPIRED;
ACCEPTED | OVERRIDDEN -> APPLYING -> APPLIED | FAILED. There are no other transitions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.core.errors import StaleDecisionError
from dlrover_nb.core.structs.decisions.decisions import Mitigation, Proposal, ProposalStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

_S = ProposalStatus
Decidable = TypeVar("Decidable", Proposal, Mitigation)

TRANSITIONS: dict[ProposalStatus, frozenset[ProposalStatus]] = {
    _S.PENDING: frozenset({_S.ACCEPTED, _S.OVERRIDDEN, _S.REJECTED, _S.SUPERSEDED, _S.EXPIRED}),
    _S.ACCEPTED: frozenset({_S.APPLYING}),
    _S.OVERRIDDEN: frozenset({_S.APPLYING}),
    _S.APPLYING: frozenset({_S.APPLIED, _S.FAILED}),
    _S.REJECTED: frozenset(),
    _S.SUPERSEDED: frozenset(),
    _S.EXPIRED: frozenset(),
    _S.APPLIED: frozenset(),
    _S.FAILED: frozenset(),
}


def is_closed(status: ProposalStatus) -> bool:
    """Whether a status is final."""
    return not TRANSITIONS[status]


def check_move(proposal: Decidable, to: ProposalStatus, *, story: Iterable[str] = ()) -> None:
    """Refuse a transition that the table does not have; nothing is changed.

    Raises
    ------
    StaleDecisionError
        With the proposal's story.
    """
    if to in TRANSITIONS[proposal.status]:
        return
    raise StaleDecisionError(
        f"{_kind(proposal)} {proposal.id} is already {proposal.status}"
        f"{proposal.note and ' (' + proposal.note + ')'}, so it cannot become {to}; "
        "decide on what is open now",
        story,
    )


def move(
    proposal: Decidable, to: ProposalStatus, *, at_s: float, note: str = "", story: Iterable[str] = ()
) -> Decidable:
    """Return the proposal, or the action, in its next status.

    Parameters
    ----------
    at_s
        Time of the move; kept as `closed_at_s` where the status is final.
    note
        Why, in a few words; the note before is kept where this is empty.
    story
        Past events of the proposal, quoted when the move is refused.

    Raises
    ------
    StaleDecisionError
        When the table has no such transition.
    """
    check_move(proposal, to, story=story)
    return replace(
        proposal,
        status=to,
        closed_at_s=at_s if is_closed(to) else None,
        note=note or proposal.note,
    )


def _kind(proposal: Proposal | Mitigation) -> str:
    return "proposal" if isinstance(proposal, Proposal) else "action"

"""What is asked about: a plan with its proposal, who decided on it, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions.decisions import Proposal, ProposalKind, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.why.values import Unit, Value

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.decisions.decisions import Decision, Outcome
    from dlrover_nb.core.structs.decisions.query_answers import Explanation
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

_ANSWERS = {Verdict.ACCEPT, Verdict.OVERRIDE, Verdict.REJECT}


@dataclass(frozen=True, slots=True)
class Subject:
    """A plan that is asked about.

    Parameters
    ----------
    proposal
        None: it is the plan that runs.
    decision
        What answered the proposal; None: nothing did, or it is not kept any more.
    undo
        What took that decision back, if that holds.
    outcome
        What was measured of the plan after the change to it.
    """

    explanation: Explanation
    snapshot: JobSnapshot
    proposal: Proposal | None
    decision: Decision | None
    undo: Decision | None
    outcome: Outcome | None

    @property
    def is_open(self) -> bool:
        """Whether it waits for an answer."""
        return self.proposal is not None and self.proposal.status is ProposalStatus.PENDING

    @property
    def is_blocked(self) -> bool:
        """Whether it waits for a decision about rows alone, and trains on after that."""
        return self.snapshot.phase is JobPhase.BLOCKED

    @property
    def is_over(self) -> bool:
        """Whether no rows are trained now, so that nothing is planned."""
        return not self.snapshot.phase.trains

    @property
    def present(self) -> Candidate | None:
        """The plan that runs, as predicted now."""
        front = self.snapshot.front
        return self.explanation.baseline if front is None else front.current

    def dearer(self, name: str, candidate: Candidate, other: Candidate) -> Value:
        """Return what a plan costs more than another: money, or cores where prices do not tell them apart."""
        if candidate.cost_per_hour and other.cost_per_hour:
            more = candidate.cost_per_hour - other.cost_per_hour
            return Value(name, more, Unit.MORE_MONEY, self.per_hour)
        return Value(name, candidate.plan.effort - other.plan.effort, Unit.MORE_CORES)

    @property
    def per_hour(self) -> str:
        """What follows an amount of money for an hour."""
        prices = self.snapshot.spec.prices
        return f"{prices.currency} an hour"

    def since(self, name: str, at_s: float) -> Value:
        """Return how long ago a moment was."""
        return Value(name, max(self.snapshot.at_s - at_s, 0.0), Unit.TIME)


def subject_of(explanation: Explanation, snapshot: JobSnapshot) -> Subject:
    """Return what an explanation is about, with what the snapshot has on it."""
    proposal = _proposal_of(explanation, snapshot)
    if proposal is None:
        return Subject(explanation, snapshot, None, None, None, _outcome_of_present(explanation, snapshot))
    answers = [d for d in snapshot.decisions if d.proposal == proposal.id and d.verdict in _ANSWERS]
    decision = answers[-1] if answers else None
    outcomes = [o for o in snapshot.outcomes if decision is not None and o.decision == decision.id]
    outcome = outcomes[-1] if outcomes else None
    return Subject(explanation, snapshot, proposal, decision, _undo_of(decision, snapshot), outcome)


def _proposal_of(explanation: Explanation, snapshot: JobSnapshot) -> Proposal | None:
    """Return the proposal that is explained; one that a snapshot lacks was made after it, so it is open."""
    e, now = explanation, snapshot
    proposal = next((p for p in now.proposals if p.id == e.proposal), None)
    if proposal is not None or e.proposal is None or e.candidate is None or e.baseline is None:
        return proposal
    new = Proposal(e.proposal, now.spec.name, ProposalKind.IMPROVE, e.candidate, e.baseline, e.why, now.at_s)
    return replace(new, flip=e.flip)


def _undo_of(decision: Decision | None, snapshot: JobSnapshot) -> Decision | None:
    """Return the decision that undid another one, unless it was undone itself."""
    if decision is None:
        return None
    undo = next((d for d in reversed(snapshot.decisions) if d.undoes == decision.id), None)
    return None if undo is None or _undo_of(undo, snapshot) is not None else undo


def _outcome_of_present(explanation: Explanation, snapshot: JobSnapshot) -> Outcome | None:
    """Return what was measured of the plan that runs, if it came by the latest measured change."""
    last = snapshot.outcomes[-1] if snapshot.outcomes else None
    return last if last is not None and last.plan == explanation.plan else None

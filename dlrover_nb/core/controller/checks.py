"""Whether a decision can be: everything is checked before anything changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.structs.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.job import JobPhase, Mode
from dlrover_nb.core.structs.resources import check_fits

if TYPE_CHECKING:
    from dlrover_nb.core.controller.book import ProposalBook
    from dlrover_nb.core.structs.events import JobSubmitted
    from dlrover_nb.core.structs.resources import ResourcePlan

_STATUS = {
    Verdict.ACCEPT: ProposalStatus.ACCEPTED,
    Verdict.OVERRIDE: ProposalStatus.OVERRIDDEN,
    Verdict.REJECT: ProposalStatus.REJECTED,
}


def check_decision(  # noqa: PLR0913 - the state that a decision is checked against, all by keyword
    decision: Decision,
    *,
    job: JobSubmitted,
    book: ProposalBook,
    phase: JobPhase,
    mode: Mode,
    target: ResourcePlan,
    is_running: bool,
    under_way: str | None,
) -> None:
    """Refuse a decision that cannot be.

    Raises
    ------
    StaleDecisionError
        When the job is over, a change is under way, or the proposal is no longer open.
    NotFoundError
        When there is no such proposal.
    InvalidValueError
        When something is missing, or what is asked is already so.
    CapacityError
        When the plan does not fit on the machines.
    """
    name = job.spec.name
    if phase.is_final:
        raise StaleDecisionError(f"job {name} must be running for a decision, but it has {phase}")
    if decision.verdict is Verdict.MODE:
        _check_mode(decision, name, mode)
        return
    if decision.verdict in _STATUS:
        book.check(book.find(decision.proposal), _STATUS[decision.verdict])
    if decision.verdict is Verdict.REJECT:
        return
    if phase is JobPhase.EVALUATING or not is_running:
        state = (
            "is evaluating, training is over" if is_running else "is still starting; decide once it trains"
        )
        raise StaleDecisionError(f"job {name} must be training for a change of plan, but it {state}")
    if under_way:
        raise StaleDecisionError(
            f"a change is under way in job {name} ({under_way}), one at a time; decide again when it is done"
        )
    _check_plan(_plan(decision, book), job, target)


def _check_mode(decision: Decision, name: str, mode: Mode) -> None:
    if decision.mode is None:
        raise InvalidValueError(
            f"a decision on the mode needs one of {', '.join(Mode)}, got none; name the mode"
        )
    if decision.mode is mode:
        raise InvalidValueError(f"mode must differ from now, got {mode}, which job {name} already has")


def _plan(decision: Decision, book: ProposalBook) -> ResourcePlan:
    if decision.verdict is Verdict.ACCEPT:
        return book.find(decision.proposal).candidate.plan
    if decision.plan is None:
        raise InvalidValueError(f"{decision.verdict} needs a plan, got none; say what should run instead")
    return decision.plan


def _check_plan(plan: ResourcePlan, job: JobSubmitted, target: ResourcePlan) -> None:
    if plan == target:
        raise InvalidValueError(
            f"plan must differ from now, got {plan}, which already runs; name what should change"
        )
    check_fits(plan, job.capacity)

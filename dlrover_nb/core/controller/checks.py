"""Whether a decision is valid: everything is checked before anything changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.controller.mitigations.mitigation_book import is_mitigation
from dlrover_nb.core.controller.mitigations.mitigation_checks import check_action, check_answer
from dlrover_nb.core.controller.state.undo_log import check_undo, check_version
from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.planner.availability.feasibility import check_room
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.decisions.setting_checks import Settings, check_setting
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.bounds import Pins

if TYPE_CHECKING:
    from dlrover_nb.core.controller.mitigations.mitigation_book import MitigationBook
    from dlrover_nb.core.controller.mitigations.mitigation_checks import MitigationContext
    from dlrover_nb.core.controller.plans.book import ProposalBook
    from dlrover_nb.core.controller.state.undo_log import UndoableChange
    from dlrover_nb.core.structs.job.spec_choices import Mode
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.events import JobSubmitted

_STATUS = {
    Verdict.ACCEPT: ProposalStatus.ACCEPTED,
    Verdict.OVERRIDE: ProposalStatus.OVERRIDDEN,
    Verdict.REJECT: ProposalStatus.REJECTED,
}


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """The state that a decision is checked against."""

    job: JobSubmitted
    phase: JobPhase
    mode: Mode
    pins: Pins
    target: ResourcePlan
    running: ResourcePlan  # before the change under way; the target while there is none
    is_running: bool
    under_way: str | None
    changes: tuple[UndoableChange, ...] = ()  # by decisions, oldest first
    is_held: bool = False  # whether it waits in the queue of its cluster: a plan lets it start
    budget_total: float | None = None  # None: no limit
    spent: float = 0.0
    ending: str = ""  # why it is being stopped, as its budget is spent; empty: it is not

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.spec.name

    @property
    def settings(self) -> Settings:
        """What the job is set to."""
        spec = self.job.spec
        return Settings(
            job=self.name,
            mode=self.mode,
            pins=self.pins,
            target=self.target,
            bounds=spec.bounds,
            prices=spec.prices,
            budget_total=self.budget_total,
            spent=self.spent,
            ending=self.ending,
        )

    @property
    def beside(self) -> ResourcePlan | None:
        """The plan beside which new PS must fit; None: a change may go through a checkpoint."""
        return self.running if self.job.must_move else None


def check_decision(
    decision: Decision,
    book: ProposalBook,
    now: DecisionContext,
    *,
    actions: MitigationBook,
    nodes: MitigationContext,
) -> None:
    """Refuse an invalid decision.

    Parameters
    ----------
    book, actions
        The proposals of the job, and its actions against stragglers.
    now, nodes
        The state of the job, and that of its nodes.

    Raises
    ------
    StaleDecisionError
        When the job is over, the proposal or action is no longer open, what is to be undone is no longer the
        latest change, plan, mode or pins have changed since the user saw them, or another action is under
        way.
    NotFoundError
        When there is no such proposal, action or node, or nothing to undo.
    InvalidValueError
        When something is missing, the request changes nothing, or a plan breaks a pin.
    CapacityError
        When the plan does not fit on the machines or exceeds the quota.
    """
    if now.phase.is_final:
        raise StaleDecisionError(f"job {now.name} has {now.phase}; decisions need a running job")
    check_undo(decision, now.changes, now.name)
    check_version(decision, now.changes, now.name)
    check_setting(
        decision, now.settings, lambda plan: check_room(plan, now.job.capacity, now.job.spec.bounds)
    )
    if decision.verdict is Verdict.MITIGATE or is_mitigation(decision.proposal):
        _check_mitigation(decision, now, actions, nodes)
        return
    if decision.verdict in _STATUS:
        book.check(book.find(decision.proposal), _STATUS[decision.verdict])
    if decision.verdict.sets_plan:
        check_change(_plan(decision, book), now)


def _check_mitigation(
    decision: Decision, now: DecisionContext, actions: MitigationBook, nodes: MitigationContext
) -> None:
    if decision.verdict is Verdict.MITIGATE:
        check_action(decision, nodes)
    else:
        check_answer(decision, actions, nodes)
    if decision.verdict is Verdict.REJECT:
        return
    _check_ready(now, "an action against stragglers")
    if now.under_way is not None:
        raise StaleDecisionError(
            f"job {now.name} is still changing its plan ({now.under_way}); act on stragglers once that is "
            "done"
        )


def check_change(plan: ResourcePlan, now: DecisionContext) -> None:
    """Refuse an invalid change of plan, by a user or auto mode; raises as `check_decision` does.

    The way back from a change under way is open even where that plan would be refused now: it runs.
    """
    if now.phase.is_final:
        raise StaleDecisionError(f"job {now.name} has {now.phase}; decisions need a running job")
    if not now.is_held:
        _check_ready(now, "a change of plan")
    is_cancel = now.under_way is not None and plan == now.running
    if not is_cancel:
        check_plan(plan, now)


def _check_ready(now: DecisionContext, what: str) -> None:
    if not now.phase.trains or not now.is_running:
        state = (
            "is waiting for your decision on shards in quarantine (%dlrover show --rows): decide first"
            if now.phase is JobPhase.BLOCKED
            else "has finished training and is evaluating"
            if now.is_running
            else "is still starting; try again once it trains"
        )
        raise StaleDecisionError(f"{what} needs a job that is training, but {now.name} {state}")


def _plan(decision: Decision, book: ProposalBook) -> ResourcePlan:
    if decision.verdict is Verdict.ACCEPT:
        return book.find(decision.proposal).candidate.plan
    if decision.plan is None:
        raise InvalidValueError(f"{decision.verdict} needs a plan, got none; say which plan to run instead")
    return decision.plan


def check_plan(plan: ResourcePlan, now: DecisionContext) -> None:
    """Refuse a plan that runs already, breaks a pin or does not fit; raises as `check_decision` does."""
    if plan == now.target and not now.is_held:
        state = "is being applied already" if now.under_way else "already runs"
        raise InvalidValueError(f"{plan} {state}; say what should change")
    if not now.pins.allows(plan):
        broken = _broken(now.pins, plan)
        raise InvalidValueError(
            f"{plan} conflicts with the pins ({broken}); change the pin first, "
            f"for example with %dlrover pin {now.name} --clear"
        )
    _check_store(plan, now)
    check_room(plan, now.job.capacity, now.job.spec.bounds, beside=now.beside)


def _check_store(plan: ResourcePlan, now: DecisionContext) -> None:
    """Refuse other stores of an external job whose workers meet there."""
    external = now.job.spec.foreign
    if external is None or not external.framework.has_store:
        return
    if plan.ps.count != 1:
        raise InvalidValueError(
            f"a {external.framework} job needs exactly 1 ps, the store where its workers meet, "
            f"got {plan.ps.count}; change the number of workers instead"
        )
    if external.framework.keeps_store and plan.ps != now.target.ps:
        raise InvalidValueError(
            f"the ps of a ddp job, the store where its workers meet, cannot be resized while they "
            f"train: it has {now.target.ps.cpu:g} cpu and {now.target.ps.memory_mib} MiB, got "
            f"{plan.ps.cpu:g} cpu and "
            f"{plan.ps.memory_mib} MiB; change the workers, or submit the job again with another ps"
        )


def _broken(pins: Pins, plan: ResourcePlan) -> str:
    """Return the pins that a plan breaks, in words."""
    single = (Pins(**{name: getattr(pins, name)}) for name in Pins.__slots__)
    return and_list(str(pin) for pin in single if not pin.allows(plan))

"""Decisions of users and of auto mode, and their effects.

A decision is checked completely before anything changes: a refused one changes nothing. Auto mode makes the
same `Decision` that a user would, after every event that leaves a proposal open, if `auto_mode` allows it. So
its decisions follow from the other events, and a journal must hold only those of users.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core import pricing
from dlrover_nb.core.controller.auto_policy import COOL_DOWN, over_budget
from dlrover_nb.core.controller.checks import DecisionContext, check_decision
from dlrover_nb.core.controller.mitigations.mitigation_book import is_mitigation
from dlrover_nb.core.controller.plans.rollouts import Rollout
from dlrover_nb.core.controller.state.record_lists import append, next_id
from dlrover_nb.core.planner.advising.advice import axes_key
from dlrover_nb.core.planner.policies.stages import protect_why
from dlrover_nb.core.planner.predictions.quality import over_bound
from dlrover_nb.core.planner.protect import Frame, protected
from dlrover_nb.core.structs.decisions.decisions import (
    Decision,
    ProposalKind,
    ProposalStatus,
    Refusal,
    Verdict,
)
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import Instruction, Remember

if TYPE_CHECKING:
    from dlrover_nb.core.controller.analyst import Analyst
    from dlrover_nb.core.controller.budget_watch import BudgetWatch
    from dlrover_nb.core.controller.measured.measurement import Measurement
    from dlrover_nb.core.controller.mitigations.mitigation_book import MitigationBook
    from dlrover_nb.core.controller.mitigations.mitigations import Mitigations
    from dlrover_nb.core.controller.plans.advisor import Advisor
    from dlrover_nb.core.controller.plans.auto_mode import AutoMode
    from dlrover_nb.core.controller.plans.book import ProposalBook
    from dlrover_nb.core.controller.plans.plan_changes import PlanChanges
    from dlrover_nb.core.controller.plans.rollouts import Rollouts
    from dlrover_nb.core.controller.protection import Protection
    from dlrover_nb.core.controller.state.job_state import JobState
    from dlrover_nb.core.controller.state.story import Story
    from dlrover_nb.core.controller.state.undo_log import UndoLog
    from dlrover_nb.core.structs.decisions.candidates import Prediction
    from dlrover_nb.core.structs.decisions.decisions import Proposal
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

logger = logging.getLogger(__name__)

Orders = tuple[Instruction, ...]


class DecisionHandler:
    """Handles the decisions on one job, and owns their list.

    Parameters
    ----------
    state, story, measured, rollouts, book, undo
        What a decision is checked against and changes.
    analyst, protection, auto, advisor, plans, mitigations, budget
        The parts that execute it.
    actions
        The actions against stragglers.
    """

    def __init__(  # noqa: PLR0913 - the parts that a decision concerns, all by keyword
        self,
        *,
        state: JobState,
        story: Story,
        measured: Measurement,
        rollouts: Rollouts,
        book: ProposalBook,
        undo: UndoLog,
        analyst: Analyst,
        protection: Protection,
        auto: AutoMode,
        advisor: Advisor,
        plans: PlanChanges,
        actions: MitigationBook,
        mitigations: Mitigations,
        budget: BudgetWatch,
    ) -> None:
        self._state, self._story, self._measured, self._rollouts = state, story, measured, rollouts
        self._book, self._undo, self._analyst, self._protection = book, undo, analyst, protection
        self._auto, self._advisor, self._plans = auto, advisor, plans
        self._actions, self._mitigations, self._budget = actions, mitigations, budget
        self._decisions: list[Decision] = []
        self._last_hint = ""

    @property
    def all(self) -> tuple[Decision, ...]:
        """The newest decisions, oldest first."""
        return tuple(self._decisions)

    @property
    def context(self) -> DecisionContext:
        """The present state that decisions are checked against."""
        rollout, state = self._rollouts.current, self._state
        return DecisionContext(
            job=state.job,
            phase=state.phase,
            mode=state.mode,
            pins=state.pins,
            target=self._rollouts.target,
            running=self._rollouts.running,
            is_running=bool(self._rollouts.markers),
            under_way=str(rollout) if rollout else None,
            changes=self._undo.all,
            is_held=state.queue is not None,
            budget_total=state.spec.budget_total,
            spent=state.spending.spent,
            ending=self._budget.ending,
        )

    def decided(self, decision: Decision, at_s: float) -> Orders:
        """Handle a decision, or refuse it without any change; raises as `check_decision` does."""
        nodes = self._mitigations.context
        check_decision(decision, self._book, self.context, actions=self._actions, nodes=nodes)
        decision = replace(decision, id=next_id("d", (each.id for each in self._decisions[-1:])))
        append(self._decisions, decision)
        self._narrate(decision, at_s)
        mode, pins, limit = self._state.mode, self._state.pins, self._state.spec.budget_total
        running, is_replacing = self._rollouts.running, self._rollouts.current is not None
        if decision.verdict is Verdict.MITIGATE or is_mitigation(decision.proposal):
            return (Remember(at_s, decision), *self._act(decision, at_s))
        orders = self._obey(decision, at_s)
        is_cancelled = is_replacing and decision.plan is not None and self._rollouts.target == running
        if not is_cancelled:
            self._undo.made(decision, plan=running, mode=mode, pins=pins, budget_total=limit)
        return (Remember(at_s, decision), *orders)

    def by_itself(self, at_s: float) -> Orders:
        """Do what is due after every event without a user: memory, the open proposal, stragglers."""
        return self.protect(at_s) + self.decide_alone(at_s) + self.mitigate(at_s)

    def mitigate(self, at_s: float) -> Orders:
        """Review stragglers when it is due; in auto mode order at once what is proposed."""
        if not self._mitigations.is_due(at_s):
            return ()
        trains = bool(self._rollouts.markers) and self._measured.plan is not None
        may_change = trains and self._advisor.may_change
        self._mitigations.review(at_s, may_propose=may_change)
        opened = self._actions.open
        if opened is None or not self._auto.is_on or not may_change or self._actions.running is not None:
            return ()
        accepted = Decision(
            Verdict.ACCEPT, "auto", at_s, proposal=opened.id, why=opened.why, action=opened.action
        )
        return self.decided(accepted, at_s)

    def decide_alone(self, at_s: float) -> Orders:
        """In auto mode, accept the open proposal if allowed; else note the reason once.

        It waits while an action against stragglers is under way, which was decided for the present nodes.
        """
        proposal = self._book.open
        if not self._auto.is_on or proposal is None or not self._advisor.may_change:
            return ()
        if self._actions.running is not None:
            return ()
        refusal = self._auto.refusal(proposal, at_s)
        if refusal is not None and refusal.rule == COOL_DOWN:
            return ()  # ends soon by itself: a line for each change would hide the other lines
        if refusal is not None:
            explained = self._advisor.explain(at_s)
            return self._book.note(f"auto waits: {refusal.words}", at_s) or explained
        self._auto.decided(at_s)
        accepted = Decision(Verdict.ACCEPT, "auto", at_s, proposal=proposal.id, why=proposal.why)
        return self.decided(accepted, at_s)

    def protect(self, at_s: float) -> Orders:
        """Give nodes the memory that they need, or propose it, when advice on memory is due."""
        is_asked = self._state.mode is not Mode.MANUAL and self._advisor.may_change
        if not is_asked or not self._rollouts.markers or not self._protection.is_due(at_s):
            return ()
        orders: Orders = self._advisor.protect(at_s)
        return orders or self._protect_unmeasured(at_s)

    def _act(self, decision: Decision, at_s: float) -> Orders:
        """Answer a proposed action against stragglers, or order one."""
        if decision.verdict is Verdict.REJECT:
            self._mitigations.reject(decision, at_s)
            return ()
        self._undo.acted(decision, self._mitigations.inverse(decision))
        if decision.verdict is Verdict.ACCEPT:
            return self._mitigations.accept(decision, at_s)
        is_redo = any(each.undoes for each in self._decisions if each.id == decision.undoes)
        return self._mitigations.begin(decision, at_s, is_redo=is_redo)

    def _obey(self, decision: Decision, at_s: float) -> Orders:
        match decision.verdict:
            case Verdict.MODE:
                return self._change_mode(decision, at_s)
            case Verdict.PIN:
                return self._change_pins(decision, at_s)
            case Verdict.BUDGET:
                self._state.limit_budget(decision.budget_total)
                return self._advisor.check_open(at_s) + self._budget.limit_changed(at_s)
            case Verdict.REJECT:
                return self._reject(decision, at_s)
            case Verdict.ACCEPT:
                plan = self._book.find(decision.proposal).candidate.plan
                return self._change_plan(decision, plan, ProposalStatus.ACCEPTED, at_s)
            case Verdict.OVERRIDE | Verdict.SCALE:
                assert decision.plan is not None
                self._advisor.allow_experiments()
                if decision.undoes:
                    self._reject_undone(decision, self._rollouts.target, decision.plan)
                return self._change_plan(decision, decision.plan, ProposalStatus.OVERRIDDEN, at_s)
            case Verdict.MITIGATE:
                raise AssertionError(decision)  # it changes no plan: `_act`
            case _:
                assert_never(decision.verdict)

    def _reject(self, decision: Decision, at_s: float) -> Orders:
        proposal = self._book.find(decision.proposal)
        plan = proposal.candidate.plan
        if proposal.kind is ProposalKind.PROTECT:  # is proposed again when the need has grown
            self._protection.declined(plan)
        else:
            self._book.reject_plan(plan, self._refusal(decision, "rejected", proposal.candidate.prediction))
        if axes_key(plan) == axes_key(self._rollouts.target):
            self._protection.keep(self._rollouts.target, plan)
        note = f"{decision.by}{decision.why and ': ' + decision.why}"
        return (self._book.move(proposal.id, ProposalStatus.REJECTED, at_s, note),)

    def _refusal(self, decision: Decision, did: str, prediction: Prediction | None) -> Refusal | None:
        """Return that a plan is refused, with the evidence now; None where nothing is predicted of it."""
        if prediction is None:
            return None
        speed, shown = prediction.without_host.samples_per_s, self._analyst.published
        n_plan = 0 if shown is None else shown.model.report_.n_plan
        return Refusal(decision.by, decision.at_s, did, speed, n_plan)

    def _reject_undone(self, decision: Decision, plan: ResourcePlan, back: ResourcePlan) -> None:
        """Do not propose an undone plan again at once; the one returned to may be proposed again.

        The plan is rejected until its prediction is materially better, and permanently where it has none.
        Its memory is not proposed again until the need has grown.
        """
        if axes_key(plan) != axes_key(back):
            prediction = self._analyst.predict(plan)
            self._book.reject_plan(plan, self._refusal(decision, "undid", prediction))
        if any(plan.role(role).memory_mib > back.role(role).memory_mib for role in Role):
            self._protection.declined(plan)
        self._protection.keep(back, plan)

    def _change_plan(
        self, decision: Decision, plan: ResourcePlan, status: ProposalStatus, at_s: float
    ) -> Orders:
        before = self._rollouts.running
        answered = None if decision.verdict is Verdict.SCALE else self._book.find(decision.proposal)
        is_accepted = status is ProposalStatus.ACCEPTED
        rollout = Rollout(
            decision=decision.id,
            before=before,
            target=plan,
            proposal=None if answered is None else answered.id,
            predicted=self._prediction_seen(plan, answered),
            before_samples_per_s=self._measured.samples_per_s(before),
            kind=answered.kind if answered is not None and is_accepted else None,
        )
        self._book.allow_plan(plan)
        self._warn_of_memory(plan, at_s)
        self._warn_of_quality(plan, at_s)
        self._state.queued(None)
        did = f"undid {decision.undoes}" if decision.undoes else "set another plan"
        self._mitigations.give_way(at_s, f"{decision.by} {did}")
        return self._plans.order(rollout, status, at_s, by=decision.by, did=did)

    def _prediction_seen(self, plan: ResourcePlan, answered: Proposal | None) -> Prediction | None:
        """Return the prediction of a plan that its decider saw, by which it is scored.

        That of a proposed plan stands in its proposal, however old it is; that of any other plan is what a
        what-if answers now.
        """
        if answered is not None and answered.candidate.plan == plan:
            return answered.candidate.prediction
        shown = self._analyst.published
        return None if shown is None else shown.predict(plan)

    def _change_mode(self, decision: Decision, at_s: float) -> Orders:
        assert decision.mode is not None
        self._state.change_mode(decision.mode)
        if decision.mode is Mode.MANUAL:
            self._mitigations.expire(at_s, "the mode is manual now")
            return self._advisor.expire(at_s, "the mode is manual now")
        self._advisor.allow_experiments()
        self._protection.request_advice()
        return self._advisor.reconsider(at_s)

    def _change_pins(self, decision: Decision, at_s: float) -> Orders:
        assert decision.pins is not None
        self._state.pin(decision.pins)
        self._protection.request_advice()
        self._analyst.observe(self._rollouts.target, at_s)
        return self._advisor.check_open(at_s) + self._advisor.reconsider(at_s)

    def _protect_unmeasured(self, at_s: float) -> Orders:
        """Give nodes more memory before any measurement, when no proposal can predict its effect.

        Auto mode does it at once: a job whose nodes are killed before they are measured would never be
        measured. In other modes a note tells the user what to do.
        """
        plan, job = self._rollouts.target, self._state.job
        needs = self._protection.needs(plan)
        if not needs or self._analyst.has_analysis or self._actions.running is not None:
            return ()
        frame = Frame(job.capacity, job.spec.bounds, self._state.pins, plan if job.must_move else None)
        better = protected(plan, needs, frame)
        if better is None or better in self._book.rejected_plans:
            return self._hint(
                f"no plan that fits the machines and the pins has enough memory: {needs[0].why}", at_s
            )
        over = over_budget(pricing.cost_per_hour(better, job.spec.prices), job.spec)
        if not self._auto.is_on or over:
            why = f"auto waits: {over}" if over else "there are no measurements yet to base a proposal on"
            return self._hint(f"{needs[0].why}; {why}; scale to {better} to protect it", at_s)
        why = protect_why(better, needs)
        return self.decided(Decision(Verdict.SCALE, "auto", at_s, plan=better, why=why), at_s)

    def _hint(self, text: str, at_s: float) -> Orders:
        """Note once what prevents protecting a node."""
        if text != self._last_hint:
            self._last_hint = text
            self._story.add(at_s, text)
        return ()

    def _narrate(self, decision: Decision, at_s: float) -> None:
        reasons = {proposal.why for proposal in self._book.all}  # auto mode repeats the proposal's reason
        reasons |= {action.why for action in self._actions.all}
        because = f": {decision.why}" if decision.why and decision.why not in reasons else ""
        line = f"{decision.id} {decision.words} by {decision.by}{because}"
        logger.info("%s: %s", self._state.name, line)
        self._story.add(at_s, line, about=decision.proposal or "")

    def _warn_of_memory(self, plan: ResourcePlan, at_s: float) -> None:
        """Warn that a user's plan gives nodes less than one of them had when it was killed."""
        for role in Role:
            least, given = self._protection.least_mib(role), plan.role(role).memory_mib
            if given < least:
                self._story.add(
                    at_s,
                    f"this plan gives a {role} {given} MiB, but one ran out of memory at {least} MiB: "
                    "that would happen again",
                )

    def _warn_of_quality(self, plan: ResourcePlan, at_s: float) -> None:
        """Warn that a user's plan may cost more AUC than the job's bound lets the planner take."""
        shown = self._analyst.published
        if shown is None or self._state.spec.bounds.max_auc_loss is None:
            return
        if worse := over_bound(shown.candidate(plan), shown.current, self._state.spec):
            self._story.add(at_s, f"this plan is beyond the bound of AUC: {worse}")

"""Decisions and what they set going: those of users, and those of auto mode.

A decision is checked completely before anything changes: what is refused has not happened. Auto mode makes
the same `Decision` that a user would, after every event that leaves a proposal open; `autopilot` says
whether it may. So its decisions follow from the other events, and a journal must hold only those of users.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core import pricing
from dlrover_nb.core.controller.advisor import Advisor
from dlrover_nb.core.controller.auto_policy import COOL_DOWN, AutoContext, limits, may_apply, over_budget
from dlrover_nb.core.controller.book import NEVER_AGAIN, ProposalBook
from dlrover_nb.core.controller.checks import DecisionContext, check_decision
from dlrover_nb.core.controller.measurement import Measurement
from dlrover_nb.core.controller.plan_queries import MeasurementProgress, PlanQueries
from dlrover_nb.core.controller.rollouts import Rollout, Rollouts
from dlrover_nb.core.controller.undo_log import UndoLog
from dlrover_nb.core.planner import Frame, axes_key, has_room, protect_why, protected
from dlrover_nb.core.structs.bounds import Quota
from dlrover_nb.core.structs.decisions import Decision, ProposalKind, ProposalStatus, Verdict
from dlrover_nb.core.structs.events import Instruction, Remember, Scale
from dlrover_nb.core.structs.job import JobPhase, Mode
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.controller.book import Story
    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.structs.bounds import Pins, PlanBounds
    from dlrover_nb.core.structs.capacity import Capacity
    from dlrover_nb.core.structs.events import JobSubmitted, NodeOutOfMemory
    from dlrover_nb.core.structs.resources import ResourcePlan

logger = logging.getLogger(__name__)

Orders = tuple[Instruction, ...]
REPLACEABLE = frozenset({"budget", "quota", "hysteresis", "first steps"})  # waiting does not satisfy them


class DecisionHandler:
    """Steers one job.

    Attributes
    ----------
    phase, mode, pins
        Where the job is, who decides, and what of its plans is fixed.
    decisions
        All that were made, oldest first.
    measured, book, rollouts, advisor, changes
        What is known of the job, its proposals, its plans through time, what to propose, and what can be
        taken back.
    """

    def __init__(self, settings: ControllerSettings, job: JobSubmitted, story: Story) -> None:
        self._settings = settings
        self._story = story
        self._job = job
        self._auto_at_s: deque[float] = deque(maxlen=settings.auto.max_changes_per_hour)
        self._blind_words = ""
        self.phase = JobPhase.STARTING
        self.mode = job.spec.mode
        self.decisions: list[Decision] = []
        self.quota = Quota()
        self.measured = Measurement(settings, job.spec, job.n_sample_total)
        self.book = ProposalBook(job.spec.name, story)
        self.rollouts = Rollouts(job.spec.plan, story)
        self.advisor = Advisor(settings, job, self.measured, self.book)
        self.changes = UndoLog()

    @property
    def name(self) -> str:
        """The job's name."""
        return self._job.spec.name

    @property
    def bounds(self) -> PlanBounds:
        """The plans that the job may be given, with its quota."""
        return self._job.spec.bounds

    @property
    def pins(self) -> Pins:
        """What of every plan is fixed."""
        return self.advisor.pins

    @property
    def may_change(self) -> bool:
        """Whether a change of plan can be thought of now."""
        over = self.phase.is_final or self.phase is JobPhase.EVALUATING
        return self.rollouts.current is None and not over

    # decisions

    def decided(self, decision: Decision, at_s: float) -> Orders:
        """Take a decision, or refuse it and leave everything as it was; raises as `check_decision` does."""
        check_decision(decision, self.book, self.standing)
        decision = replace(decision, id=f"d{len(self.decisions) + 1}")
        self.decisions.append(decision)
        self._narrate(decision, at_s)
        self.changes.made(decision, plan=self.rollouts.target, mode=self.mode, pins=self.pins)
        return (Remember(at_s, decision), *self._obey(decision, at_s))

    def decide_alone(self, at_s: float) -> Orders:
        """In auto mode, accept the open proposal if that may be; say once why it may not."""
        proposal = self.book.open
        if self.mode is not Mode.AUTO or proposal is None or not self.may_change:
            return ()
        refusal = may_apply(proposal, self._flight(at_s), self._settings.auto)
        if refusal is not None and refusal.rule == COOL_DOWN:
            return ()  # passes by itself within moments: to tell it of each change would bury the rest
        if refusal is not None:
            explained = self.advisor.explain(at_s)
            return self.book.note(f"auto waits: {refusal.words}", at_s) or explained
        self._auto_at_s.append(at_s)
        return self.decided(
            Decision(Verdict.ACCEPT, "auto", at_s, proposal=proposal.id, why=proposal.why), at_s
        )

    def _obey(self, decision: Decision, at_s: float) -> Orders:
        match decision.verdict:
            case Verdict.MODE:
                return self._change_mode(decision, at_s)
            case Verdict.PIN:
                return self._change_pins(decision, at_s)
            case Verdict.REJECT:
                return self._reject(decision, at_s)
            case Verdict.ACCEPT:
                plan = self.book.find(decision.proposal).candidate.plan
                return self._roll_out(decision, plan, ProposalStatus.ACCEPTED, at_s)
            case Verdict.OVERRIDE | Verdict.SCALE:
                assert decision.plan is not None
                self.advisor.n_explored = 0
                if decision.undoes:
                    self._turn_down(self.rollouts.target, decision.plan)
                return self._roll_out(decision, decision.plan, ProposalStatus.OVERRIDDEN, at_s)
            case _:
                assert_never(decision.verdict)

    def _reject(self, decision: Decision, at_s: float) -> Orders:
        proposal = self.book.find(decision.proposal)
        plan = proposal.candidate.plan
        if proposal.kind is ProposalKind.PROTECT:  # comes back when the danger has grown
            self.advisor.protection.declined(plan)
        else:
            self.book.rejected_plans[plan] = proposal.candidate.prediction.samples_per_s
        note = f"{decision.by}{decision.why and ': ' + decision.why}"
        return (self.book.move(proposal.id, ProposalStatus.REJECTED, at_s, note),)

    def _turn_down(self, plan: ResourcePlan, back: ResourcePlan) -> None:
        """Keep the optimizer from putting an undone plan straight back; the one returned to is free again.

        The plan is barred as a rejected one is: until its prediction has changed materially, and for good
        where nothing is known of it. Memory that it gave is not proposed again until the need has grown.
        """
        told = self.advisor.predict(plan)
        if axes_key(plan) != axes_key(back):
            self.book.rejected_plans[plan] = NEVER_AGAIN if told is None else told.samples_per_s
        if any(plan.role(role).memory_mib > back.role(role).memory_mib for role in Role):
            self.advisor.protection.declined(plan)
        self.book.rejected_plans.pop(back, None)

    def _roll_out(
        self, decision: Decision, plan: ResourcePlan, status: ProposalStatus, at_s: float
    ) -> Orders:
        before, name = (
            self.rollouts.target,
            decision.proposal if decision.verdict is not Verdict.SCALE else None,
        )
        rollout = Rollout(
            decision=decision.id,
            before=before,
            target=plan,
            proposal=name,
            predicted=self.advisor.predict(plan),
            before_samples_per_s=self.measured.samples_per_s(before),
            kind=self.book.find(name).kind if status is ProposalStatus.ACCEPTED else None,
        )
        self._warn_of_memory(plan, at_s)
        scored = self.rollouts.start(rollout, at_s)
        orders: Orders = (*scored, *(self.advisor.summary(at_s) if scored else ()))
        if name:
            self.book.move(name, status, at_s, f"by {decision.by}")
            orders += (self.book.move(name, ProposalStatus.APPLYING, at_s),)
        else:
            did = f"undid {decision.undoes}" if decision.undoes else "set another plan"
            orders += self.expire(at_s, f"{decision.by} {did}")
        return (*orders, Scale(decision.id, plan))

    def _change_mode(self, decision: Decision, at_s: float) -> Orders:
        assert decision.mode is not None
        self.mode = decision.mode
        if decision.mode is Mode.MANUAL:
            return self.expire(at_s, "the mode is manual now")
        self.advisor.n_explored = 0
        self.advisor.protection.hurry()
        return self.reconsider(at_s)

    def _change_pins(self, decision: Decision, at_s: float) -> Orders:
        assert decision.pins is not None
        self.advisor.pins = decision.pins
        self.advisor.protection.hurry()
        self.advisor.look(self.rollouts.target, at_s)
        return self.check_open(at_s) + self.reconsider(at_s)

    # advice

    def reconsider(self, at_s: float) -> Orders:
        """Bring the open proposal into step with what is known, unless nobody wants to know or may act."""
        if self.mode is Mode.MANUAL or not self.may_change:
            return ()
        if self.mode is not Mode.AUTO:
            return self.advisor.reconsider(self.rollouts.target, at_s, limits=None)
        flight, proposal = self._flight(at_s), self.book.open
        refusal = may_apply(proposal, flight, self._settings.auto) if proposal else None
        return self.advisor.reconsider(
            self.rollouts.target,
            at_s,
            limits=limits(flight, self._settings.auto),
            may_replace=refusal is not None and refusal.rule in REPLACEABLE,
        )

    def counsel(self, at_s: float) -> PlanQueries:
        """Return what can be asked about the job as it stands now."""
        s, advisor = self._settings, self.advisor
        within = limits(self._flight(at_s), s.auto) if self.mode is Mode.AUTO else None
        is_measured = advisor.is_measured(self.rollouts.target)
        return PlanQueries(
            analysis=advisor.analysis,
            standing=self.standing,
            proposals=self.book.all,
            waiting=MeasurementProgress(is_measured, self.measured.n_waiting, s.n_stable, s.n_patience),
            settings=s.planner,
            rejected_plans=dict(self.book.rejected_plans),
            quota=self.quota,
            limits=within,
            n_explored=0 if advisor.may_explore else advisor.n_explored,
            decide=advisor.decide(within),
            improve=advisor.decide(within, may_explore=False),
        )

    def protect(self, at_s: float) -> Orders:
        """See to the memory of nodes, when it is time to."""
        is_asked = self.mode is not Mode.MANUAL and self.may_change
        if not is_asked or not self.rollouts.markers or not self.advisor.protection.is_due(at_s):
            return ()
        orders: Orders = self.advisor.protect(self.rollouts.target, at_s)
        return orders or self._protect_blindly(at_s)

    def check_open(self, at_s: float) -> Orders:
        """Close the open proposal if it has no room any more, or breaks a pin."""
        proposal = self.book.open
        if proposal is None:
            return ()
        plan = proposal.candidate.plan
        if not self.pins.allows(plan):
            return self.expire(at_s, f"it does not keep to what is pinned ({self.pins})")
        if not has_room(plan, self._job.capacity, self._job.spec.bounds):
            return self.expire(at_s, "there is no room for it any more")
        return ()

    def expire(self, at_s: float, why: str) -> Orders:
        """Close the open proposal because something else has happened."""
        return self.book.close_open(ProposalStatus.EXPIRED, at_s, why)

    def room_changed(self, capacity: Capacity, at_s: float) -> Orders:
        """Plan and check with another room from now on; the next fit searches in it."""
        self._job = self.advisor.job = replace(self._job, capacity=capacity)
        self.advisor.protection.hurry()
        return self.check_open(at_s)

    def gave_up(self, at_s: float) -> Rollout:
        """Note that the change under way is given up; return it."""
        rollout = self.rollouts.failed(at_s)
        self.changes.fell_through(rollout.decision)
        return rollout

    def killed(self, event: NodeOutOfMemory) -> None:
        """Learn from a node that was killed for want of memory."""
        self.advisor.protection.killed(event, self.rollouts.target)

    def _protect_blindly(self, at_s: float) -> Orders:
        """Give nodes more memory before anything was measured, when no proposal can say what it would bring.

        Auto mode does it at once: a job whose nodes are killed before they are measured would never be
        measured. Else the user is told what to do.
        """
        plan = self.rollouts.target
        needs = self.advisor.protection.needs(plan)
        if not needs or self.advisor.has_analysis:
            return ()
        frame = Frame(self._job.capacity, self._job.spec.bounds, self.pins)
        wanted = protected(plan, needs, frame)
        if wanted is None or wanted in self.book.rejected_plans:
            return self._tell_blind(
                f"no plan within room and pins gives what is needed: {needs[0].why}", at_s
            )
        over = over_budget(pricing.cost_per_hour(wanted, self._job.spec.prices), self._job.spec)
        if self.mode is not Mode.AUTO or over:
            words = f"auto waits: {over}" if over else "nothing is measured yet, so that nothing is proposed"
            return self._tell_blind(f"{needs[0].why}; {words}; scale to {wanted} to protect it", at_s)
        why = protect_why(wanted, needs)
        return self.decided(Decision(Verdict.SCALE, "auto", at_s, plan=wanted, why=why), at_s)

    def _tell_blind(self, words: str, at_s: float) -> Orders:
        """Say once what stands in the way of protecting a node."""
        if words != self._blind_words:
            self._blind_words = words
            self._story.tell(at_s, words)
        return ()

    def _flight(self, at_s: float) -> AutoContext:
        return AutoContext(
            at_s=at_s,
            spec=self._job.spec,
            pins=self.pins,
            plan=self.rollouts.target,
            calm_at_s=self.rollouts.changed_at_s + self._settings.cool_down_s,
            changes=self._auto_at_s,
            left=self.rollouts.left,
            outcomes=self.rollouts.outcomes,
            quota=self.quota,
        )

    @property
    def standing(self) -> DecisionContext:
        """What a decision is checked against now."""
        rollout = self.rollouts.current
        return DecisionContext(
            job=self._job,
            phase=self.phase,
            mode=self.mode,
            pins=self.pins,
            target=self.rollouts.target,
            is_running=bool(self.rollouts.markers),
            under_way=str(rollout) if rollout else None,
            changes=self.changes.all,
        )

    # words

    def _narrate(self, decision: Decision, at_s: float) -> None:
        told = {proposal.why for proposal in self.book.all}  # auto mode repeats the proposal's reason
        because = f" because: {decision.why}" if decision.why and decision.why not in told else ""
        said = f"{decision.id} {decision.words} by {decision.by}{because}"
        logger.info("%s: %s", self._job.spec.name, said)
        self._story.tell(at_s, said, about=decision.proposal or "")

    def _warn_of_memory(self, plan: ResourcePlan, at_s: float) -> None:
        """Say that a user's plan gives nodes less than one of them had when it was killed."""
        for role in Role:
            least, given = self.advisor.protection.least_mib(role), plan.role(role).memory_mib
            if given < least:
                self._story.tell(
                    at_s, f"a {role} was killed at {least} MiB, this plan gives {given} MiB: it will be again"
                )

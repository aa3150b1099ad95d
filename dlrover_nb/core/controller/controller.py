"""Facts in, orders out: which plan is proposed, what a decision does, and how it turned out.

The controller reads no clock, opens no file and starts no thread: `handle` changes its state by one event
and returns instructions. So a journal of events replays to the same state, and one test reads like a
conversation. A decision is checked completely before anything changes: what is refused has not happened.

Two rules keep clicks honest. At most one proposal is open, and it is replaced only by a materially better
one, so that the button a user is about to press does not go stale. And while a change is under way
further changes are refused rather than queued: by the time a queued one ran, nobody could say what it was
based on.

Decisions of auto mode follow from the other events, so that a journal must hold only those of users.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.controller.advisor import Advisor
from dlrover_nb.core.controller.book import ProposalBook, Story
from dlrover_nb.core.controller.checks import check_decision
from dlrover_nb.core.controller.measurement import Measurement
from dlrover_nb.core.controller.rollouts import Rollout, Rollouts
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.controller.view import ControllerView
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.events import (
    Decided,
    Event,
    Instruction,
    JobSubmitted,
    NodeReported,
    PhaseChanged,
    PlanApplied,
    PlanFailed,
    ProgressMade,
    Remember,
    Scale,
    Ticked,
)
from dlrover_nb.core.structs.job import JobPhase, Mode
from dlrover_nb.core.structs.snapshot import PlanMarker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.resources import ResourcePlan

logger = logging.getLogger(__name__)

Orders = tuple[Instruction, ...]
NEVER_AGAIN = float("nan")  # as the prediction of a barred plan: no later one differs from it materially


class Controller:
    """The decision side of one job.

    Parameters
    ----------
    settings
        Durations and thresholds.

    Notes
    -----
    The first event must be `JobSubmitted`.
    """

    def __init__(self, settings: ControllerSettings | None = None) -> None:
        self._settings = settings or ControllerSettings()
        self._story = Story()
        self._decisions: list[Decision] = []
        self._phase = JobPhase.STARTING
        self._is_submitted = False

    def handle(self, event: Event) -> Orders:
        """Take one fact in and return the orders that follow from it.

        Raises
        ------
        StaleDecisionError, InvalidValueError, CapacityError, NotFoundError
            When a decision cannot be; then nothing has changed.
        """
        if isinstance(event, JobSubmitted) == self._is_submitted:
            raise InvalidValueError(
                f"a controller serves one job, submitted first; got {type(event).__name__}; make one per job"
            )
        orders = self._dispatch(event)
        return (*orders, *self._decide_alone(event.at_s))

    def view(self, at_s: float) -> ControllerView:
        """Return the picture at `at_s`, a time not before the last event; a job must be submitted."""
        analysis = self._advisor.analysis
        return ControllerView(
            mode=self._mode,
            proposals=self._book.all,
            decisions=tuple(self._decisions),
            outcomes=tuple(self._rollouts.outcomes),
            markers=tuple(self._rollouts.markers),
            fit=analysis.model.report_ if analysis else None,
            curves=analysis.curves if analysis else (),
            samples=self._measured.samples,
            front=analysis.front if analysis else None,
            memory=self._measured.memory(at_s),
            story=self._story.lines,
        )

    def story(self) -> tuple[str, ...]:
        """Return what happened, one line per fact, oldest first."""
        return self._story.lines

    def _dispatch(self, event: Event) -> Orders:
        orders: Orders = ()
        match event:
            case JobSubmitted():
                orders = self._submitted(event)
            case NodeReported():
                orders = self._reported(event)
            case ProgressMade():
                self._measured.progress(event.n_sample_done, event.at_s)
            case Decided():
                orders = self._decided(event.decision, event.at_s)
            case PlanApplied():
                orders = self._applied(event)
            case PlanFailed():
                orders = self._failed(event)
            case PhaseChanged():
                orders = self._phase_changed(event)
            case Ticked():
                pass  # time alone matters to auto mode only, which is asked after every event
            case _:
                assert_never(event)
        return orders

    # facts about the job

    def _submitted(self, event: JobSubmitted) -> Orders:
        spec = event.spec
        self._job = event
        self._mode = spec.mode
        self._measured = Measurement(self._settings, spec, event.n_sample_total)
        self._book = ProposalBook(spec.name, self._story)
        self._rollouts = Rollouts(spec.plan, self._story)
        self._advisor = Advisor(self._settings, event, self._measured, self._book)
        self._is_submitted = True
        self._story.tell(event.at_s, f"job {spec.name} submitted by {spec.owner or 'someone'}: {spec.plan}")
        return (Remember(event.at_s, spec),)

    def _phase_changed(self, event: PhaseChanged) -> Orders:
        self._phase = event.phase
        message = event.message and f": {event.message}"
        verb = "has" if event.phase.is_final else "is"
        self._story.tell(event.at_s, f"the job {verb} {event.phase}{message}")
        orders: Orders = (Remember(event.at_s, event),)
        if not event.phase.is_final:
            return orders
        why = f"the job has {event.phase}"
        if self._rollouts.current is not None:
            rollout = self._rollouts.failed(event.at_s)
            orders += self._close_rollout(rollout, ProposalStatus.FAILED, event.at_s, why)
        return orders + self._rollouts.score(event.at_s, least=1) + self._expire(event.at_s, why)

    def _reported(self, event: NodeReported) -> Orders:
        if event.plan != self._measured.plan:
            self._measured.restart(event.plan, event.at_s)
            if event.plan is not None and not self._rollouts.markers:
                self._rollouts.mark(PlanMarker(event.at_s, event.plan, 0.0, None))
        new = self._measured.add(event.sample, event.at_s)
        if not new:
            return ()
        self._rollouts.measured(new)
        scored = self._rollouts.score(event.at_s, least=self._settings.n_outcome)
        if not self._advisor.is_due(new[0].plan, event.at_s):
            return scored
        self._advisor.look(new[0].plan, event.at_s)
        return scored + self._reconsider(event.at_s)

    # plans

    def _applied(self, event: PlanApplied) -> Orders:
        rollout = self._rollouts.current
        self._measured.restart(event.plan, event.at_s)
        if rollout is None or rollout.target != event.plan:
            return self._appeared(event)
        self._rollouts.applied(event.at_s, event.pause_s)
        self._measured.paused(rollout.before, event.plan, event.pause_s)
        self._advisor.look(event.plan, event.at_s)
        note = f"training stood still for {event.pause_s:.1f} s"
        return self._close_rollout(rollout, ProposalStatus.APPLIED, event.at_s, note)

    def _appeared(self, event: PlanApplied) -> Orders:
        """Take note of a plan that no decision of ours asked for: the first one, or a restored one."""
        self._rollouts.mark(PlanMarker(event.at_s, event.plan, event.pause_s, None))
        if self._rollouts.current is not None:
            return ()
        is_news = event.plan != self._rollouts.target
        self._rollouts.target, self._rollouts.changed_at_s = event.plan, event.at_s
        self._advisor.look(event.plan, event.at_s)
        return self._expire(event.at_s, f"the plan is now {event.plan.short}") if is_news else ()

    def _failed(self, event: PlanFailed) -> Orders:
        rollout = self._rollouts.current
        if rollout is None or rollout.target != event.plan:
            self._story.tell(event.at_s, f"plan {event.plan.short} could not be brought about: {event.why}")
            return ()
        self._rollouts.failed(event.at_s)
        self._book.barred[event.plan] = NEVER_AGAIN
        return self._close_rollout(rollout, ProposalStatus.FAILED, event.at_s, event.why)

    def _close_rollout(self, rollout: Rollout, status: ProposalStatus, at_s: float, note: str) -> Orders:
        logger.info("%s: %s %s: %s (%s)", self._name, rollout.decision, status, rollout.target.short, note)
        if rollout.proposal:
            return (self._book.move(rollout.proposal, status, at_s, note),)
        self._story.tell(at_s, f"{rollout.decision} is {status}: {note}")
        return ()

    # decisions

    def _decided(self, decision: Decision, at_s: float) -> Orders:
        rollout = self._rollouts.current
        check_decision(
            decision,
            job=self._job,
            book=self._book,
            phase=self._phase,
            mode=self._mode,
            target=self._rollouts.target,
            is_running=bool(self._rollouts.markers),
            under_way=str(rollout) if rollout else None,
        )
        decision = replace(decision, id=f"d{len(self._decisions) + 1}")
        self._decisions.append(decision)
        self._narrate(decision, at_s)
        return (Remember(at_s, decision), *self._obey(decision, at_s))

    def _narrate(self, decision: Decision, at_s: float) -> None:
        what = " ".join(
            str(w) for w in (decision.proposal, decision.plan and decision.plan.short, decision.mode) if w
        )
        told = {proposal.why for proposal in self._book.all}  # auto mode repeats the proposal's reason
        because = f" because: {decision.why}" if decision.why and decision.why not in told else ""
        logger.info(
            "%s: %s %s %s by %s%s", self._name, decision.id, decision.verdict, what, decision.by, because
        )
        self._story.tell(
            at_s,
            f"{decision.id} {decision.verdict} {what} by {decision.by}{because}",
            about=decision.proposal or "",
        )

    def _obey(self, decision: Decision, at_s: float) -> Orders:
        match decision.verdict:
            case Verdict.MODE:
                return self._change_mode(decision, at_s)
            case Verdict.REJECT:
                note = f"{decision.by}{decision.why and ': ' + decision.why}"
                proposal = self._book.find(decision.proposal)
                self._book.barred[proposal.candidate.plan] = proposal.candidate.prediction.samples_per_s
                return (self._book.move(proposal.id, ProposalStatus.REJECTED, at_s, note),)
            case Verdict.ACCEPT:
                plan = self._book.find(decision.proposal).candidate.plan
                return self._roll_out(decision, plan, ProposalStatus.ACCEPTED, at_s)
            case Verdict.OVERRIDE | Verdict.SCALE:
                assert decision.plan is not None
                self._advisor.n_explored = 0
                return self._roll_out(decision, decision.plan, ProposalStatus.OVERRIDDEN, at_s)
            case _:
                assert_never(decision.verdict)

    def _roll_out(
        self, decision: Decision, plan: ResourcePlan, status: ProposalStatus, at_s: float
    ) -> Orders:
        before = self._rollouts.target
        rollout = Rollout(
            decision=decision.id,
            before=before,
            target=plan,
            proposal=decision.proposal if decision.verdict is not Verdict.SCALE else None,
            predicted=self._advisor.predict(plan),
            before_samples_per_s=self._measured.samples_per_s(before),
        )
        orders: Orders = self._rollouts.start(rollout, at_s)
        if rollout.proposal:
            self._book.move(rollout.proposal, status, at_s, f"by {decision.by}")
            orders += (self._book.move(rollout.proposal, ProposalStatus.APPLYING, at_s),)
        else:
            orders += self._expire(at_s, f"{decision.by} set another plan")
        return (*orders, Scale(decision.id, plan))

    def _change_mode(self, decision: Decision, at_s: float) -> Orders:
        assert decision.mode is not None
        self._mode = decision.mode
        if decision.mode is Mode.MANUAL:
            return self._expire(at_s, "the mode is manual now")
        self._advisor.n_explored = 0
        return self._reconsider(at_s)

    def _decide_alone(self, at_s: float) -> Orders:
        """In auto mode, accept the open proposal once the cool-down is over."""
        proposal = self._book.open
        if self._mode is not Mode.AUTO or proposal is None or not self._may_change:
            return ()
        if at_s < self._rollouts.changed_at_s + self._settings.cool_down_s:
            return ()
        return self._decided(
            Decision(Verdict.ACCEPT, "auto", at_s, proposal=proposal.id, why=proposal.why), at_s
        )

    def _reconsider(self, at_s: float) -> Orders:
        if self._mode is Mode.MANUAL or not self._may_change:
            return ()
        return self._advisor.reconsider(self._rollouts.target, at_s)

    def _expire(self, at_s: float, why: str) -> Orders:
        proposal = self._book.open
        return (self._book.move(proposal.id, ProposalStatus.EXPIRED, at_s, why),) if proposal else ()

    @property
    def _may_change(self) -> bool:
        over = self._phase.is_final or self._phase is JobPhase.EVALUATING
        return self._rollouts.current is None and not over

    @property
    def _name(self) -> str:
        return self._job.spec.name


def replay(events: Iterable[Event], settings: ControllerSettings | None = None) -> Controller:
    """Return the controller that heard these events; what it orders on the way has been done before."""
    controller = Controller(settings)
    for event in events:
        controller.handle(event)
    return controller

"""Facts in, orders out: which plan is proposed, what a decision does, and how it turned out.

The controller reads no clock, opens no file and starts no thread: `handle` changes its state by one event
and returns instructions. So a journal of events replays to the same state, and one test reads like a
conversation. This module is the way in for facts; decisions, of users and of auto mode, are made in `helm`.

Two rules keep clicks honest. At most one proposal is open, and it is replaced only by a materially better
one, so that the button a user is about to press does not go stale (more memory for nodes in danger is always
better). And while a change is under way further changes are refused rather than queued: by the time a queued
one ran, nobody could say what it was based on.

Most events are node reports, and most of those change nothing: each costs some microseconds, whatever
the job's size and age. Fits and forecasts are made now and then (`ControllerSettings` bounds how often).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.controller.book import NEVER_AGAIN, Story
from dlrover_nb.core.controller.decision_handler import DecisionHandler, Orders
from dlrover_nb.core.controller.decision_view import DecisionView
from dlrover_nb.core.controller.rollup import Rollup
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.pareto.space import MAX_PLANS
from dlrover_nb.core.planner import Bid, bid, has_room
from dlrover_nb.core.structs.decisions import ProposalStatus
from dlrover_nb.core.structs.events import (
    Decided,
    Event,
    JobSubmitted,
    NodeOutOfMemory,
    NodeReported,
    PhaseChanged,
    PlanApplied,
    PlanFailed,
    ProgressMade,
    QuotaChanged,
    Remember,
    RoomChanged,
    Ticked,
)
from dlrover_nb.core.structs.job import Mode
from dlrover_nb.core.structs.snapshot import PlanMarker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.controller.plan_queries import PlanQueries
    from dlrover_nb.core.controller.rollouts import Rollout
    from dlrover_nb.core.structs.resources import ResourcePlan

logger = logging.getLogger(__name__)


class Controller:
    """The decision side of one job.

    Parameters
    ----------
    job
        The first event of a job; all others go to `handle`.
    settings
        Durations and thresholds.

    Attributes
    ----------
    first_orders
        The orders that follow from the submission.
    """

    def __init__(self, job: JobSubmitted, settings: ControllerSettings | None = None) -> None:
        self._settings = settings or ControllerSettings()
        self._story = Story()
        self._at_s = job.at_s  # of the last event
        self._helm = DecisionHandler(self._settings, job, self._story)
        self._rollup = Rollup(self._settings.row_s, job.at_s)
        self.first_orders = self._submitted(job)

    def handle(self, event: Event) -> Orders:
        """Take one fact in and return the orders that follow from it.

        Raises
        ------
        StaleDecisionError, InvalidValueError, CapacityError, NotFoundError
            When a decision cannot be; then nothing has changed.
        """
        at_s = event.at_s
        orders = self._about_job(event)
        self._at_s = at_s
        orders += self._rollup.close(self._helm.rollouts.target, at_s)
        return orders + self._helm.protect(at_s) + self._helm.decide_alone(at_s)

    @property
    def under_way(self) -> ResourcePlan | None:
        """The plan that was ordered and is not in place yet; None while there is none."""
        rollout = self._helm.rollouts.current
        return None if rollout is None else rollout.target

    def view(self) -> DecisionView:
        """Return the picture after the last event."""
        helm = self._helm
        analysis = helm.advisor.analysis
        return DecisionView(
            mode=helm.mode,
            proposals=helm.book.all,
            decisions=tuple(helm.decisions),
            outcomes=tuple(helm.rollouts.outcomes),
            markers=tuple(helm.rollouts.markers),
            fit=analysis.model.report_ if analysis else None,
            curves=analysis.curves if analysis else (),
            samples=helm.measured.samples,
            front=analysis.front if analysis else None,
            memory=helm.measured.memory(),
            story=self._story.lines,
            pins=helm.pins,
            undo=helm.changes.undo,
            memory_needs=self.memory_needs,
        )

    @property
    def open_proposal(self) -> str | None:
        """The id of the proposal that waits for a decision; None where none does."""
        opened = self._helm.book.open
        return None if opened is None else opened.id

    @property
    def memory_needs(self) -> tuple[str, ...]:
        """Why nodes are likely to be killed for want of memory, by the last forecast."""
        needs = self._helm.advisor.protection.needs(self._helm.rollouts.target)
        return tuple(need.why for need in needs)

    def counsel(self) -> PlanQueries:
        """Return what can be asked about the job as it stands now."""
        return self._helm.counsel(self._at_s)

    def bid(self) -> Bid | None:
        """Return what the job could have, for a choice among jobs.

        None where it does not decide for itself, nothing is known of it, or its plans are too many to list.
        """
        helm = self._helm
        analysis = helm.advisor.analysis if helm.mode is Mode.AUTO and helm.may_change else None
        if analysis is None or analysis.grid.n_plan > MAX_PLANS:
            return None
        return bid(analysis.situation, analysis.model)

    def story(self) -> tuple[str, ...]:
        """Return what happened, one line per fact, oldest first."""
        return self._story.lines

    def _about_job(self, event: Event) -> Orders:
        orders: Orders = ()
        match event:
            case NodeReported():
                orders = self._reported(event)
            case ProgressMade(at_s, n_sample_done):
                self._helm.measured.progress(n_sample_done)
            case Ticked():
                pass  # time alone matters to auto mode and to memory, which are asked after every event
            case JobSubmitted(spec=spec):
                raise InvalidValueError(
                    f"a controller serves one job, here {self._helm.name}; got {spec.name}; make one per job"
                )
            case PhaseChanged():
                orders = self._phase_changed(event)
            case Decided(at_s, decision):
                orders = self._helm.decided(decision, at_s)
            case _:
                orders = self._about_plan(event)
        return orders

    def _about_plan(
        self, event: PlanApplied | PlanFailed | NodeOutOfMemory | RoomChanged | QuotaChanged
    ) -> Orders:
        match event:
            case PlanApplied():
                return self._applied(event)
            case PlanFailed():
                return self._failed(event)
            case NodeOutOfMemory():
                return self._out_of_memory(event)
            case RoomChanged():
                return self._room_changed(event)
            case QuotaChanged():
                return self._quota_changed(event)
            case _:
                assert_never(event)

    # the job

    def _submitted(self, event: JobSubmitted) -> Orders:
        spec = event.spec
        self._story.tell(event.at_s, f"job {spec.name} submitted by {spec.owner or 'someone'}: {spec.plan}")
        if event.why:
            self._story.tell(event.at_s, event.why)
        if event.prior is not None:
            wrong = self._helm.advisor.adopt(event.at_s)
            known = f"{event.prior.n_plan} plans of similar jobs are known: a prior until samples arrive"
            self._story.tell(event.at_s, f"what similar jobs knew is left out: {wrong}" if wrong else known)
        begun: Orders = (Remember(event.at_s, spec),)
        return begun if event.traits is None else (*begun, Remember(event.at_s, event.traits))

    def _phase_changed(self, event: PhaseChanged) -> Orders:
        helm, at_s = self._helm, event.at_s
        helm.phase = event.phase
        message = event.message and f": {event.message}"
        verb = "has" if event.phase.is_final else "is"
        self._story.tell(at_s, f"the job {verb} {event.phase}{message}")
        orders: Orders = (Remember(at_s, event),)
        if not event.phase.is_final:
            return orders
        why = f"the job has {event.phase}"
        if helm.rollouts.current is not None:
            orders += self._close_rollout(helm.gave_up(at_s), ProposalStatus.FAILED, at_s, why)
        orders += helm.rollouts.score(at_s, least=1) + helm.expire(at_s, why)
        if helm.measured.plan is not None:
            helm.advisor.look(helm.measured.plan, at_s)
        last = self._rollup.close(helm.rollouts.target, at_s, is_last=True)
        return orders + helm.advisor.summary(at_s) + last

    def _reported(self, event: NodeReported) -> Orders:
        helm, at_s = self._helm, event.at_s
        self._rollup.add(event.sample)
        if event.plan != helm.measured.plan:
            helm.measured.restart(event.plan, at_s)
            if event.plan is not None and not helm.rollouts.markers:
                helm.rollouts.mark(PlanMarker(at_s, event.plan, 0.0, None))
        new = helm.measured.add(event.sample, at_s)
        if not new:
            return ()
        helm.rollouts.measured(new)
        scored = helm.rollouts.score(at_s, least=self._settings.n_outcome)
        if not scored and not helm.advisor.is_due(new[0].plan, at_s):
            return ()
        helm.advisor.look(new[0].plan, at_s)
        learnt = helm.advisor.summary(at_s) if scored else ()
        return scored + learnt + helm.reconsider(at_s)

    # plans

    def _applied(self, event: PlanApplied) -> Orders:
        helm, at_s = self._helm, event.at_s
        rollout = helm.rollouts.current
        helm.measured.restart(event.plan, at_s)
        helm.advisor.protection.changed(at_s)
        if rollout is None or rollout.target != event.plan:
            return self._appeared(event)
        helm.rollouts.applied(at_s, event.pause_s)
        helm.measured.paused(rollout.before, event.plan, event.pause_s)
        helm.advisor.look(event.plan, at_s)
        note = f"training stood still for {event.pause_s:.2g} s"
        return self._close_rollout(rollout, ProposalStatus.APPLIED, at_s, note)

    def _appeared(self, event: PlanApplied) -> Orders:
        """Take note of a plan that no decision of ours asked for: the first one, or a restored one."""
        helm, at_s = self._helm, event.at_s
        helm.rollouts.mark(PlanMarker(at_s, event.plan, event.pause_s, None))
        if helm.rollouts.current is not None:
            return ()
        is_news = event.plan != helm.rollouts.target
        helm.rollouts.target, helm.rollouts.changed_at_s = event.plan, at_s
        helm.advisor.look(event.plan, at_s)
        if not is_news:
            return ()
        helm.changes.forget_plans()
        return helm.expire(at_s, f"the plan is now {event.plan.short}")

    def _failed(self, event: PlanFailed) -> Orders:
        helm, rollout = self._helm, self._helm.rollouts.current
        if rollout is None or rollout.target != event.plan:
            self._story.tell(event.at_s, f"plan {event.plan.short} could not be brought about: {event.why}")
            return ()
        helm.gave_up(event.at_s)
        helm.book.rejected_plans[event.plan] = NEVER_AGAIN
        helm.advisor.protection.hurry()
        return self._close_rollout(rollout, ProposalStatus.FAILED, event.at_s, event.why)

    def _close_rollout(self, rollout: Rollout, status: ProposalStatus, at_s: float, note: str) -> Orders:
        logger.info("%s: %s is %s (%s)", self._helm.name, rollout, status, note)
        if rollout.proposal:
            return (self._helm.book.move(rollout.proposal, status, at_s, note),)
        self._story.tell(at_s, f"{rollout.decision} is {status}: {note}")
        return ()

    # machines

    def _out_of_memory(self, event: NodeOutOfMemory) -> Orders:
        words = f"{event.role} {event.node} was killed for want of memory at {event.memory_mib:,.0f} MiB"
        self._story.tell(event.at_s, words)
        self._helm.killed(event)
        return ()

    def _room_changed(self, event: RoomChanged) -> Orders:
        helm, plan = self._helm, self._helm.rollouts.target
        if not has_room(plan, event.capacity, helm.bounds):
            self._story.tell(event.at_s, f"there is no room any more for what runs, {plan.short}")
        return helm.room_changed(event.capacity, event.at_s)

    def _quota_changed(self, event: QuotaChanged) -> Orders:
        """Take note of what auto mode may plan with; what runs beyond it goes on."""
        if event.quota != self._helm.quota:
            self._helm.quota = event.quota
            self._story.tell(event.at_s, f"beside other jobs auto mode may plan with: {event.quota}")
        return ()


def replay(events: Iterable[Event], settings: ControllerSettings | None = None) -> Controller:
    """Return the controller of these events, `JobSubmitted` first; its orders were carried out before.

    Raises
    ------
    InvalidValueError
        When the first event is another one, or there is none.
    """
    rest = iter(events)
    first = next(rest, None)
    if not isinstance(first, JobSubmitted):
        got = "no event" if first is None else type(first).__name__
        raise InvalidValueError(f"the first event must be JobSubmitted, got {got}; replay a whole journal")
    controller = Controller(first, settings)
    for event in rest:
        controller.handle(event)
    return controller

"""Changes of plan as they are ordered, applied, or given up, with their effect on proposals and undo."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dlrover_nb.core.planner.predictions.transitions import transition_kind
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.plan.deadline import span_words
from dlrover_nb.core.structs.views.events import Remember, Scale
from dlrover_nb.core.structs.views.snapshot import PlanMarker

if TYPE_CHECKING:
    from dlrover_nb.core.controller.analyst import Analyst
    from dlrover_nb.core.controller.measured.measurement import Measurement
    from dlrover_nb.core.controller.plans.book import ProposalBook
    from dlrover_nb.core.controller.plans.rollouts import Rollout, Rollouts
    from dlrover_nb.core.controller.protection import Protection
    from dlrover_nb.core.controller.state.job_state import JobState
    from dlrover_nb.core.controller.state.story import Story
    from dlrover_nb.core.controller.state.undo_log import UndoLog
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.events import PlanApplied, PlanFailed

logger = logging.getLogger(__name__)


class PlanChanges:
    """Tracks each change of plan of one job from its order to its end.

    Parameters
    ----------
    state
        What it knows of the job.
    story, rollouts, book, undo
        Where a change is recorded: the story, the plans that ran, its proposal, and the undo log.
    measured, analyst, protection
        The parts that restart with another plan.
    """

    def __init__(  # noqa: PLR0913 - the parts that follow a plan, all by keyword
        self,
        state: JobState,
        *,
        story: Story,
        rollouts: Rollouts,
        book: ProposalBook,
        undo: UndoLog,
        measured: Measurement,
        analyst: Analyst,
        protection: Protection,
    ) -> None:
        self._state, self._story, self._rollouts = state, story, rollouts
        self._book, self._undo = book, undo
        self._measured, self._analyst, self._protection = measured, analyst, protection
        self._replaced: ResourcePlan | None = None  # its end is recorded; the master emits it too

    def order(
        self, rollout: Rollout, status: ProposalStatus, at_s: float, *, by: str, did: str
    ) -> tuple[Remember | Scale, ...]:
        """Begin a change; one under way is given up for it.

        Parameters
        ----------
        status
            New status of its proposal, where it has one.
        by, did
            Who decided what: the reason why another open proposal expires.
        """
        before = self._rollouts.current
        ended = () if before is None else self.give_up(at_s, f"{by} {did}")
        self._replaced = None if before is None else before.target
        scored = self._rollouts.start(rollout, at_s)
        orders = (*ended, *scored, *(self._analyst.summary(at_s) if scored else ()))
        if rollout.proposal:
            self._book.move(rollout.proposal, status, at_s, f"by {by}")
            orders += (self._book.move(rollout.proposal, ProposalStatus.APPLYING, at_s),)
        else:
            orders += self._book.close_open(ProposalStatus.EXPIRED, at_s, f"{by} {did}")
        return (*orders, Scale(rollout.decision, rollout.target))

    def applied(self, event: PlanApplied) -> tuple[Remember, ...]:
        """Record that a plan is in place."""
        at_s, rollout = event.at_s, self._rollouts.current
        self._measured.restart(event.plan, at_s)
        self._protection.changed(at_s)
        if rollout is None or rollout.target != event.plan:
            return self._appeared(event)
        self._rollouts.applied(at_s, event.pause_s)
        if rollout.before != rollout.target:  # else a change was cancelled
            s = self._state
            kind = transition_kind(rollout.before, event.plan, s.spec.migration, s.job.capacity)
            self._measured.paused(kind, event.pause_s)
        self._analyst.observe(event.plan, at_s)
        note = f"training paused for {span_words(event.pause_s)}"
        return self._close(rollout, ProposalStatus.APPLIED, at_s, note)

    def _appeared(self, event: PlanApplied) -> tuple[Remember, ...]:
        """Record a plan that no decision of this controller ordered: the first one, or a restored one."""
        at_s = event.at_s
        self._rollouts.mark(PlanMarker(at_s, event.plan, event.pause_s, None))
        if self._rollouts.current is not None:
            return ()
        is_news = event.plan != self._rollouts.target
        self._rollouts.appeared(event.plan, at_s)
        self._analyst.observe(event.plan, at_s)
        if not is_news:
            return ()
        self._undo.forget_plans()
        return self._book.close_open(ProposalStatus.EXPIRED, at_s, f"the plan is now {event.plan.short}")

    def failed(self, event: PlanFailed) -> tuple[Remember, ...]:
        """Record that a plan could not be applied; it is not proposed again."""
        rollout = self._rollouts.current
        is_under_way = rollout is not None and rollout.target == event.plan
        if event.plan == self._replaced and not is_under_way:
            self._replaced = None
            return ()
        if not is_under_way:
            self._story.add(event.at_s, f"plan {event.plan.short} could not be applied: {event.why}")
            return ()
        self._book.reject_plan(event.plan)
        self._protection.request_advice()
        return self.give_up(event.at_s, event.why)

    def give_up(self, at_s: float, why: str) -> tuple[Remember, ...]:
        """Record that the change under way, if any, will not be applied."""
        if self._rollouts.current is None:
            return ()
        rollout = self._rollouts.failed(at_s)
        self._undo.fell_through(rollout.decision)
        return self._close(rollout, ProposalStatus.FAILED, at_s, why)

    def _close(
        self, rollout: Rollout, status: ProposalStatus, at_s: float, note: str
    ) -> tuple[Remember, ...]:
        logger.info("%s: %s is %s (%s)", self._state.name, rollout, status, note)
        if rollout.proposal:
            return (self._book.move(rollout.proposal, status, at_s, note),)
        self._story.add(at_s, f"{rollout.decision} is {status}: {note}")
        return ()

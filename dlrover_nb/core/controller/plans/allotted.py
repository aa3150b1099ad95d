"""What a job may plan with beside other jobs, while the planner of all jobs repeats it.

A job that waits in the queue of its cluster learns its place in the same way, and starts when it is admitted.

An allotment holds for a time: where no other follows, its planner is gone, and the job plans by itself again.
One of an earlier term is refused, as it comes from a planner that was replaced and does not know it yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import StaleDecisionError
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.queued_jobs import NO_BRAIN, QueuePlace
from dlrover_nb.core.structs.views.events import Scale

if TYPE_CHECKING:
    from dlrover_nb.core.controller.plans.rollouts import Rollouts
    from dlrover_nb.core.controller.state.job_state import JobState
    from dlrover_nb.core.controller.state.story import Story
    from dlrover_nb.core.structs.views.events import QuotaChanged


class Allotted:
    """The quota of one job among others.

    Parameters
    ----------
    state, story
        The job, and its story.
    rollouts
        Its plans.
    """

    def __init__(self, state: JobState, story: Story, rollouts: Rollouts) -> None:
        self._state, self._story, self._rollouts = state, story, rollouts
        self._term, self._by, self._why = 0, "", ""
        self._until_s: float | None = None

    def changed(self, event: QuotaChanged) -> tuple[Scale, ...]:
        """Record what auto mode may plan with, and admit a job that waits in the queue.

        A running plan beyond the quota is kept, unless that binds.

        Raises
        ------
        StaleDecisionError
            When it is of an earlier term.
        """
        if event.term < self._term:
            raise StaleDecisionError(
                f"expected an allotment of term {self._term} or later, got one of term {event.term} by "
                f"{event.by}: {self._by} has taken over"
            )
        self._term, self._by, self._why = event.term, event.by, event.why
        self._until_s = None if event.lasts_s is None else event.at_s + event.lasts_s
        if self._state.queue is not None:
            return self._queued(event)
        if event.quota == self._state.quota:
            return ()
        self._state.change_quota(event.quota)
        because = f" ({event.by + ': ' if event.by else ''}{event.why})" if event.why else ""
        self._story.add(event.at_s, f"its share beside other jobs: {event.quota}{because}")
        return ()

    def _queued(self, event: QuotaChanged) -> tuple[Scale, ...]:
        """Tell where the job stands, or let it start."""
        if event.admit is None:
            before, now = self._state.queue, event.queue or NO_BRAIN
            if before is None or (before.place, before.n_waiting) != (now.place, now.n_waiting):
                self._story.add(event.at_s, now.words)
            self._state.queued(now)
            return ()
        self._state.queued(None)
        because = f" ({event.by + ': ' if event.by else ''}{event.why})" if event.why else ""
        self._story.add(event.at_s, f"admitted with {event.admit.short}{because}")
        self._rollouts.appeared(event.admit, event.at_s)
        return (Scale("", event.admit),)

    @property
    def words(self) -> str:
        """Why the job may not plan with more, by whom planned; empty: no planner says so."""
        if not self._why or self._state.quota == Quota():
            return ""
        return f"{self._by}: {self._why}" if self._by else self._why

    def expire(self, at_s: float) -> None:
        """Plan without a quota again, once its planner was silent for too long."""
        if self._until_s is None or at_s < self._until_s:
            return
        self._until_s = None
        if self._state.queue is not None:
            self._state.queued(QueuePlace(why=f"{self._by} does not answer; scale the job to start it now"))
        if self._state.quota != Quota():
            self._state.change_quota(Quota())
            self._story.add(at_s, f"{self._by} does not answer: the job plans without a quota for now")

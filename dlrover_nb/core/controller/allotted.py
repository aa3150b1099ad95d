"""What auto mode may plan with beside other jobs, while whoever planned for all jobs goes on to say so.

An allotment holds for a time: where no other follows, its planner is gone, and the job plans by itself again.
One of an earlier term is refused, as it comes from a planner that was replaced and does not know it yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import StaleDecisionError
from dlrover_nb.core.structs.bounds import Quota

if TYPE_CHECKING:
    from dlrover_nb.core.controller.job_state import JobState
    from dlrover_nb.core.controller.story import Story
    from dlrover_nb.core.structs.events import QuotaChanged


class Allotted:
    """The quota of one job among others.

    Parameters
    ----------
    state, story
        The job, and its story.
    """

    def __init__(self, state: JobState, story: Story) -> None:
        self._state, self._story = state, story
        self._term, self._by, self._why = 0, "", ""
        self._until_s: float | None = None

    def changed(self, event: QuotaChanged) -> None:
        """Record what auto mode may plan with; a running plan beyond it is kept.

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
        if event.quota == self._state.quota:
            return
        self._state.change_quota(event.quota)
        because = f" ({event.by + ': ' if event.by else ''}{event.why})" if event.why else ""
        self._story.add(event.at_s, f"beside other jobs auto mode may plan with: {event.quota}{because}")

    @property
    def words(self) -> str:
        """Why the job may not plan with more, by whom planned; empty: nobody says so."""
        if not self._why or self._state.quota == Quota():
            return ""
        return f"{self._by}: {self._why}" if self._by else self._why

    def expire(self, at_s: float) -> None:
        """Plan without a quota again, once its planner was silent for too long."""
        if self._until_s is None or at_s < self._until_s:
            return
        self._until_s = None
        if self._state.quota != Quota():
            self._state.change_quota(Quota())
            self._story.add(at_s, f"{self._by} is silent: auto mode plans without a quota of its own")

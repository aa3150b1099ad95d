"""The actions against stragglers of one job: proposed or ordered, under way, ended.

They have the life of proposals. At most one is open and at most one is under way, because each changes what
the next one would be decided on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.controller.plans.proposal_states import check_move, move
from dlrover_nb.core.controller.state.record_lists import N_NEWEST, next_id
from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.straggler.costs import cost_words
from dlrover_nb.core.structs.decisions.actions import ActionChoice
from dlrover_nb.core.structs.decisions.decisions import Mitigation, ProposalStatus
from dlrover_nb.core.structs.views.events import Remember

if TYPE_CHECKING:
    from dlrover_nb.core.controller.state.story import Story
    from dlrover_nb.core.structs.decisions.actions import Action

LETTER = "m"  # of ids; those of proposals begin with p


def is_mitigation(name: str | None) -> bool:
    """Whether an id is that of an action against stragglers, and not of a proposed plan."""
    return (name or "").startswith(LETTER)


class MitigationBook:
    """Actions of one job in order of creation; every change of status is checked against the table."""

    def __init__(self, job: str, story: Story) -> None:
        self._job, self._story = job, story
        self._all: dict[str, Mitigation] = {}
        self._open = self._running = ""  # ids: read at every event
        self._changed: dict[str, Mitigation] = {}  # since the history was told last

    @property
    def all(self) -> tuple[Mitigation, ...]:
        """The newest actions, oldest first."""
        return tuple(self._all.values())

    @property
    def open(self) -> Mitigation | None:
        """The action that waits for a decision."""
        return self._all.get(self._open)

    @property
    def running(self) -> Mitigation | None:
        """The action that was ordered and has not ended."""
        return self._all.get(self._running)

    def find(self, name: str | None) -> Mitigation:
        """Return an action by id.

        Raises
        ------
        NotFoundError
            When there is none of that id.
        """
        mitigation = self._all.get(name or "")
        if mitigation is None:
            opened = f"open: {self._open}" if self._open else "none is open"
            raise NotFoundError(f"{self._job} has no straggler action {name} ({opened})")
        return mitigation

    def of_decision(self, decision: str) -> Mitigation | None:
        """Return the action that a decision ordered; None: it ordered none that is kept."""
        ordered = (each for each in reversed(self._all.values()) if each.decision)
        return next((each for each in ordered if each.decision == decision), None)

    def check(self, mitigation: Mitigation, to: ProposalStatus) -> None:
        """Refuse an invalid transition, with the story of the action."""
        check_move(mitigation, to, story=self._story.about(mitigation.id))

    def propose(self, action: Action, why: str, at_s: float, *, gain: float | None) -> None:
        """Open an action; no other may be open."""
        assert self.open is None
        added = self._add(action, why, at_s, gain, ProposalStatus.PENDING)
        self._open = added.id
        text = f"{added.id} proposed: {added.words}. {why}. It costs {added.cost}"
        self._story.add(at_s, text, about=added.id)

    def begin(self, action: Action, why: str, at_s: float) -> str:
        """Add an action that a user ordered without a proposal; return its id."""
        return self._add(action, why, at_s, None, ProposalStatus.ACCEPTED).id

    def accept(self, name: str, at_s: float, note: str) -> None:
        """Accept a proposed action."""
        self._move(name, ProposalStatus.ACCEPTED, at_s, note)

    def order(self, name: str, decision: str, at_s: float) -> None:
        """Mark an accepted action as under way."""
        assert self.running is None
        self._put(replace(self._all[name], decision=decision))
        self._move(name, ProposalStatus.APPLYING, at_s, "")
        self._running = name

    def close_open(self, to: ProposalStatus, at_s: float, note: str) -> None:
        """Close the open action; nothing where none is."""
        if self._open:
            self._move(self._open, to, at_s, note)

    def end(self, to: ProposalStatus, at_s: float, note: str = "") -> None:
        """End the action under way; nothing where none is."""
        if self._running:
            self._move(self._running, to, at_s, note)

    def changed(self, at_s: float) -> tuple[Remember, ...]:
        """Return for the history what has changed since the last call, each action as it is now.

        One event may change an action twice (accepted, then under way), and many kinds of events end one:
        the last state is all that the history keeps.
        """
        if not self._changed:
            return ()
        orders = tuple(Remember(at_s, each) for each in self._changed.values())
        self._changed.clear()
        return orders

    def _put(self, mitigation: Mitigation) -> None:
        self._all[mitigation.id] = self._changed[mitigation.id] = mitigation

    def _add(
        self, action: Action, why: str, at_s: float, gain: float | None, status: ProposalStatus
    ) -> Mitigation:
        added = Mitigation(
            next_id(LETTER, [*self._all][-1:]),
            self._job,
            ActionChoice.of(action),
            why,
            cost_words(action),
            at_s,
            gain,
            status,
        )
        self._put(added)
        if len(self._all) > N_NEWEST:
            del self._all[next(iter(self._all))]
        return added

    def _move(self, name: str, to: ProposalStatus, at_s: float, note: str) -> None:
        self._put(move(self.find(name), to, at_s=at_s, note=note, story=self._story.about(name)))
        self._open = "" if name == self._open else self._open
        self._running = "" if name == self._running else self._running
        self._story.add(at_s, f"{name} is {to}{note and ': ' + note}", about=name)

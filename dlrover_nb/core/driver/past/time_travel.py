"""A job's journal, read again up to any moment.

The controller decides by its events alone. So the events up to a moment, handled by a new controller, give
what was measured, known and advised then: a replay is not a copy of the past but the past itself.

A journal is read through once. On the way, the state is kept at some moments, as the bytes that a master's
snapshot has; a moment is then reached from the nearest kept state before it. There are at most `MOST_STATES`:
when there would be more, every second one goes, and they are kept at twice the distance. What happened, and
the throughput, are bounded likewise; so the memory does not grow with the length of a job.

A job that runs writes on, and deletes its oldest segments. `read_on` reads what came, and a state in a
segment that is gone is dropped: moments before the oldest segment cannot be reached then.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import Redactor
from dlrover_nb.core.codec import with_texts
from dlrover_nb.core.driver.past.past_walk import Place, Speeds, Walk, WalkState, samples_per_s
from dlrover_nb.core.errors import DlroverError, NotFoundError, WireError
from dlrover_nb.core.rundir.journal import read_journal, segments
from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation, Proposal
from dlrover_nb.core.structs.job.job import run_name
from dlrover_nb.core.structs.job.secrets import secret_values
from dlrover_nb.core.structs.views.events import (
    Event,
    Instruction,
    JobSubmitted,
    NodeOutOfMemory,
    NodeReported,
    PhaseChanged,
    PlanApplied,
    PlanFailed,
    Remember,
    RoomChanged,
    Ticked,
)
from dlrover_nb.core.structs.views.moment import Happening, HappeningKind, Moment, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.driver.past.past_walk import Facts
    from dlrover_nb.core.rundir.journal import Segment

logger = logging.getLogger(__name__)

MOST_STATES = 24
FIRST_EVERY = 2_000  # events between two kept states, at first
MOST_HAPPENINGS = 1_000


def happenings(
    event: Event, orders: tuple[Instruction, ...], before: Facts, after: Facts
) -> Iterator[Happening]:
    """Yield what an event, and what followed from it, means to a reader."""
    if (change := _said(event) or _lost(event, before, after)) is not None:
        yield Happening(event.at_s, *change)
    for order in orders:
        if isinstance(order, Remember):
            yield from _remembered(order)


def _said(event: Event) -> tuple[HappeningKind, str] | None:
    match event:
        case JobSubmitted(spec=spec):
            return HappeningKind.PHASE, f"submitted by {spec.owner or 'an unnamed user'}"
        case PhaseChanged(phase=phase, message=message):
            return HappeningKind.PHASE, f"{phase}{message and ': ' + message}"
        case PlanApplied(plan=plan):
            return HappeningKind.PLAN, f"{plan.short} runs"
        case PlanFailed(plan=plan, why=why):
            return HappeningKind.PLAN, f"{plan.short} could not be applied: {why}"
        case NodeOutOfMemory(node=node):
            return HappeningKind.MEMORY, f"{node} was killed for lack of memory"
        case _:
            is_room = isinstance(event, RoomChanged)
            return (HappeningKind.CAPACITY, "the capacity changed") if is_room else None


def _lost(event: Event, before: Facts, after: Facts) -> tuple[HappeningKind, str] | None:
    """Say that a node went missing; while the plan changes, nodes come and go."""
    is_change = before.target != before.running
    if not isinstance(event, NodeReported) or before.running is None or is_change:
        return None
    return (HappeningKind.LOSS, "a node is missing") if after.running is None else None


def _remembered(order: Remember) -> Iterator[Happening]:
    match order.record:
        case Proposal() as proposal if proposal.status == "pending":
            plan = proposal.candidate.plan.short
            yield Happening(order.at_s, HappeningKind.PROPOSAL, f"{proposal.id} proposed: {plan}")
        case Mitigation() as action if action.is_open:
            yield Happening(order.at_s, HappeningKind.PROPOSAL, f"{action.id} proposed: {action.words}")
        case Decision() as decision:
            words = f"{decision.id}: {decision.words} by {decision.by}"
            yield Happening(order.at_s, HappeningKind.DECISION, words)


def unheard(_n_byte: int) -> None:
    """Ignore progress that the caller did not ask for."""


class Replay:
    """The journal of one run, to be read at any moment; for any thread.

    Parameters
    ----------
    folder
        The run folder.
    settings
        Of the controller.

    Raises
    ------
    NotFoundError
        When there is no journal.
    """

    def __init__(self, folder: Path, settings: ControllerSettings | None = None) -> None:
        self.folder, self._settings = folder, settings
        self._lock = threading.Lock()
        self._walk, self._kept = Walk(settings), list[WalkState]()
        self._every, self._n_since = FIRST_EVERY, 0
        self._speeds = Speeds()
        self._happenings: list[Happening] = []
        self.n_left_out = 0  # happenings beyond `MOST_HAPPENINGS`
        self.first_s, self._place = self._begin()
        self._n_byte = -1  # of the journal when it was read last

    @property
    def last_s(self) -> float:
        """Time of the last event that was read."""
        return self._walk.facts.at_s

    @property
    def n_byte(self) -> int:
        """Bytes of the journal on the disk."""
        return sum(segment.n_byte for segment in segments(self.folder))

    @property
    def run(self) -> str:
        """Id of the run, as in the history; empty before the submission was read."""
        controller = self._walk.controller
        return "" if controller is None else run_name(controller.job.spec.name, controller.submitted_at_s)

    @property
    def happenings(self) -> tuple[Happening, ...]:
        """What happened, oldest first."""
        return tuple(sorted(self._happenings, key=lambda each: each.at_s))

    def read_on(self, on_read: Callable[[int], None] = unheard) -> None:
        """Read the events that were not read yet.

        Parameters
        ----------
        on_read
            Called from time to time with the bytes read since the last call.
        """
        with self._lock:
            if (n_byte := self.n_byte) == self._n_byte:
                return
            for place, event in self._events(self._place, on_read):
                self._place = place
                self._note(event)
            self._n_byte = n_byte  # what came meanwhile is read the next time

    def at(self, at_s: float) -> Moment:
        """Return the job as it was after the last event up to a moment.

        Raises
        ------
        NotFoundError
            When the moment is before what is kept of the journal.
        """
        with self._lock:
            walk = self._walked_to(at_s)
            if walk.controller is None:
                raise NotFoundError(
                    f"the journal begins at {self.first_s:.3f}, got {at_s:.3f}; choose a later moment"
                )
            moment = _moment(walk, at_s, self._speeds.until(at_s), self._missing())
        if secrets := secret_values(walk.controller.job.spec):
            return with_texts(moment, Redactor(secrets).within)
        return moment

    def _walked_to(self, at_s: float) -> Walk:
        if at_s >= self.last_s:
            return self._walk
        oldest = min((segment.number for segment in segments(self.folder)), default=0)
        usable = [k for k in self._kept if k.facts.at_s <= at_s and k.place.segment >= oldest]
        if not usable:
            raise NotFoundError(
                f"the journal of {self.run} no longer reaches back to {at_s:.3f}; choose a later moment"
            )
        walk = Walk(self._settings)
        walk.restore(usable[-1])
        for _, event in self._events(usable[-1].place, unheard):
            if event.at_s > at_s:
                break
            walk.step(event)
        return walk

    def _begin(self) -> tuple[float, Place]:
        """Begin with the oldest segment whose state before it is known."""
        for segment in segments(self.folder):
            try:
                if segment.number:
                    self._walk.begin_at(segment.snapshot)
            except DlroverError as error:
                logger.warning("the replay of %s begins later: %s", self.folder, error)
                continue
            place = Place(segment.number, 0)
            self._kept.append(self._walk.keep(place))
            first = next(read_journal(segment.events), None)
            return (self._walk.facts.at_s if segment.number or first is None else first.at_s), place
        raise NotFoundError(f"no journal that can be read in {self.folder}; it may have been pruned")

    def _events(self, place: Place, on_read: Callable[[int], None]) -> Iterator[tuple[Place, Event]]:
        """Yield the events after a place, each with the place after it."""
        for segment in segments(self.folder):
            if segment.number >= place.segment:
                skip = place.n_event if segment.number == place.segment else 0
                yield from _numbered(segment, skip, on_read)

    def _note(self, event: Event) -> None:
        before = self._walk.facts
        orders = self._walk.step(event)
        for each in happenings(event, orders, before, self._walk.facts):
            if len(self._happenings) < MOST_HAPPENINGS:
                self._happenings.append(each)
            else:
                self.n_left_out += 1
        if isinstance(event, Ticked):
            self._speeds.add(self._walk.facts.at_s, samples_per_s(self._walk.facts))
        self._n_since += 1
        if self._n_since >= self._every:
            self._keep()

    def _keep(self) -> None:
        self._n_since = 0
        try:
            self._kept.append(self._walk.keep(self._place))
        except WireError as error:
            logger.debug("no state of %s is kept: %s", self.folder, error)
        if len(self._kept) > MOST_STATES:
            self._kept, self._every = self._kept[::2], 2 * self._every

    def _missing(self) -> str:
        if self._kept and self._kept[0].place.segment:
            return "What came before the oldest kept segment of the journal: the job has deleted it."
        return ""


def run_of(folder: Path, settings: ControllerSettings | None = None) -> str:
    """Return the id of the run whose journal a folder has, ``job@seconds``; empty where none can be read."""
    for segment in segments(folder):
        walk = Walk(settings)
        try:
            if segment.number:
                walk.begin_at(segment.snapshot)
            else:
                walk.step(next(read_journal(segment.events)))
        except (DlroverError, StopIteration):
            continue
        if (controller := walk.controller) is not None:
            return run_name(controller.job.spec.name, controller.submitted_at_s)
    return ""


def _numbered(segment: Segment, skip: int, on_read: Callable[[int], None]) -> Iterator[tuple[Place, Event]]:
    for n_event, event in enumerate(read_journal(segment.events, on_read), 1):
        if n_event > skip:
            yield Place(segment.number, n_event), event


def _moment(walk: Walk, at_s: float, speeds: tuple[tuple[float, float], ...], missing: str) -> Moment:
    assert walk.controller is not None
    facts, view = walk.facts, walk.controller.view()
    return Moment(
        at_s,
        Source.JOURNAL,
        facts.target or walk.controller.job.spec.plan,
        facts.running,
        facts.phase,
        facts.message,
        view.mode,
        samples_per_s(facts),
        facts.n_sample_done,
        walk.controller.job.n_sample_total,
        speeds,
        view.proposals,
        view.decisions,
        view.outcomes,
        view.front,
        view.fit,
        None,
        view.memory,
        view.story,
        view.stragglers,
        view.mitigations,
        missing,
    )

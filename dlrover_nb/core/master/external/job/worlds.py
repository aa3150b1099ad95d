"""Worlds of an elastic job: who trains together, and from whose state, when members come and go.

The processes of an elastic all-reduce job do not end when others do. Each of them asks for a *world*: the
members in the order of their ranks. A world is made once all those that are to be in it have asked, so all of
them stand at the boundary of a batch. Members keep their order from one world to the next, and new ones come
last, so few ranks change and rank 0 is the oldest process.

A member that loses another one in the middle of a step cannot know whether others finished that step. So
each says which step it has applied; the state of the furthest counts, which all others get from it, and with
it the place of each member in the data: what its state contains is done, whatever else was sent of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.wire.services import Reached  # noqa: TC001 - a record is decoded by its annotations

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


@dataclass(frozen=True, slots=True)
class World:
    """One world.

    Parameters
    ----------
    number
        Counts worlds from 1; 0: there was none.
    members
        Nodes by rank.
    programs
        The process of each.
    steps
        The step that each had applied; -1 for one without parameters.
    reached
        How far the state of the furthest is in the data.
    """

    number: int = 0
    members: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    reached: tuple[Reached, ...] = ()

    @property
    def source(self) -> int:
        """Rank of the member whose state all others get: the first one of those that are furthest."""
        return self.steps.index(max(self.steps))


@dataclass(frozen=True, slots=True)
class Request:
    """A process that asks for the world after `seen`, with the step it has applied, and who got how far."""

    program: str
    seen: int
    step: int
    reached: tuple[Reached, ...] = ()


class Worlds:
    """The worlds of one job, one after the other.

    Attributes
    ----------
    now
        The newest one.
    """

    def __init__(self, now: World | None = None) -> None:
        self._requests: dict[str, Request] = {}
        self._set(now or World())

    def ask(self, node: str, request: Request) -> None:
        """Note that a node's process asks; a repeated request changes nothing."""
        self._requests[node] = request

    def lose(self, node: str) -> None:
        """Note that a node is gone."""
        self._requests.pop(node, None)

    def found(self, node: str, request: Request) -> World | None:
        """Return the world of a process that asks, once it is made; None: it has to wait, or is in none."""
        is_in = self._program.get(node) == request.program
        return self.now if is_in and self.now.number > request.seen else None

    def is_there(self, node: str) -> bool:
        """Whether a node's process is in the present world, or waits for the next one."""
        return node in self._program or self.asks(node)

    def asks(self, node: str) -> bool:
        """Whether a node's process waits for a world after the present one."""
        request = self._requests.get(node)
        if request is None:
            return False
        return request.seen >= self.now.number or self._program.get(node) != request.program

    def is_outdated(self, wanted: Sequence[str]) -> bool:
        """Whether another world than the present one is due.

        Parameters
        ----------
        wanted
            The nodes that are to train, oldest first; one that has not asked yet begins when it does.
        """
        there = {node for node in wanted if self.is_there(node)}
        return there != self._program.keys() or any(map(self.asks, self._program))

    def advance(self, wanted: Sequence[str], *, awaited: Collection[str] = ()) -> tuple[Reached, ...] | None:
        """Make the next world if one is due and all that are to be in it have asked.

        Parameters
        ----------
        wanted
            As of `is_outdated`.
        awaited
            Nodes without which no world is made.

        Returns
        -------
        tuple of Reached or None
            How far the state of the new world is in the data; None: there is no new world.
        """
        if not self.is_outdated(wanted):
            return None
        names = set(wanted)  # each of hundreds of members calls until all have
        old = [node for node in self.now.members if node in names]
        new = [node for node in wanted if node not in self._program and self.asks(node)]
        members = (*old, *new)
        if not members or not all(map(self.asks, members)) or not set(awaited) <= set(members):
            return None
        requests = [self._requests[node] for node in members]
        steps = tuple(each.step for each in requests)
        made = World(self.now.number + 1, members, tuple(each.program for each in requests), steps)
        self._set(replace(made, reached=requests[made.source].reached))
        return self.now.reached

    def _set(self, world: World) -> None:
        self.now = world
        self._program = dict(zip(world.members, world.programs, strict=True))

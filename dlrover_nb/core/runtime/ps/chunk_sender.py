"""Connections over which a PS sends chunks of parameters to other PS.

To another host they are those of a worker (`ps_link`): a sealed session, which is asked for with the first
chunk and takes less CPU time than CURVE, and CURVE until it is open and where it does not work. The other PS
takes the chunks of one sender in order only, so the first one in the session waits until all before it are
acknowledged.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.ps_link import PsLink
from dlrover_nb.core.runtime.exchange.push_pull import ChunkTaken
from dlrover_nb.core.runtime.exchange.wire import encode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from dlrover_nb.core.runtime.exchange.push_pull import MoveChunk
    from dlrover_nb.core.runtime.exchange.sockets import Context, JobKeys, Socket
    from dlrover_nb.core.runtime.process.agent import Agent
    from dlrover_nb.core.runtime.ps.migration_source import AddressedChunk

_log = logging.getLogger(__name__)


class _Way:
    """A connection to one PS, and which chunks of the move went over it."""

    def __init__(self, link: PsLink) -> None:
        self.link = link
        self._was_sealed = False  # when a chunk was sent last
        self._sent: tuple[int, int] = (0, 0)  # move and sequence
        self._taken: tuple[int, int] = (0, 0)
        self._held: deque[list[Any]] = deque()  # until the chunks before them are acknowledged

    def send(self, chunk: MoveChunk, frames: list[Any]) -> None:
        """Send a chunk, at once or in its turn; one that is repeated goes over CURVE: its session is dead."""
        number = chunk.move, chunk.sequence
        if number <= self._sent:
            self.link.unseal()
            self._held.clear()  # they are repeated too
        self._sent = max(self._sent, number)
        if self._held or (self.link.is_sealed and not self._was_sealed and self._is_waiting(number)):
            self._held.append(frames)
        else:
            self._post(frames)

    def take(self, answer: ChunkTaken) -> None:
        """Record what has arrived; send what waits for that."""
        self._taken = answer.move, answer.sequence
        n_held = len(self._held)
        if n_held and self._taken >= (self._sent[0], self._sent[1] - n_held):
            while self._held:
                self._post(self._held.popleft())

    def _is_waiting(self, number: tuple[int, int]) -> bool:
        """Whether a chunk before this one is not acknowledged; the first of a move has none before it."""
        return number[1] > 1 and self._taken < (number[0], number[1] - 1)

    def _post(self, frames: list[Any]) -> None:
        self._was_sealed = self.link.is_sealed
        self.link.send(frames)


class ChunkSender:
    """Connections to other PS, opened on first use.

    Parameters
    ----------
    context, keys, name
        For the sockets: their context, their keys and the sender's name.
    agent
        Polls the sockets for answers.
    """

    def __init__(self, context: Context, keys: JobKeys, name: str, agent: Agent) -> None:
        self._context, self._keys, self._name, self._agent = context, keys, name, agent
        self._ways: dict[str, _Way] = {}
        self._n_way = 0

    def send(self, chunks: Iterable[AddressedChunk]) -> None:
        """Send chunks; a chunk that cannot be sent now is repeated later (`migration_source`)."""
        for addressed in chunks:
            part = addressed.part
            frames = encode(addressed.chunk, [part.ids, part.table, part.dense])
            self._way(addressed.endpoint).send(addressed.chunk, frames)

    def answers(self, ready: Collection[Socket | int]) -> Iterator[tuple[str, ChunkTaken]]:
        """Yield the endpoints and answers of other PS: one of each socket, the next ones in the next turn."""
        for endpoint, way in self._ways.items():
            for socket in way.link.sockets:
                if socket in ready and not socket.closed and (answer := self._read(way.link, socket)):
                    way.take(answer)
                    yield endpoint, answer

    def close(self) -> None:
        """Close all connections; unsent messages are dropped."""
        for way in self._ways.values():
            way.link.close()
        self._ways = {}

    def _read(self, link: PsLink, socket: Socket) -> ChunkTaken | None:
        try:
            answer = link.read(socket)
        except WireError as error:
            _log.warning("%s dropped an answer of a PS: %s", self._name, error)
            return None
        return answer[0] if answer is not None and isinstance(answer[0], ChunkTaken) else None

    def _way(self, endpoint: str) -> _Way:
        if endpoint not in self._ways:
            self._n_way += 1
            identity = f"{self._name}/{self._n_way}"
            link = PsLink(self._context, endpoint, identity=identity, keys=self._keys, agent=self._agent)
            self._ways[endpoint] = _Way(link)
        return self._ways[endpoint]

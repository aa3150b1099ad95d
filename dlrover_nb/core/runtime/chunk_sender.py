"""Connections over which a PS sends chunks of parameters to other PS."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import zmq

from dlrover_nb.core.runtime.exchange import ChunkTaken, ExchangeRefused
from dlrover_nb.core.runtime.message_decoder import MessageDecoder, receive
from dlrover_nb.core.runtime.sockets import JobKeys, connect_dealer
from dlrover_nb.core.runtime.wire import encode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from dlrover_nb.core.runtime.agent import Agent
    from dlrover_nb.core.runtime.migration_source import AddressedChunk
    from dlrover_nb.core.runtime.sockets import Context, Socket


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
        self._sockets: dict[str, Socket] = {}
        self._n_socket = 0
        self._decoder = MessageDecoder(name, ChunkTaken | ExchangeRefused)

    def send(self, chunks: Iterable[AddressedChunk]) -> None:
        """Send chunks; a chunk that cannot be sent now is repeated later (`migration_source`)."""
        for addressed in chunks:
            part = addressed.part
            frames = encode(addressed.chunk, [part.ids, part.table, part.dense])
            with contextlib.suppress(zmq.Again):
                self._socket(addressed.endpoint).send_multipart(frames, zmq.NOBLOCK, copy=False)

    def answers(self, ready: Collection[Socket | int]) -> Iterator[tuple[str, ChunkTaken]]:
        """Yield the endpoints and answers of other PS."""
        for endpoint, socket in self._sockets.items():
            while socket in ready:
                try:
                    frames = receive(socket)
                except zmq.Again:
                    break
                decoded = self._decoder.read(frames, endpoint)
                if decoded is not None and isinstance(decoded[0], ChunkTaken):
                    yield endpoint, decoded[0]

    def close(self) -> None:
        """Close all connections; unsent messages are dropped."""
        for socket in self._sockets.values():
            self._agent.unwatch(socket)
            socket.close(linger=0)
        self._sockets = {}

    def _socket(self, endpoint: str) -> Socket:
        if endpoint not in self._sockets:
            self._n_socket += 1
            name = f"{self._name}/{self._n_socket}"
            self._sockets[endpoint] = connect_dealer(self._context, endpoint, name, self._keys)
            self._agent.watch(self._sockets[endpoint])
        return self._sockets[endpoint]

"""The connection of a worker to one PS: clear or under CURVE, and beside it a sealed session (`sealed`).

Requests use the session once the PS has opened it. They use CURVE again when an answer stays away or is
damaged, as a port may be closed between two hosts; answers are read from both.

Where the PS is on the same host, arrays go through a slab (`slab`), and messages only say where they lie;
most of these go by a bell (`slab.bell`), and answers come by it.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import zmq

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.push_pull import NO_SLAB, OpenSession, SessionOpened, SlabTaken
from dlrover_nb.core.runtime.exchange.shared_block import SharedArray
from dlrover_nb.core.runtime.exchange.slab import OfferedSlab
from dlrover_nb.core.runtime.exchange.slab.bell import read_answer, rung_request
from dlrover_nb.core.runtime.exchange.sockets import (
    JobKeys,
    connect_dealer,
    connect_plain_dealer,
    is_between_hosts,
)
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.structs.job.exchange_spec import Encryption

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.exchange.push_pull import Exchange
    from dlrover_nb.core.runtime.exchange.sealed import Seal
    from dlrover_nb.core.runtime.exchange.slab.bell import WorkersBell
    from dlrover_nb.core.runtime.exchange.slab.of_worker import Parts
    from dlrover_nb.core.runtime.exchange.sockets import Context, Socket

SentRequest: TypeAlias = "list[Any] | bytes"  # frames of a message, or what is rung

_log = logging.getLogger(__name__)

_CARRIERS = {Encryption.AES_GCM: "TCP with AES-GCM", Encryption.NONE: "TCP, authenticated and not encrypted"}


class Watcher(Protocol):
    """Polls sockets, as an agent does."""

    def watch(self, socket: Socket | int) -> None:
        """Poll a socket, or a descriptor, from now on."""

    def unwatch(self, socket: Socket | int) -> None:
        """Undo `watch`."""


class PsLink:
    """A worker's connection to a PS.

    Parameters
    ----------
    context, endpoint, identity, keys
        Of its socket (`sockets.connect_dealer`).
    agent
        Polls its sockets.
    shares_memory
        Whether a slab may be used.

    Attributes
    ----------
    slab
        The memory that both share.
    is_between_hosts
        Whether the PS may be on another host.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        identity: str,
        keys: JobKeys,
        agent: Watcher,
        shares_memory: bool = False,
    ) -> None:
        self.slab = OfferedSlab(is_wanted=shares_memory)
        self._context, self._agent = context, agent
        self._socket = connect_dealer(context, endpoint, identity, keys)
        self._sealed: tuple[Seal, Socket] | None = None
        self._encryption = Encryption.AES_GCM  # of its session
        self._bell: WorkersBell | None = None
        agent.watch(self._socket)
        self.is_between_hosts = is_between_hosts(endpoint)
        if self.is_between_hosts:
            _send(self._socket, encode(OpenSession()))

    @property
    def is_sealed(self) -> bool:
        """Whether requests use a sealed session now."""
        return self._sealed is not None

    @property
    def sockets(self) -> tuple[Socket, ...]:
        """Sockets that answers may come by."""
        return (self._socket,) if self._sealed is None else (self._socket, self._sealed[1])

    @property
    def carrier(self) -> str:
        """What carries arrays now, in words."""
        if self.slab.is_used:
            return "shared memory"
        if self.is_between_hosts:
            return _CARRIERS[self._encryption] if self.is_sealed else "TCP with CURVE"
        return "unix socket"

    def share(self, arrays: Sequence[NDArray[Any]], answer_bytes: int | None) -> tuple[Parts, int]:
        """Put the arrays of a request into the slab if they fit; return them, and where the answer goes.

        Else a slab is offered in which such a request will fit. `answer_bytes` is the length of the answer;
        None: not known yet.
        """
        if answer_bytes is None:
            return arrays, NO_SLAB
        if (offer := self.slab.offer(arrays, answer_bytes)) is not None:
            if self._bell is None and self.slab.bell is not None:
                self._bell = self.slab.bell
                self._agent.watch(self._bell.fileno())
            self.send(encode(offer))
        return self.slab.put(arrays, answer_bytes)

    def exchange(self, request: Exchange, parts: Parts) -> SentRequest:
        """Return what to send for an exchange: no round, nor what is packed or in no slab, is rung for."""
        is_plain = request.answer_at != NO_SLAB and request.done is None and request.form is None
        is_plain = is_plain and request.n_step is None
        if not (is_plain and self.slab.has_bell):
            return encode(request, parts)
        return rung_request(request, [part for part in parts if isinstance(part, SharedArray)])

    def send(self, request: SentRequest) -> None:
        """Send a request; it is lost while the PS is away."""
        if isinstance(request, bytes):
            if self._bell is not None:
                self._bell.ask(request)
        elif self._sealed is None:
            _send(self._socket, request)
        else:
            seal, socket = self._sealed
            _send(socket, seal.seal(request))

    def answers(self, ready: Container[Socket | int]) -> Iterator[tuple[Any, list[NDArray[Any]]]]:
        """Return the answers that have come by a bell or a socket.

        Raises
        ------
        WireError
            When the PS sent what is no answer.
        """
        if self._bell is not None and self._bell.fileno() in ready:
            rung = self._bell.answer()
            if rung is not None and self.slab.block is not None:
                yield read_answer(rung, self.slab.block)
        for socket in self.sockets:
            if socket in ready and not socket.closed and (answer := self.read(socket)) is not None:
                yield answer

    def read(self, socket: Socket) -> tuple[Any, list[NDArray[Any]]] | None:
        """Return an answer that one of the sockets has; None: it was for the link alone, or was dropped.

        Raises
        ------
        WireError
            When the PS sent what is no answer.
        """
        frames: Sequence[Any] = socket.recv_multipart(copy=False)
        if self._sealed is not None and socket is self._sealed[1]:
            try:
                frames = self._sealed[0].open(frames)
            except WireError as error:  # anyone on the way may have sent it
                _log.warning("an answer of a PS was dropped, further requests use CURVE: %s", error)
                self.unseal()
                return None
        message, arrays = decode(frames, self.slab.block)
        match message:
            case SessionOpened():
                self._use(message)
                return None
            case SlabTaken():
                self.slab.on_taken(message)
                return None
        return message, arrays

    def unseal(self) -> None:
        """Use CURVE from now on."""
        if self._sealed is not None:
            self._agent.unwatch(self._sealed[1])
            self._sealed[1].close(linger=0)
            self._sealed = None

    def close(self) -> None:
        """Close the sockets; what was not sent is dropped."""
        self.unseal()
        if self._bell is not None:
            self._agent.unwatch(self._bell.fileno())
        self._agent.unwatch(self._socket)
        self._socket.close(linger=0)
        self.slab.close()

    def _use(self, opened: SessionOpened) -> None:
        from dlrover_nb.core.runtime.exchange.sealed import seal_of_worker  # noqa: PLC0415 - one host needs no cipher

        self.unseal()
        socket = connect_plain_dealer(self._context, opened.endpoint, opened.session, opened.password)
        self._sealed, self._encryption = (seal_of_worker(opened), socket), opened.encryption
        self._agent.watch(socket)


def _send(socket: Socket, frames: list[Any]) -> None:
    with contextlib.suppress(zmq.Again):  # full, as the PS is away: repeated later
        socket.send_multipart(frames, zmq.NOBLOCK, copy=False)

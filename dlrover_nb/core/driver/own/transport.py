"""The master's socket: one ROUTER, and a pipe by which other threads wake its owner."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import zmq

from dlrover_nb.core.rundir.orphans import remove_unserved
from dlrover_nb.core.runtime.exchange.message_decoder import AuthFailureCounter, MessageDecoder, receive
from dlrover_nb.core.runtime.exchange.sockets import bind_router
from dlrover_nb.core.runtime.exchange.wire import encode
from dlrover_nb.core.structs.wire.messages import FromNode, LinesWritten, Report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.exchange.sockets import JobKeys
    from dlrover_nb.core.structs.wire.messages import ToNode

logger = logging.getLogger(__name__)

SOCKET = "master"
AT_ONCE = 500  # messages received before time and commands are checked again


class Received(NamedTuple):
    """A message, its sender, and its arrays."""

    sender: str
    message: FromNode | LinesWritten
    arrays: list[NDArray[Any]]


class MasterSocket:
    """Binds the endpoint that nodes connect to.

    Parameters
    ----------
    listen, folder, keys
        As for `bind_router`; an ``ipc`` socket lies in `folder`, which is closed to other users.

    Attributes
    ----------
    endpoint
        Where nodes connect.
    """

    def __init__(self, listen: str, folder: Path, keys: JobKeys) -> None:
        self._context, self._folder = zmq.Context(), folder
        try:
            self._router, self.endpoint = bind_router(self._context, listen, folder / SOCKET, keys)
        except BaseException:
            self._context.term()
            raise
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poller = zmq.Poller()
        self._poller.register(self._router, zmq.POLLIN)
        self._poller.register(self._woken, zmq.POLLIN)
        self._auth_failures, self._n_refused = AuthFailureCounter(self._router), 0
        self._poller.register(self._auth_failures.socket, zmq.POLLIN)
        self._decoder = MessageDecoder("the job master", FromNode | LinesWritten)

    @property
    def n_dropped(self) -> int:
        """Messages that could not be decoded."""
        return self._decoder.n_dropped

    @property
    def n_refused(self) -> int:
        """Refused connections without the job's key; each attempt counts."""
        return self._n_refused

    def wake(self) -> None:
        """Let `receive` return now; the one method for any thread."""
        with contextlib.suppress(BlockingIOError, OSError):  # full: it wakes anyway; closed: nothing to wake
            os.write(self._wake, b"!")

    def receive(self, timeout_s: float) -> Iterator[Received]:
        """Wait for messages or `wake`, then yield the received messages."""
        ready = dict(self._poller.poll(max(0, round(timeout_s * 1000))))
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._auth_failures.socket in ready:
            self._n_refused = self._auth_failures.n_refused
        if self._router in ready:
            yield from self._messages()

    def send(self, node: str, message: ToNode) -> None:
        """Send to a node; a message to a node that exited or never connected is dropped."""
        try:
            self._router.send_multipart([node.encode(), *encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            logger.warning("%s could not be sent to %s: %s", type(message).__name__, node, error)

    def close(self) -> None:
        """Close the socket and its resources.

        Files of sockets are removed, which killed nodes leave behind; not those of nodes that still run: a
        master that cannot take over leaves them to the next one, and workers may connect to a PS anew.
        """
        self._auth_failures.close()
        self._router.close(linger=200)  # ms, for the last Stop
        self._context.term()
        os.close(self._wake)
        os.close(self._woken)
        remove_unserved(self._folder)

    def _messages(self) -> Iterator[Received]:
        for _ in range(AT_ONCE):
            try:
                identity, *frames = receive(self._router)
            except zmq.Again:
                return
            if (received := self.read(identity, frames)) is not None:
                yield received

    def read(self, identity: bytes, frames: Sequence[Any]) -> Received | None:
        """Return a message; None: it is dropped, as it cannot be decoded or its sender signs as another."""
        decoded = self._decoder.read(frames, identity)
        if decoded is None:
            return None
        sender = identity.decode(errors="replace")
        if _author(decoded[0]) != sender:
            self._decoder.drop(f"it is signed by {_author(decoded[0])!r}", identity)
            return None
        return Received(sender, *decoded)


def _author(message: FromNode | LinesWritten) -> str:
    """Return the sender named in a message."""
    return message.sample.node if isinstance(message, Report) else message.node

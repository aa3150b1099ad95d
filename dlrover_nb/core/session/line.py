"""The master's end of the wire: one ROUTER socket, and a way for other threads to wake its owner."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import zmq

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.wire import bind_router, decode, encode
from dlrover_nb.core.structs.messages import FromNode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.wire import JobKeys
    from dlrover_nb.core.structs.messages import ToNode

logger = logging.getLogger(__name__)

SOCKET = "master"
AT_ONCE = 500  # messages heard before time and commands get their turn again


class Heard(NamedTuple):
    """A message, who sent it, and the arrays beside it."""

    sender: str
    message: FromNode
    arrays: list[NDArray[Any]]


class MasterLine:
    """Binds the endpoint that nodes say Hello to.

    Parameters
    ----------
    listen, folder, keys
        As for `bind_router`; the socket of ``ipc`` lies in `folder`, which is closed to others.

    Attributes
    ----------
    endpoint
        Where nodes connect.
    n_dropped
        Messages that could not be understood.
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
        self.n_dropped = 0

    def wake(self) -> None:
        """Let `hear` return now; the one method for any thread."""
        with contextlib.suppress(BlockingIOError, OSError):  # full: it wakes anyhow; closed: nobody to wake
            os.write(self._wake, b"!")

    def hear(self, timeout_s: float) -> Iterator[Heard]:
        """Wait for messages or `wake`, then yield the messages that are there."""
        ready = dict(self._poller.poll(max(0, round(timeout_s * 1000))))
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._router in ready:
            yield from self._messages()

    def send(self, node: str, message: ToNode) -> None:
        """Send to a node; a node that is gone or never came misses nothing."""
        try:
            self._router.send_multipart([node.encode(), *encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            logger.warning("%s could not be sent to %s: %s", type(message).__name__, node, error)

    def close(self) -> None:
        """Close the socket and all that belongs to it, once all nodes are gone."""
        self._router.close(linger=200)  # ms, for the last Stop
        self._context.term()
        os.close(self._wake)
        os.close(self._woken)
        self._remove_sockets()

    def _remove_sockets(self) -> None:
        """Remove the names of sockets that nobody serves any more: killed nodes leave theirs behind."""
        for path in self._folder.iterdir():
            if path.is_socket():
                path.unlink(missing_ok=True)

    def _messages(self) -> Iterator[Heard]:
        for _ in range(AT_ONCE):
            try:
                identity, *frames = self._router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                heard = _understood(identity, frames)
            except (WireError, UnicodeDecodeError) as error:
                self.n_dropped += 1
                logger.warning("dropped a message of %r: %s", identity, error)
            else:
                yield heard


def _understood(identity: bytes, frames: list[bytes]) -> Heard:
    message, arrays = decode(frames)
    if not isinstance(message, FromNode):
        raise WireError(f"{type(message).__name__} is no message to a master")
    return Heard(identity.decode(), message, arrays)

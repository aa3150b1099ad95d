"""Incoming messages of a socket: decoded, or dropped, counted and logged.

Whatever a peer sends, the receiving process continues. An invalid message is never answered: its sender may
be any process, and an answer could end a healthy node of the same name. The first one is logged, and then one
each time that their number has grown tenfold, so that noise cannot fill a disk.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, get_args

import zmq

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.wire import MAX_FRAMES, decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.exchange.shared_block import SharedBlock
    from dlrover_nb.core.runtime.exchange.sockets import Socket

_log = logging.getLogger(__name__)

_REFUSALS = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


def receive(socket: Socket, *, copy: bool = True) -> list[Any]:
    """Return the frames of a pending message; of one with too many, only enough to detect that.

    Raises
    ------
    zmq.Again
        When none is pending.
    """
    frames = [socket.recv(zmq.NOBLOCK, copy=copy)]
    while socket.getsockopt(zmq.RCVMORE):
        frame = socket.recv(copy=copy)
        if len(frames) <= MAX_FRAMES + 1:  # one more than decode accepts, after the sender's name
            frames.append(frame)
    return frames


class AuthFailureCounter:
    """Counts the clients that a router refused because they do not hold the job's key.

    Parameters
    ----------
    router
        The socket. `n_refused` must be read now and then: ZeroMQ blocks after a thousand unread events.
    """

    def __init__(self, router: Socket) -> None:
        self._router, self._n = router, 0
        self.socket = router.get_monitor_socket(_REFUSALS)

    @property
    def n_refused(self) -> int:
        """Number of refused connections so far; repeated attempts count again."""
        with contextlib.suppress(zmq.Again):
            while True:
                self.socket.recv_multipart(zmq.NOBLOCK)
                self._n += 1
        return self._n

    def close(self) -> None:
        """Close its socket, before the router."""
        self._router.disable_monitor()
        self.socket.close()


class MessageDecoder:
    """Decodes the messages of one socket.

    Parameters
    ----------
    name
        Owner of the socket, for the log.
    kinds
        The accepted records: a union, such as `structs.messages.FromNode`.

    Attributes
    ----------
    n_dropped
        Messages that could not be decoded.
    """

    def __init__(self, name: str, kinds: Any) -> None:  # noqa: ANN401 - a union is no type to the type checker
        self._name, self._kinds = name, get_args(kinds)
        self.n_dropped = 0

    def read(
        self, frames: Sequence[Any], sender: object = "", shared: SharedBlock | None = None
    ) -> tuple[Any, list[NDArray[Any]]] | None:
        """Return a record and the arrays beside it, maybe in `shared`; None when the message was dropped."""
        try:
            message, arrays = decode(frames, shared)
        except WireError as error:
            self.drop(str(error), sender)
            return None
        if type(message) not in self._kinds:
            self.drop(f"{type(message).__name__} is not accepted here", sender)
            return None
        return message, arrays

    def drop(self, why: str, sender: object = "") -> None:
        """Count a dropped message, and log it at intervals."""
        self.n_dropped += 1
        if str(self.n_dropped).strip("0") == "1":  # 1, 10, 100 ...
            _log.warning(
                "%s dropped %d messages, the last one of %r: %s", self._name, self.n_dropped, sender, why
            )

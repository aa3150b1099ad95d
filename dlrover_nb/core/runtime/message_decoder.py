"""What comes in at one end of the wire: understood, or dropped, counted and told.

Whatever a peer sends, the process that reads it goes on. A message that is not understood is never answered:
its sender may be anybody, and an answer could end a healthy node that bears the same name. The first is
logged, and then one each time that their number has grown tenfold, so that noise cannot fill a disk.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, get_args

import zmq

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.wire import MAX_FRAMES, decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.wire import Socket

_log = logging.getLogger(__name__)

_REFUSALS = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


def receive(socket: Socket, *, copy: bool = True) -> list[Any]:
    """Return the frames of the message that is there; of one with too many no more than are needed to see it.

    Raises
    ------
    zmq.Again
        When there is none.
    """
    frames = [socket.recv(zmq.NOBLOCK, copy=copy)]
    while socket.getsockopt(zmq.RCVMORE):
        frame = socket.recv(copy=copy)
        if len(frames) <= MAX_FRAMES + 1:  # one more than decode accepts, after the sender's name
            frames.append(frame)
    return frames


class AuthFailureCounter:
    """Counts the clients that a router turned away because they do not hold the job's key.

    Parameters
    ----------
    router
        The socket. It must be asked now and then (`n_refused`): ZeroMQ waits when a thousand tell nobody.
    """

    def __init__(self, router: Socket) -> None:
        self._router, self._n = router, 0
        self.socket = router.get_monitor_socket(_REFUSALS)

    @property
    def n_refused(self) -> int:
        """How many there were so far; who tries again counts again."""
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
    """Reads the messages of one socket.

    Parameters
    ----------
    name
        Whose it is, for the log.
    kinds
        The records that it takes: a union, such as `structs.messages.FromNode`.

    Attributes
    ----------
    n_dropped
        Messages that were not understood.
    """

    def __init__(self, name: str, kinds: Any) -> None:  # noqa: ANN401 - a union is no type to the type checker
        self._name, self._kinds = name, get_args(kinds)
        self.n_dropped = 0

    def read(self, frames: Sequence[Any], sender: object = "") -> tuple[Any, list[NDArray[Any]]] | None:
        """Return a record and the arrays beside it; None when the message was dropped."""
        try:
            message, arrays = decode(frames)
        except WireError as error:
            self.drop(str(error), sender)
            return None
        if type(message) not in self._kinds:
            self.drop(f"{type(message).__name__} is not for it", sender)
            return None
        return message, arrays

    def drop(self, why: str, sender: object = "") -> None:
        """Count a message that is dropped, and tell it now and then."""
        self.n_dropped += 1
        if str(self.n_dropped).strip("0") == "1":  # 1, 10, 100 ...
            _log.warning(
                "%s dropped %d messages, the last one of %r: %s", self._name, self.n_dropped, sender, why
            )

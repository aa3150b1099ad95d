"""Plain exchanges that came in messages (`messages.c`): read and answered in two calls of the kernel.

The frames of such a message and of its answer are those of `exchange.wire`, byte for byte. In between the
caller makes room for the answer, as only the message says how long that is. The kernel copies no frame.

One `Message` is used for all messages of a PS: to make a struct costs more than to fill one.
"""

from __future__ import annotations

from ctypes import POINTER, Structure, addressof, c_char, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np

from dlrover_nb.core.runtime.kernels.bell_requests import Answer, Outcome, Reader, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.kernels.plain_server import PlainServer

    Floats = NDArray[np.float32]

MOST_FRAMES = 16  # wire.py's
SMALL_BYTES = 16 << 10  # of an array that lies in the first frame
_HEAD_BYTES = 2 * SMALL_BYTES + 1024  # two of these, their headers, and the record


class Message(Structure):
    """A message that was read, and room for its answer: `Message` of serve.h."""

    _fields_ = (
        ("frames", c_void_p * MOST_FRAMES),
        ("n_byte", c_int64 * MOST_FRAMES),
        ("n_frame", c_int64),
        ("request", Request),
        ("arrays", c_void_p * 4),
        ("reader", POINTER(Reader)),
        ("rows", c_void_p),
        ("dense", c_void_p),
        ("head", c_void_p),
        ("n_head", c_int64),
        ("answer", Answer),
    )


class PlainMessage:
    """One message at a time.

    Attributes
    ----------
    request
        What the last one asks for, if it was `read`.
    answer
        What the last one was answered, if it was.
    """

    def __init__(self) -> None:
        self._message = message = Message()
        self._at = addressof(message)
        self._frames, self._n_byte = message.frames, message.n_byte
        self._head = bytearray(_HEAD_BYTES)
        self._buffers: Sequence[Any] = ()
        message.head = addressof(c_char.from_buffer(self._head))
        self.request, self.answer = message.request, message.answer

    def read(self, server: PlainServer, frames: Sequence[Any]) -> bool:
        """Whether a message is an exchange that may be plain; its frames must live until it is answered."""
        if len(frames) > MOST_FRAMES:
            return False
        self._buffers = [getattr(frame, "buffer", frame) for frame in frames]
        for i, frame in enumerate(self._buffers):
            self._frames[i], self._n_byte[i] = _address(frame), len(frame)
        self._message.n_frame = len(frames)
        return server.reads(self._at)

    def respond(
        self, server: PlainServer, out: tuple[Floats, Floats], reader: Reader | None
    ) -> list[Any] | None:
        """Apply what was read, and return the frames of its answer; None: nothing was done.

        Parameters
        ----------
        out
            Where rows and the dense slice are written, of the shapes that the request and the store have.
        reader
            Counts the ages of its gradients; None: they are not counted.
        """
        message, (rows, dense) = self._message, out
        message.rows, message.dense = _address(rows), _address(dense)
        message.reader = POINTER(Reader)() if reader is None else POINTER(Reader)(reader)
        is_answered = server.responds(self._at) == Outcome.ANSWERED
        self._buffers = ()
        if not is_answered:
            return None
        head = bytes(memoryview(self._head)[: message.n_head])
        return [head, *(each.data.cast("B") for each in out if each.nbytes > SMALL_BYTES)]


def _address(memory: Any) -> int | None:  # noqa: ANN401 - any buffer
    """Return where memory begins; None: there is none. The first way is the faster one."""
    if not len(memory):
        return None
    try:
        return addressof(c_char.from_buffer(memory))
    except TypeError:  # it is read-only
        return int(np.frombuffer(memory, np.uint8).ctypes.data)

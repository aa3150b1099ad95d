"""Reads a copy in the memory of another node over the job's encrypted transport.

The reader asks for pieces, a few at a time, and asks again for what did not arrive. Each piece has its
checksum; the whole has one that its keeper computed, where a peer keeps it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import time
import zlib
from typing import TYPE_CHECKING

import numpy as np
import zmq

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.exchange import ExchangeRefused
from dlrover_nb.core.runtime.flash.buffer import nothing
from dlrover_nb.core.runtime.message_decoder import MessageDecoder, receive
from dlrover_nb.core.runtime.sockets import connect_dealer
from dlrover_nb.core.runtime.wire import encode
from dlrover_nb.core.structs.copy_messages import CopyRead, ReadCopy

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.sockets import Context, JobKeys, Socket
    from dlrover_nb.core.structs.checkpoints import CopySource, MemoryPart

PIECE_BYTES = 1 << 20
WINDOW = 3  # pieces that were asked for and have not arrived
REPEAT_AFTER_S = 5.0  # far above any response time: only lost pieces are asked for again
GIVE_UP_AFTER_S = 20.0  # without any piece: the other node is gone
_POLL_MS = 50

_numbers = itertools.count()


def read_copy(
    context: Context, keys: JobKeys, name: str, source: CopySource, *, between: Callable[[], None] = nothing
) -> NDArray[np.uint8]:
    """Return the bytes of an image in the memory of another node.

    Parameters
    ----------
    context, keys, name
        For the socket: its context, its keys and the reader's name.
    between
        Called between pieces; what it raises ends the reading.

    Raises
    ------
    CheckpointError
        When that node does not have it any more, does not answer, or sends something else.
    """
    try:
        body = np.empty(source.memory.n_byte, np.uint8)
    except (MemoryError, ValueError) as error:
        raise CheckpointError(f"no memory for a copy of {source.memory.n_byte >> 20} MiB") from error
    found = read_into(body, context, keys, name, (source.endpoint, source.memory), between=between)
    if source.sha256 and found != source.sha256:
        raise CheckpointError(
            f"the copy of checkpoint {source.memory.number} at {source.endpoint} is damaged: expected "
            f"SHA-256 {source.sha256[:12]}, got {found[:12]}"
        )
    return body


def read_into(
    body: NDArray[np.uint8],
    context: Context,
    keys: JobKeys,
    name: str,
    source: tuple[str, MemoryPart],
    *,
    between: Callable[[], None] = nothing,
) -> str:
    """Read an image into memory; return its SHA-256. See `read_copy`."""
    endpoint, part = source
    identity = f"{name}/{os.getpid()}/copy-{next(_numbers)}"
    with contextlib.closing(connect_dealer(context, endpoint, identity, keys)) as socket:
        return _Reading(socket, part, body[: part.n_byte], endpoint).run(between)


class _Reading:
    """One copy on its way."""

    def __init__(self, socket: Socket, part: MemoryPart, body: NDArray[np.uint8], endpoint: str) -> None:
        self._socket, self._part, self._body, self._endpoint = socket, part, body, endpoint
        self._decoder = MessageDecoder(endpoint, CopyRead | ExchangeRefused)
        self._n_asked = self._n_done = 0
        self._digest = hashlib.sha256()

    def run(self, between: Callable[[], None]) -> str:
        n_byte = self._part.n_byte
        arrived_s = asked_s = time.monotonic()
        while self._n_done < n_byte:
            self._ask()
            before = self._n_done
            if self._socket.poll(_POLL_MS):
                self._take()
            between()
            now_s = time.monotonic()
            if self._n_done > before:
                arrived_s = asked_s = now_s
            elif now_s > arrived_s + GIVE_UP_AFTER_S:
                raise CheckpointError(f"{self._endpoint} sent nothing for {GIVE_UP_AFTER_S:g} s")
            elif now_s > asked_s + REPEAT_AFTER_S:
                self._n_asked, asked_s = self._n_done, now_s
        return self._digest.hexdigest()

    def _ask(self) -> None:
        while self._n_asked < min(self._part.n_byte, self._n_done + WINDOW * PIECE_BYTES):
            request = ReadCopy(self._part, self._n_asked, PIECE_BYTES)
            self._socket.send_multipart(encode(request), zmq.NOBLOCK)
            self._n_asked = min(self._part.n_byte, self._n_asked + PIECE_BYTES)

    def _take(self) -> None:
        decoded = self._decoder.read(receive(self._socket), self._endpoint)
        if decoded is None:
            return
        answer, arrays = decoded
        if isinstance(answer, ExchangeRefused):
            raise CheckpointError(answer.why)
        if (answer.token, answer.start) != (self._part.token, self._n_done):
            return  # of a piece that was asked for twice
        (piece,) = arrays
        stop = self._n_done + len(piece)
        if piece.dtype != np.uint8 or not len(piece) or stop > len(self._body):
            raise CheckpointError(
                f"{self._endpoint} sent {piece.dtype} {piece.shape}, not the piece asked for"
            )
        if zlib.crc32(piece.data) != answer.crc32:
            raise CheckpointError(f"a piece of checkpoint {self._part.number} was damaged on its way")
        self._body[self._n_done : stop] = piece
        self._digest.update(piece.data)
        self._n_done = stop

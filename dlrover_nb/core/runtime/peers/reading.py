"""Reads a copy in the memory of another node; one of another host in a sealed session (`ps_link`).

The reader asks for pieces, a few at a time, and asks again for what did not arrive: over CURVE, as the port
of sessions may be closed between the two. Each piece has its checksum; the whole has one that its keeper
computed, where a peer keeps it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import os
import time
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import zmq

from dlrover_nb.core.errors import CheckpointError, WireError
from dlrover_nb.core.runtime.checkpoints.buffer import nothing
from dlrover_nb.core.runtime.exchange.ps_link import PsLink
from dlrover_nb.core.runtime.exchange.push_pull import ExchangeRefused
from dlrover_nb.core.runtime.exchange.wire import encode
from dlrover_nb.core.structs.wire.copy_messages import CopyRead, ReadCopy

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.exchange.sockets import Context, JobKeys, Socket
    from dlrover_nb.core.structs.training.checkpoints import CopySource, MemoryPart

PIECE_BYTES = 1 << 20
WINDOW = 3  # pieces that were asked for and have not arrived
REPEAT_AFTER_S = 5.0  # far above any response time: only lost pieces are asked for again
SESSION_WITHIN_S = 2.0  # else pieces are asked for over CURVE
GIVE_UP_AFTER_S = 20.0  # without any piece: the other node is gone
_POLL_MS = 50

_log = logging.getLogger(__name__)
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
    where = source.endpoint, source.memory
    digest = read_into(body, context, keys, f"{name}.restores", where, between=between)
    if source.sha256 and digest != source.sha256:
        raise CheckpointError(
            f"the copy of checkpoint {source.memory.number} at {source.endpoint} is damaged: expected "
            f"SHA-256 {source.sha256[:12]}, got {digest[:12]}"
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
    """Read an image into memory; return its SHA-256. See `read_copy`.

    One name reads one image at a time, since a session ends the earlier ones of its name.
    """
    endpoint, part = source
    identity, poller = f"{name}/{os.getpid()}/copy-{next(_numbers)}", _Poller()
    with contextlib.closing(PsLink(context, endpoint, identity=identity, keys=keys, agent=poller)) as link:
        return _Reading(link, poller, part, body[: part.n_byte], endpoint).run(between)


class _Poller:
    """Polls the sockets of a link, as an agent does."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()

    def watch(self, socket: Socket | int) -> None:
        self._poller.register(socket, zmq.POLLIN)

    def unwatch(self, socket: Socket | int) -> None:
        self._poller.unregister(socket)

    def ready(self) -> list[Socket | int]:
        """Return the sockets that have a message, after a short time at most."""
        return [socket for socket, _ in self._poller.poll(_POLL_MS)]


class _Reading:
    """One copy on its way."""

    def __init__(
        self, link: PsLink, poller: _Poller, part: MemoryPart, body: NDArray[np.uint8], endpoint: str
    ) -> None:
        self._link, self._poller = link, poller
        self._part, self._body, self._endpoint = part, body, endpoint
        self._n_asked = self._n_done = 0
        self._digest = hashlib.sha256()

    def run(self, between: Callable[[], None]) -> str:
        n_byte = self._part.n_byte
        arrived_s = asked_s = time.monotonic()
        is_late = False
        asks_at_s = arrived_s + SESSION_WITHIN_S if self._link.is_between_hosts else arrived_s
        while self._n_done < n_byte:
            if self._n_asked or self._link.is_sealed or time.monotonic() >= asks_at_s:
                self._ask()
            before = self._n_done
            self._take(self._poller.ready())
            between()
            now_s = time.monotonic()
            if self._n_done > before:
                arrived_s, asked_s, is_late = now_s, now_s, False
            elif is_late:
                raise CheckpointError(f"{self._endpoint} sent nothing for {GIVE_UP_AFTER_S:g} s")
            elif now_s > arrived_s + GIVE_UP_AFTER_S:
                is_late = True  # this process may have had no turn for so long: what is there is read first
            elif now_s > asked_s + REPEAT_AFTER_S:
                self._link.unseal()
                self._n_asked, asked_s = self._n_done, now_s
        return self._digest.hexdigest()

    def _ask(self) -> None:
        while self._n_asked < min(self._part.n_byte, self._n_done + WINDOW * PIECE_BYTES):
            request = ReadCopy(self._part, self._n_asked, PIECE_BYTES)
            self._link.send(encode(request))
            self._n_asked = min(self._part.n_byte, self._n_asked + PIECE_BYTES)

    def _take(self, ready: list[Socket | int]) -> None:
        try:
            for answer, arrays in self._link.answers(ready):
                self._accept(answer, arrays)
        except WireError as error:
            _log.warning("an answer of %s was dropped: %s", self._endpoint, error)

    def _accept(self, answer: object, arrays: list[NDArray[Any]]) -> None:
        if isinstance(answer, ExchangeRefused):
            raise CheckpointError(answer.why)
        if not isinstance(answer, CopyRead):
            return
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

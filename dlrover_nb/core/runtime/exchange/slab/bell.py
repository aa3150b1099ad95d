"""The bell of a worker and a PS that share a slab: two pipes, without a name.

A message through ZeroMQ wakes two more threads on its way, and costs each side as much as the exchange of a
batch itself. So what is said in almost every iteration (`kernels.bell_requests`) goes through pipes of one
connection; all else, and all where a PS cannot open them, goes through its socket.

The worker makes the pipes and names them by its process and their descriptors (`slab.descriptors`). Each side
holds both ends open, so a side that ends is noticed by its slab's lock alone; the kernel frees them with the
last process. FIFOs beside the slab were rejected: names would be left by a kill.
"""

from __future__ import annotations

import os
import stat
import time
from ctypes import sizeof
from typing import TYPE_CHECKING, Any

import numpy as np

from dlrover_nb.core.runtime.exchange.push_pull import BellName, Exchange, Exchanged
from dlrover_nb.core.runtime.exchange.shared_block import aligned
from dlrover_nb.core.runtime.exchange.slab.descriptors import named, open_named
from dlrover_nb.core.runtime.kernels.bell_requests import Answer, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.exchange.push_pull import DescriptorName
    from dlrover_nb.core.runtime.exchange.shared_block import SharedArray, SharedBlock

_IDS, _FLOAT = np.dtype(np.int64), np.dtype(np.float32)


class WorkersBell:
    """A worker's side of a bell.

    Attributes
    ----------
    name
        For the PS.
    """

    def __init__(self) -> None:
        self._asked, self._ask = _pipe()
        self._answers, self._answered = _pipe()
        self.name = BellName(os.getpid(), named(self._ask), named(self._answers))

    def fileno(self) -> int:
        """Return the descriptor that is readable when an answer is here."""
        return self._answers

    def ask(self, request: bytes) -> None:
        """Ring for a request."""
        try:
            os.write(self._ask, request)
        except BlockingIOError:  # the PS is away: repeated later
            return

    def answer(self) -> Answer | None:
        """Return the next answer; None: there is none."""
        try:
            data = os.read(self._answers, sizeof(Answer))
        except BlockingIOError:
            return None
        return Answer.from_buffer_copy(data)

    def close(self) -> None:
        """Close both pipes."""
        for each in (self._asked, self._ask, self._answers, self._answered):
            os.close(each)


def open_bell(name: BellName) -> tuple[int, int]:
    """Return descriptors of a worker's pipes: of requests, and of answers.

    Raises
    ------
    OSError, ValueError
        When this process cannot see the worker's, or finds others.
    """
    ask = _open(name.pid, name.ask)
    try:
        return ask, _open(name.pid, name.answers)
    except (OSError, ValueError):
        os.close(ask)
        raise


def rung_request(request: Exchange, parts: Sequence[SharedArray]) -> bytes:
    """Return a request as it is rung; its arrays lie in the slab one after another."""
    rows, gradients, dense, pull = (part.array for part in parts)
    width = gradients.shape[1] if len(rows) else 0
    return bytes(
        Request(
            request.ps_epoch, request.step, parts[0].offset, len(rows), width, len(dense), len(pull),
            request.answer_at, request.rate, time.monotonic(), request.n_row,
        )
    )  # fmt: skip


def read_rung(request: Request, block: SharedBlock) -> tuple[Exchange, list[NDArray[Any]]]:
    """Return what was rung for, and copies of its arrays: the worker could change them after a check.

    Raises
    ------
    WireError, InvalidValueError
        When it is no request, or does not lie in the slab.
    """
    exchange = Exchange(
        request.epoch, request.step, None, request.rate, request.answer_at, n_row=request.n_row
    )
    arrays, at = [], request.at
    for dtype, shape in (
        (_IDS, (request.n_push,)),
        (_FLOAT, (request.n_push, request.width)),
        (_FLOAT, (request.n_dense,)),
        (_IDS, (request.n_pull,)),
    ):
        arrays.append(block.view(at, dtype, shape).copy())
        at += aligned(arrays[-1].nbytes)
    return exchange, arrays


def read_answer(answer: Answer, block: SharedBlock) -> tuple[Exchanged, list[NDArray[Any]]]:
    """Return the answer to a request that was rung for, and its arrays, which lie in the slab.

    Raises
    ------
    WireError
        When they do not.
    """
    rows = block.view(answer.at, _FLOAT, (answer.n_row, answer.width))
    dense = block.view(answer.at + aligned(rows.nbytes), _FLOAT, (answer.n_dense,))
    return Exchanged(answer.epoch, answer.step, answer.update_s, answer.lookup_s), [rows, dense]


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


def _open(pid: int, name: DescriptorName) -> int:
    """Open a pipe of another process, both ways: so it never looks closed."""
    opened = open_named(pid, name)
    if not stat.S_ISFIFO(os.fstat(opened).st_mode):
        os.close(opened)
        raise ValueError(f"descriptor {name.descriptor} is no pipe of the worker")
    return opened

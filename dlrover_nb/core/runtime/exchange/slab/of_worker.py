"""A worker's side of a slab: where arrays of a request and of its answer lie.

After a page with the token come three areas: two for answers, by turns, as the rows of one batch are computed
on while those of the next arrive; and one for a request, which does not change before its answer is here. So
a request must not be sent while another one is pending.

A request that does not fit, like the first one, travels as frames, and a larger slab is offered beside it.
Nothing is waited for: once the PS has confirmed that it maps the slab, the next request uses it.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dlrover_nb.core.runtime.exchange.push_pull import NO_SLAB, OfferSlab, SlabTaken
from dlrover_nb.core.runtime.exchange.shared_block import SharedArray, SharedBlock, aligned
from dlrover_nb.core.runtime.exchange.slab.bell import WorkersBell
from dlrover_nb.core.runtime.exchange.slab.memory import HEAD_BYTES, Slab, make_slab

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Parts: TypeAlias = "Sequence[NDArray[Any] | SharedArray]"

_log = logging.getLogger(__name__)

_SPARE = 2  # reserve of one part in this many: the number of distinct rows varies
_STEP = 1 << 16  # areas grow by whole 64 KiB


class OfferedSlab:
    """The slab of one connection, if the PS is on this host and there is room for one.

    Parameters
    ----------
    is_wanted
        Whether one may be used.

    Attributes
    ----------
    bell
        Rings for requests in the slab; None: none was offered yet.
    has_bell
        Whether the PS answers it.
    """

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self.bell: WorkersBell | None = None
        self.has_bell = False
        self._slab: Slab | None = None
        self._is_taken = False
        self._n_made = self._turn = 0
        self._answer_bytes = self._request_bytes = 0  # of the areas

    @property
    def is_used(self) -> bool:
        """Whether requests that fit travel through the slab."""
        return self._is_taken

    @property
    def block(self) -> SharedBlock | None:
        """The memory in which answers lie."""
        return self._slab.block if self._slab is not None else None

    def put(self, arrays: Sequence[NDArray[Any]], answer_bytes: int) -> tuple[Parts, int]:
        """Copy the arrays of a request into the slab; return what to send, and where its answer goes.

        Where they do not fit they are returned as they are, with `NO_SLAB`.
        """
        if not self._is_taken or not self._fits(_n_byte(arrays), answer_bytes):
            return arrays, NO_SLAB
        assert self._slab is not None
        self._turn ^= answer_bytes > 0
        at = HEAD_BYTES + 2 * self._answer_bytes
        parts: list[NDArray[Any] | SharedArray] = []
        for array in arrays:
            there = self._slab.block.view(at, array.dtype, array.shape)
            np.copyto(there, array)
            parts.append(SharedArray(self._slab.block.number, at, there))
            at += aligned(array.nbytes)
        return parts, HEAD_BYTES + self._turn * self._answer_bytes

    def offer(self, arrays: Sequence[NDArray[Any]], answer_bytes: int) -> OfferSlab | None:
        """Return the offer of a slab in which such a request and its answer fit; None: none is due."""
        request_bytes = _n_byte(arrays) + answer_bytes  # gradients of rows are as large as the rows
        if not self._is_wanted or self._fits(_n_byte(arrays), answer_bytes):
            return None
        self._answer_bytes = max(self._answer_bytes, _ample(answer_bytes))
        self._request_bytes = max(self._request_bytes, _ample(request_bytes))
        return self._renew()

    def on_taken(self, answer: SlabTaken) -> None:
        """Use the slab from now on, or do without one where the PS cannot map it."""
        if self._slab is None or answer.number != self._slab.block.number:
            return
        self._is_taken, self.has_bell = answer.is_taken, answer.has_bell
        if not answer.is_taken:
            _log.info("a PS is not on this host, or cannot see this process: exchanges go through sockets")
            self._give_up()

    def close(self) -> None:
        """Free the slab when its last view is gone, and its bell."""
        self._free()
        if self.bell is not None:
            self.bell.close()
            self.bell = None

    def _free(self) -> None:
        if self._slab is not None:
            self._slab.close()
        self._slab, self._is_taken, self.has_bell = None, False, False

    def _fits(self, request_bytes: int, answer_bytes: int) -> bool:
        return request_bytes <= self._request_bytes and answer_bytes <= self._answer_bytes

    def _renew(self) -> OfferSlab | None:
        self._free()
        if not self._n_made:
            self.bell = WorkersBell()
        self._n_made += 1
        n_byte = HEAD_BYTES + 2 * self._answer_bytes + self._request_bytes
        try:
            self._slab = make_slab(self._n_made, n_byte)
        except OSError as error:
            _log.warning(
                "no shared memory of %d KiB for exchanges with a PS, which go through sockets: %s",
                n_byte >> 10,
                error,
            )
            self._give_up()
            return None
        bell = None if self.bell is None else self.bell.name
        return OfferSlab(os.getpid(), self._slab.name, self._n_made, self._slab.token.hex(), n_byte, bell)

    def _give_up(self) -> None:
        self._free()
        self._is_wanted = False


def _n_byte(arrays: Sequence[NDArray[Any]]) -> int:
    return sum(aligned(array.nbytes) for array in arrays)


def _ample(n_byte: int) -> int:
    return -(-(n_byte + n_byte // _SPARE) // _STEP) * _STEP

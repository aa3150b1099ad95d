"""A PS's side of slabs: those of its workers that it maps, and what it answered there last.

A request is repeated when its answer does not come in time. Its arrays in a slab are those of now, perhaps of
a later request: so an answer that was given once is given again as it was, and nothing is read.

Most requests are rung for (`bell`). Those of another kernel than the compiled one, and those that it leaves,
are read here, and answered by the same code as messages are.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.slab.bell import open_bell, read_rung
from dlrover_nb.core.runtime.exchange.slab.memory import Slab, open_slab
from dlrover_nb.core.runtime.kernels.bell_requests import Answer, Bell, Outcome, ring

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.exchange.push_pull import Exchange, Exchanged, OfferSlab
    from dlrover_nb.core.runtime.exchange.shared_block import SharedArray, SharedBlock

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Attached:
    slab: Slab
    bell: Bell | None = None  # None: requests come as messages alone
    step: int = -1  # the last one that was answered by a message
    answer: list[Any] = field(default_factory=list)  # its frames

    def close(self) -> None:
        self.slab.close()
        if self.bell is not None:
            os.close(self.bell.ask)
            os.close(self.bell.answers)


class AttachedSlabs:
    """The slabs of workers, by connection."""

    def __init__(self) -> None:
        self._attached: dict[bytes, _Attached] = {}

    @property
    def n_byte(self) -> int:
        """Bytes mapped, which belong to workers."""
        return sum(each.slab.n_byte for each in self._attached.values())

    @property
    def bells(self) -> dict[bytes, Bell]:
        """The bells of all connections that have one."""
        return {key: each.bell for key, each in self._attached.items() if each.bell is not None}

    def attach(self, identity: bytes, offer: OfferSlab, *, is_served: bool = True) -> bool:
        """Map the slab that a worker offers, in the place of its last one; whether that worked.

        No kernel answers requests of a worker that is not served, as it was given up.
        """
        attached = self._attached.get(identity)
        if attached is not None and attached.slab.token.hex() == offer.token:
            return True  # the offer was repeated
        try:
            slab = open_slab(offer)
        except (OSError, ValueError) as error:
            _log.info("the shared memory of %r is not used: %s", identity, error)
            return False
        self._drop(identity)
        self._attached[identity] = _Attached(slab, _bell(identity, offer, slab, is_open=is_served))
        return True

    def refuse(self, identity: bytes) -> None:
        """Let no kernel answer requests of a connection from now on."""
        if (bell := self._attached[identity].bell) is not None:
            bell.is_open = False

    def block(self, identity: bytes) -> SharedBlock | None:
        """Return the memory of a connection, if it has one."""
        attached = self._attached.get(identity)
        return attached.slab.block if attached is not None else None

    def keep_answer(self, identity: bytes, step: int, frames: list[Any]) -> None:
        """Keep the answer to a message whose arrays came through a slab."""
        if (attached := self._attached.get(identity)) is not None:
            attached.step, attached.answer = step, frames

    def answer(self, identity: bytes, step: int) -> list[Any] | None:
        """Return the frames of the answer that a repeated message got; None: it is new."""
        attached = self._attached.get(identity)
        return attached.answer if attached is not None and step <= attached.step else None

    def rung_step(self, identity: bytes) -> int:
        """Return the last step of a connection that was answered by bell, -1: none."""
        attached = self._attached.get(identity)
        return attached.bell.step if attached is not None and attached.bell is not None else -1

    def rung(self, identity: bytes) -> tuple[Exchange, list[NDArray[Any]]]:
        """Return the request that a connection rang for last, and copies of its arrays.

        Raises
        ------
        WireError, InvalidValueError
            When it is none, or does not lie in the slab.
        """
        attached = self._attached[identity]
        assert attached.bell is not None
        if attached.bell.pending == Outcome.MALFORMED:
            raise WireError("what was rung has not the length of a request")
        return read_rung(attached.bell.request, attached.slab.block)

    def ring(self, identity: bytes, answer: Exchanged, places: tuple[SharedArray, SharedArray]) -> None:
        """Answer a request by bell, and keep the answer."""
        bell = self._attached[identity].bell
        assert bell is not None
        rows, dense = places
        bell.answer = Answer(
            answer.ps_epoch, answer.step, rows.offset, *rows.array.shape, len(dense.array),
            answer.update_s, answer.lookup_s,
        )  # fmt: skip
        bell.step = answer.step
        ring(bell)

    def release(self) -> None:
        """Unmap the slabs of workers that closed them or ended."""
        for identity in [key for key, each in self._attached.items() if each.slab.is_abandoned()]:
            self._drop(identity)

    def close(self) -> None:
        """Unmap all."""
        for identity in list(self._attached):
            self._drop(identity)

    def _drop(self, identity: bytes) -> None:
        attached = self._attached.pop(identity, None)
        if attached is not None:
            attached.close()


def _bell(identity: bytes, offer: OfferSlab, slab: Slab, *, is_open: bool) -> Bell | None:
    if offer.bell is None:
        return None
    try:
        ask, answers = open_bell(offer.bell)
    except (OSError, ValueError) as error:
        _log.info("%r rings no bell, and sends messages: %s", identity, error)
        return None
    data = slab.block.data
    return Bell(data.ctypes.data, len(data), ask, answers, step=-1, is_open=is_open)

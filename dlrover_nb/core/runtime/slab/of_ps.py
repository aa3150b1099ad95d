"""A PS's side of slabs: those of its workers that it maps, and what it answered there last.

A request is repeated when its answer does not come in time. Its arrays in a slab are those of now, perhaps of
a later request: so an answer that was given once is given again as it was, and nothing is read.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.runtime.slab.memory import Slab, SlabPlace, open_slab

if TYPE_CHECKING:
    from dlrover_nb.core.runtime.exchange import OfferSlab
    from dlrover_nb.core.runtime.shared_block import SharedBlock

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Attached:
    slab: Slab
    step: int = -1  # the last one that was answered through the slab
    answer: list[Any] = field(default_factory=list)  # its frames


class AttachedSlabs:
    """The slabs of workers, by connection.

    Parameters
    ----------
    place
        Where they lie.
    """

    def __init__(self, place: SlabPlace) -> None:
        self._place = place
        self._attached: dict[bytes, _Attached] = {}

    @property
    def n_byte(self) -> int:
        """Bytes mapped, which belong to workers."""
        return sum(each.slab.n_byte for each in self._attached.values())

    def attach(self, identity: bytes, offer: OfferSlab) -> bool:
        """Map the slab that a worker offers, in the place of its last one; whether that worked."""
        known = self._attached.get(identity)
        if known is not None and known.slab.token.hex() == offer.token:
            return True  # the offer was repeated
        try:
            slab = open_slab(self._place, offer)
        except (OSError, ValueError) as error:
            _log.info("the shared memory of %r is not used: %s", identity, error)
            return False
        self._drop(identity)
        self._attached[identity] = _Attached(slab)
        return True

    def block(self, identity: bytes) -> SharedBlock | None:
        """Return the memory of a connection, if it has one."""
        attached = self._attached.get(identity)
        return attached.slab.block if attached is not None else None

    def keep_answer(self, identity: bytes, step: int, frames: list[Any]) -> None:
        """Keep the answer to a request that came through a slab."""
        if (attached := self._attached.get(identity)) is not None:
            attached.step, attached.answer = step, frames

    def answer(self, identity: bytes, step: int) -> list[Any] | None:
        """Return the frames of the answer that a repeated request got; None: it is new."""
        attached = self._attached.get(identity)
        return attached.answer if attached is not None and step <= attached.step else None

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
            attached.slab.close()

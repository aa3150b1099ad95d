"""The two buffers of a PS: which of them is in use, and which one the next copy fills.

At every moment one complete copy is in memory: a copy goes into the older buffer, unless that is being
written to a file or holds what must stay.
"""

from __future__ import annotations

import logging
import shutil
import threading
from typing import TYPE_CHECKING

from dlrover_nb.core.runtime.checkpoints.buffer import CONTROL_BYTES, SharedBuffer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.05  # between two calls of `between` while a copy waits for a buffer


class BufferPair:
    """Buffers for the threads of one PS.

    Parameters
    ----------
    shm, prefix
        Where they lie, and what their names begin with.

    Attributes
    ----------
    is_choosing
        Whether a copy chooses its buffer, or fills it at once: meanwhile none is freed or reserved.
    """

    def __init__(self, shm: Path, prefix: str) -> None:
        self._shm, self._prefix = shm, prefix
        self._both = tuple(SharedBuffer(shm / f"{prefix}-{side}") for side in "ab")
        self._freed = threading.Condition()
        self._busy: list[SharedBuffer] = []  # guarded by _freed: buffers that another thread works on
        self._is_reserving = False  # guarded by it as well
        self.is_choosing = False

    @property
    def n_byte(self) -> int:
        """Bytes of shared memory in use."""
        return sum(buffer.n_byte for buffer in self._both)

    @property
    def is_busy(self) -> bool:
        """Whether another thread works on one."""
        return bool(self._busy)

    @property
    def older(self) -> SharedBuffer:
        """The one with the older copy, or none."""
        return min(self._both, key=lambda buffer: buffer.number)

    def holding(self, number: int) -> SharedBuffer | None:
        """Return the buffer with the copy of a checkpoint."""
        return next((buffer for buffer in self._both if buffer.number == number), None)

    def limit_for(self, buffer: SharedBuffer, limit: int) -> int:
        """Return what one buffer may take where both may take `limit`."""
        return limit - (self.n_byte - buffer.n_byte)

    def occupy(self, buffer: SharedBuffer, *, reserves: bool = False) -> None:
        """Keep a buffer for another thread until it is released; `reserves`: its memory is on the way."""
        with self._freed:
            self._busy.append(buffer)
            self._is_reserving = self._is_reserving or reserves

    def release(self, buffer: SharedBuffer) -> None:
        """End what `occupy` began."""
        with self._freed:
            self._busy.remove(buffer)
            self._is_reserving = False
            self._freed.notify()

    def give_way(self, limit: Callable[[], int]) -> None:
        """Free copies while they exceed the limit, the older first."""
        if self.is_choosing or self.n_byte <= limit():
            return
        with self._freed:
            free = [] if self._is_reserving else [b for b in self._both if b not in self._busy]
        for buffer in sorted(free, key=lambda buffer: buffer.number):
            if self.n_byte > limit():
                name, mib = self._prefix, buffer.n_byte >> 20
                logger.info("%s frees %d MiB of copies for its parameters", name, mib)
                buffer.close(unlink=True)

    def has_room(self, n_byte: int, limit: int) -> bool:
        """Whether memory suffices for a copy, as far as can be said without taking it."""
        need, n_free = CONTROL_BYTES + n_byte, shutil.disk_usage(self._shm).free
        return any(
            need <= self.limit_for(buffer, limit) and need - buffer.n_byte <= n_free for buffer in self._both
        )

    def room_for(
        self, n_byte: int, protected: int, limit: int, between: Callable[[], None]
    ) -> SharedBuffer | None:
        """Return the buffer for a copy, with memory; None where there is no room."""
        for buffer in sorted(self._free(between), key=lambda each: each.number == protected != -1):
            try:
                buffer.reserve(n_byte, most_bytes=self.limit_for(buffer, limit), between=between)
            except OSError as error:
                why = error.strerror
                logger.warning("%s: no memory for a copy of %d MiB: %s", self._prefix, n_byte >> 20, why)
            else:
                return buffer
        return None

    def close(self, *, unlink: bool) -> None:
        """Unmap both; with `unlink` also free their memory."""
        for buffer in self._both:
            buffer.close(unlink=unlink)

    def _free(self, between: Callable[[], None]) -> list[SharedBuffer]:
        """Return the buffers that are not in use, the older first; wait for one.

        The newer one is used where memory suffices for one buffer only: its content is in a file by then.
        """
        while True:
            with self._freed:
                free = [buffer for buffer in self._both if buffer not in self._busy]
                if free and not self._is_reserving:  # a reservation in progress is for this copy
                    return sorted(free, key=lambda buffer: buffer.number)
                self._freed.wait(_LOOK_EVERY_S)
            between()

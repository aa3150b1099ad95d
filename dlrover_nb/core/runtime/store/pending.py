"""Rows that move to another PS and have to be sent, while they go on changing.

They are marked as `take` comes to them: to mark all at once would stop the service for 40 ms with each GiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.kernels.bell_requests import Parameters
    from dlrover_nb.core.runtime.store.partition import Buckets, Ids
    from dlrover_nb.core.runtime.store.rows import RowTable

_SCAN = 1 << 16  # marks scanned at a time
_NO_SLOT = np.empty(0, np.int64)


class PendingRows:
    """Which rows of moving buckets have changed since they were taken.

    Parameters
    ----------
    rows
        The rows, with a mark for each.

    Attributes
    ----------
    n
        Pending rows.
    """

    def __init__(self, rows: RowTable) -> None:
        self._rows = rows
        self._moving: Buckets = np.zeros(N_BUCKET, np.bool_)
        self._are_moving = False  # any
        self._unmarked = range(0)  # slots at which rows are pending without a mark
        self._scan_from = 0
        self.n = 0

    def begin(self, buckets: Buckets) -> None:
        """Make all rows of `buckets` pending, now and whenever they change."""
        self._moving, self._are_moving = buckets.copy(), bool(buckets.any())
        self.n = int(self._rows.n_held[buckets].sum())
        self._scan_from, self._unmarked = 0, range(self._rows.n)

    def take(self, limit: int) -> NDArray[np.int64]:
        """Return the slots of at most `limit` pending rows, which are so no more."""
        slots = self._next(min(limit, self.n))
        self._rows.marked[slots] = False
        self.n -= len(slots)
        return slots

    def end(self, buckets: Buckets) -> None:
        """Note that rows of these buckets are not sent any more."""
        self._moving &= ~buckets
        self._are_moving = bool(self._moving.any())

    def cancel(self) -> None:
        """Make all rows not pending."""
        self._moving[:] = self._are_moving = False
        self._rows.marked[: self._rows.n] = False
        self.n = self._scan_from = 0
        self._unmarked = range(0)

    def mark(self, ids: Ids, slots: NDArray[np.int32]) -> None:
        """Make changed rows of moving buckets pending again."""
        if self._are_moving:
            changed, marked = slots[self._moving[ids % N_BUCKET]], self._rows.marked
            if self._unmarked:  # their rows are pending already
                changed = changed[(changed < self._unmarked.start) | (changed >= self._unmarked.stop)]
            self.n += len(changed) - int(np.count_nonzero(marked[changed]))
            marked[changed] = True

    def describe(self, parameters: Parameters) -> None:
        """Say what a kernel marks as `mark` does."""
        parameters.moving = self._moving.ctypes.data if self._are_moving else None
        parameters.first_unmarked, parameters.next_marked = self._unmarked.start, self._unmarked.stop
        parameters.n_pending = self.n

    def mark_all(self) -> None:
        """Give each pending row its mark, before rows get other slots."""
        self._mark_up_to(self._rows.n)

    def recount(self) -> None:
        """Count pending rows again, once rows are gone; each has its mark."""
        self.n = int(np.count_nonzero(self._rows.marked[: self._rows.n]))
        self._scan_from = 0

    def _next(self, wanted: int) -> NDArray[np.int64]:
        """Return `wanted` slots of pending rows, round-robin, so that no row waits for long."""
        slots: list[NDArray[np.int64]] = []
        while wanted:
            stop = min(self._scan_from + _SCAN, self._rows.n)
            self._mark_up_to(stop)
            marks = self._rows.marked[self._scan_from : stop]
            here = np.flatnonzero(marks)[:wanted] + self._scan_from if marks.any() else _NO_SLOT
            slots.append(here)
            wanted -= len(here)
            self._scan_from = 0 if stop == self._rows.n and wanted else stop
            if not wanted and len(here):
                self._scan_from = int(here[-1]) + 1
        return np.concatenate(slots) if slots else _NO_SLOT

    def _mark_up_to(self, stop: int) -> None:
        """Mark the rows below `stop` that are pending and have no mark yet."""
        start, end = self._unmarked.start, min(stop, self._unmarked.stop)
        if start < end:
            self._rows.mark(self._moving, slice(start, end))
            self._unmarked = range(end, self._unmarked.stop)

"""The rows of a store at one moment, copied by another thread while the store goes on changing.

The copy reads every row once, also while it changes. Before a row changes that may not be copied yet, the
store saves what it held; what was saved replaces what was read. So no thread waits, there is no lock, and the
result is the store of that moment, bit for bit:

- A row that did not change while it could be read is copied as it was.
- One that did was saved before: the copy takes what was saved after the last row, and so all of it.
- One that changes while the copy says that it is done needs nothing; if it is saved by then it is the same.

Ids change only where rows move to other slots. Then they are saved too, each time, and the first counts.

A store that is amid freeing rows of other owners is copied without these. It frees no more of them meanwhile,
as the copy learns from the ids which rows these are.

Rejected: a lock for each chunk, as its holder, of low priority, may be stopped by the system while workers
wait; copy-on-write pages (fork), which cost a page fault at every first change, and twice the memory; saved
rows written into the image, as the copy could overtake them.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.kernels.bell_requests import Saving
from dlrover_nb.core.runtime.kernels.copying import STOPPED, Choice, Progress, copying

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.store.partition import Buckets, Floats, Ids, StorePart

    Slots = NDArray[np.int32]

CHUNK_BYTES = 1 << 20
PAUSE_S = 1e-3  # after each chunk: the copy takes an eighth of a core, and little of what memory can carry
_BLOCK_ROWS = 1 << 16  # of saved rows; pages come when touched
_CHECKED_ROWS = 1 << 14
_LEAST_SAVED = 1 << 16
_MOST_SAVED = 4  # one row in so many may be saved; then changes wait for the copy
NOT_FINITE = "not all of its parameters are finite, so they are not saved; the last good checkpoint stays"


class Cut:
    """Rows and dense slice of a store, as they are when this is made.

    Parameters
    ----------
    part
        The same: rows as views of what will change, the dense slice, which changes at each step, copied.
    changed
        For each row, whether it has changed since the cut before; None: that is not known.
    is_awaited
        Whether to copy at full speed.
    gone, n_row
        Rows of these buckets are left out, and then there are so many; None: all are copied.

    Attributes
    ----------
    part
        Arrays of the shapes and types of the copy; without `gone`, what was given.
    changed
        As given.
    chooses
        Whether rows are left out.
    """

    def __init__(
        self,
        part: StorePart,
        changed: NDArray[np.bool_] | None = None,
        *,
        is_awaited: bool = False,
        gone: Buckets | None = None,
        n_row: int = 0,
    ) -> None:
        self._of, self._gone, self.changed, self.chooses = part, gone, changed, gone is not None
        self.part = replace(part, ids=part.ids[:n_row], table=part.table[:n_row]) if self.chooses else part
        self._pause_s = 0.0 if is_awaited else PAUSE_S
        self._copying, self._progress = copying(), Progress()
        self._saved = np.zeros(len(part.ids), np.bool_)  # pages come when touched
        self._blocks: list[_Block] = []
        self._ids: list[tuple[Slots, Ids]] = []
        self._most_saved = max(_LEAST_SAVED, len(part.ids) // _MOST_SAVED)
        self._ended = threading.Event()

    @property
    def is_copied(self) -> bool:
        """Whether no change matters any more."""
        return self._progress.n_done == len(self._saved) or self._ended.is_set()

    # the thread of the store

    @property
    def is_full(self) -> bool:
        """Whether changes wait for the copy, as what was saved takes too much memory."""
        return self._n_saved > self._most_saved

    @property
    def saving(self) -> Saving:
        """Where a kernel saves rows as `save` does, as long as there is room and until the next `save`."""
        return self._block(1).saving

    def save(self, table: Floats, slots: Slots) -> None:
        """Save rows of distinct slots, which are about to change; waits where that takes too much memory."""
        if self.is_full:
            self._ended.wait()
        if self.is_copied:
            return
        block = self._block(len(slots))
        block.saving.n += self._copying.save_rows(
            block.free, table, slots, self._saved, self._progress.n_done
        )

    def save_moved(self, table: Floats, ids: Ids, slots: NDArray[np.int64]) -> None:
        """Save rows and ids of slots that other rows take, or that end."""
        mine = slots[slots < len(self._saved)].astype(np.int32)
        self._ids.append((mine, ids[mine]))
        self.save(table, mine)

    @property
    def _n_saved(self) -> int:
        return sum(block.saving.n for block in self._blocks)

    def _block(self, n: int) -> _Block:
        """Return a block with room for `n` rows."""
        if not self._blocks or self._blocks[-1].room < n:
            length = self._of.table.shape[1]
            self._blocks.append(_Block(max(_BLOCK_ROWS, n), length, self._saved, self._progress))
        return self._blocks[-1]

    # both threads

    def wait(self, timeout_s: float) -> None:
        """Wait until no change matters any more, or for some time."""
        self._ended.wait(timeout_s)

    def stop(self) -> None:
        """Give the copy up: it ends after its chunk, with an error."""
        self._progress.stop()
        self._ended.set()

    # the thread that copies

    def copy_to(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Copy all of it to arrays of the names and shapes of a `StorePart`.

        Raises
        ------
        CheckpointError
            When not all parameters are finite, or after `stop`.
        """
        part, ids, table = self._of, arrays["ids"], arrays["table"]
        np.copyto(arrays["dense"], part.dense)
        chunk = max(1, CHUNK_BYTES // (8 + 4 * part.table.shape[1]))
        try:
            choice = None if self._gone is None else Choice(self._gone, len(part.ids))
            outcome = self._copying.copy_rows(
                (ids, table), (part.ids, part.table), chunk, self._pause_s, self._progress, choice
            )
        finally:
            self._ended.set()
        if outcome == STOPPED or self._progress.is_stopped:  # maybe too late: nothing was saved from then on
            raise CheckpointError("the PS began to load other parameters before it had copied these")
        for block in self._blocks:
            used = block.used if choice is None else choice.placed(*block.used)
            self._copying.put_rows(table, *used)
        for slots, before in reversed(self._ids):
            ids[slots] = before
        is_finite = bool(outcome) and all(_are_finite(block.used[1]) for block in self._blocks)
        if not (is_finite or _are_finite(table)) or not np.isfinite(arrays["dense"]).all():
            raise CheckpointError(NOT_FINITE)


class _Block:
    """Rows that were saved, in the order in which they were."""

    def __init__(self, room: int, length: int, saved: NDArray[np.bool_], progress: Progress) -> None:
        self._slots, self._rows = np.empty(room, np.int32), np.empty((room, length), np.float32)
        places = self._slots.ctypes.data, self._rows.ctypes.data
        marks, n_copied = saved.ctypes.data, progress.numbers.ctypes.data
        self.saving = Saving(*places, room, saved=marks, n_row=len(saved), n_copied=n_copied)

    @property
    def room(self) -> int:
        return len(self._slots) - int(self.saving.n)

    @property
    def free(self) -> tuple[Slots, Floats]:
        return self._slots[self.saving.n :], self._rows[self.saving.n :]

    @property
    def used(self) -> tuple[Slots, Floats]:
        n = int(self.saving.n)  # may grow at this moment
        return self._slots[:n], self._rows[:n]


def _are_finite(rows: Floats) -> bool:
    """Return whether all numbers of rows are; some thousand rows at a time."""
    chunks = range(0, len(rows), _CHECKED_ROWS)
    return all(bool(np.isfinite(rows[at : at + _CHECKED_ROWS]).all()) for at in chunks)

"""Maps from ids to slots, in numpy: what each kernel must compute.

`HashMap` grows without a pause. A rehash of all places at once takes 1.4 s at 8.4 million rows and half a
minute at 270 million, as long as the heartbeat's limit. So while it grows there are two tables, and a front
that moves through the old one. An id whose home in the old table lies before the front is in the new one, any
other in the old one; so each id is looked up, inserted and replaced in exactly one of them, and each call
moves the front by a number of places that depends on its own ids only. The new table is filled from its
beginning in two runs, so that its memory comes into being step by step, and that of the old one is returned
behind the front: at no moment is there more than a rehash at once would take.

Rejected: looking up in both tables (twice the cache lines for as long as it grows), and linear hashing, which
needs no second table, but makes runs of taken places grow long where two thirds of the places are taken.
"""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

from dlrover_nb.core.runtime.kernels.mixing import splitmix64

Ids = NDArray[np.int64]
Slots = NDArray[np.int32]

_FREE = 0
_FIRST_PLACES = 1024
_MOST_USED = 0.5  # share of a hash map's places; beyond it, runs of taken places grow long
_STEP = 1 << 13  # places by which each call moves the front: 0.1 ms
_STEP_PER_ID = 8  # the same for each new id
_KEPT = 1 << 16  # places at the beginning of an old table, for runs that begin at its end
_PLACE_BYTES = 16
_RETURNED_BYTES = 4 << 20  # at a time: whole huge pages


class DirectMap:
    """Slots of ids in [0, n_id): four bytes for each, which come into being when touched.

    A map by hashing would be smaller for a table with few used rows, and takes twice the cache lines.
    """

    def __init__(self, n_id: int) -> None:
        self._slot = np.zeros(n_id, np.int32)  # 1 + slot; 0: none

    @property
    def n_byte(self) -> int:
        """Bytes allocated."""
        return self._slot.nbytes

    def find(self, ids: Ids) -> Slots:
        """Return the slot of each id, -1 where it has none."""
        return self._slot.take(ids, mode="clip") - np.int32(1)

    def insert(self, ids: Ids, first: int) -> None:
        """Give distinct ids that have none the slots from `first` on."""
        self._slot[ids] = np.arange(first + 1, first + 1 + len(ids), dtype=np.int32)

    def replace(self, ids: Ids, slots: Slots) -> None:
        """Give distinct ids that have slots others; -1: none."""
        self._slot[ids] = slots + np.int32(1)


class Places:
    """The memory of one table: zeros that come into being when touched, and are returned in pieces.

    Attributes
    ----------
    array
        int64 [n, 2]: the complement of an id (never 0) and its slot + 1; (0, 0) is a free place, and an id
        without a slot is one whose row is gone. So a new table needs no initialization.
    """

    def __init__(self, n: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, n * _PLACE_BYTES, flags=flags)
        if hasattr(mmap, "MADV_HUGEPAGE") and n >= _KEPT:  # a look-up costs a cache line and no page walk
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self.array = np.frombuffer(self._memory, np.int64).reshape(n, 2)
        self._n_returned = 0

    def __len__(self) -> int:
        return len(self.array)

    @property
    def n_byte(self) -> int:
        """Bytes that it may hold."""
        return self.array.nbytes - self._n_returned

    def end_of_run(self, at: int) -> int:
        """Return the first index from `at` on that follows a free place, or the length."""
        while at < len(self):
            free = np.flatnonzero(self.array[max(at - 1, 0) : at + 255, 0] == _FREE)
            if len(free):
                return max(at - 1, 0) + int(free[0]) + 1
            at += 256
        return len(self)

    def give_back(self, stop: int) -> None:
        """Return the memory before `stop`, but for places to which runs from the end continue."""
        start = _KEPT * _PLACE_BYTES + self._n_returned
        n_byte = (stop * _PLACE_BYTES - start) // _RETURNED_BYTES * _RETURNED_BYTES
        if n_byte > 0 and hasattr(mmap, "MADV_DONTNEED") and self.end_of_run(0) < _KEPT:
            self._memory.madvise(mmap.MADV_DONTNEED, start, n_byte)
            self._n_returned += n_byte


class HashMap:
    """Slots of any ids >= 0: open addressing with linear probing, at most half full.

    One place is 16 bytes (id, slot), so that a look-up mostly costs one cache line. See the module for how it
    grows: where `_front` is the length of `_old`, no home lies behind it, and all ids are in `_new`.
    """

    def __init__(self) -> None:
        self._new, self._old, self._front = Places(_FIRST_PLACES), Places(1), 1
        self._n_taken = 0  # places of `_new`, with those that ids of `_old` will take
        self._n_live = 0

    @property
    def n_byte(self) -> int:
        """Bytes allocated."""
        return self._new.n_byte + self._old.n_byte

    def find(self, ids: Ids) -> Slots:
        """Return the slot of each id, -1 where it has none."""
        self._move_front(_STEP)
        return self._find(ids)

    def insert(self, ids: Ids, first: int) -> None:
        """Give distinct ids that have none the slots from `first` on."""
        n_step = max(_STEP, _STEP_PER_ID * len(ids))
        self._move_front(n_step)
        self._n_live += len(ids)
        self._n_taken += len(ids)
        if self._n_taken > _MOST_USED * len(self._new):
            self._begin_growth()
            self._move_front(n_step)
        self._place(ids, np.arange(first, first + len(ids), dtype=np.int64))

    def replace(self, ids: Ids, slots: Slots) -> None:
        """Give distinct ids that have slots others; -1: none, and places are free when it grows."""
        self._n_live -= int(np.count_nonzero(slots < 0))
        self._place(ids, slots.astype(np.int64))

    def _begin_growth(self) -> None:
        """Make room for all ids and for those that come before the front is through.

        That has to move by ``len(old)`` places, `_STEP_PER_ID` of them with each new id. With room for
        ``len(old) / _STEP_PER_ID`` new ids it is through before the next growth begins.
        """
        self._move_front(len(self._old))  # which it therefore is already
        room = len(self._new) // _STEP_PER_ID
        length = len(self._new)
        while self._n_live + room > _MOST_USED * length:
            length *= 2
        self._old, self._new, self._front = self._new, Places(length), 0
        self._n_taken = self._n_live

    def _move_front(self, n_place: int) -> None:
        """Move ids of about `n_place` places of the old table, up to a place where no run of ids crosses."""
        if self._front == len(self._old):
            return
        start, self._front = self._front, self._old.end_of_run(self._front + n_place)
        self._move(start, self._front, wrapped=False)
        if self._front < len(self._old):
            self._old.give_back(self._front)
            return
        self._move(0, self._old.end_of_run(0), wrapped=True)
        self._old, self._front = Places(1), 1

    def _find(self, ids: Ids) -> Slots:
        slots, mixed = np.empty(len(ids), np.int32), splitmix64(ids.view(np.uint64))
        for places, mine in self._shares(mixed):
            slots[mine] = _found(places.array, ids[mine], mixed[mine])
        return slots

    def _place(self, ids: Ids, slots: Ids) -> None:
        mixed = splitmix64(ids.view(np.uint64))
        for places, mine in self._shares(mixed):
            _put(places.array, ids[mine], mixed[mine], slots[mine])

    def _shares(self, mixed: NDArray[np.uint64]) -> tuple[tuple[Places, NDArray[np.bool_]], ...]:
        """Return which ids belong to which table."""
        is_old = _homes(mixed, len(self._old)) >= self._front
        return (self._new, ~is_old), (self._old, is_old)

    def _move(self, start: int, stop: int, *, wrapped: bool) -> None:
        """Put rows of old places into the new table: those of runs from the old one's end, or all others."""
        old = self._old.array[start:stop]
        ids = ~old[:, 0]
        mixed = splitmix64(ids.view(np.uint64))
        is_wrapped = _homes(mixed, len(self._old)) > np.arange(start, stop)
        mine = (old[:, 1] != _FREE) & (is_wrapped == wrapped)  # rows that are gone stay behind
        _put(self._new.array, ids[mine], mixed[mine], old[mine, 1] - 1)


def _found(places: Ids, ids: Ids, mixed: NDArray[np.uint64]) -> Slots:
    slots = np.empty(len(ids), np.int32)
    open_, at = np.arange(len(ids)), _homes(mixed, len(places))
    while len(open_):
        found = places[at]
        ended = (found[:, 0] == ~ids[open_]) | (found[:, 0] == _FREE)
        slots[open_[ended]] = found[ended, 1] - 1
        open_, at = open_[~ended], (at[~ended] + 1) & (len(places) - 1)
    return slots


def _put(places: Ids, ids: Ids, mixed: NDArray[np.uint64], slots: Ids) -> None:
    keys, at = ~ids, _homes(mixed, len(places))
    while len(keys):
        free = places[at, 0] == _FREE
        places[at[free], 0] = keys[free]  # of several that want one place, one wins
        won = places[at, 0] == keys
        places[at[won], 1] = slots[won] + 1
        keys, slots, at = keys[~won], slots[~won], (at[~won] + 1) & (len(places) - 1)


def _homes(mixed: NDArray[np.uint64], n_place: int) -> Ids:
    return (mixed & np.uint64(n_place - 1)).astype(np.int64)

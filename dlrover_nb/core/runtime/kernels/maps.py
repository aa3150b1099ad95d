"""Maps from ids to slots, in numpy: what each kernel must compute.

`HashMap` holds slots alone, five bytes for each; the ids lie beside the rows (`held`), and decide. A table of
16-byte places with ids in them, at most half full, takes 32 to 64 bytes a row, and at its growth twice that.

It grows without a pause: a rehash of all places at once takes a second at 8 million rows, longer than the
limit of a heartbeat at 270 million. So it consists of pieces of 128 KiB, and a full one is split, which reads
its own 20,000 ids (extendible hashing, Fagin et al. 1979). The first bits of a mixed id give its piece by way
of a directory, its last ones the line in the piece, the same in each, and a tag. A piece is split in parts of
two and three fifths: split in halves, all would be full, and then half empty, at the same time. So some are
full while others are not, and the map takes 9 to 12 bytes a row at any number of rows; and as several may
still fill in one call, the fullest are split a little early, a few in each call.

A line is one of the cache: tags of 12 slots, how many ids passed it as it was full, and the slots (F14 of
folly, Bronson and Shi 2019). A look-up compares the tags at once, reads one id (12/255 more of them in vain),
and ends at a line that none passed; so nothing is left behind where rows go.

Rejected: two tables while it grows, with a front that moves through the old one (its peak is 1.5 times as
high), and linear hashing (what is not split yet is twice as full as what is, so half of its places would lie
unused).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.kernels.mixing import splitmix64
from dlrover_nb.core.runtime.kernels.reserved import Reserved

if TYPE_CHECKING:
    from dlrover_nb.core.runtime.kernels.bell_requests import Parameters

Ids = NDArray[np.int64]
Slots = NDArray[np.int32]

_N_LANE = 12  # slots of a line
LINE_LAYOUT = np.dtype([("tags", np.uint8, _N_LANE), ("n_passed", np.uint32), ("slots", np.int32, _N_LANE)])
_LINE = 16  # numbers of a line: 3 of tags, one of those that passed, slots
_PASSED, _SLOTS = 3, 4
N_LINE = 2048  # of a piece: splitting one takes a third of a millisecond
_EARLY, _MOST_USED = 0.82, 0.92  # shares of its slots from which a piece may be, and must be split
_ROWS_PER_SPLIT = 1 << 12  # new rows for which a piece is split early; it takes 10,000 between two
_LEAST_RANGE = 5  # entries of the directory of a piece that is split: so its parts can be 2 and 3
_MOST_ENTRIES = 1 << 10  # of the directory for each piece; ids have four or so
_LINES_PER_ROW = 0.25  # for which address space is reserved; there are 0.14


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

    def describe(self, parameters: Parameters) -> None:
        """Say where the map lies, to a kernel that serves without Python."""
        parameters.direct = self._slot.ctypes.data

    def find(self, ids: Ids, slot_ids: Ids) -> Slots:  # noqa: ARG002 - of the other map
        """Return the slot of each id, -1 where it has none."""
        return self._slot.take(ids, mode="clip") - np.int32(1)

    def insert(self, ids: Ids, first: int, slot_ids: Ids) -> None:  # noqa: ARG002 - as above
        """Give distinct ids that have none the slots from `first` on."""
        self._slot[ids] = np.arange(first + 1, first + 1 + len(ids), dtype=np.int32)

    def move(self, ids: Ids, slots: Slots, to: Slots) -> None:  # noqa: ARG002 - as above
        """Give distinct ids other slots than theirs; -1: none."""
        self._slot[ids] = to + np.int32(1)


class HashMap:
    """Slots of any ids >= 0, in pieces; see the module.

    Parameters
    ----------
    most
        Rows for which address space is reserved.
    """

    def __init__(self, most: int) -> None:
        self._lines = Reserved(int(most * _LINES_PER_ROW) + N_LINE, (_LINE,), np.int32)
        self._lines.reach(N_LINE)
        self._depth = 3  # bits of the directory
        self._directory = np.zeros(1 << self._depth, np.int32)  # the piece of each prefix of a mixed id
        self._start, self._stop = np.zeros(1, np.int64), np.full(1, 1 << self._depth)  # of pieces in it
        self._n_row = np.zeros(1, np.int64)  # of each piece

    @property
    def n_byte(self) -> int:
        """Bytes allocated."""
        return self._lines.n_byte + self._directory.nbytes + 3 * self._n_row.nbytes

    def describe(self, parameters: Parameters) -> None:
        """Say where the map lies, and when it splits a piece, to a kernel that inserts until then."""
        parameters.lines, parameters.last = self._lines.at, N_LINE - 1
        parameters.directory, parameters.depth = self._directory.ctypes.data, self._depth
        parameters.n_in_piece, parameters.n_piece = self._n_row.ctypes.data, len(self._n_row)
        parameters.early, parameters.most_in_piece = _most(_EARLY), _most(_MOST_USED)

    def find(self, ids: Ids, slot_ids: Ids) -> Slots:
        """Return the slot of each id, -1 where it has none; `slot_ids`: the id of each slot."""
        slots = np.full(len(ids), -1, np.int32)
        at, tags = self._homes(ids)
        open_ = np.arange(len(ids))
        for _ in range(N_LINE):
            if not len(open_):
                break
            lines = self._lines.array[at]
            which, lane = np.nonzero(_tags(lines) == tags[open_, None])
            candidates = lines[which, _SLOTS + lane]
            is_same = slot_ids[candidates] == ids[open_[which]]
            slots[open_[which[is_same]]] = candidates[is_same]
            goes_on = (lines[:, _PASSED] > 0) & (slots[open_] < 0)
            open_, at = open_[goes_on], _next(at[goes_on])
        return slots

    def insert(self, ids: Ids, first: int, slot_ids: Ids) -> None:
        """Give distinct ids that have none the slots from `first` on; `slot_ids`: the id of each slot.

        Raises
        ------
        WireError
            When more ids than a piece holds begin alike even when mixed, which no honest ids do.
        """
        self._split_early(1 + len(ids) // _ROWS_PER_SPLIT, slot_ids)
        while True:
            n_new = self._counted(ids)
            full = np.flatnonzero(self._n_row + n_new > _most(_MOST_USED))
            if not len(full):
                break
            for piece in full.tolist():
                self._split(piece, slot_ids)
        self._n_row += n_new
        self._place(ids, np.arange(first, first + len(ids), dtype=np.int32))

    def move(self, ids: Ids, slots: Slots, to: Slots) -> None:
        """Give distinct ids other slots than theirs; -1: none. No new slot is a later id's old one."""
        self._n_row -= self._counted(ids[to < 0])
        self._replace(ids, slots, to)

    def _split_early(self, most: int, slot_ids: Ids) -> None:
        """Split the fullest pieces, at most so many: when many fill at the same time, they are in turn."""
        for _ in range(most):
            piece = int(self._n_row.argmax())
            has_entries = self._stop[piece] - self._start[piece] >= _LEAST_RANGE
            may_double = _LEAST_RANGE * len(self._directory) <= _MOST_ENTRIES * len(self._n_row)
            if self._n_row[piece] <= _most(_EARLY) or not (has_entries or may_double):
                return
            self._split(piece, slot_ids)

    def _split(self, piece: int, slot_ids: Ids) -> None:
        """Give three fifths of a piece's prefixes to a new piece, with the ids that begin so."""
        while self._stop[piece] - self._start[piece] < _LEAST_RANGE:
            self._double_directory()
        start, stop, fresh = int(self._start[piece]), int(self._stop[piece]), len(self._n_row)
        middle = start + 2 * (stop - start) // 5
        self._stop[piece] = middle
        self._start, self._stop = np.append(self._start, middle), np.append(self._stop, stop)
        self._directory[middle:stop] = fresh
        self._lines.reach((fresh + 1) * N_LINE)
        lines = self._piece(piece)
        slots = lines[:, _SLOTS:][_tags(lines) > 0]
        lines[:] = 0
        self._place(slot_ids[slots], slots)
        n_moved = np.count_nonzero(_tags(self._piece(fresh)))
        self._n_row = np.append(self._n_row, n_moved)
        self._n_row[piece] -= n_moved

    def _double_directory(self) -> None:
        if len(self._directory) >= _MOST_ENTRIES * len(self._n_row):
            raise WireError(
                f"expected ids that differ when mixed, got more than {_most(_MOST_USED):,} that agree in "
                f"their first {self._depth} bits; they were made to slow this server down"
            )
        self._depth += 1
        self._directory = np.repeat(self._directory, 2)
        self._start, self._stop = 2 * self._start, 2 * self._stop

    def _piece(self, number: int) -> Slots:
        """Return the lines of a piece."""
        return self._lines.array[number * N_LINE : (number + 1) * N_LINE]

    def _counted(self, ids: Ids) -> Ids:
        """Return how many of the ids belong to each piece."""
        at, _ = self._homes(ids)
        return np.bincount(at // N_LINE, minlength=len(self._n_row))

    def _homes(self, ids: Ids) -> tuple[Ids, NDArray[np.uint8]]:
        """Return the line where each id begins to look, and its tag, which is not 0."""
        mixed = splitmix64(ids.view(np.uint64))
        piece = self._directory[(mixed >> np.uint64(64 - self._depth)).astype(np.int64)].astype(np.int64)
        line = ((mixed >> np.uint64(8)) & np.uint64(N_LINE - 1)).astype(np.int64)
        tags: NDArray[np.uint8] = np.maximum(mixed.astype(np.uint8), np.uint8(1))
        return piece * N_LINE + line, tags

    def _place(self, ids: Ids, slots: Slots) -> None:
        """Put slots of ids that have none into the first lines with room; their pieces have some."""
        lines, tags_of = self._lines.array, _tags(self._lines.array)
        at, tags = self._homes(ids)
        while len(at):
            free = np.cumsum(tags_of[at] == 0, axis=1, dtype=np.int8)  # up to each lane
            turn = _turns(at)
            fits = turn < free[:, -1]
            here, lane = at[fits], (free[fits] > turn[fits, None]).argmax(axis=1)
            tags_of[here, lane] = tags[fits]
            lines[here, _SLOTS + lane] = slots[fits]
            at, tags, slots = at[~fits], tags[~fits], slots[~fits]
            np.add.at(lines[:, _PASSED], at, 1)
            at = _next(at)

    def _replace(self, ids: Ids, slots: Slots, to: Slots) -> None:
        lines, tags_of = self._lines.array, _tags(self._lines.array)
        at, tags = self._homes(ids)
        lane, open_ = np.empty(len(ids), np.int64), np.arange(len(ids))
        while len(open_):
            here = at[open_]
            is_it = (lines[here, _SLOTS:] == slots[open_, None]) & (tags_of[here] == tags[open_, None])
            lane[open_] = is_it.argmax(axis=1)
            open_ = open_[~is_it.any(axis=1)]
            np.subtract.at(lines[:, _PASSED], at[open_[to[open_] < 0]], 1)
            at[open_] = _next(at[open_])
        lines[at, _SLOTS + lane] = to
        goes = to < 0
        tags_of[at[goes], lane[goes]] = 0


def _most(share: float) -> int:
    """Return how many rows take this share of a piece's slots."""
    return int(share * _N_LANE * N_LINE)


def _tags(lines: Slots) -> NDArray[np.uint8]:
    """Return the tags of lines, a view."""
    return lines.view(np.uint8)[:, :_N_LANE]


def _turns(at: Ids) -> Ids:
    """Return how many elements before each one are equal to it."""
    order = np.argsort(at, kind="stable")
    first = np.flatnonzero(np.diff(at[order], prepend=-1))
    turns = np.empty_like(at)
    turns[order] = np.arange(len(at)) - np.repeat(first, np.diff(first, append=len(at)))
    return turns


def _next(at: Ids) -> Ids:
    """Return the line to look in after one, in the same piece."""
    last = N_LINE - 1
    return at & ~last | (at + 1) & last

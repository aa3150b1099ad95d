"""Rows of the embedding table that one PS holds, in one array that grows and shrinks.

A row is created when it is first pushed; until then its value is a pure function of its id and the model's
seed, which a lookup computes. So memory grows with the trained ids, values do not depend on the layout over
PS, and evaluation allocates nothing.

Rows are in the order of their first push, values and optimizer state side by side (an update touches one run
of memory); a map gives their slots. Their arrays grow in place (`kernels.reserved`): there is never a second
copy of the parameters, and what is behind the last row is returned to the system. With Adagrad, dimension 16
and hashed ids a row takes 158 bytes at most: 136 of parameters, its id, two marks, and 9 to 12 of the map.
"""

from __future__ import annotations

from ctypes import addressof
from typing import TYPE_CHECKING, Any

import numpy as np

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.kernels.numpy_kernel import seed_bits
from dlrover_nb.core.runtime.kernels.reserved import Reserved, machine_bytes
from dlrover_nb.core.runtime.store.served import bucket_counts
from dlrover_nb.core.structs.job.spec_choices import Embedding
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.kernels import Kernel, Map
    from dlrover_nb.core.runtime.kernels.bell_requests import Parameters
    from dlrover_nb.core.runtime.kernels.rule import Rule
    from dlrover_nb.core.runtime.store.cut import Cut
    from dlrover_nb.core.runtime.store.partition import Buckets, Floats, Ids
    from dlrover_nb.core.structs.job.job import ModelSpec

    Slots = NDArray[np.int32]

_MOST_ROWS = (1 << 31) - 1  # slots are int32
_GIVE_BACK = 1 << 18  # rows that are gone, when their memory is given back
_CHUNK = 1 << 15  # rows processed at a time, to avoid a copy of all
_MOST_SEARCHED = 1 << 17  # in one step of a removal, for places of rows that go: a third of a millisecond


class RowTable:
    """Slab, ids and map.

    Parameters
    ----------
    model, rule
        Widths, seed and optimizer.
    n_id
        Ids are in [0, n_id) for a fixed table; a hashed one takes any.
    kernel
        The kernel of lookups and updates.

    Attributes
    ----------
    n
        Rows.
    n_held
        Rows of each bucket, int64 [N_BUCKET].
    """

    def __init__(self, model: ModelSpec, rule: Rule, n_id: int, kernel: Kernel) -> None:
        self._kernel = kernel
        self.width, self._seed, self._first_state = model.row_width, model.seed, rule.first_state
        self._n_id = None if model.embedding is Embedding.HASH else n_id
        length = self.width + rule.row_state(self.width)
        most = min(_MOST_ROWS, machine_bytes() // (4 * length))
        self._most = most if self._n_id is None else min(n_id, most)
        self._table = Reserved(self._most, (length,), np.float32)
        self._ids = Reserved(self._most, (), np.int64)
        self._marked = Reserved(self._most, (), np.bool_)
        self._changed = Reserved(self._most, (), np.bool_)
        self._has_moved = True  # rows, since `take_changed`; before it nothing is known
        self.n = 0
        self._cut: Cut | None = None
        self.n_held = np.zeros(N_BUCKET, np.int64)
        self._n_held_at = int(self.n_held.ctypes.data)  # numpy takes a microsecond to tell it
        self._map = self._new_map()
        self._gone: Buckets = np.zeros(N_BUCKET, np.bool_)
        self._front = 0  # of a removal: no row before it goes

    @property
    def n_byte(self) -> int:
        """Bytes of rows, ids, marks and the map."""
        return self._map.n_byte + sum(part.n_byte for part in self._parts)

    @property
    def table(self) -> Floats:
        """Values and state, float32 [capacity, width + state]; the first `n` are rows."""
        return self._table.array

    @property
    def ids(self) -> Ids:
        """The id of each row, int64 [capacity]."""
        return self._ids.array

    @property
    def marked(self) -> NDArray[np.bool_]:
        """A mark of each row for the caller, [capacity]."""
        return self._marked.array

    def find(self, ids: Ids) -> Slots:
        """Return the slot of each id, -1 for a new one.

        Raises
        ------
        WireError
            When an id is outside the table.
        """
        self.check(ids)
        return self._map.find(ids, self.ids)

    def describe(self, parameters: Parameters) -> None:
        """Say where rows lie, and how many there may be, until one is created or removed."""
        parameters.table, parameters.held = self._table.at, self._ids.at
        parameters.changed, parameters.marked = self._changed.at, self._marked.at
        parameters.n_row, parameters.n_held = self.n, self._n_held_at
        parameters.most_rows = min(_MOST_ROWS, *(len(part.array) for part in self._parts))
        parameters.stride, parameters.width = self.table.shape[1], self.width
        parameters.n_id, parameters.seed_bits = self._limit, seed_bits(self._seed)
        parameters.saving = None if (cut := self.cut) is None else addressof(cut.saving)
        self._map.describe(parameters)

    def take_over(self, n: int) -> None:
        """Note that a kernel has created rows; there are `n` now."""
        self.n = n
        self._reach(n)

    @property
    def _limit(self) -> int:
        """Ids are below it."""
        return 1 << 63 if self._n_id is None else self._n_id

    def check(self, ids: Ids) -> None:
        """Raise `WireError` when an id is outside the table."""
        limit = self._limit
        if len(ids) and int(ids.view(np.uint64).max()) >= limit:  # unsigned: catches below 0 too
            raise WireError(f"rows must be in [0, {limit}), got [{ids.min()}, {ids.max()}]")

    def check_distinct(self, ids: Ids) -> None:
        """Raise `WireError` when an id comes twice: it would become several rows, or lose a step."""
        ordered = np.sort(ids)
        if len(repeated := ordered[1:][ordered[1:] == ordered[:-1]]):
            raise WireError(f"expected each row once, got {repeated[0]} more than once")

    def gather(self, ids: Ids, out: Floats) -> None:
        """Write the values of rows into `out`, float32 [n, width]; no row is created."""
        self._kernel.gather(self.table, self.find(ids), ids, out, self._seed)

    def find_or_create(self, ids: Ids, *, fill: bool = True) -> Slots:
        """Return the slots of distinct ids; `fill`: initialize new rows."""
        slots = self.find(ids)
        new = slots < 0
        if new.any():
            slots[new] = self._create(ids[new], fill=fill)
        return slots

    @property
    def cut(self) -> Cut | None:
        """What is copied while it changes: rows are saved for it before; None: nothing is."""
        if self._cut is not None and self._cut.is_copied:
            self._cut = None
        return self._cut

    @cut.setter
    def cut(self, cut: Cut) -> None:
        self._cut = cut

    @property
    def is_held_up(self) -> bool:
        """Whether changes wait for a copy."""
        return (cut := self.cut) is not None and cut.is_full

    @property
    def is_chosen(self) -> bool:
        """Whether a copy that is being made tells by the ids which rows stay."""
        return (cut := self.cut) is not None and cut.chooses

    @property
    def going(self) -> tuple[Buckets | None, int]:
        """The buckets whose rows are being removed, and how many rows stay; None: none are."""
        n_going = int(self.n_held[self._gone].sum())
        return (self._gone.copy() if n_going else None), self.n - n_going

    def take_changed(self) -> NDArray[np.bool_] | None:
        """Return which rows have changed since the last call; None: all, or they get other slots."""
        changed, has_moved = self._changed.array[: self.n], self._has_moved or self.going[0] is not None
        self._changed = Reserved(self._most, (), np.bool_)  # pages come when touched
        self._changed.reach(self.n)
        self._has_moved = False
        return None if has_moved else changed

    def save(self, slots: Slots) -> None:
        """Note that rows of distinct slots are about to change; save them for a copy that is being made."""
        self._changed.array[slots] = True
        if (cut := self.cut) is not None:
            cut.save(self.table, slots)

    def begin_removal(self, buckets: Buckets) -> None:
        """Drop the rows of `buckets`, and what is left of an earlier removal, in steps (`remove_some`)."""
        self._gone, self._front = self._gone | buckets, 0

    def remove_some(self, most: int) -> bool:
        """Take one step of a removal, over the last `most` rows, unless a copy chooses; whether it goes on.

        Those that stay go to the places of rows that do not, so each step leaves a whole table. So many more
        rows are searched for such places and no others: a step takes as long in a table of any size.
        """
        if self.is_chosen:
            return True
        if self.n_held[self._gone].any():
            self._remove(most)
        has_more = bool(self.n_held[self._gone].any())
        if not has_more or self._ids.n_byte // self._ids.array.itemsize >= self.n + _GIVE_BACK:
            for part in self._parts:  # not all at the end: it takes the system a tenth of a second per GiB
                part.give_back(self.n)
        if not has_more:
            self._gone = np.zeros(N_BUCKET, np.bool_)
        return has_more

    def _remove(self, most: int) -> None:
        start = max(self._front, self.n - most)
        goes = self._gone[self.ids[start : self.n] % N_BUCKET]
        stay, ends = start + np.flatnonzero(~goes), start + np.flatnonzero(goes)
        left = np.concatenate([self._holes(len(stay), start), ends])
        n = self.n - len(left)
        moved, places = stay[stay >= n], left[left < n]
        if (cut := self.cut) is not None:
            cut.save_moved(self.table, self.ids, np.concatenate([left, moved]))
        self._map.move(self.ids[left], left.astype(np.int32), np.full(len(left), -1, np.int32))
        self.n_held -= bucket_counts(self.ids[left])
        self._map.move(self.ids[moved], moved.astype(np.int32), places.astype(np.int32))
        for part in self._parts:
            part.array[places] = part.array[moved]
        self.n, self._has_moved = n, True

    def renew_map(self, between: Callable[[], None]) -> None:
        """Free what the map holds for rows that are gone; `between` is called every few MiB."""
        self._map = self._new_map()
        for start in range(0, self.n, _CHUNK):
            self._map.insert(self.ids[start : min(start + _CHUNK, self.n)], start, self.ids)
            between()

    def _holes(self, wanted: int, stop: int) -> NDArray[np.int64]:
        """Return the next places below `stop` whose rows go, at most `wanted`; few rows are searched."""
        holes = [np.empty(0, np.int64)]
        stop = min(stop, self._front + _MOST_SEARCHED)
        while wanted and self._front < stop:
            chunk = slice(self._front, min(self._front + _CHUNK, stop))
            here = np.flatnonzero(self._gone[self.ids[chunk] % N_BUCKET])[:wanted] + self._front
            wanted -= len(here)
            self._front = chunk.stop if wanted else int(here[-1]) + 1
            holes.append(here)
        return np.concatenate(holes)

    def mark(self, buckets: Buckets, slots: slice) -> None:
        """Mark the rows of `buckets` at these slots, and no other of them."""
        self.marked[slots] = buckets[self.ids[slots] % N_BUCKET]

    def _create(self, ids: Ids, *, fill: bool) -> Slots:
        start, stop = self.n, self.n + len(ids)
        self._reach(stop)
        if fill:
            self.table[start:stop, : self.width] = self._kernel.initial_rows(ids, self.width, self._seed)
            self.table[start:stop, self.width :] = self._first_state
        self.ids[start:stop] = ids
        self.marked[start:stop] = False
        self._map.insert(ids, start, self.ids)
        self.n = stop
        self.n_held += bucket_counts(ids)
        return np.arange(start, stop, dtype=np.int32)

    def _reach(self, n: int) -> None:
        for part in self._parts:
            part.reach(n)

    @property
    def _parts(self) -> tuple[Reserved[Any], ...]:
        return self._table, self._ids, self._marked, self._changed

    def _new_map(self) -> Map:
        if self._n_id is None:
            return self._kernel.hash_map(self._most)
        return self._kernel.direct_map(self._n_id)

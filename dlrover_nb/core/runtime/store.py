"""Parameters of one PS: the rows it owns of the embedding table, and its slice of the dense vector.

One table holds the rows of all categorical columns. A row comes into being when it is first pushed; until
then its value is a pure function of its id and the model's seed, which a pull computes. So memory grows with
the ids that are trained, the layout over PS never shows in a value, and evaluation allocates nothing.

Rows lie in growing arrays in the order of their first push; a map of one int32 per row of the table says
where (its pages, too, come into being when touched). Growing is `ndarray.resize` in place, which the
allocator does by moving pages: no second copy of the parameters ever exists. A map by hashing would be
smaller for a table with few used rows and was rejected: a look-up in numpy costs several passes.

Adagrad needs no epsilon: its sums start above zero (`ModelSpec.initial_accumulator`) and only grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dlrover_nb.core.errors import CheckpointError, WireError
from dlrover_nb.core.structs.messages import N_BUCKET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.job import ModelSpec

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]

INITIAL_SCALE = 0.01  # standard deviation of an embedding's first values
_GROWTH = 1.25  # the share of allocated rows that may lie unused is 1 - 1/1.25
_FIRST_CAPACITY = 1024


def dense_slice(length: int, index: int, n_ps: int) -> slice:
    """Return the elements of the flat dense vector that PS `index` of `n_ps` owns."""
    return slice(index * length // n_ps, (index + 1) * length // n_ps)


def even_bucket_owner(n_ps: int) -> tuple[int, ...]:
    """Return the owner of each bucket when `n_ps` PS share them in turn."""
    return tuple(bucket % n_ps for bucket in range(N_BUCKET))


def initial_rows(rows: Rows, width: int, seed: int) -> Floats:
    """Return the first values of `rows`: uniform with standard deviation 0.01; the wide weight is 0.

    The bits come from SplitMix64 (Steele et al. 2014) of the element's number, mixed with the seed's own.
    """
    with np.errstate(over="ignore"):
        start = _splitmix64(np.full(1, seed % 2**64, np.uint64))
        column: NDArray[np.uint64] = np.arange(width).astype(np.uint64)
        element: NDArray[np.uint64] = rows.astype(np.uint64)[:, None] * np.uint64(width) + column
        bits = _splitmix64(element + start)
    unit = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)  # [-1, 1)
    values = unit * np.float32(INITIAL_SCALE * 3**0.5)  # a uniform on [-a, a) has deviation a/sqrt(3)
    values[:, -1] = 0
    return values


def _splitmix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class StorePart:
    """What one PS holds, as arrays: touched rows with values and Adagrad sums, and its dense slice.

    Parameters
    ----------
    rows, values, sums
        int64 [n], float32 [n, width], float32 [n, width]; views of the store, valid until the next push.
    dense_offset, dense, dense_sums
        Where the slice lies in the flat dense vector, its values and sums; empty before `init_dense`.
    """

    rows: Rows
    values: Floats
    sums: Floats
    dense_offset: int
    dense: Floats
    dense_sums: Floats


class ParameterStore:
    """Adagrad parameters of PS `index` of `n_ps`.

    Parameters
    ----------
    model
        Widths, seed and optimizer.
    n_table_row
        Rows of the whole table.
    dense_length
        Elements of the whole flat dense vector.
    index, n_ps
        Which slice of the dense vector this store holds.
    """

    def __init__(
        self, model: ModelSpec, n_table_row: int, dense_length: int, *, index: int = 0, n_ps: int = 1
    ) -> None:
        self._model = model
        self._width = model.row_width
        self._slot = np.zeros(n_table_row, np.int32)  # 1 + place of the row; 0: not touched yet
        self._values = np.empty((_FIRST_CAPACITY, self._width), np.float32)
        self._sums = np.empty((_FIRST_CAPACITY, self._width), np.float32)
        self.n_row = 0
        self.dense_range = dense_slice(dense_length, index, n_ps)
        n_dense = self.dense_range.stop - self.dense_range.start
        self._dense = np.zeros(n_dense, np.float32)
        self._dense_sums = np.full(n_dense, model.initial_accumulator, np.float32)
        self.dense_ready = False

    @property
    def n_byte(self) -> int:
        """Bytes allocated for parameters and optimizer state, the row map not counted."""
        return sum(a.nbytes for a in (self._values, self._sums, self._dense, self._dense_sums))

    @property
    def dense(self) -> Floats:
        """A copy of the dense slice."""
        return self._dense.copy()

    def init_dense(self, values: Floats) -> bool:
        """Start the dense slice from `values` unless it has some; whether it did."""
        if values.shape != self._dense.shape:
            raise WireError(f"expected a dense slice of {self._dense.shape}, got {values.shape}")
        if not self.dense_ready:
            self._dense[:] = values
            self.dense_ready = True
            return True
        return False

    def pull(self, rows: Rows) -> Floats:
        """Return the values of `rows`, float32 [n, width]; nothing comes into being."""
        slots = self._slots(rows)
        values = self._values.take(slots, axis=0, mode="clip")  # "clip" skips a slow check; -1 is replaced
        new = slots < 0
        if new.any():
            values[new] = initial_rows(rows[new], self._width, self._model.seed)
        return values

    def push(self, rows: Rows, gradients: Floats) -> None:
        """Apply Adagrad to distinct `rows`: sums += g^2, then values -= rate * g / sqrt(sums)."""
        if gradients.shape != (len(rows), self._width):
            raise WireError(f"expected gradients ({len(rows)}, {self._width}), got {gradients.shape}")
        slots = self._slots(rows)
        new = slots < 0
        if new.any():
            slots[new] = self._create(rows[new])
        sums = self._sums.take(slots, axis=0, mode="clip")
        sums += gradients * gradients
        self._sums[slots] = sums
        values = self._values.take(slots, axis=0, mode="clip")
        values -= self._step(gradients, sums)
        self._values[slots] = values

    def push_dense(self, gradient: Floats) -> None:
        """Apply Adagrad to the dense slice."""
        if gradient.shape != self._dense.shape or not self.dense_ready:
            raise WireError(
                f"expected the gradient of a dense slice {self._dense.shape} that has values, "
                f"got {gradient.shape}, values {'set' if self.dense_ready else 'not set'}"
            )
        self._dense_sums += gradient * gradient
        self._dense -= self._step(gradient, self._dense_sums.copy())

    def export(self) -> StorePart:
        """Return all that is held; the arrays are views, so that no second copy is made."""
        touched = np.flatnonzero(self._slot)
        rows = np.empty(self.n_row, np.int64)
        rows[self._slot[touched] - 1] = touched
        n_dense = len(self._dense) if self.dense_ready else 0
        return StorePart(
            rows,
            self._values[: self.n_row],
            self._sums[: self.n_row],
            self.dense_range.start,
            self._dense[:n_dense],
            self._dense_sums[:n_dense],
        )

    def load(self, part: StorePart, owned: NDArray[np.bool_]) -> None:
        """Take from `part`, of any layout, the rows of `owned` buckets and the overlap of the dense slice.

        Parameters
        ----------
        owned
            For each bucket, whether this store is to hold it.

        Raises
        ------
        CheckpointError
            When its rows are not of this table or this width.
        """
        if part.values.shape[1:] != (self._width,):
            raise CheckpointError(
                f"expected rows of {self._width} numbers, the checkpoint has {part.values.shape[1:]}; "
                "a checkpoint fits only the model that it was made of"
            )
        if len(part.rows) and (part.rows.min() < 0 or part.rows.max() >= len(self._slot)):
            raise CheckpointError(f"the checkpoint has rows outside a table of {len(self._slot)}")
        mine = np.flatnonzero(owned[part.rows % N_BUCKET])
        slots = self._create(part.rows[mine])
        self._values[slots] = part.values[mine]
        self._sums[slots] = part.sums[mine]
        self._load_dense(part)

    def _load_dense(self, part: StorePart) -> None:
        start = max(self.dense_range.start, part.dense_offset)
        stop = min(self.dense_range.stop, part.dense_offset + len(part.dense))
        if start >= stop:
            return
        here = slice(start - self.dense_range.start, stop - self.dense_range.start)
        there = slice(start - part.dense_offset, stop - part.dense_offset)
        self._dense[here] = part.dense[there]
        self._dense_sums[here] = part.dense_sums[there]
        self.dense_ready = True

    def _slots(self, rows: Rows) -> NDArray[np.int32]:
        """Return the place of each row, -1 for one that is not here yet."""
        if len(rows) and int(rows.view(np.uint64).max()) >= len(self._slot):  # unsigned: catches below 0 too
            raise WireError(f"rows must be in [0, {len(self._slot)}), got [{rows.min()}, {rows.max()}]")
        return self._slot.take(rows, mode="clip") - np.int32(1)

    def _create(self, rows: Rows) -> NDArray[np.int32]:
        """Bring `rows` into being with their first values; return their places."""
        start, stop = self.n_row, self.n_row + len(rows)
        if stop > len(self._values):
            self._grow(max(stop, int(len(self._values) * _GROWTH)))
        slots = np.arange(start, stop, dtype=np.int32)
        self._slot[rows] = slots + 1
        self._values[start:stop] = initial_rows(rows, self._width, self._model.seed)
        self._sums[start:stop] = self._model.initial_accumulator
        self.n_row = stop
        return slots

    def _grow(self, capacity: int) -> None:
        for array in (self._values, self._sums):
            array.resize((capacity, self._width), refcheck=False)  # no view of them outlives a push

    def _step(self, gradient: Floats, sums: Floats) -> Floats:
        """Return Adagrad's step; `sums` is overwritten."""
        np.sqrt(sums, out=sums)
        np.divide(gradient, sums, out=sums)
        sums *= np.float32(self._model.learning_rate)
        return sums


def owned_buckets(bucket_owner: Sequence[int], index: int) -> NDArray[np.bool_]:
    """Return for each bucket whether PS `index` owns it."""
    owned: NDArray[np.bool_] = np.asarray(bucket_owner) == index
    return owned

"""The inner loops of a PS in numpy: what each kernel must compute.

All updates are of float32, in the order of operations that stands here, so that another kernel can give the
same bits. Row arguments are distinct ids or slots: the same row twice in one call is the caller's bug.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dlrover_nb.core.structs.job import Optimizer

if TYPE_CHECKING:
    from dlrover_nb.core.runtime.kernels.rule import Rule

Ids = NDArray[np.int64]
Slots = NDArray[np.int32]
Floats = NDArray[np.float32]

NAME = "numpy"
INITIAL_SCALE = 0.01  # standard deviation of an embedding's first values
AMPLITUDE = np.float32(INITIAL_SCALE * 3**0.5)  # a uniform on [-a, a) has deviation a/sqrt(3)
_EMPTY = -1
_FIRST_PLACES = 1024
_MOST_USED = 0.5  # share of a hash map's places; beyond it, runs of taken places grow long


def initial_rows(ids: Ids, width: int, seed: int) -> Floats:
    """Return the first values of rows: uniform with standard deviation 0.01; the wide weight is 0.

    The bits come from SplitMix64 (Steele et al. 2014) of the element's number, mixed with the seed's own.
    """
    column: NDArray[np.uint64] = np.arange(width).astype(np.uint64)
    with np.errstate(over="ignore"):
        element: NDArray[np.uint64] = ids.astype(np.uint64)[:, None] * np.uint64(width) + column
        bits = _splitmix64(element + np.uint64(seed_bits(seed)))
    unit = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)  # [-1, 1)
    values = unit * AMPLITUDE
    values[:, -1] = 0
    return values


def seed_bits(seed: int) -> int:
    """Return 64 mixed bits of a seed."""
    with np.errstate(over="ignore"):
        return int(_splitmix64(np.full(1, seed % 2**64, np.uint64))[0])


def _splitmix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def gather(table: Floats, slots: Slots, ids: Ids, width: int, seed: int) -> Floats:
    """Return the values of rows, float32 [n, width]; first values where a slot is -1."""
    rows = table.take(slots, axis=0, mode="clip")  # "clip" skips a slow check; -1 is replaced
    values = rows[:, :width].copy()
    new = slots < 0
    if new.any():
        values[new] = initial_rows(ids[new], width, seed)
    return values


def update_rows(
    table: Floats, slots: Slots, gradients: Floats, rule: Rule, corrections: Floats | None
) -> None:
    """Apply one step to rows: `table` [capacity, width + state], `gradients` [n, width]."""
    width = gradients.shape[1]
    rows = table.take(slots, axis=0, mode="clip")
    values, state = rows[:, :width], rows[:, width:]
    if rule.added is not None:
        optimizer, model = rule.added
        arrays = [state[:, i * width : (i + 1) * width] for i in range(optimizer.n_state)]
        optimizer.update(values, arrays, gradients, model)
    match rule.optimizer:
        case Optimizer.SGD:
            _sgd(values, gradients, rule)
        case Optimizer.ADAGRAD:
            _adagrad(values, state, gradients, rule)
        case Optimizer.ADAM:
            assert corrections is not None
            moments = state[:, :width], state[:, width:-1]
            _adam(values, *moments, state[:, -1:], gradients, rule, corrections)
    table[slots] = rows


def update_dense(dense: Floats, gradient: Floats, rule: Rule, corrections: Floats | None) -> None:
    """Apply one step to a dense slice: `dense` [1 + state, m], `gradient` [m]."""
    if rule.added is not None:
        optimizer, model = rule.added
        optimizer.update(dense[0], list(dense[1:]), gradient, model)
    match rule.optimizer:
        case Optimizer.SGD:
            _sgd(dense[0], gradient, rule)
        case Optimizer.ADAGRAD:
            _adagrad(dense[0], dense[1], gradient, rule)
        case Optimizer.ADAM:
            assert corrections is not None
            _adam(dense[0], dense[1], dense[2], dense[3], gradient, rule, corrections)


def _sgd(values: Floats, gradients: Floats, rule: Rule) -> None:
    """Apply values -= rate * g."""
    values -= gradients * np.float32(rule.learning_rate)


def _adagrad(values: Floats, sums: Floats, gradients: Floats, rule: Rule) -> None:
    """Apply sums += g^2, then values -= rate * (g / sqrt(sums))."""
    sums += gradients * gradients
    step = np.sqrt(sums)
    np.divide(gradients, step, out=step)
    step *= np.float32(rule.learning_rate)
    values -= step


def _adam(  # noqa: PLR0913, PLR0917 - the state of Adam
    values: Floats, m: Floats, v: Floats, count: Floats, g: Floats, rule: Rule, corrections: Floats
) -> None:
    """Apply Adam (Kingma and Ba 2015) with the bias of each parameter's own count of steps."""
    count += np.float32(1)
    step = corrections.take(np.minimum(count, len(corrections) - 1).astype(np.int64), axis=0)
    m *= np.float32(rule.beta1)
    m += g * np.float32(1 - rule.beta1)
    v *= np.float32(rule.beta2)
    v += g * g * np.float32(1 - rule.beta2)
    denominator = np.sqrt(v) * step[..., 1] + np.float32(rule.epsilon)
    values -= m / denominator * step[..., 0]


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


class HashMap:
    """Slots of any ids >= 0: open addressing with linear probing, at most half full.

    One place is 16 bytes (id, slot), so that a look-up mostly costs one cache line.
    """

    def __init__(self) -> None:
        self._places = _empty_places(_FIRST_PLACES)
        self._n = 0

    @property
    def n_byte(self) -> int:
        """Bytes allocated."""
        return self._places.nbytes

    def find(self, ids: Ids) -> Slots:
        """Return the slot of each id, -1 where it has none."""
        slots = np.empty(len(ids), np.int32)
        open_, at = np.arange(len(ids)), self._home(ids)
        while len(open_):
            found = self._places[at]
            ended = (found[:, 0] == ids[open_]) | (found[:, 0] == _EMPTY)
            slots[open_[ended]] = found[ended, 1]
            open_, at = open_[~ended], self._next(at[~ended])
        return slots

    def insert(self, ids: Ids, first: int) -> None:
        """Give distinct ids that have none the slots from `first` on."""
        self._n += len(ids)
        if self._n > _MOST_USED * len(self._places):
            self._grow(len(ids))
        self._place(ids, np.arange(first, first + len(ids), dtype=np.int64))

    def replace(self, ids: Ids, slots: Slots) -> None:
        """Give distinct ids that have slots others; -1: none, and places are free when it grows."""
        self._place(ids, slots.astype(np.int64))

    def _place(self, ids: Ids, slots: Ids) -> None:
        at = self._home(ids)
        while len(ids):
            free = self._places[at, 0] == _EMPTY
            self._places[at[free], 0] = ids[free]  # of several that want one place, one wins
            won = self._places[at, 0] == ids
            self._places[at[won], 1] = slots[won]
            ids, slots, at = ids[~won], slots[~won], self._next(at[~won])

    def _grow(self, n_new: int) -> None:
        old, length = self._places, len(self._places)
        self._n = int(np.count_nonzero(old[:, 1] >= 0)) + n_new
        while self._n > _MOST_USED * length:
            length *= 2
        self._places = _empty_places(length)
        self._move(old)

    def _move(self, old: Ids) -> None:
        taken = old[old[:, 1] != _EMPTY]
        self._place(taken[:, 0], taken[:, 1])

    def _home(self, ids: Ids) -> Ids:
        with np.errstate(over="ignore"):
            mixed = _splitmix64(ids.astype(np.uint64))
        return (mixed & np.uint64(len(self._places) - 1)).astype(np.int64)

    def _next(self, at: Ids) -> Ids:
        return (at + 1) & (len(self._places) - 1)


def direct_map(n_id: int) -> DirectMap:
    """Return an empty map of ids in [0, n_id)."""
    return DirectMap(n_id)


def hash_map() -> HashMap:
    """Return an empty map of any ids >= 0."""
    return HashMap()


def distinct(ids: Ids) -> tuple[Ids, Ids]:
    """Return the distinct ids in order of appearance, and the place of each id among them.

    By hashing (`pandas.factorize`): sorting the 17,000 ids of a batch, as `numpy.unique` does, takes ten
    times as long.
    """
    import pandas as pd  # noqa: PLC0415 - a PS, which needs the rest of this module, has no use for it

    inverse, rows = pd.factorize(ids)
    return np.asarray(rows), np.asarray(inverse, np.int64)


def grouped(rows: Ids, inverse: Ids, owner: Ids, n_owner: int) -> tuple[Ids, Ids, Ids]:
    """Return rows with those of one owner side by side, the places in them, and rows of each owner.

    Parameters
    ----------
    rows, inverse
        What `distinct` gave.
    owner
        Index of the owner of each bucket, int64 [N_BUCKET].
    """
    owners = owner[rows % len(owner)]
    order = np.argsort(owners, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return rows[order], place[inverse], np.bincount(owners, minlength=n_owner)


def _empty_places(n: int) -> NDArray[np.int64]:
    return np.full((n, 2), _EMPTY, np.int64)

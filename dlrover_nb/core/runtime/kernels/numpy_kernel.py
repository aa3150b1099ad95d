"""The inner loops of a PS in numpy: what each kernel must compute.

All updates are of float32, in the order of operations that stands here, so that another kernel can give the
same bits. Row arguments are distinct ids or slots: the same row twice in one call is the caller's bug.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dlrover_nb.core.runtime.kernels import reader_ages
from dlrover_nb.core.runtime.kernels.maps import DirectMap, HashMap
from dlrover_nb.core.runtime.kernels.mixing import splitmix64
from dlrover_nb.core.structs.job.spec_choices import Optimizer

if TYPE_CHECKING:
    from dlrover_nb.core.runtime.kernels.bell_requests import Reader
    from dlrover_nb.core.runtime.kernels.rule import Rule

Ids = NDArray[np.int64]
Slots = NDArray[np.int32]
Floats = NDArray[np.float32]

NAME = "numpy"
INITIAL_SCALE = 0.01  # standard deviation of an embedding's first values
AMPLITUDE = np.float32(INITIAL_SCALE * 3**0.5)  # a uniform on [-a, a) has deviation a/sqrt(3)


def initial_rows(ids: Ids, width: int, seed: int) -> Floats:
    """Return the first values of rows: uniform with standard deviation 0.01; the wide weight is 0.

    The bits come from SplitMix64 of the element's number, mixed with the seed's own.
    """
    column: NDArray[np.uint64] = np.arange(width).astype(np.uint64)
    with np.errstate(over="ignore"):
        element: NDArray[np.uint64] = ids.astype(np.uint64)[:, None] * np.uint64(width) + column
        bits = splitmix64(element + np.uint64(seed_bits(seed)))
    unit = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)  # [-1, 1)
    values = unit * AMPLITUDE
    values[:, -1] = 0
    return values


@functools.cache
def seed_bits(seed: int) -> int:
    """Return 64 mixed bits of a seed."""
    return int(splitmix64(np.full(1, seed % 2**64, np.uint64))[0])


def gather(table: Floats, slots: Slots, ids: Ids, out: Floats, seed: int) -> None:
    """Write the values of rows into `out`, float32 [n, width]; first values where a slot is -1."""
    width = out.shape[1]
    out[:] = table.take(slots, axis=0, mode="clip")[:, :width]  # "clip" skips a slow check; -1 is replaced
    new = slots < 0
    if new.any():
        out[new] = initial_rows(ids[new], width, seed)


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


def plain_server(rule: Rule) -> None:
    """Serve nothing without Python."""


def count_exchange(reader: Reader, pushed: Ids, pulled: Ids, at_s: float, *, has_pushed: bool) -> None:
    """Count the ages of what an exchange brought, and what it read."""
    reader_ages.count_exchange(reader, pushed, pulled, at_s, has_pushed=has_pushed)


def direct_map(n_id: int) -> DirectMap:
    """Return an empty map of ids in [0, n_id)."""
    return DirectMap(n_id)


def hash_map(most: int) -> HashMap:
    """Return an empty map of any ids >= 0, with address space for `most` of them."""
    return HashMap(most)


def distinct(ids: Ids) -> tuple[Ids, Ids]:
    """Return the distinct ids in order of appearance, and the place of each id among them.

    By hashing (`pandas.factorize`): sorting the 17,000 ids of a batch, as `numpy.unique` does, takes ten
    times as long.
    """
    import pandas as pd  # noqa: PLC0415 - a PS, which needs the rest of this module, has no use for it

    inverse, rows = pd.factorize(ids)
    return np.asarray(rows), np.asarray(inverse, np.int64)


def add_rows(out: Floats, places: Ids, rows: Floats, weight: np.float32) -> None:
    """Add rows, times a weight, to those of `out` [n, width] at distinct places."""
    out[places] += weight * rows


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

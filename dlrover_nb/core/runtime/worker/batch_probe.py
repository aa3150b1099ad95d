"""Measure what a mini-batch costs: a few of several sizes, from rows that the worker has at hand.

The rows are those of the first batch, fewer of them or repeated ones, with the parameters that were read for
it. Nothing that is computed here is sent. Each size is computed until `LEAST_S` have passed: where a quota
stops a node in each 20 ms, one short batch says nothing about a rate. No size is begun that would take the
whole beyond `MOST_S`, since the peers of a synchronous job wait meanwhile. A line is fitted to time by rows;
both of its numbers are at least zero, since a fixed part below zero would promise a gain for ever smaller
batches.

Memory is counted and not tried: what autograd keeps of a mini-batch for the backward pass, by its rows.
Trying larger ones until a limit is hit was rejected: the kernel ends the process there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.training.batch_cost import MOST_ROWS, BatchCost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from dlrover_nb.core.models.learner import Learner
    from dlrover_nb.core.runtime.store.batches import PreparedBatch

    Floats = NDArray[np.float32]

FACTORS = (0.25, 0.5, 1.0, 2.0)  # of the rows at hand
LEAST_ROWS = 2  # a batch normalization refuses a single row
LEAST_S, MOST_S = 0.2, 4.0  # of one size, of all
N_TRY = 2  # mini-batches of a size at least
AT_PEAK = 3.0  # of what is kept for the backward pass: its gradients, and what allocators hold on to
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Room:
    """The memory of a node.

    Parameters
    ----------
    limit_mib
        What it may use.
    used_mib
        What it uses, with a mini-batch of the rows at hand.
    """

    limit_mib: float
    used_mib: float


def measure(
    learner: Learner,
    rows: Floats,
    batch: PreparedBatch,
    room: Room,
    *,
    now_s: Callable[[], float] = time.monotonic,
    between: Callable[[], None] = lambda: None,
) -> BatchCost | None:
    """Return what a mini-batch costs; None where too few sizes could be measured.

    Parameters
    ----------
    rows, batch
        A batch and the values of its distinct rows, [u, row_width].
    room
        Of the node.
    between
        Called between two mini-batches.
    """
    times: list[tuple[int, float]] = []
    most, began_s = most_rows(learner, rows, batch, room), now_s()
    for sized in _sizes(batch):
        size = len(sized.labels)
        if size > max(most or size, len(batch.labels)):
            break
        if times and now_s() - began_s + N_TRY * size * times[-1][1] / times[-1][0] > MOST_S:
            break
        times.append((size, _seconds(learner, rows, sized, now_s, between)))
    if len(times) < 2:
        return None
    fixed_s, row_s = line_through(times)
    return BatchCost(fixed_s, row_s, most)


def line_through(times: list[tuple[int, float]]) -> tuple[float, float]:
    """Return the fixed part and the part of a row, neither below zero, that are closest in relation."""
    sizes, seconds = (np.array(column, dtype=float) for column in zip(*times, strict=True))
    design = np.stack([np.ones_like(sizes), sizes], axis=1) / seconds[:, None]
    (fixed_s, row_s), *_ = np.linalg.lstsq(design, np.ones_like(sizes), rcond=None)
    if row_s <= 0:  # larger ones took no longer: the device is far from being used
        return float(seconds.mean()), float(seconds.mean() / sizes.max() * 1e-3)
    if fixed_s < 0:
        by_row = sizes / seconds
        return 0.0, float(by_row.sum() / (by_row**2).sum())
    return float(fixed_s), float(row_s)


def _sizes(batch: PreparedBatch) -> Iterator[PreparedBatch]:
    n_row = len(batch.labels)
    sizes = {max(round(factor * n_row), LEAST_ROWS) for factor in FACTORS}
    return (of_size(batch, size) for size in sorted(sizes))


def of_size(batch: PreparedBatch, size: int) -> PreparedBatch:
    """Return a batch of as many rows: the first ones, again and again where there are fewer."""
    n_row = len(batch.labels)
    chosen = np.arange(size) % n_row
    inverse = batch.inverse.reshape(n_row, -1)[chosen].ravel()
    return replace(batch, inverse=inverse, dense=batch.dense[chosen], labels=batch.labels[chosen])


def _seconds(
    learner: Learner,
    rows: Floats,
    batch: PreparedBatch,
    now_s: Callable[[], float],
    between: Callable[[], None],
) -> float:
    """Return the mean time of a mini-batch; the first one, which may allocate memory, does not count."""
    learner.step(rows, batch.inverse, batch.dense, batch.labels)
    took_s, n = 0.0, 0
    while n < N_TRY or took_s < LEAST_S:
        between()
        began_s = now_s()
        learner.step(rows, batch.inverse, batch.dense, batch.labels)
        took_s, n = took_s + max(now_s() - began_s, 1e-9), n + 1
    return took_s / n


def most_rows(learner: Learner, rows: Floats, batch: PreparedBatch, room: Room) -> int | None:
    """Return the rows of the largest mini-batch that fits; None: memory does not grow with rows.

    The memory that is used now may hold some of the rows at hand or none: allocators give it back when they
    like. So it counts as what is used in any case; but the rows at hand do fit.
    """
    n_row = len(batch.labels)
    small, large = of_size(batch, max(n_row // 2, 1)), of_size(batch, n_row)
    n_bytes = [learner.kept_bytes(rows, each.inverse, each.dense, each.labels) for each in (small, large)]
    row_bytes = AT_PEAK * (n_bytes[1] - n_bytes[0]) / max(n_row - len(small.labels), 1)
    if row_bytes <= 0:
        return None
    free_bytes = (room.limit_mib - room.used_mib) * _MIB
    return int(np.clip(free_bytes / row_bytes, n_row, MOST_ROWS))

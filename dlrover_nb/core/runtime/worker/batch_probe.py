"""Measure what a mini-batch costs: a few of several sizes, from rows that the worker has at hand.

The rows are those of the first batch, fewer of them or repeated ones, with the parameters that were read for
it. Nothing that is computed here is sent. Sizes take turns until `ENOUGH_S` have passed, so that what else
the host does meets all of them, and the middle one of a size's times counts. No size is begun that would take
the whole beyond `MOST_S`, since the peers of a synchronous job wait meanwhile. A line is fitted to time by
rows; both of its numbers are at least zero, since a fixed part below zero would promise a gain for ever
smaller batches.

A quota, or a neighbour, stops a node at moments that have nothing to do with the size that is computed then.
So a mini-batch counts as what it takes alone, or as long as its processor time takes at the share of a
processor that the node had over all sizes, if that is longer (`times_at_share`). What a device does while the
processor waits for it hides in that time, as it does in training.

Memory is counted and not tried: what autograd keeps of a mini-batch for the backward pass, by its rows.
Trying larger ones until a limit is hit was rejected: the kernel ends the process there.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.runtime.process.cpu_waits import own_wait_s
from dlrover_nb.core.structs.training.batch_cost import MOST_ROWS, BatchCost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.models.learner import Learner
    from dlrover_nb.core.runtime.store.batches import PreparedBatch

    Floats = NDArray[np.float32]

FACTORS = (0.25, 0.5, 1.0, 2.0)  # of the rows at hand
SHARES = (1e-4, 1e4)  # processors that a node may have: far outside of any
LEAST_ROWS = 2  # a batch normalization refuses a single row
ENOUGH_S, MOST_S = 1.0, 4.0  # of all sizes
N_TRY = 2  # mini-batches of a size at least, beside the first one, which may allocate memory
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


@dataclass(frozen=True, slots=True)
class Clocks:
    """What the time of a node went into so far, in seconds.

    Parameters
    ----------
    now_s
        Time.
    cpu_s
        Processor time of all threads.
    waited_s
        Time in which this thread could have run and did not.
    """

    now_s: Callable[[], float] = time.monotonic
    cpu_s: Callable[[], float] = time.process_time
    waited_s: Callable[[], float] = own_wait_s

    def read(self) -> NDArray[np.float64]:
        """Return the three now."""
        return np.array([self.now_s(), self.cpu_s(), self.waited_s()])


CLOCKS = Clocks()


@dataclass(frozen=True, slots=True)
class Timed:
    """What a mini-batch of one size takes, in seconds.

    Parameters
    ----------
    mean_s
        Time, on average.
    alone_s, cpu_s
        Time without what its thread waited for a processor, and processor time: the middle ones.
    """

    n_row: int
    n_batch: int
    mean_s: float
    alone_s: float
    cpu_s: float

    @classmethod
    def of(cls, n_row: int, spans: Sequence[NDArray[np.float64]]) -> Timed:
        """Return it for mini-batches between two readings of the clocks each."""
        wall_s, cpu_s, waited_s = np.array(spans).T
        wall_s = np.maximum(wall_s, 1e-9)
        alone_s = np.maximum(wall_s - waited_s, 1e-9)
        return cls(
            n_row, len(spans), float(wall_s.mean()), float(np.median(alone_s)), float(np.median(cpu_s))
        )

    def at_share(self, share: float) -> float:
        """Return its time with a share of a processor."""
        return max(self.alone_s, self.cpu_s / share)


def measure(
    learner: Learner,
    rows: Floats,
    batch: PreparedBatch,
    room: Room,
    *,
    clocks: Clocks = CLOCKS,
    between: Callable[[], None] = lambda: None,
) -> BatchCost | None:
    """Return what a mini-batch costs; None where too few sizes could be measured.

    Parameters
    ----------
    rows, batch
        A batch and the values of its distinct rows, [u, row_width].
    room, clocks
        Of the node.
    between
        Called between two mini-batches.
    """
    most, began_s = most_rows(learner, rows, batch, room), clocks.now_s()

    def compute(sized: PreparedBatch) -> NDArray[np.float64]:
        between()
        before = clocks.read()
        learner.step(rows, sized.inverse, sized.dense, sized.labels)
        return clocks.read() - before

    row_s = 0.0
    chosen: list[PreparedBatch] = []
    for sized in _sizes(batch, most):
        n_row = sum(len(each.labels) for each in (*chosen, sized))
        if clocks.now_s() - began_s + N_TRY * n_row * row_s > MOST_S:
            break
        row_s = compute(sized)[0] / len(sized.labels)
        chosen.append(sized)
    if len(chosen) < 2:
        return None
    spans: list[list[NDArray[np.float64]]] = [[] for _ in chosen]
    while len(spans[0]) < N_TRY or clocks.now_s() - began_s < ENOUGH_S:
        for sized, each in zip(chosen, spans, strict=True):
            each.append(compute(sized))
    timed = [Timed.of(len(sized.labels), each) for sized, each in zip(chosen, spans, strict=True)]
    return BatchCost(*line_through(times_at_share(timed)), most)


def times_at_share(timed: Sequence[Timed]) -> list[tuple[int, float]]:
    """Return rows and seconds of a mini-batch of each size, at one share of a processor.

    It is the share with which all sizes together take as long as they took, on average.
    """
    whole_s = sum(each.n_batch * each.mean_s for each in timed)
    low, high = (math.log(share) for share in SHARES)
    for _ in range(60):  # halves: of a monotone function of the share
        middle = (low + high) / 2
        is_longer = sum(each.n_batch * each.at_share(math.exp(middle)) for each in timed) > whole_s
        low, high = (middle, high) if is_longer else (low, middle)
    return [(each.n_row, each.at_share(math.exp(high))) for each in timed]


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


def _sizes(batch: PreparedBatch, most: int | None) -> Iterator[PreparedBatch]:
    n_row = len(batch.labels)
    sizes = {max(round(factor * n_row), LEAST_ROWS) for factor in FACTORS}
    return (of_size(batch, size) for size in sorted(sizes) if size <= max(most or size, n_row))


def of_size(batch: PreparedBatch, size: int) -> PreparedBatch:
    """Return a batch of as many rows: the first ones, again and again where there are fewer."""
    n_row = len(batch.labels)
    chosen = np.arange(size) % n_row
    inverse = batch.inverse.reshape(n_row, -1)[chosen].ravel()
    return replace(batch, inverse=inverse, dense=batch.dense[chosen], labels=batch.labels[chosen])


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

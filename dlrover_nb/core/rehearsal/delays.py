"""The order in which virtual workers read and push: the delay of so many workers, without any of them.

A worker repeats one exchange: it pushes the gradients of a batch and reads the parameters for another one.
What lies between its reading and its push is what the others push meanwhile. Workers that are equally fast
take turns, so each gradient is exactly (w - 1) updates of others old, or 2 (w - 1) where exchanges overlap
with computing; only the first round is younger, as that of a real job is. With a variation of the times of
steps the same mean age has a spread, as that of a real job has.

The order depends on nothing that is trained, so it is the same for each way of applying gradients.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np


@dataclass(frozen=True, slots=True)
class Delay:
    """The delay to impose.

    Parameters
    ----------
    n_worker
        Virtual workers, all alike.
    lag
        1 where a worker computes a batch while its last gradients are sent, as jobs with `overlap`; else 0.
    variation
        Coefficient of variation of the time of a step, of a log-normal distribution; 0: a fixed delay.
    """

    n_worker: int
    lag: int = 0
    variation: float = 0.0

    def __post_init__(self) -> None:
        _check.at_least("workers", self.n_worker, 1)
        _check.within("lag", self.lag, 0, 1)
        _check.at_least("variation", self.variation, 0)

    @property
    def age(self) -> int:
        """Mean age of gradients once all workers have begun, in updates of others."""
        return (1 + self.lag) * (self.n_worker - 1)


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a worker does at one moment: push the gradients of a batch, then read for another; None: neither.

    Batches are numbered in the order in which they are read.
    """

    worker: int
    push: int | None
    pull: int | None


def exchanges(delay: Delay, n_batch: int, generator: np.random.Generator) -> Iterator[Exchange]:
    """Yield the exchanges of all workers in order, until each of `n_batch` batches is pushed once."""
    computing: list[deque[int]] = [deque() for _ in range(delay.n_worker)]
    # Workers begin together and at equal distances, as those of a job that has run for a while stand.
    queue = [(worker / delay.n_worker, worker) for worker in range(delay.n_worker)]
    n_read = 0
    for worker in range(delay.n_worker):
        for _ in range(1 + delay.lag):
            if n_read < n_batch:
                computing[worker].append(n_read)
                yield Exchange(worker, None, n_read)
                n_read += 1
    heapq.heapify(queue)
    while queue:
        at, worker = heapq.heappop(queue)
        if not computing[worker]:
            continue
        pull = n_read if n_read < n_batch else None
        yield Exchange(worker, computing[worker].popleft(), pull)
        if pull is not None:
            computing[worker].append(pull)
            n_read += 1
        heapq.heappush(queue, (at + _step(delay.variation, generator), worker))


def _step(variation: float, generator: np.random.Generator) -> float:
    """Draw the time of a step, whose mean is 1."""
    if not variation:
        return 1.0
    variance = math.log1p(variation**2)
    return float(generator.lognormal(-variance / 2, math.sqrt(variance)))

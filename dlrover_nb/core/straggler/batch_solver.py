"""Share a global batch among workers of different speed, exactly (ADJUST_BS; Eqs. 2 and 3 of AntDT).

Minimize max_i B_i / v_i with Σ B_i = B, B_i whole numbers within bounds. AntDT gives this to a solver of
mixed integer programs; it needs none. Within a time z worker i does at most b_i(z) samples, its
*capacity*; z is enough where the capacities sum to B or more. Bisection finds the greatest z whose
capacities sum to at most B, and what is left is given sample by sample to the worker that would be
finished with it first. No sample is ever given that ends after the optimum: while some are left, at least
one worker is below its capacity at the optimum, and the one chosen ends no later. So the result is exact,
and not only its maximum: the second slowest worker could not be faster either without slowing the slowest,
and so on.

Times are compared as the quotients B_i / v_i that are returned, never as the products z·v_i, so rounding
cannot make a worker one sample slower than the optimum.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Whole = NDArray[np.int64]
    Floats = NDArray[np.float64]

MOST_SAMPLES = 2**40  # of a global batch: sums stay exact in 64 bits and in floats
N_HALVING = 200  # of an interval of times, at most: floats next to each other are reached after about 60


@dataclass(frozen=True, slots=True)
class Share:
    """One worker among whom a batch is shared.

    Parameters
    ----------
    samples_per_s
        v_i: its speed.
    least, most
        Bounds on its samples; None: no upper bound.
    present
        What it has now, 0 where it is new; decides between shares that are equally good.
    """

    samples_per_s: float
    least: int = 1
    most: int | None = None
    present: int = 0

    def __post_init__(self) -> None:
        _check.above_zero(
            "samples_per_s", self.samples_per_s, hint="measure the worker before it gets a share"
        )
        _check.at_least("least", self.least, 0)
        if self.most is not None:
            _check.at_least("most", self.most, self.least, hint="most is an upper bound, least the lower one")


def slowest_s(shares: Sequence[Share], sizes: Sequence[int]) -> float:
    """Return max_i B_i / v_i: how long the slowest worker computes."""
    return max(size / share.samples_per_s for share, size in zip(shares, sizes, strict=True))


def share_batch(shares: Sequence[Share], global_batch: int) -> tuple[int, ...]:
    """Return the sizes that minimize the time of the slowest worker.

    Present sizes are returned where none are better, as each change costs all workers an agreement.

    Raises
    ------
    InvalidValueError
        When no sizes within the bounds sum to the global batch.
    """
    _check_solvable(shares, global_batch)
    sizes = _shared(shares, global_batch)
    present = tuple(share.present for share in shares)
    if _is_allowed(shares, present, global_batch) and slowest_s(shares, present) <= slowest_s(shares, sizes):
        return present
    return sizes


def _check_solvable(shares: Sequence[Share], global_batch: int) -> None:
    _check.at_least("global batch", global_batch, 1)
    _check.at_most("global batch", global_batch, MOST_SAMPLES)
    least = sum(share.least for share in shares)
    most = sum(global_batch if share.most is None else share.most for share in shares)
    if least > global_batch:
        raise InvalidValueError(
            f"the least sizes of {len(shares)} workers must sum to at most the global batch of "
            f"{global_batch:,}, got {least:,}; lower them or remove workers"
        )
    if most < global_batch:
        raise InvalidValueError(
            f"the greatest sizes of {len(shares)} workers must sum to at least the global batch of "
            f"{global_batch:,}, got {most:,}; raise them or add workers"
        )


def _is_allowed(shares: Sequence[Share], sizes: Sequence[int], global_batch: int) -> bool:
    bounds = ((share.least, global_batch if share.most is None else share.most) for share in shares)
    within = all(low <= size <= high for size, (low, high) in zip(sizes, bounds, strict=True))
    return within and sum(sizes) == global_batch


def _shared(shares: Sequence[Share], global_batch: int) -> tuple[int, ...]:
    speeds = np.array([share.samples_per_s for share in shares])
    least = np.array([share.least for share in shares], dtype=np.int64)
    most = np.array([_upper(share, global_batch) for share in shares], dtype=np.int64)
    low_s, high_s = 0.0, float((most / speeds).max())
    sizes = most if most.sum() <= global_batch else least
    for _ in range(N_HALVING):
        middle_s = (low_s + high_s) / 2
        if not low_s < middle_s < high_s:
            break
        tried = _capacities(middle_s, speeds, least, most)
        if tried.sum() <= global_batch:
            low_s, sizes = middle_s, tried
        else:
            high_s = middle_s
    return _with_rest(shares, sizes.tolist(), most.tolist(), global_batch)


def _upper(share: Share, global_batch: int) -> int:
    return global_batch if share.most is None else max(min(share.most, global_batch), share.least)


def _capacities(time_s: float, speeds: Floats, least: Whole, most: Whole) -> Whole:
    """Return how many samples each worker does in that time, within its bounds; ndarray of shape (n,)."""
    sizes = np.minimum(time_s * speeds, most.max()).astype(np.int64)
    sizes -= sizes / speeds > time_s  # the product was rounded up
    bounded: Whole = np.clip(sizes, least, most)
    return bounded


def _with_rest(
    shares: Sequence[Share], sizes: list[int], most: list[int], global_batch: int
) -> tuple[int, ...]:
    """Give what is left one by one to the worker that ends first; among equals, to whom it had already."""

    def next_of(i: int) -> tuple[float, bool, int]:
        after = sizes[i] + 1
        return after / shares[i].samples_per_s, after > shares[i].present, i

    queue = [next_of(i) for i in range(len(sizes)) if sizes[i] < most[i]]
    heapq.heapify(queue)
    for _ in range(global_batch - sum(sizes)):
        i = queue[0][2]
        sizes[i] += 1
        if sizes[i] < most[i]:
            heapq.heapreplace(queue, next_of(i))
        else:
            heapq.heappop(queue)
    return tuple(sizes)

"""The exact Pareto front of cost and throughput over a plan space that is listed.

Sorting by cost (ties: faster first) and keeping each plan that is faster than all before it is exact and
takes O(n log n); no search over two objectives has a lower complexity. But nearly all of a million plans are
dominated by some plan that costs clearly less, and need not be sorted: cost is cut into bins, and a plan that
is not faster than the fastest of a sample of plans in cheaper bins is dropped. The rest, some percent, is
sorted. The result is the same, ties included, at a thirtieth of the time. DLRover-RM uses NSGA-II (section
4.3), needed only where the space cannot be listed (`pareto.nsga2`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.pareto.objectives import Array, Objectives
    from dlrover_nb.core.pareto.space import PlanGrid

FEW = 1 << 13  # points that are sorted faster than they are filtered
COARSE, FINE = 1 << 12, 1 << 16  # bins of the two rounds of filtering
STRIDE = 61  # of the first round's sample; prime, so that the sample does not fix an axis of a grid


def exact_search(
    grid: PlanGrid, objectives: Objectives, *, rng: np.random.Generator | None = None
) -> tuple[Array, int]:
    """Return all plans that no other dominates, cheapest first, and how many were evaluated (Eq. 9).

    The grid is walked in chunks and only a chunk's own front is kept, so that 10^7 plans need little memory.

    Parameters
    ----------
    rng
        Not used: the front is exact. It is part of the signature that all solvers share.

    Returns
    -------
    tuple of ndarray of shape (n_front, 4) and int
        Rows (w, p, lambda_w, lambda_p), and the number of plans that are allowed.
    """
    del rng
    n_plan, kept = 0, [(np.empty((0, 4)), np.empty(0), np.empty(0))]
    for axes in grid.chunks():
        cost, samples_per_s = objectives(axes)
        best = non_dominated(cost, samples_per_s)
        kept.append((axes[best], cost[best], samples_per_s[best]))
        n_plan += len(axes)
    rows, cost, samples_per_s = (np.concatenate(column) for column in zip(*kept, strict=True))
    return rows[non_dominated(cost, samples_per_s)], n_plan


def non_dominated(cost: Array, gain: Array) -> NDArray[np.intp]:
    """Return the indices of points that no other dominates (cost down, gain up), cheapest first.

    Of points equal in both, the first in the input stays.

    Raises
    ------
    InvalidValueError
        When a cost or a gain is NaN or infinite: such a point cannot be ordered.
    """
    if not len(cost):
        return np.empty(0, dtype=np.intp)
    if not np.isfinite((cost.min(), cost.max(), gain.min(), gain.max())).all():
        raise InvalidValueError(
            "cost and throughput of every plan must be finite, got NaN or inf; check prices and fit"
        )
    left = np.arange(len(cost)) if len(cost) <= FEW else _contenders(cost, gain, COARSE, STRIDE)
    if len(left) > FEW:
        left = left[_contenders(cost[left], gain[left], FINE, 1)]
    order = left[np.lexsort((-gain[left], cost[left]))]  # stable: ties keep the input's order
    sorted_gain = gain[order]
    before = np.concatenate(([-np.inf], np.maximum.accumulate(sorted_gain)[:-1]))
    return np.asarray(order[sorted_gain > before])


def layers(cost: Array, gain: Array, least: int) -> NDArray[np.intp]:
    """Return the front, the front of the rest, and so on, until `least` points, or all, are found."""
    left, found, n_found = np.arange(len(cost)), [np.empty(0, dtype=np.intp)], 0
    while n_found < least and len(left):
        best = non_dominated(cost[left], gain[left])
        found.append(left[best])
        n_found += len(best)
        left = np.delete(left, best)
    return np.concatenate(found)


def _contenders(cost: Array, gain: Array, n_bin: int, stride: int) -> NDArray[np.intp]:
    """Return the points that are faster than every `stride`-th point in bins of lower cost.

    A point that is left out costs strictly more than one that is at least as fast, so it is dominated.
    """
    low, high = float(cost.min()), float(cost.max())
    width = (high - low) / n_bin
    if not (width > 0 and np.isfinite(high - low)):
        return np.arange(len(cost))
    bins = np.minimum((cost - low) / width, n_bin).astype(np.intp)
    best = np.full(n_bin + 2, -np.inf)
    np.maximum.at(best[1:], bins[::stride], gain[::stride])
    return np.flatnonzero(gain > np.maximum.accumulate(best)[bins])


def hypervolume(cost: Array, gain: Array, *, worst: tuple[float, float]) -> float:
    """Return the area that a front covers up to the reference point `worst` (cost, gain).

    Points beyond the reference point cover nothing. The larger the area, the better the front.
    """
    best = non_dominated(cost, gain)
    best = best[(cost[best] < worst[0]) & (gain[best] > worst[1])]
    width = np.diff(cost[best], append=worst[0])
    return float(np.sum(width * (gain[best] - worst[1])))

"""Which points no other dominates in cost and gain: exactly, in O(n log n).

Sorting by cost (ties: faster first) and keeping each point that is faster than all before it is exact; no
search over two objectives has a lower complexity. But nearly all of a million plans are dominated by some
plan that costs clearly less, and need not be sorted: cost is cut into bins, and a plan that is not faster
than the fastest of a sample of plans in cheaper bins is dropped. The rest, some percent, is sorted. The
result is the same, ties included, at a thirtieth of the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from dlrover_nb.core.pareto.objectives import Array


FEW = 1 << 13  # points that are sorted faster than they are filtered
COARSE, FINE = 1 << 12, 1 << 16  # bins of the two rounds of filtering
STRIDE = 61  # of the first round's sample; prime, so that the sample does not fix an axis of a grid


def non_dominated(cost: Array, gain: Array) -> NDArray[np.intp]:
    """Return the indices of points that no other dominates (cost down, gain up), cheapest first.

    Of points equal in both, the first in the input stays.

    Raises
    ------
    InvalidValueError
        When a cost or a gain is NaN or infinite: such a point cannot be ordered.
    """
    _check_finite(cost, gain)
    left = np.arange(len(cost)) if len(cost) <= FEW else _contenders(cost, gain, COARSE, STRIDE)
    if len(left) > FEW:
        left = left[_contenders(cost[left], gain[left], FINE, 1)]
    order = left[np.lexsort((-gain[left], cost[left]))]  # stable: ties keep the input's order
    return np.asarray(order[_rises(gain[order])])


def non_dominated_of_three(cost: Array, gain: Array, loss: Array) -> NDArray[np.intp]:
    """Return the indices of points that no other dominates (cost and loss down, gain up), by rising loss.

    Losses have few values: at each, what it adds to the front of all smaller ones counts.

    Raises
    ------
    InvalidValueError
        As of `non_dominated`.
    """
    best, added = np.empty(0, dtype=np.intp), [np.empty(0, dtype=np.intp)]
    for value in np.unique(loss):
        rows = np.concatenate((best, np.flatnonzero(loss == value)))  # of equals the one of less loss stays
        best = rows[non_dominated(cost[rows], gain[rows])]
        added.append(best[loss[best] == value])
    return np.concatenate(added)


def layers(cost: Array, gain: Array, least: int) -> NDArray[np.intp]:
    """Return the front, the front of the rest, and so on, until `least` points, or all, are found."""
    return until(peeled(cost, gain), least)


def until(fronts: Iterable[NDArray[np.intp]], least: int) -> NDArray[np.intp]:
    """Return the points of the first fronts that have `least` together, or all."""
    rows, n_row = [np.empty(0, dtype=np.intp)], 0
    for best in fronts if least else ():
        rows.append(best)
        n_row += len(best)
        if n_row >= least:
            break
    return np.concatenate(rows)


def peeled(cost: Array, gain: Array) -> Iterator[NDArray[np.intp]]:
    """Yield front after front. Points are sorted once: what is left stays in order."""
    _check_finite(cost, gain)
    order = np.lexsort((-gain, cost))
    while len(order):
        is_best = _rises(gain[order])
        yield order[is_best]
        order = order[~is_best]


def _rises(gain: Array) -> NDArray[np.bool_]:
    """Return which values are above all before them."""
    return np.asarray(gain > np.concatenate(([-np.inf], np.maximum.accumulate(gain)))[:-1])


def _check_finite(cost: Array, gain: Array) -> None:
    if len(cost) and not np.isfinite((cost.min(), cost.max(), gain.min(), gain.max())).all():
        raise InvalidValueError(
            "cost and throughput of every plan must be finite, got NaN or inf; check prices and fit"
        )


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

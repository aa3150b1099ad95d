"""Find shadow prices: what a unit of each resource is worth, and a bound on what any selection reaches.

Relaxing the capacity with prices makes the choices of the jobs independent; the least value over all prices
bounds the best selection from above (Lagrangian duality) and equals the linear relaxation. There are as few
prices as resources, so that Kelley's cutting planes find them in some ten passes over the options. Rejected:
subgradient steps (hundreds of passes to the same gap) and each job's convex hull by efficiency (exact for one
resource, not defined for several).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dlrover_nb.core.greedy.bids import Array, Index
    from dlrover_nb.core.greedy.options import Options

MAX_PASS = 40
GAP = 1e-5  # relative, between the bound and the planes below it
N_BISECT = 18


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Prices of shape (n_resource,) in value per unit, and the bound that they prove."""

    prices: Array
    bound: float


def find_prices(options: Options) -> Prices:
    """Return the prices at which the relaxed value is least (Kelley's cutting planes)."""
    prices = np.zeros(len(options.room))
    bound, slope = _relaxed(options, prices)
    best = Prices(prices, bound)
    if (slope >= 0).all():
        return best  # each job's best option fits: the room has no price
    unit = bound or float(np.abs(options.value).max()) or 1.0
    scale = _highest(options, bound)
    slopes, heights = [], []
    for _ in range(MAX_PASS):
        slopes.append(slope * scale / unit)
        heights.append((bound - slope @ prices) / unit)
        lowest = _lowest_point(np.array(slopes), np.array(heights))
        if lowest is None or best.bound / unit - lowest[-1] <= GAP:
            break
        prices = lowest[:-1] * scale
        bound, slope = _relaxed(options, prices)
        if bound < best.bound:
            best = Prices(prices, bound)
    return best


def price_out(options: Options, prices: Array) -> Index | None:
    """Return the best choice that fits among those at multiples of these prices; None where none fits."""
    best, low, high = None, 1.0, np.inf
    factor = 1.0
    for _ in range(N_BISECT):
        chosen = options.best(options.priced(factor * prices))
        if options.holds(chosen):
            high = factor
            if best is None or options.total(chosen) > options.total(best):
                best = chosen
        else:
            low = factor
        if high <= 1.0:
            break
        factor = 2 * low if np.isinf(high) else (low + high) / 2
    return best


def _relaxed(options: Options, prices: Array) -> tuple[float, Array]:
    """Return the relaxed value at these prices and its slope: what is left of each resource."""
    priced = options.priced(prices)
    chosen = options.best(priced)
    return float(priced[chosen].sum() + prices @ options.room), options.free(chosen)


def _highest(options: Options, bound: float) -> Array:
    """Return a price per resource above which no job takes any: the range of the search."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(options.need != 0, options.value / options.need, 0.0).max(axis=1)
        from_room = np.where(options.room > 0, bound / options.room, np.inf)
    return np.asarray(np.minimum(2 * np.maximum(ratio, 0.0), from_room))


def _lowest_point(slopes: Array, heights: Array) -> Array | None:
    """Return the lowest point of the upper hull of planes within [0, 1]^n: its place, then its height."""
    from scipy.optimize import linprog  # noqa: PLC0415 - see `core.basics.numerics`

    n = slopes.shape[1]
    solution = linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=np.column_stack((slopes, -np.ones(len(slopes)))),
        b_ub=-heights,
        bounds=[*[(0.0, 1.0)] * n, (None, None)],
    )
    return np.asarray(solution.x) if solution.x is not None else None

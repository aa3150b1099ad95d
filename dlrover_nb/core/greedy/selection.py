"""Weighted greedy selection over the cluster: one plan per job, within the machines (Eqs. 12-14).

The exact objective: maximize the sum over jobs of RE * WG of the chosen candidate, where RE is TG/RC with a
floor under RC (`bids.efficiency`) and keeping the present plan counts zero; subject to the whole need of all
chosen plans being within the capacity in every resource, to a relative 1e-9 of rounding.

DLRover-RM calls its method a weighted greedy and gives only the objective. Taking candidates by descending
RE*WG, the obvious method, reaches 95 % of the exact optimum on average and 73 % at worst
(`benchmarks/select.py`), because it ignores the needs. Here shadow prices come first (`find_prices`),
then the remaining room is filled and searched (`improve`); the prices also prove how far from the optimum the
result can be (`Selection.bound`).

No job loses throughput without `shrink`: candidates with TG < 0 are ignored then. A plan that frees room and
loses nothing is always allowed.

A shadow price is what a unit of a resource is worth. Relaxing the capacity with prices makes the choices of
the jobs independent; the least value over all prices bounds the best selection from above (Lagrangian
duality) and equals the linear relaxation. There are as few prices as resources, so that Kelley's cutting
planes find them in some ten passes over the options. Rejected: subgradient steps (hundreds of passes to the
same gap) and each job's convex hull by efficiency (exact for one resource, not defined for several).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.errors import CapacityError, InvalidValueError
from dlrover_nb.core.greedy.bids import Array, Bids, Index, efficiency
from dlrover_nb.core.greedy.improve import beam, fill, swap
from dlrover_nb.core.greedy.options import Options
from dlrover_nb.core.greedy.weights import Weight, remaining_time

if TYPE_CHECKING:
    from dlrover_nb.core.greedy.bids import Array, Index


ROUNDING = 1e-9  # of the capacity: sums of hundredths of cores are not exact
GOOD_ENOUGH = 2e-4  # relative gap to the bound at which swapping is left out


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


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """One plan per job.

    Parameters
    ----------
    chosen
        ndarray of shape (n_job,): index of the candidate among its job's own; -1 = keep the present plan.
    objective, bound
        Sum of RE * WG, and what no selection can exceed.
    used, free
        Of shape (n_resource,).
    prices
        Shadow prices of shape (n_resource,): objective per unit of a resource; 0 where it is not scarce.
    values
        RE * WG of each candidate, of shape (n_candidate,).
    """

    chosen: Index
    objective: float
    bound: float
    used: Array
    free: Array
    prices: Array
    values: Array

    @property
    def gap(self) -> float:
        """How far the optimum may be above the objective, relative to the larger of the two."""
        size = max(abs(self.bound), abs(self.objective))
        return (self.bound - self.objective) / size if size else 0.0


def select(
    bids: Bids,
    capacity: Array,
    *,
    rho: float = 2.5,
    epsilon: float = 1.0,
    weight: Weight | None = None,
    shrink: bool = False,
) -> Selection:
    """Choose at most one candidate per job, maximizing the sum of RE * WG within the capacity (Eqs. 12-14).

    Parameters
    ----------
    capacity
        ndarray of shape (n_resource,): all that the jobs may use together, what they hold included.
    rho, epsilon
        Of Eq. 14; not used where `weight` is given.
    weight
        Another WG, such as one of `WEIGHTS`.
    shrink
        Whether a job may be given a slower plan to make room for others.

    Raises
    ------
    InvalidValueError
        When the capacity does not match the bids.
    CapacityError
        When the jobs hold more than there is and shrinking is not allowed or does not suffice.
    """
    capacity = checked_capacity(capacity, bids)
    weigh = remaining_time(rho, epsilon) if weight is None else weight
    values = efficiency(bids) * weigh(bids, capacity)
    if not bids.n_job:
        none = 0 * capacity
        return Selection(np.zeros(0, np.intp), 0.0, 0.0, none, capacity, none, values)
    options, origin = _options(bids, values, capacity, shrink=shrink)
    prices = find_prices(options)
    chosen = _search(options, prices)
    if chosen is None:
        raise overfull(bids, capacity, shrink=shrink)
    used = bids.present.sum(axis=0) + options.need[:, chosen].sum(axis=1)
    unit = _unit(values)
    index = origin[chosen]
    return Selection(
        chosen=np.where(index < 0, -1, index - bids.offsets[:-1]),
        objective=options.total(chosen) * unit,
        bound=prices.bound * unit,
        used=used,
        free=np.where(capacity - used > ROUNDING * capacity, capacity - used, 0.0),
        prices=prices.prices * unit,
        values=values,
    )


def refusal(bids: Bids, selection: Selection, job: int) -> str | None:
    """Say in one sentence why a job did not get the candidate that is worth most; None where it did.

    Raises
    ------
    InvalidValueError
        When there is no such job.
    """
    if not 0 <= job < bids.n_job:
        raise InvalidValueError(f"job must be 0 … {bids.n_job - 1}, got {job}")
    first, last = bids.offsets[job], bids.offsets[job + 1]
    values = selection.values[first:last]
    own = int(selection.chosen[job])
    worth = 0.0 if own < 0 else float(values[own])
    if not len(values) or values.max() <= worth:
        return None
    want = int(values.argmax())
    present = bids.present[job] if own < 0 else bids.demands[first + own]
    more = bids.demands[first + want] - present
    return _sentence(bids.resources, selection, more, float(values[want]) - worth)


def _sentence(names: tuple[str, ...], selection: Selection, more: Array, worth: float) -> str:
    short = np.flatnonzero(more > selection.free)
    if not len(short):
        return "Its gain is negligible compared with that of other jobs."
    needs = and_list(f"{more[r]:.4g} more {names[r]} ({selection.free[r]:.4g} free)" for r in short)
    lacks = " and ".join(f"{more[r] - selection.free[r]:.4g} {names[r]}" for r in short)
    price = float(selection.prices @ np.maximum(more, 0))
    times = f", or if its gain weighed {price / worth:.2g} times as much" if price > worth else ""
    return f"Needs {needs}; next when {lacks} come free{times}."


def checked_capacity(capacity: Array, bids: Bids) -> Array:
    """Return the capacity as an array; `InvalidValueError` where it does not match the bids."""
    capacity = np.asarray(capacity, dtype=np.float64)
    if capacity.shape != (len(bids.resources),) or not (np.isfinite(capacity) & (capacity >= 0)).all():
        raise InvalidValueError(
            f"capacity must be {len(bids.resources)} numbers >= 0 ({', '.join(bids.resources)}), "
            f"got {capacity}"
        )
    return capacity


def _unit(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0)) or 1.0


def _options(bids: Bids, values: Array, capacity: Array, *, shrink: bool) -> tuple[Options, Index]:
    """Return the basic problem, values relative to the largest, and each option's candidate (-1: stay)."""
    need = bids.demands - bids.present[bids.job]
    room = capacity * (1 + ROUNDING) - bids.present.sum(axis=0)
    may = ((values > 0) | (need < 0).any(axis=1)) & ((bids.gains >= 0) | shrink)
    freed = np.zeros_like(bids.present)
    np.maximum.at(freed, bids.job[may], -need[may])
    keep = np.flatnonzero(may & (need <= room + freed.sum(axis=0)).all(axis=1))  # others can never fit
    job = np.concatenate((np.arange(bids.n_job), bids.job[keep]))
    order = np.argsort(job, kind="stable")  # each job's present plan first, then its candidates
    origin = np.concatenate((np.full(bids.n_job, -1), keep))[order]
    value = np.concatenate((np.zeros(bids.n_job), values[keep] / _unit(values)))[order]
    wanted = np.concatenate((np.zeros((bids.n_job, need.shape[1])), need[keep]))[order]
    job = job[order]
    start = np.searchsorted(job, np.arange(bids.n_job))
    return Options(value, np.ascontiguousarray(wanted.T), job, start, room), origin


def _search(options: Options, prices: Prices) -> Index | None:
    """Return the best choice that is found; None where nothing fits."""
    start = _start(options, prices.prices)
    if start is None:
        return None
    chosen = fill(options, start, prices.prices)
    if _is_good(options, chosen, prices.bound):
        return chosen
    others = beam(options, chosen, prices.prices)
    swapped = (swap(options, fill(options, c, prices.prices), prices.prices) for c in (chosen, others))
    return max(swapped, key=options.total)


def _start(options: Options, prices: Array) -> Index | None:
    """Return the best that fits of: the choice at the prices, all present plans, all smallest options."""
    priced = price_out(options, prices)
    others = [c for c in (options.start, _smallest(options)) if options.holds(c)]
    return max(([] if priced is None else [priced]) + others, key=options.total, default=None)


def _smallest(options: Options) -> Index:
    """Return each job's option that relieves the overfull resources most."""
    over = np.where(options.room < 0, 1 / np.minimum(options.room, -np.finfo(float).tiny), 0.0)
    return options.best(over @ options.need)


def _is_good(options: Options, chosen: Index, bound: float) -> bool:
    return bound - options.total(chosen) <= GOOD_ENOUGH * abs(bound)


def overfull(bids: Bids, capacity: Array, *, shrink: bool) -> CapacityError:
    """Return the error of jobs that hold more than there is."""
    totals = bids.present.sum(axis=0)
    pairs = zip(bids.resources, totals, capacity, strict=True)
    over = and_list(f"{have:g} {name} of {most:g}" for name, have, most in pairs if have > most)
    advice = "offer smaller plans or stop a job" if shrink else "allow shrinking, or stop a job"
    return CapacityError(f"jobs must not hold more than the capacity, they hold {over}; {advice}")

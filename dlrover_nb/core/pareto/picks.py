"""Named plans on a front, as an alternative to a scatter plot.

Only a pick that exists is named: without a budget nothing is "fastest in budget", and for a deadline that no
plan meets there is no cheapest plan in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.decisions.candidates import Candidate, Pick

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

AS_FAST = 0.99  # of the present throughput: a difference below one percent is negligible
MOST_SHOWN = 120  # plans of a front: more cannot be distinguished on a chart


@dataclass(frozen=True, slots=True)
class Wishes:
    """The user's objectives beyond speed.

    Parameters
    ----------
    budget_per_hour
        The most money per hour; None means no limit.
    in_time
        The wanted probability to finish by the deadline and within the total budget, where there are any.
    """

    budget_per_hour: float | None = None
    in_time: float = 0.9

    def __post_init__(self) -> None:
        if self.budget_per_hour is not None:
            _check.above_zero("budget_per_hour", self.budget_per_hour)


def resource_efficiency(cost: Array, gain: Array, now: float) -> Array:
    """Return RE = TG/RC, samples/s gained per cost added, of each plan: shape (n_plans,) (Eq. 11).

    A plan that gains and costs no more is infinitely efficient; one that gains nothing gets its negative
    gain, so that it is never chosen.

    Parameters
    ----------
    cost, gain
        `Candidate.cost` and TG of each plan: ndarrays of shape (n_plans,).
    now
        Cost of the present plan.
    """
    added = cost - now  # RC (eq. 7)
    efficiency = np.divide(gain, added, out=np.full(len(cost), np.inf), where=added > 0)  # (eq. 11)
    return np.where(gain > 0, efficiency, gain)


def most_efficient(cost: Array, gain: Array, now: float) -> int | None:
    """Return the index of the highest RE; of several infinite ones the largest gain; None if none gains."""
    value = resource_efficiency(cost, gain, now)
    if not (value > 0).any():
        return None
    return int(np.lexsort((-cost, gain, value))[-1])


def named_picks(
    candidates: Sequence[Candidate], current: Candidate, wishes: Wishes | None = None
) -> tuple[Pick, ...]:
    """Name the most useful plans of a front, by index; `candidates` are the front, cheapest first."""
    if not candidates:
        return ()
    limits = wishes or Wishes()
    indices = {
        "best value": best_value(candidates, current),
        "knee": _knee(candidates),
        "fastest": len(candidates) - 1,
        "fastest in budget": _fastest_in_budget(candidates, limits.budget_per_hour),
        "fastest in total budget": _fastest_in_total(candidates, limits.in_time),
        "cheapest as fast as now": _cheapest_as_fast(candidates, current),
        "cheapest that meets the deadline": _cheapest_in_time(candidates, limits.in_time),
    }
    return tuple(Pick(name, index) for name, index in indices.items() if index is not None)


def thinned(
    candidates: Sequence[Candidate], picks: Sequence[Pick], most: int = MOST_SHOWN
) -> tuple[tuple[Candidate, ...], tuple[Pick, ...]]:
    """Return at most about `most` plans of a front, spread evenly along it, with all picks and both ends.

    The front of a million plans has a thousand: too many for a table or for a view sent each second.
    """
    if len(candidates) <= most:
        return tuple(candidates), tuple(picks)
    points = np.array([(c.cost, c.prediction.samples_per_s) for c in candidates])
    steps = np.abs(np.diff(points, axis=0)) / np.maximum(np.ptp(points, axis=0), 1e-12)
    along = np.concatenate(([0.0], np.cumsum(steps.sum(axis=1))))
    spread = np.searchsorted(along, np.linspace(0.0, along[-1], most))
    indices = np.unique([*spread, len(candidates) - 1, *(p.index for p in picks)]).tolist()
    moved = tuple(Pick(p.name, indices.index(p.index)) for p in picks)
    return tuple(candidates[i] for i in indices), moved


def best_value(candidates: Sequence[Candidate], current: Candidate) -> int | None:
    """Return the index of the most efficient candidate (`most_efficient`)."""
    cost = np.array([c.cost for c in candidates])
    gain = np.array([c.gain_samples_per_s for c in candidates])
    return most_efficient(cost, gain, current.cost)


def _knee(candidates: Sequence[Candidate]) -> int:
    """Return the plan farthest above the straight line from the cheapest to the fastest."""
    cost = np.array([c.cost for c in candidates])
    speed = np.array([c.prediction.samples_per_s for c in candidates])
    span = max(float(np.ptp(cost)), 1e-12), max(float(np.ptp(speed)), 1e-12)
    return int(np.argmax((speed - speed[0]) / span[1] - (cost - cost[0]) / span[0]))


def _fastest_in_budget(candidates: Sequence[Candidate], budget_per_hour: float | None) -> int | None:
    """Return the last plan within the budget; None without one, or where a price is unknown."""
    if budget_per_hour is None:
        return None
    prices = [(i, c.cost_per_hour) for i, c in enumerate(candidates)]
    return max((i for i, price in prices if price is not None and price <= budget_per_hour), default=None)


def _fastest_in_total(candidates: Sequence[Candidate], wanted: float) -> int | None:
    """Return the last plan that ends within the total budget; None without one."""
    chances = ((i, c.in_budget) for i, c in enumerate(candidates))
    return max((i for i, chance in chances if chance is not None and chance >= wanted), default=None)


def _cheapest_as_fast(candidates: Sequence[Candidate], current: Candidate) -> int | None:
    enough = AS_FAST * current.prediction.samples_per_s
    return next((i for i, c in enumerate(candidates) if c.prediction.samples_per_s >= enough), None)


def _cheapest_in_time(candidates: Sequence[Candidate], wanted: float) -> int | None:
    """Return the first plan that ends in time, and within the total budget; None without a deadline."""
    chances = ((i, c.chance) for i, c in enumerate(candidates) if c.in_time is not None)
    return next((i for i, chance in chances if chance is not None and chance >= wanted), None)

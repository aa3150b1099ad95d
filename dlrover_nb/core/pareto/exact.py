"""The exact Pareto front of cost and throughput over an enumerated plan space.

Sorting by cost (ties: faster first) and keeping each plan that is faster than all before it is exact and
O(n log n): in two objectives no search can do better. DLRover-RM uses NSGA-II (section 4.3); it is needed
only where the space cannot be enumerated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.pareto.picks import named_picks
from dlrover_nb.core.structs.decisions import Candidate, ParetoFront

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dlrover_nb.core.pareto.space import PlanSpace
    from dlrover_nb.core.structs.resources import ResourcePlan


@dataclass(frozen=True, slots=True)
class Evaluate:
    """What a solver asks about plans: cost per hour and throughput of all, everything about one."""

    objectives: Callable[[PlanSpace], tuple[NDArray[np.float64], NDArray[np.float64]]]
    candidate: Callable[[ResourcePlan], Candidate]
    current: Candidate
    currency: str


def exact_front(
    space: PlanSpace, evaluate: Evaluate, *, rng: np.random.Generator | None = None
) -> ParetoFront:
    """Return all plans of the space that no other beats, cheapest first (Eq. 9).

    Parameters
    ----------
    rng
        Not used: the front is exact. It is part of the signature that all solvers share.
    """
    del rng
    cost, samples_per_s = evaluate.objectives(space)
    best = non_dominated(cost, samples_per_s)
    candidates = tuple(evaluate.candidate(space.plan(int(i))) for i in best)
    return ParetoFront(
        candidates,
        evaluate.current,
        named_picks(candidates, evaluate.current),
        n_plan=len(space),
        currency=evaluate.currency,
    )


def non_dominated(cost: NDArray[np.float64], gain: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the indices of points that no other beats (cost down, gain up), cheapest first.

    Of points equal in both, the first in the input stays.
    """
    order = np.lexsort((-gain, cost))  # stable: ties keep the input's order
    sorted_gain = gain[order]
    before = np.concatenate(([-np.inf], np.maximum.accumulate(sorted_gain)[:-1]))
    return np.asarray(order[sorted_gain > before])

"""The Pareto front of a grid, by the solver that suits its size.

A solver is a function `(grid, objectives, *, rng)`; the value of a plan is an argument (`objectives`), so
solvers are independent of models and prices. Listing all plans is exact and is used for up to `MAX_PLANS`
plans; NSGA-II is used beyond that. Rejected: a user option, which would cost either plans or time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.core.pareto.exact import exact_search
from dlrover_nb.core.pareto.space import MAX_PLANS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from dlrover_nb.core.pareto.objectives import Array, Objectives
    from dlrover_nb.core.pareto.space import PlanGrid


@dataclass(frozen=True, slots=True)
class Solution:
    """The best plans of a grid: rows of shape (n_found, 4), and how many plans were compared."""

    rows: Array
    n_plan: int


class Solver(Protocol):
    """Signature of solvers."""

    def __call__(
        self, grid: PlanGrid, objectives: Objectives, *, rng: np.random.Generator, least: int = 1
    ) -> tuple[Array, int]:
        """Return rows of shape (n_found, 4), and how many plans were compared.

        The front, cheapest first; then that of the rest, and so on, until there are `least` rows.
        """


def _nsga2(
    grid: PlanGrid, objectives: Objectives, *, rng: np.random.Generator, least: int = 1
) -> tuple[Array, int]:
    from dlrover_nb.core.pareto.nsga2 import nsga2_search  # noqa: PLC0415 - pymoo takes .3 s to import

    return nsga2_search(grid, objectives, rng=rng, least=least)


SOLVERS: Mapping[str, Solver] = {"exact": exact_search, "nsga2": _nsga2}


def solve(grid: PlanGrid, objectives: Objectives, *, rng: np.random.Generator, least: int = 1) -> Solution:
    """Return the plans of the grid that no other dominates in cost and throughput (Eq. 9), and next ones.

    Parameters
    ----------
    objectives
        Cost and throughput of plans.
    rng
        Of the search; an exact front does not use it.
    least
        How many plans to return, where there are as many: the front, then that of the rest, and so on.
    """
    name = "exact" if grid.n_plan <= MAX_PLANS else "nsga2"
    return Solution(*SOLVERS[name](grid, objectives, rng=rng, least=least))

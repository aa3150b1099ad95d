"""The Pareto front of a plan space that is too large to list: NSGA-II, as in DLRover-RM (section 4.3).

A plan is four positions on the ladders of the grid. Three things are added to pymoo's NSGA-II:

- repair: a plan that does not fit is moved toward the smallest plan until it does. Fast plans are just within
  quota and machines, so repaired ones are good parents, where a penalty would keep a population of infeasible
  plans;
- an archive: the front is that of all evaluated plans, not of the last population, so it never gets worse;
- a local search: the neighbors of the front are evaluated until none is better. NSGA-II finds the region of
  each good plan quickly and its last step slowly; the local search takes that step. Along a limit that is a
  step up on one axis for a step down on another; for the fastest plans, which only the machines limit, it is
  also a step on one axis and as many on another as fit: smaller workers, but more of them.

Rejected: random search; a front is some hundred plans of a million or more, and random search finds few of
them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.evaluator import Evaluator
from pymoo.core.problem import Problem
from pymoo.operators.crossover.sbx import SBX
from pymoo.operators.mutation.pm import PM
from pymoo.operators.repair.rounding import RoundingRepair
from pymoo.problems.static import StaticProblem

from dlrover_nb.core.pareto.dominance import layers, non_dominated
from dlrover_nb.core.pareto.exact import exact_search

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.pareto.objectives import Array, Objectives
    from dlrover_nb.core.pareto.space import PlanGrid

    Steps = NDArray[np.intp]

N_PARENT = 120
N_GENERATION = 50
N_FASTEST = 40  # plans of the front from which the local search also fills the machines
N_WALK = 60  # most rounds of the local search; it usually ends after a few
_ONE = np.eye(4, dtype=np.intp)
MOVES = np.unique(  # of the local search: a step on one axis, or a step up on one and down on another
    [*_ONE, *-_ONE, *(up - down for up in _ONE for down in _ONE if (up != down).any())], axis=0
)


@dataclass(slots=True)
class Archive:
    """Evaluated plans, as positions on the ladders, and their front."""

    grid: PlanGrid
    objectives: Remembered
    steps: Steps = field(default_factory=lambda: np.empty((0, 4), dtype=np.intp))
    cost: Array = field(default_factory=lambda: np.empty(0))
    gain: Array = field(default_factory=lambda: np.empty(0))
    n_plan: int = 0

    def weigh(self, steps: Steps) -> tuple[Array, Array]:
        """Return cost and throughput of plans that fit, and update the front with them."""
        cost, gain = self.objectives(self.grid.rows(steps))
        self.n_plan += len(steps)
        steps = np.concatenate((self.steps, steps))
        all_cost, all_gain = np.concatenate((self.cost, cost)), np.concatenate((self.gain, gain))
        best = non_dominated(all_cost, all_gain)
        self.steps, self.cost, self.gain = steps[best], all_cost[best], all_gain[best]
        return cost, gain


@dataclass(slots=True)
class Remembered:
    """Computes objectives and keeps the first fronts of all plans that were evaluated."""

    objectives: Objectives
    least: int  # plans to keep
    fronts: list[tuple[Array, Array, Array]] = field(default_factory=list)

    def __call__(self, axes: Array) -> tuple[Array, Array]:
        """Return cost and throughput of each row."""
        cost, gain = self.objectives(axes)
        best = layers(cost, gain, self.least)
        self.fronts.append((axes[best], cost[best], gain[best]))
        return cost, gain

    def best(self) -> Array:
        """Return the rows of the first fronts of all that were evaluated, each row once."""
        axes, cost, gain = (np.concatenate(column) for column in zip(*self.fronts, strict=True))
        axes, first = np.unique(axes, axis=0, return_index=True)
        return np.asarray(axes[layers(cost[first], gain[first], self.least)])


def nsga2_search(
    grid: PlanGrid, objectives: Objectives, *, rng: np.random.Generator, least: int = 1
) -> tuple[Array, int]:
    """Return the best plans found, cheapest first, and how many were evaluated.

    Parameters
    ----------
    rng
        Of the first population and of crossover and mutation: the same seed gives the same front.
    least
        How many plans to return: after the front of those evaluated that of the rest, and so on.

    Returns
    -------
    tuple of ndarray of shape (n_front, 4) and int
        Rows (w, p, lambda_w, lambda_p), and the number of plans evaluated (repeated ones count again). No
        rows where not even the smallest plan fits.

    Notes
    -----
    A grid with fewer plans than the search would evaluate is listed: the result is exact then.
    """
    if grid.n_plan <= N_PARENT * N_GENERATION:
        return exact_search(grid, objectives, least=least)
    remembered = Remembered(objectives, least)
    archive = Archive(grid, remembered)
    if not grid.allows(grid.rows(np.zeros((1, 4), dtype=np.intp)))[0]:
        return np.empty((0, 4)), 0
    _evolve(archive, rng)
    _walk(archive)
    return remembered.best(), archive.n_plan


def _evolve(archive: Archive, rng: np.random.Generator) -> None:
    """Run NSGA-II; the archive keeps the plans that it evaluates."""
    last = np.array(archive.grid.shape) - 1
    problem = Problem(n_var=4, n_obj=2, xl=np.zeros(4), xu=last)
    rounding = RoundingRepair()
    algorithm = NSGA2(
        pop_size=N_PARENT,
        sampling=_first(archive.grid, rng),
        crossover=SBX(prob=0.9, eta=10, vtype=float, repair=rounding),
        mutation=PM(eta=10, vtype=float, repair=rounding),
        eliminate_duplicates=True,
    )
    algorithm.setup(problem, termination=("n_gen", N_GENERATION), seed=rng, verbose=False)
    while algorithm.has_next():
        population = algorithm.ask()
        if population is None:  # crossover and mutation found no new plan
            return
        steps = repaired(archive.grid, population.get("X").astype(np.intp))
        population.set("X", steps)
        cost, gain = archive.weigh(steps)
        Evaluator().eval(StaticProblem(problem, F=np.column_stack((cost, -gain))), population)
        algorithm.tell(infills=population)


def _first(grid: PlanGrid, rng: np.random.Generator) -> Steps:
    """Return the first population: small and large plans alike (log-uniform), and both extremes."""
    shape = np.array(grid.shape)
    spread = np.floor(shape ** rng.random((N_PARENT - 2, 4))).astype(np.intp) - 1
    ends = np.array([np.zeros(4, dtype=np.intp), shape - 1])
    return np.concatenate((ends, np.clip(spread, 0, shape - 1)))


def repaired(grid: PlanGrid, steps: Steps) -> Steps:
    """Return positions of plans that fit, each moved toward the smallest plan no farther than needed.

    The smallest plan must fit. The distance is found by bisection, for all plans at once.
    """
    steps = steps.copy()
    bad = np.flatnonzero(~grid.allows(grid.rows(steps)))
    outside = steps[bad]
    low, high = np.zeros(len(bad)), np.ones(len(bad))
    steps[bad] = 0
    for _ in range(10 if len(bad) else 0):
        middle = (low + high) / 2
        tried = np.floor(outside * middle[:, None]).astype(np.intp)
        is_allowed = grid.allows(grid.rows(tried))
        steps[bad[is_allowed]] = tried[is_allowed]
        low, high = np.where(is_allowed, middle, low), np.where(is_allowed, high, middle)
    return steps


def _walk(archive: Archive) -> None:
    """Evaluate the neighbors of the archive's front until none is better."""
    visited: set[bytes] = set()
    for _ in range(N_WALK):
        near = _around(archive, visited)
        if not len(near):
            return
        archive.weigh(near)


def _around(archive: Archive, visited: set[bytes]) -> Steps:
    """Return the neighbors of the front that were not returned before and fit."""
    fresh = [row for row in archive.steps if row.tobytes() not in visited]
    visited.update(row.tobytes() for row in fresh)
    if not fresh:
        return np.empty((0, 4), dtype=np.intp)
    near = _moved(archive.grid, np.array(fresh), MOVES)
    fastest = _moved(archive.grid, np.array(fresh[-N_FASTEST:]), MOVES)
    filled = [_filled(archive.grid, fastest, axis) for axis in range(4)]
    return np.unique(np.concatenate((near, *filled)), axis=0)


def _moved(grid: PlanGrid, steps: Steps, moves: Steps) -> Steps:
    """Return the results of each move from each position that are on the grid and fit."""
    near = np.unique((steps[:, None, :] + moves).reshape(-1, 4), axis=0)
    near = near[((near >= 0) & (near < np.array(grid.shape))).all(axis=1)]
    return np.asarray(near[grid.allows(grid.rows(near))])


def _filled(grid: PlanGrid, steps: Steps, axis: int) -> Steps:
    """Return the positions with one axis raised as far as quota and machines allow, by bisection."""
    low, top = steps.copy(), steps.copy()
    top[:, axis] = grid.shape[axis]
    while (gap := top[:, axis] - low[:, axis] > 1).any():
        tried = low.copy()
        tried[:, axis] = (low[:, axis] + top[:, axis]) // 2
        fit = gap & grid.allows(grid.rows(tried))
        low[fit] = tried[fit]
        top[gap & ~fit] = tried[gap & ~fit]
    return low

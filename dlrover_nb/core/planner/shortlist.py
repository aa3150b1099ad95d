"""The plans that advice compares, out of all that a job may be given.

Advice needs bands, and a prediction with its band goes through hundreds of coefficient sets. A small space is
compared whole. In a larger one most plans are far from the front: the search uses the mean coefficients alone
(within a few percent of the prediction, at a hundredth of its time) and keeps the front, the front without
it, and so on (`pareto.exact.layers`) until there are some thousand plans, and the plans around the present
one and those that were measured. What is lost: a plan that a thousand others dominate by mean coefficients,
and none by the full prediction. Rejected: a random sample, which almost certainly misses the front of a
million plans.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core import pricing
from dlrover_nb.core.pareto.exact import layers
from dlrover_nb.core.pareto.solve import solve
from dlrover_nb.core.pareto.space import CACHED_PLANS, PlanGrid, PlanSpace, list_plans, neighbours, strides
from dlrover_nb.core.perf.terms import axes_of
from dlrover_nb.core.planner.batch import batch_sizes

if TYPE_CHECKING:
    from dlrover_nb.core.pareto.objectives import Array, Objectives
    from dlrover_nb.core.perf.model import ThroughputModel
    from dlrover_nb.core.planner.situation import Situation

ENOUGH = 2000  # plans of a large space that are compared
LEAST_S = 1e-9  # of an iteration: a form may be zero at one worker (log w), but no plan is infinitely fast


@dataclass(frozen=True, slots=True)
class Rough:
    """Cost and throughput of many plans, the latter by the model's mean coefficients alone."""

    grid: PlanGrid
    model: ThroughputModel
    situation: Situation

    def __call__(self, axes: Array) -> tuple[Array, Array]:
        """Return `Candidate.cost` and throughput of each row (w, p, lambda_w, lambda_p)."""
        m, batch = self.model, batch_sizes(self.situation.spec, axes)
        iter_s = np.maximum(m.columns(axes, batch) @ m.coefficients_, LEAST_S)
        return self.cost(axes), axes[:, 0] * batch / iter_s  # (eq. 1)

    def cost(self, axes: Array) -> Array:
        """Return `Candidate.cost` of each row."""
        return pricing.costs(axes, *self.grid.sized(axes).memory_mib, self.situation.spec.prices)


@dataclass(slots=True)
class Remembered:
    """Computes objectives for a solver and keeps the best plans among those evaluated."""

    objectives: Objectives
    _kept: list[tuple[Array, Array, Array]] = field(default_factory=list)

    def __call__(self, axes: Array) -> tuple[Array, Array]:
        """Return cost and throughput of each row."""
        cost, samples_per_s = self.objectives(axes)
        best = layers(cost, samples_per_s, ENOUGH)
        self._kept.append((axes[best], cost[best], samples_per_s[best]))
        return cost, samples_per_s

    def best(self) -> Array:
        """Return the rows of the best plans of all that were evaluated, each once."""
        if not self._kept:
            return np.empty((0, 4))
        axes, cost, samples_per_s = (np.concatenate(column) for column in zip(*self._kept, strict=True))
        axes, first = np.unique(axes, axis=0, return_index=True)
        return np.asarray(axes[layers(cost[first], samples_per_s[first], ENOUGH)])


def plans_to_weigh(rough: Rough, *, rng: np.random.Generator) -> tuple[PlanSpace, int]:
    """Return the plans to compare, and out of how many they were taken.

    Parameters
    ----------
    rng
        As of `pareto.solve.solve`; a small space is listed.
    """
    grid = rough.grid
    if grid.n_plan <= CACHED_PLANS:
        space = list_plans(grid)
        return space, len(space)
    remembered = Remembered(rough)
    found = solve(grid, remembered, rng=rng)
    near = _near(rough)
    near = near[grid.contains(near)]
    near = near[grid.allows(near)]
    axes = np.unique(np.concatenate((remembered.best(), near)), axis=0)
    return grid.sized(axes), max(found.n_plan, len(axes))


def _near(rough: Rough) -> Array:
    """Return the present plan, the plans one step or stride from it, and all that were measured."""
    s = rough.situation
    here = axes_of([s.plan])
    steps = [step(here[0], s.spec.bounds, s.pins) for step in (neighbours, strides)]
    return np.concatenate((here, *steps, rough.model.evidence_.axes))

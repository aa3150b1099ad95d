"""The plans that advice compares, out of all that a job may be given.

Advice needs bands, and a prediction with its band goes through hundreds of coefficient sets. A small space is
compared whole. In a larger one most plans are far from the front: the search uses the mean coefficients alone
(within a few percent of the prediction, at a hundredth of its time) and keeps the front, the front without
it, and so on (`pareto.dominance.layers`) until there are some thousand plans, and the plans around the
present one and those that were measured. What is lost: a plan that many others dominate by mean coefficients,
and none by the full prediction. Rejected: a random sample, which almost certainly misses the front of a
million plans.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core import pricing
from dlrover_nb.core.pareto.objectives import Parts
from dlrover_nb.core.pareto.solve import solve
from dlrover_nb.core.pareto.space import (
    CACHED_PLANS,
    PlanGrid,
    PlanSpace,
    list_plans,
    neighbours,
    plan_grid,
    strides,
)
from dlrover_nb.core.perf.terms import COMPUTED, TERMS, axes_of
from dlrover_nb.core.planner.plan_memory import sizes
from dlrover_nb.core.planner.predictions.batch import batch_sizes

if TYPE_CHECKING:
    from collections.abc import Collection

    from dlrover_nb.core.pareto.objectives import Array
    from dlrover_nb.core.pareto.space import Ladders
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
        batch = batch_sizes(self.situation.spec, axes)
        iter_s = self._seconds(axes, batch, TERMS)
        return self.cost(axes), axes[:, 0] * batch / np.maximum(iter_s, LEAST_S)  # (eq. 1)

    def cost(self, axes: Array) -> Array:
        """Return `Candidate.cost` of each row."""
        prices, memory_mib = self.situation.spec.prices, self.grid.sized(axes).memory_mib
        return pricing.costs(axes, *memory_mib, prices, self.grid.gpus)

    def parts(self, ladders: Ladders) -> Parts:
        """Return cost and seconds per sample of all plans between these values, in parts."""
        w, p, worker_cpu, ps_cpu = ladders
        workers, ps = _rows(w, (1.0,), worker_cpu, (0.0,)), _rows((0.0,), p, (0.0,), ps_cpu)
        (worker_mib, ps_mib), prices = self.grid.sized(ps).memory_mib, self.situation.spec.prices
        gpus = self.grid.gpus
        shape = len(w), len(p), len(worker_cpu), len(ps_cpu)
        return Parts(
            worker_cost=pricing.costs(workers, worker_mib, 0, prices, gpus).reshape(shape[0], shape[2]),
            ps_cost=pricing.costs(ps, 0, ps_mib, prices, gpus).reshape(shape[1], shape[3]),
            worker_s=self._each_s(_rows(w, (1.0,), worker_cpu, (1.0,)), COMPUTED).reshape(shape[0], shape[2]),
            ps_s=self._each_s(_rows(w, p, (1.0,), ps_cpu), frozenset(TERMS) - COMPUTED).reshape(
                shape[0], shape[1], shape[3]
            ),
        )

    def _each_s(self, axes: Array, terms: Collection[str]) -> Array:
        """Return the seconds per sample that some terms of T_iter take."""
        batch = batch_sizes(self.situation.spec, axes)
        return self._seconds(axes, batch, terms) / (axes[:, 0] * batch)

    def _seconds(self, axes: Array, batch: Array, terms: Collection[str]) -> Array:
        """Return the sum of some terms of T_iter; not by `@`, whose sums depend on the number of rows."""
        m = self.model
        columns = m.columns(axes, batch)
        seconds = np.zeros(len(axes))
        for term, coefficient, column in zip(TERMS, m.coefficients_, columns.T, strict=True):
            if coefficient and term in terms:
                seconds += coefficient * column
        return seconds


def _rows(*axes: tuple[float, ...]) -> Array:
    """Return all combinations as rows, the last axis fastest."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


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
    solution = solve(grid, rough, least=ENOUGH, rng=rng)
    near = _near(rough)
    near = near[grid.contains(near)]
    near = near[grid.allows(near)]
    axes = np.unique(np.concatenate((solution.rows, near)), axis=0)
    return grid.sized(axes), max(solution.n_plan, len(axes))


def _near(rough: Rough) -> Array:
    """Return the present plan, the plans one step or stride from it, and all that were measured."""
    s = rough.situation
    here = axes_of([s.plan])
    steps = [step(here[0], s.spec.bounds, s.pins) for step in (neighbours, strides)]
    return np.concatenate((here, *steps, rough.model.evidence_.axes))


def grid_of(situation: Situation) -> PlanGrid:
    """Return the plans that the job may be given: bounds, quota, machines, pins, memory by the forecast."""
    each = sizes(situation)
    grid = plan_grid(
        situation.spec.bounds,
        situation.capacity,
        worker_memory_mib=each.worker_mib,
        ps_memory_mib=each.ps_mib,
        pins=situation.pins,
        ps_share=each.ps_share,
    )
    return replace(grid, gpus=situation.spec.plan.gpus)

"""The plans that a job may be given: the integer grid under its bounds, cut to what the machines hold.

Whether a plan fits is defined in `structs.resources.fits`, node by node. A plan has only two kinds of node
and machines come in shapes, so that the same placing is arithmetic on whole groups here and runs over all
plans at once; a law in the tests holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.resources import CPU_STEP, Capacity, PlanBounds, ResourcePlan, RolePlan, in_steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

MAX_PLANS = 10_000_000  # beyond it the grid does not fit in memory, and a search has to replace it


@dataclass(frozen=True, slots=True)
class PlanSpace:
    """Plans as rows (w, p, lambda_w, lambda_p) of `axes`; memory per node is the same for all."""

    axes: Array  # (n_plans, 4)
    worker_memory_mib: int
    ps_memory_mib: int

    def __len__(self) -> int:
        return len(self.axes)

    def plan(self, index: int) -> ResourcePlan:
        """Return one plan as a record."""
        return plan_of(self.axes[index], self.worker_memory_mib, self.ps_memory_mib)


def plan_of(row: Array, worker_memory_mib: int, ps_memory_mib: int) -> ResourcePlan:
    """Return the record of one row (w, p, lambda_w, lambda_p)."""
    w, p, worker_cpu, ps_cpu = row
    return ResourcePlan(
        worker=RolePlan(int(w), float(worker_cpu), worker_memory_mib),
        ps=RolePlan(int(p), float(ps_cpu), ps_memory_mib),
    )


def enumerate_plans(
    bounds: PlanBounds, capacity: Capacity, *, worker_memory_mib: int, ps_memory_mib: int
) -> PlanSpace:
    """Return all plans within the bounds that fit on the machines.

    Raises
    ------
    InvalidValueError
        When the bounds span more than `MAX_PLANS` plans.
    """
    n_plan = bounds.max_workers * bounds.max_ps * len(bounds.worker_cpus) * len(bounds.ps_cpus)
    if n_plan > MAX_PLANS:
        raise InvalidValueError(
            f"bounds must span <= {MAX_PLANS} plans, got {n_plan}; lower max_workers or list fewer CPU sizes"
        )
    counts = (np.arange(1, bounds.max_workers + 1), np.arange(1, bounds.max_ps + 1))
    grid = np.meshgrid(*counts, bounds.worker_cpus, bounds.ps_cpus, indexing="ij")
    axes = np.column_stack([g.ravel() for g in grid]).astype(np.float64)
    held = fits(axes, capacity, worker_memory_mib=worker_memory_mib, ps_memory_mib=ps_memory_mib)
    return PlanSpace(axes[held], worker_memory_mib, ps_memory_mib)


def fits(axes: Array, capacity: Capacity, *, worker_memory_mib: int, ps_memory_mib: int) -> NDArray[np.bool_]:
    """Return which plans find a place, as `structs.resources.fits` would say of each: shape (n_plans,)."""
    w, p = axes[:, 0], axes[:, 1]
    worker_cpu, ps_cpu = np.floor(axes[:, 2:].T / CPU_STEP + 1e-6)
    total_cpu = max(sum(in_steps(s.cpu) * s.count for s in capacity.shapes), 1)
    total_mib = max(capacity.total_memory_mib, 1)
    worker_size = np.maximum(worker_cpu / total_cpu, worker_memory_mib / total_mib)
    ps_size = np.maximum(ps_cpu / total_cpu, ps_memory_mib / total_mib)
    workers_first = worker_size >= ps_size
    worker, ps = (w, worker_cpu, worker_memory_mib), (p, ps_cpu, ps_memory_mib)
    large = tuple(np.where(workers_first, a, b) for a, b in zip(worker, ps, strict=True))
    small = tuple(np.where(workers_first, b, a) for a, b in zip(worker, ps, strict=True))
    left, room = large[0].copy(), np.zeros(len(axes))
    for shape in capacity.shapes:
        cpu = in_steps(shape.cpu)
        each = _how_many(cpu, shape.memory_mib, large)
        full = np.minimum(np.floor(left / np.maximum(each, 1)), shape.count) * (each > 0)
        rest = np.where(full < shape.count, np.minimum(left - full * each, each), 0)
        empty = shape.count - full - (rest > 0)
        left = left - full * each - rest
        for machines, used in ((full, each), (rest > 0, rest), (empty, 0 * rest)):
            free_cpu, free_mib = cpu - used * large[1], shape.memory_mib - used * large[2]
            room = room + machines * _how_many(free_cpu, free_mib, small)
    return np.asarray((left == 0) & (room >= small[0]))


def _how_many(cpu: Array | float, memory_mib: Array | float, node: tuple[Array, ...]) -> Array:
    """Return how many nodes (count, CPU steps, MiB) a machine with this much free holds."""
    return np.asarray(np.maximum(np.minimum(cpu // node[1], memory_mib // node[2]), 0))


def ladders(bounds: PlanBounds) -> tuple[tuple[float, ...], ...]:
    """Return the allowed values of each axis (w, p, lambda_w, lambda_p), ascending."""
    return (
        tuple(float(n) for n in range(1, bounds.max_workers + 1)),
        tuple(float(n) for n in range(1, bounds.max_ps + 1)),
        bounds.worker_cpus,
        bounds.ps_cpus,
    )


def neighbours(current: Array, bounds: PlanBounds) -> Array:
    """Return the plans one step away on one axis, within the bounds: ndarray of shape (n <= 8, 4)."""
    rows = []
    for axis, ladder in enumerate(ladders(bounds)):
        below = [v for v in ladder if v < current[axis]]
        above = [v for v in ladder if v > current[axis]]
        for value in (*above[:1], *below[-1:]):
            row = current.copy()
            row[axis] = value
            rows.append(row)
    return np.array(rows).reshape(-1, 4)

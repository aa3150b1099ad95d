"""Round the smoothed numbers to a plan that a job may have: bounds, CPU sizes, quota, machines, pins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.capacity import holds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dlrover_nb.core.structs.plan.bounds import PlanBounds
    from dlrover_nb.core.structs.plan.capacity import Capacity

    Array = NDArray[np.float64]
    Into = Callable[[ResourcePlan], ResourcePlan | None]  # None: no plan of this shape may run

LEAST_MIB = 64


def numbers_of(plan: ResourcePlan) -> list[float]:
    """Return workers, PS, CPU per worker and per PS, MiB per worker and per PS."""
    w, p = plan.worker, plan.ps
    return [w.count, p.count, w.cpu, p.cpu, w.memory_mib, p.memory_mib]


def plan_of(numbers: Array) -> ResourcePlan:
    """Return the plan nearest to six numbers: counts to whole nodes, CPU to hundredths, memory to MiB."""
    w, p, worker_cpu, ps_cpu, worker_mib, ps_mib = (float(n) for n in numbers)
    return ResourcePlan(
        worker=RolePlan(max(round(w), 1), max(worker_cpu, 0.01), max(round(worker_mib), LEAST_MIB)),
        ps=RolePlan(max(round(p), 1), max(ps_cpu, 0.01), max(round(ps_mib), LEAST_MIB)),
    )


def into_space(
    bounds: PlanBounds, capacity: Capacity, pins: Pins | None = None, gpus: tuple[int, int] = (0, 0)
) -> Into:
    """Return the function that moves a plan into the space of a job, or None where no such plan may run.

    Counts are cut to the bounds and CPU goes to the nearest allowed size; pins come last and take precedence.
    A plan that exceeds the quota or the machines loses nodes of both roles in proportion until it fits. Each
    worker and each PS has `gpus`, whatever those of similar jobs had.
    """
    fixed = pins or Pins()
    most_workers, most_ps = bounds.counts

    def into(plan: ResourcePlan) -> ResourcePlan | None:
        worker = replace(
            plan.worker,
            count=min(plan.worker.count, most_workers),
            cpu=_nearest(plan.worker.cpu, bounds.worker_cpus),
        )
        ps = replace(plan.ps, count=min(plan.ps.count, most_ps), cpu=_nearest(plan.ps.cpu, bounds.ps_cpus))
        return _shrunk(ResourcePlan(worker, ps).with_gpus(gpus), bounds, capacity, fixed)

    return into


def _nearest(cpu: float, sizes: tuple[float, ...]) -> float:
    return min(sizes, key=lambda size: abs(np.log(size / cpu)))


def _shrunk(plan: ResourcePlan, bounds: PlanBounds, capacity: Capacity, pins: Pins) -> ResourcePlan | None:
    """Return the largest plan of this shape that fits, pins kept; None where even the smallest does not."""
    most = max(plan.worker.count, plan.ps.count)
    for n in range(most, 0, -1):
        smaller = ResourcePlan(
            worker=replace(plan.worker, count=max(plan.worker.count * n // most, 1)),
            ps=replace(plan.ps, count=max(plan.ps.count * n // most, 1)),
        )
        pinned = pins.applied(smaller)
        if _within(pinned, bounds) and holds(capacity, pinned):
            return pinned
    return None


def _within(plan: ResourcePlan, bounds: PlanBounds) -> bool:
    cheap = bounds.quota_cpu is None or plan.total_cpu <= bounds.quota_cpu
    light = bounds.quota_memory_mib is None or plan.total_memory_mib <= bounds.quota_memory_mib
    return cheap and light

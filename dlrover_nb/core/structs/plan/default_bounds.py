"""Bounds that follow from the cluster, where the user names none.

- Cores per node: `SIZES` up to the largest machine, and the size that the user requested.
- Workers: as many of the smallest size as fit beside one PS, at most `MOST_WORKERS`; PS: half as many as fit
  beside one worker, at most `MOST_PS`. The requested counts are always allowed.

A quota of cores counts as the machines do. Memory is no part of it: what each node needs is learned while the
job runs, and every plan is placed on the machines anyway.

The limits keep planning fast: 256 workers, 64 PS and nine sizes of each are 1.3 million plans, which are
listed in some tenths of a second whatever the size of the cluster. On 4,000 cores they still reach all cores
(256 workers of 32). Rejected: counts up to the last core; a job of 16,000 workers of a quarter of a core is
no plan that a user wants, and the search for it takes seconds at each fit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import in_steps

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

SIZES = (0.25, 0.5, 0.75, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
MOST_WORKERS, MOST_PS = 256, 64
UNKNOWN = PlanBounds(4, 2, SIZES[:4], SIZES[:4])  # of a cluster whose machines may not be listed


def completed(
    bounds: PlanBounds, capacity: Capacity, plan: ResourcePlan, *, most_workers: int | None = None
) -> PlanBounds:
    """Return bounds with what is open filled in for these machines; what the user named stays.

    Parameters
    ----------
    capacity
        The machines that the job may use.
    plan
        What the user requested.
    most_workers
        Beyond which workers would have nothing to do; None: there is no such number.
    """
    if not bounds.open:
        return bounds
    worker_cpus = bounds.worker_cpus or _sizes(capacity, plan.worker.cpu)
    ps_cpus = bounds.ps_cpus or _sizes(capacity, plan.ps.cpu)
    n_worker = _most(worker_cpus[0], ps_cpus[0], capacity, bounds.quota_cpu)
    n_worker = min(n_worker, most_workers or MOST_WORKERS, MOST_WORKERS)
    n_ps = _most(ps_cpus[0], worker_cpus[0], capacity, bounds.quota_cpu) // 2
    return replace(
        bounds,
        max_workers=bounds.max_workers or max(n_worker, plan.worker.count, 1),
        max_ps=bounds.max_ps or max(min(n_ps, MOST_PS), plan.ps.count, 1),
        worker_cpus=worker_cpus,
        ps_cpus=ps_cpus,
    )


def assumed(bounds: PlanBounds) -> PlanBounds:
    """Return bounds with what is open filled in for a cluster whose machines may not be listed."""
    filled = {name: getattr(UNKNOWN, name) for name in bounds.open}
    return replace(bounds, **filled)


def widened(own: PlanBounds, other: PlanBounds) -> PlanBounds:
    """Return complete bounds that allow what either allows; the quota is that of `own`."""
    workers, ps = (max(pair) for pair in zip(own.counts, other.counts, strict=True))
    return replace(
        own,
        max_workers=workers,
        max_ps=ps,
        worker_cpus=(*own.worker_cpus, *other.worker_cpus),
        ps_cpus=(*own.ps_cpus, *other.ps_cpus),
    )


def bounds_words(own: PlanBounds, complete: PlanBounds) -> str:
    """Say which plans may be proposed, and which of the bounds follow from the cluster."""
    workers, ps = complete.counts
    words = (
        f"plans may have up to {workers} worker{'s' * (workers != 1)} of {_range(complete.worker_cpus)} and "
        f"{ps} PS of {_range(complete.ps_cpus)}"
    )
    return f"{words}; {and_list(own.open)} follow from the cluster" if own.open else words


def _range(cpus: tuple[float, ...]) -> str:
    return (
        f"{cpus[0]:g} to {cpus[-1]:g} cores" if len(cpus) > 1 else f"{cpus[0]:g} core{'s' * (cpus[0] != 1)}"
    )


def _sizes(capacity: Capacity, requested: float) -> tuple[float, ...]:
    largest = max((shape.cpu for shape in capacity.shapes), default=0.0)
    return tuple(sorted({*(size for size in SIZES if size <= largest), requested}))


def _most(own: float, other: float, capacity: Capacity, quota_cpu: float | None) -> int:
    """Return how many nodes of `own` cores fit beside one of `other` cores on the largest machine."""
    step, beside = max(in_steps(own), 1), in_steps(other)
    machines = [(in_steps(shape.cpu), shape.count) for shape in capacity.shapes]
    fitting = sum(steps // step * count for steps, count in machines)
    largest = max((steps for steps, _ in machines), default=0)
    fitting -= largest // step - max(largest - beside, 0) // step
    return fitting if quota_cpu is None else min(fitting, max(in_steps(quota_cpu) - beside, 0) // step)

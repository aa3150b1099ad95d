"""What a plan costs, from a price table.

DLRover-RM prices the *additional* resources, RC(A) (Eq. 7). Its sum is linear, so RC is the difference of
two plans' prices; we price whole plans, because users pay for whole plans.

An unknown price stays unknown: every node has CPU and memory, so with either price missing the cost of any
plan is None, as is that of a plan with GPUs without theirs. A partial sum would look like a price and rank
plans wrongly. The search needs an order in any case, and then uses the plan's effort (cores, 8 GiB as one).
It does so too where all prices are zero: money does not distinguish plans there, and resources must still not
be wasted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.plan.prices import MIB_PER_GIB
from dlrover_nb.core.structs.plan.resources import CORES_PER_GPU, GIB_PER_CORE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.structs.plan.prices import PriceTable
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

    Array = NDArray[np.float64]


def cost_per_hour(plan: ResourcePlan, prices: PriceTable) -> float | None:
    """Return the money that one hour of the plan costs, None where a price is unknown (Eq. 7)."""
    return prices.per_hour(plan.total_cpu, plan.total_memory_mib, plan.total_gpu)


def costs(
    axes: Array,
    worker_memory_mib: int,
    ps_memory_mib: int | Array,
    prices: PriceTable,
    gpus: tuple[int, int] = (0, 0),
) -> Array:
    """Return what the search minimizes, as `Candidate.cost` is for one plan: shape (n_plans,).

    Parameters
    ----------
    axes
        ndarray of shape (n_plans, 4): workers, PS, cores per worker, cores per PS.
    worker_memory_mib, ps_memory_mib
        Of each node, the latter for all plans or for each.
    gpus
        Of each worker and of each PS.

    Returns
    -------
    ndarray of shape (n_plans,)
        Money per hour (Eq. 7); cores, with 8 GiB as one and a GPU as ten, where a price is unknown or nothing
        costs anything.
    """
    cpu_hour, gib_hour, gpu_hour = prices.cpu_hour, prices.gib_hour, prices.gpu_hour
    if not any(gpus):
        gpu_hour = 0.0
    if None in {cpu_hour, gib_hour, gpu_hour} or not (cpu_hour or gib_hour or gpu_hour):
        cpu_hour, gib_hour, gpu_hour = 1.0, 1.0 / GIB_PER_CORE, float(CORES_PER_GPU)
    assert cpu_hour is not None
    assert gib_hour is not None
    assert gpu_hour is not None
    w, p, worker_cpu, ps_cpu = axes.T
    gib = (w * worker_memory_mib + p * ps_memory_mib) / MIB_PER_GIB
    cost = (w * worker_cpu + p * ps_cpu) * cpu_hour + gib * gib_hour
    return np.asarray(cost + (w * gpus[0] + p * gpus[1]) * gpu_hour if any(gpus) else cost)


def cost_per_million(cost_per_hour: float | None, samples_per_s: float) -> float | None:
    """Return the money that a million samples cost at this price and throughput; None where unknown."""
    return None if cost_per_hour is None else cost_per_hour / 3600 / samples_per_s * 1e6

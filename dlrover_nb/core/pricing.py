"""What a plan costs, from a price table.

DLRover-RM prices the *additional* resources, RC(A) (Eq. 7). Its sum is linear, so RC is the difference of
two plans' prices; we price whole plans, because users pay for whole plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.structs.resources import PriceTable, ResourcePlan

MIB_PER_GIB = 1024


def cost_per_hour(plan: ResourcePlan, prices: PriceTable) -> float:
    """Return the money that one hour of the plan costs (Eq. 7)."""
    gib = plan.total_memory_mib / MIB_PER_GIB
    return plan.total_cpu * prices.cpu_hour + gib * prices.gib_hour


def costs_per_hour(
    axes: NDArray[np.float64], worker_memory_mib: int, ps_memory_mib: int, prices: PriceTable
) -> NDArray[np.float64]:
    """Price many plans at once: `axes` of shape (n_plans, 4) (Eq. 7)."""
    w, p, worker_cpu, ps_cpu = axes.T
    gib = (w * worker_memory_mib + p * ps_memory_mib) / MIB_PER_GIB
    return np.asarray((w * worker_cpu + p * ps_cpu) * prices.cpu_hour + gib * prices.gib_hour)


def cost_per_million(cost_per_hour: float, samples_per_s: float) -> float:
    """Return the money that a million samples cost at this price and throughput."""
    return cost_per_hour / 3600 / samples_per_s * 1e6

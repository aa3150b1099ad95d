"""Whether a plan is feasible: on the available machines, and within the job's quota.

The search checks a million plans at once (`pareto.space`); here one plan is checked, and a refusal gives its
reason.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import CapacityError
from dlrover_nb.core.structs.capacity import check_fits, fits, plan_needs
from dlrover_nb.core.structs.resources import CPU_STEP

if TYPE_CHECKING:
    from dlrover_nb.core.structs.bounds import PlanBounds
    from dlrover_nb.core.structs.capacity import Capacity
    from dlrover_nb.core.structs.resources import ResourcePlan


def check_room(plan: ResourcePlan, capacity: Capacity, bounds: PlanBounds) -> None:
    """Refuse a plan that exceeds the quota or does not fit on the machines.

    Raises
    ------
    CapacityError
        It says what was requested, what is available, and what to do.
    """
    over = over_quota(plan, bounds)
    if over:
        raise CapacityError(
            f"the plan must keep to the job's quota, got {plan.short} = {over}; {_possible(plan, bounds)}"
        )
    check_fits(plan, capacity)


def has_room(plan: ResourcePlan, capacity: Capacity, bounds: PlanBounds) -> bool:
    """Whether a plan keeps to the quota and fits on the machines."""
    return not over_quota(plan, bounds) and fits(capacity, plan_needs(plan))


def over_quota(plan: ResourcePlan, bounds: PlanBounds) -> str:
    """Return what exceeds the quota, in words; empty when nothing does."""
    if bounds.quota_cpu is not None and plan.total_cpu > bounds.quota_cpu:
        return f"{plan.total_cpu:g} of {bounds.quota_cpu:g} cores"
    if bounds.quota_memory_mib is not None and plan.total_memory_mib > bounds.quota_memory_mib:
        return f"{plan.total_memory_mib} of {bounds.quota_memory_mib} MiB"
    return ""


def _possible(plan: ResourcePlan, bounds: PlanBounds) -> str:
    """Say how many workers of this size the quota allows beside these PS, or what else would help."""
    cpu = inf if bounds.quota_cpu is None else bounds.quota_cpu - plan.ps.total_cpu + CPU_STEP / 2
    mib = inf if bounds.quota_memory_mib is None else bounds.quota_memory_mib - plan.ps.total_memory_mib
    most = min(cpu / plan.worker.cpu, mib / plan.worker.memory_mib)
    if most >= 1:
        return f"beside these PS it allows {int(most)} worker{'s' * (int(most) != 1)} of this size"
    return "not even 1 worker of this size is allowed beside these PS; give each node less"

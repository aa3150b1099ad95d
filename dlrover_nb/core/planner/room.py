"""Whether a plan may be had at all: on the machines that there are, and within the job's quota.

The search asks the same of a million plans at once (`pareto.space`); here it is asked of one, and
refused in words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import CapacityError
from dlrover_nb.core.structs.resources import check_fits, fits, plan_needs

if TYPE_CHECKING:
    from dlrover_nb.core.structs.resources import Capacity, PlanBounds, ResourcePlan


def check_room(plan: ResourcePlan, capacity: Capacity, bounds: PlanBounds) -> None:
    """Refuse a plan that exceeds the quota or does not fit on the machines.

    Raises
    ------
    CapacityError
        It says what was asked, what there is, and what to do.
    """
    over = _over_quota(plan, bounds)
    if over:
        raise CapacityError(f"the plan must keep to the job's quota, got {plan.short} = {over}; ask for less")
    check_fits(plan, capacity)


def has_room(plan: ResourcePlan, capacity: Capacity, bounds: PlanBounds) -> bool:
    """Whether a plan keeps to the quota and fits on the machines."""
    return not _over_quota(plan, bounds) and fits(capacity, plan_needs(plan))


def _over_quota(plan: ResourcePlan, bounds: PlanBounds) -> str:
    """Return what is too much, in words; empty when nothing is."""
    if bounds.quota_cpu is not None and plan.total_cpu > bounds.quota_cpu:
        return f"{plan.total_cpu:g} of {bounds.quota_cpu:g} cores"
    if bounds.quota_memory_mib is not None and plan.total_memory_mib > bounds.quota_memory_mib:
        return f"{plan.total_memory_mib} of {bounds.quota_memory_mib} MiB"
    return ""

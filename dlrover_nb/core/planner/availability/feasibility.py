"""Whether a plan is feasible: on the available machines, and within the job's quota.

The search checks a million plans at once (`pareto.space`); here one plan is checked, and a refusal gives its
reason.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import CapacityError
from dlrover_nb.core.structs.plan.capacity import change_needs, check_fits, fits, holds
from dlrover_nb.core.structs.plan.resources import CPU_STEP, total_need

if TYPE_CHECKING:
    from dlrover_nb.core.pareto.space import PlanSpace
    from dlrover_nb.core.structs.plan.bounds import PlanBounds
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


def check_room(
    plan: ResourcePlan, capacity: Capacity, bounds: PlanBounds, *, beside: ResourcePlan | None = None
) -> None:
    """Refuse a plan that exceeds the quota, does not fit on the machines, or cannot be reached.

    Parameters
    ----------
    beside
        The plan that runs, where new PS must fit beside it because nothing outlives the job's nodes; None:
        a change that finds no room goes through a checkpoint.

    Raises
    ------
    CapacityError
        It says what was requested, what is available, and what to do.
    """
    over = over_quota(plan, bounds)
    if over:
        raise CapacityError(f"{plan.short} exceeds the job's quota ({over}); {_possible(plan, bounds)}")
    check_fits(plan, capacity)
    if not _is_reachable(plan, capacity, beside):
        assert beside is not None
        peak = total_need(change_needs(beside, plan))
        raise CapacityError(
            f"the parameter servers of {plan.short} must fit beside those of {beside.short}, because this "
            "job "
            f"keeps nothing outside its pods: while both run they need {peak.words}; set "
            "checkpoint_url, or choose fewer or smaller ones"
        )


def has_room(
    plan: ResourcePlan, capacity: Capacity, bounds: PlanBounds, *, beside: ResourcePlan | None = None
) -> bool:
    """Whether a plan keeps to the quota, fits on the machines, and can be reached (as in `check_room`)."""
    is_allowed = not over_quota(plan, bounds) and holds(capacity, plan)
    return is_allowed and _is_reachable(plan, capacity, beside)


def _is_reachable(plan: ResourcePlan, capacity: Capacity, beside: ResourcePlan | None) -> bool:
    return beside is None or fits(capacity, change_needs(beside, plan))


def reachable(space: PlanSpace, capacity: Capacity, beside: ResourcePlan) -> PlanSpace:
    """Return the plans of a space whose new PS find room beside what runs.

    It is a cut of its own behind the search, which relies on smaller plans being allowed where larger ones
    are. More workers than run make no difference to this question, so few distinct cases are left.
    """
    cases = space.axes.copy()
    cases[:, 0] = np.minimum(cases[:, 0], beside.worker.count)
    distinct, which = np.unique(cases, axis=0, return_inverse=True)
    sized = space.at(distinct)
    feasible = [_is_reachable(sized.plan(i), capacity, beside) for i in range(len(distinct))]
    return space.at(space.axes[np.array(feasible, dtype=bool)[which.reshape(-1)]])


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
        return f"with these PS, {int(most)} worker{'s' * (int(most) != 1)} of this size would fit"
    return "with these PS, not even 1 worker of this size fits; choose smaller nodes"

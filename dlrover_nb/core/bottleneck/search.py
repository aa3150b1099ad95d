"""The next plan of a search, by what the nodes of the present plan and of those before used.

The state of the search is in the measurements: which plans ran, and the cores that each used. No plan is
tried twice, and one to which the job returned ends the search.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from dlrover_nb.core.bottleneck.diagnosis import diagnose
from dlrover_nb.core.bottleneck.remedies import Step, fruitless, wanted
from dlrover_nb.core.bottleneck.remedy_plans import fixed_roles, remedy_between, with_remedy
from dlrover_nb.core.bottleneck.use import PlanUse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dlrover_nb.core.bottleneck.diagnosis import Diagnosis
    from dlrover_nb.core.bottleneck.use import JobUse
    from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
    from dlrover_nb.core.structs.plan.resources import Axes, ResourcePlan


@dataclass(frozen=True, slots=True)
class NextPlan:
    """A plan to try, and the diagnosis that asks for it."""

    plan: ResourcePlan
    diagnosis: Diagnosis


def next_plan(
    use: JobUse, bounds: PlanBounds, pins: Pins, holds: Callable[[ResourcePlan], bool]
) -> NextPlan | None:
    """Return the plan of the first remedy that was not in vain so far; None where the search has ended.

    Parameters
    ----------
    holds
        Whether a plan is allowed beyond bounds and pins.
    """
    diagnosis = diagnose(use, fixed=fixed_roles(use, bounds, pins))
    if diagnosis is None or has_returned(use):
        return None
    in_vain, ran = fruitless(steps(use), use.tuning), {each.plan.axes for each in trail(use)}

    def is_new(plan: ResourcePlan) -> bool:
        return plan.axes not in ran and holds(plan)

    for remedy in wanted(diagnosis):
        plan = with_remedy(remedy, use, bounds, pins=pins, holds=is_new)
        if plan is not None and remedy_between(use.plan, plan) not in in_vain:
            return NextPlan(plan, diagnosis)
    return None


def steps(use: JobUse) -> tuple[Step, ...]:
    """Return the search so far: it begins anew after a change that is none of its own."""
    plans = trail(use)
    changes = (remedy_between(before.plan, after.plan) for before, after in pairwise(plans))
    return tuple(
        Step(remedy, each.used_cores, each.plan.total_cpu)
        for remedy, each in zip((None, *changes), plans, strict=True)
    )


def trail(use: JobUse) -> Sequence[PlanUse]:
    """Return all plans in the order of time, the present one last; memory alone makes no other plan."""
    plans: list[PlanUse] = []
    for each in (*use.earlier, PlanUse(use.plan, use.cores())):
        if plans and plans[-1].plan.axes == each.plan.axes:
            plans.pop()
        plans.append(each)
    return plans


def has_returned(use: JobUse) -> bool:
    """Whether the present plan ran before others."""
    *before, now = trail(use)
    return any(each.plan.axes == now.plan.axes for each in before)


def way_back(
    use: JobUse, speeds: Mapping[Axes, float], holds: Callable[[ResourcePlan], bool]
) -> tuple[ResourcePlan, float] | None:
    """Return the fastest plan of a search that has ended, and its gain over the present one.

    None where it was not faster by more than steady windows vary. The paper keeps the last plan, and would
    leave a user on a change that made the job slower.
    """
    now = speeds.get(use.plan.axes)
    before = [each.plan for each in trail(use)[:-1] if each.plan.axes in speeds]
    if now is None or not before:
        return None
    best = max(before, key=lambda plan: speeds[plan.axes])
    gain, plan = speeds[best.axes] / now - 1, _with_memory(best, use.plan)
    return (plan, gain) if gain > use.tuning.stable_cv and holds(plan) else None


def _with_memory(plan: ResourcePlan, now: ResourcePlan) -> ResourcePlan:
    """Return a plan with the memory of another, which may have grown since."""
    worker = replace(plan.worker, memory_mib=max(plan.worker.memory_mib, now.worker.memory_mib))
    ps = replace(plan.ps, memory_mib=max(plan.ps.memory_mib, now.ps.memory_mib))
    return replace(plan, worker=worker, ps=ps)

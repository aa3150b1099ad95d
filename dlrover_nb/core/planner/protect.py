"""The plan that protects nodes from OOM kills: more memory for a role, before its nodes are killed or after.

What a role needs is known from a kill (what the node had reached, and 1.5 times the memory that was not
enough) or from a forecast. Nothing else of the plan changes as long as the machines have room: memory does
not change speed, so the search for faster plans is not used here. Where the whole need does not fit, the
largest part that fits is given; where even the least that would help does not fit, a node of that role is
removed: fewer nodes that run train more than many that are killed. Rejected: taking the next best plan of the
front with enough memory; it changes counts and cores for reasons unrelated to memory, and an urgent proposal
should be easy to read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.planner.availability.feasibility import has_room
from dlrover_nb.core.structs.plan.resources import MEMORY_STEP_MIB, ResourcePlan, Role, RolePlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dlrover_nb.core.planner.situation import Situation
    from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
    from dlrover_nb.core.structs.plan.capacity import Capacity

PARTS = (1.0, 0.75, 0.5, 0.25, 0.0)  # of the range from the least that helps to the whole need


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Memory that each node of a role needs.

    Parameters
    ----------
    mib
        What to give each node.
    least_mib
        Less than this would not help.
    why
        The evidence, as a clause for messages.
    """

    role: Role
    mib: int
    least_mib: int
    why: str


@dataclass(frozen=True, slots=True)
class Frame:
    """The constraints on every plan: machines, the job's own bounds and quota, pins, what runs beside it."""

    capacity: Capacity
    bounds: PlanBounds
    pins: Pins
    beside: ResourcePlan | None = None  # as in `feasibility.check_room`

    @classmethod
    def of(cls, situation: Situation) -> Frame:
        """Return the frame that a situation sets."""
        return cls(situation.capacity, situation.spec.bounds, situation.pins, situation.beside)

    def holds(self, plan: ResourcePlan) -> bool:
        """Whether a plan is within the frame (a user's plan may exceed the bounds, not the quota)."""
        return self.pins.allows(plan) and has_room(plan, self.capacity, self.bounds, beside=self.beside)


def protected(plan: ResourcePlan, needs: Sequence[MemoryNeed], frame: Frame) -> ResourcePlan | None:
    """Return the plan with the memory that is needed; None where no plan within the frame has it.

    Notes
    -----
    A need beyond the largest machine is cut to that machine, and dropped where that is less than what helps.
    """
    most_mib = frame.capacity.most_memory_mib
    needs = [n for n in needs if n.least_mib <= most_mib]
    for fewer in _fewer(plan, needs):
        for part in PARTS:
            wanted = _with_memory(fewer, needs, part, most_mib)
            if wanted != plan and frame.holds(wanted):
                return wanted
    return None


def _fewer(plan: ResourcePlan, needs: Sequence[MemoryNeed]) -> Iterator[ResourcePlan]:
    """Yield the plan, then the plan with fewer and fewer nodes of the roles that need memory."""
    if not needs:
        return
    yield plan
    most = max(plan.role(need.role).count for need in needs)
    for n in range(most - 1, 0, -1):
        fewer = plan
        for need in needs:
            own = plan.role(need.role)
            fewer = _with_role(fewer, need.role, replace(own, count=min(n, own.count)))
        yield fewer


def _with_memory(plan: ResourcePlan, needs: Sequence[MemoryNeed], part: float, most_mib: int) -> ResourcePlan:
    """Return the plan with this part of each need beyond the least; no node gets less than it has."""
    for need in needs:
        own = plan.role(need.role)
        wanted = need.least_mib + part * max(need.mib - need.least_mib, 0)
        mib = min(-int(-wanted // MEMORY_STEP_MIB) * MEMORY_STEP_MIB, most_mib)  # whole steps, rounded up
        plan = _with_role(plan, need.role, replace(own, memory_mib=max(mib, own.memory_mib)))
    return plan


def _with_role(plan: ResourcePlan, role: Role, after: RolePlan) -> ResourcePlan:
    return replace(plan, worker=after) if role is Role.WORKER else replace(plan, ps=after)

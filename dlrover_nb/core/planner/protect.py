"""The plan that keeps nodes alive: more memory for a role, before its nodes are killed or after.

What a role needs is known from a kill (what the node had reached, and 1.5 times the memory that was not
enough) or from a forecast. Nothing else of the plan changes as long as the machines have room: memory is no
question of speed, so the search for faster plans has no say here. Where the whole need finds no place,
the largest part of it that does is given; where even the least that would help finds none, a node of that
role is given up for the others' sake: fewer nodes that live train more than many that are killed.
Rejected: taking the next best plan of the front with enough memory; it changes counts and cores
for reasons that have nothing to do with the danger, and an urgent proposal should be easy to read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.planner.feasibility import has_room
from dlrover_nb.core.structs.resources import ResourcePlan, Role, RolePlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dlrover_nb.core.planner.situation import Situation
    from dlrover_nb.core.structs.bounds import Pins, PlanBounds
    from dlrover_nb.core.structs.capacity import Capacity

STEP_MIB = 64
PARTS = (1.0, 0.75, 0.5, 0.25, 0.0)  # of what lies between the least that helps and the whole need


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
        What is known, as a clause for people.
    """

    role: Role
    mib: int
    least_mib: int
    why: str


@dataclass(frozen=True, slots=True)
class Frame:
    """What no plan may depart from: machines, the job's own bounds and quota, and pins."""

    capacity: Capacity
    bounds: PlanBounds
    pins: Pins

    @classmethod
    def of(cls, situation: Situation) -> Frame:
        """Return the frame that a situation sets."""
        return cls(situation.capacity, situation.spec.bounds, situation.pins)

    def holds(self, plan: ResourcePlan) -> bool:
        """Whether a plan is within the frame (the user's own may exceed the bounds, but not the quota)."""
        return self.pins.allows(plan) and has_room(plan, self.capacity, self.bounds)


def protected(plan: ResourcePlan, needs: Sequence[MemoryNeed], frame: Frame) -> ResourcePlan | None:
    """Return the plan with the memory that is needed; None where no plan within the frame has it.

    Notes
    -----
    A need beyond the largest machine is cut to that machine, and is none where that is less than what helps.
    """
    most_mib = max((shape.memory_mib for shape in frame.capacity.shapes), default=0)
    needs = [n for n in needs if n.least_mib <= most_mib]
    for fewer in _fewer(plan, needs):
        for part in PARTS:
            wanted = _with_memory(fewer, needs, part, most_mib)
            if wanted != plan and frame.holds(wanted):
                return wanted
    return None


def _fewer(plan: ResourcePlan, needs: Sequence[MemoryNeed]) -> Iterator[ResourcePlan]:
    """Yield the plan, and then with ever fewer nodes of the roles that need memory."""
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
        mib = min(-int(-wanted // STEP_MIB) * STEP_MIB, most_mib)  # whole steps, rounded up
        plan = _with_role(plan, need.role, replace(own, memory_mib=max(mib, own.memory_mib)))
    return plan


def _with_role(plan: ResourcePlan, role: Role, after: RolePlan) -> ResourcePlan:
    return replace(plan, worker=after) if role is Role.WORKER else replace(plan, ps=after)

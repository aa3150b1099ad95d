"""Memory of each node of the plans that are searched, and a smaller request for the plan that runs.

A request that is clearly above all that nodes will hold (`memory.right_size`) is lowered in every plan of
the search, so that it comes with the next change that is made anyway, new nodes of a larger plan do not
repeat it, and costs, front and quota count what a plan would really be given. Where no other plan is better,
the smaller request is advice of its own, if it saves enough (`advice.smaller_request`).

All nodes of a role have one size, so a lower one concerns those that run: they are resized in place where the
cluster can do that, else replaced, with a pause. `_pays` leaves the request as it is where what is saved until
the end does not clearly outweigh what that pause costs; the job's own pauses tell which of both it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core import pricing
from dlrover_nb.core.planner.situation import transition_s
from dlrover_nb.core.structs.resources import ResourcePlan, Role, diff

if TYPE_CHECKING:
    from dlrover_nb.core.planner.situation import Situation
    from dlrover_nb.core.structs.prices import PriceTable

PAYS = 10.0  # times the cost of the pause, to be saved until the end


@dataclass(frozen=True, slots=True)
class NodeSizes:
    """MiB of each worker and each PS, and the least of all PS together (as of `PlanGrid`)."""

    worker_mib: int
    ps_mib: int
    ps_shared_mib: int

    def of(self, plan: ResourcePlan) -> ResourcePlan:
        """Return a plan with the memory of each worker, and of each PS where so many run."""
        worker = replace(plan.worker, memory_mib=self.worker_mib)
        return ResourcePlan(worker, replace(plan.ps, memory_mib=self.ps_mib))


def sizes(situation: Situation) -> NodeSizes:
    """Return the memory per node: what is needed by OOM kills and forecasts, else as now, or clearly less."""
    s = situation
    plan, floors = s.plan, dict(s.memory_mib)
    as_now = {role: floors.get(role, plan.role(role).memory_mib) for role in Role}
    less = {role: mib for role, mib in _less(s).items() if as_now[role] <= plan.role(role).memory_mib}
    shared = next((use.shared_mib for use in s.memory_use if use.role is Role.PS), 0)
    found = _sizes(as_now | less, shared)
    return found if less and _pays(s, found.of(plan)) else _sizes(as_now, shared)


def _sizes(mib: dict[Role, int], shared_mib: int) -> NodeSizes:
    return NodeSizes(mib[Role.WORKER], mib[Role.PS], shared_mib)


def _less(situation: Situation) -> dict[Role, int]:
    found = {use.role: use.lowered(situation.plan.role(use.role)) for use in situation.memory_use}
    return {role: mib for role, mib in found.items() if mib is not None}


def _pays(situation: Situation, smaller: ResourcePlan) -> bool:
    """Whether the rest of the job on less memory saves clearly more than the pause costs."""
    s = situation
    speed = next((w.samples_per_s for w in reversed(s.samples) if w.plan == s.plan), None)
    if speed is None:
        return False
    pause_s = transition_s(diff(s.plan, smaller), s.pauses, s.spec.migration)
    left_s = s.n_sample_left / speed
    saving = 1 - _cost(smaller, s.spec.prices) / _cost(s.plan, s.spec.prices)
    return saving * left_s >= PAYS * pause_s


def _cost(plan: ResourcePlan, prices: PriceTable) -> float:
    return pricing.cost_per_hour(plan, prices) or plan.effort


def lacks_memory(situation: Situation, plan: ResourcePlan) -> bool:
    """Whether a plan gives a node less than it will hold, by the newest forecast."""
    uses = situation.memory_use
    return any(plan.role(u.role).memory_mib < u.held_by(plan.role(u.role).count) for u in uses)


def memory_words(situation: Situation, plan: ResourcePlan) -> str:
    """Say why a plan gives nodes less memory than they have; empty where it does not."""
    said = [
        use.words(before, after)
        for use in situation.memory_use
        if (after := plan.role(use.role)).memory_mib < (before := situation.plan.role(use.role)).memory_mib
    ]
    return " ".join(said)

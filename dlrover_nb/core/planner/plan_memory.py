"""Memory of each node of the plans that are searched, and a smaller request for the plan that runs.

A request that is clearly above all that nodes will hold (`memory.right_size`) is lowered in every plan of
the search, so that it comes with the next change that is made anyway, new nodes of a larger plan do not
repeat it, and costs, front and quota count what a plan would really be given. Where no other plan is better,
the smaller request is advice of its own, if it saves enough (`advice.smaller_request`).

All nodes of a role have one size, so a lower one concerns those that run: they are resized in place where
the cluster can do that, else replaced, with a pause. `_pays` leaves the request as it is where what is saved
until the end does not clearly outweigh what that pause costs; the job's own pauses tell which of both it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core import pricing
from dlrover_nb.core.pareto.space import LESS, ps_memory
from dlrover_nb.core.planner.predictions.transitions import transition_s
from dlrover_nb.core.structs.plan.resources import PsShare, ResourcePlan, Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.memory import MemoryUse
    from dlrover_nb.core.planner.situation import Situation
    from dlrover_nb.core.structs.plan.prices import PriceTable
    from dlrover_nb.core.structs.plan.resources import RolePlan

PAYS = 10.0  # times the cost of the pause, to be saved until the end


@dataclass(frozen=True, slots=True)
class NodeSizes:
    """MiB of each worker, and of each PS as it is now with what each needs (as of `PlanGrid`)."""

    worker_mib: int
    ps_mib: int
    ps_share: PsShare

    def of(self, plan: ResourcePlan) -> ResourcePlan:
        """Return a plan with the memory of its nodes."""
        each = ps_memory(np.array([plan.ps.count]), self.ps_mib, self.ps_share)
        worker = replace(plan.worker, memory_mib=self.worker_mib)
        return ResourcePlan(worker, replace(plan.ps, memory_mib=int(each[0])))


def sizes(situation: Situation) -> NodeSizes:
    """Return the memory per node: what is needed by OOM kills and forecasts, else as now, or clearly less."""
    s = situation
    uses, floors = {use.role: use for use in s.memory_use}, dict(s.memory_mib)
    worker_mib, ps_mib = (floors.get(role, s.plan.role(role).memory_mib) for role in Role)
    share = uses[Role.PS].share if Role.PS in uses else PsShare()
    as_now = NodeSizes(worker_mib, ps_mib, replace(share, least_mib=0))
    if ps_mib > s.plan.ps.memory_mib:  # they need more, by other evidence
        share = as_now.ps_share
    less = NodeSizes(_worker_mib(uses, s.plan.worker, worker_mib), ps_mib, share)
    return less if _pays(s, less.of(s.plan)) else as_now


def _worker_mib(uses: Mapping[Role, MemoryUse], now: RolePlan, mib: int) -> int:
    wanted = uses[Role.WORKER].wanted_mib(now.count) if Role.WORKER in uses else mib
    return wanted if wanted <= LESS * now.memory_mib and mib <= now.memory_mib else mib


def _pays(situation: Situation, smaller: ResourcePlan) -> bool:
    """Whether the rest of the job on less memory saves clearly more than the pause costs."""
    s = situation
    speed = next((w.samples_per_s for w in reversed(s.samples) if w.plan == s.plan), None)
    if speed is None:
        return False
    pause_s = transition_s(smaller, s)
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
    savings = [
        use.words(before, after)
        for use in situation.memory_use
        if (after := plan.role(use.role)).memory_mib < (before := situation.plan.role(use.role)).memory_mib
    ]
    return " ".join(savings)

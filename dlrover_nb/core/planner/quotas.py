"""How much each of many jobs may plan with, when together they need more than there is (Eqs. 12-14).

Jobs in auto mode decide independently, each by its own fit. Where their best plans together exceed the
capacity, the first job to decide would take it all; so from time to time the best plans for all are chosen
together (`planner.cluster.select_plans`), and each job gets a quota: what its chosen plan needs, and an equal
share of the rest, so that it can still experiment. Only a job's own controller changes its plan; a quota only
limits what auto mode may take. Where all plans fit, there are no quotas. Where not even all running plans fit
(nodes were lost and wait, or leave gaps), no job may grow until the next check.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import CapacityError
from dlrover_nb.core.planner.cluster import select_plans
from dlrover_nb.core.structs.bounds import Quota

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.planner.cluster import JobBid
    from dlrover_nb.core.structs.capacity import Capacity
    from dlrover_nb.core.structs.resources import ResourcePlan

logger = logging.getLogger(__name__)

UNLIMITED = Quota()


def share(bids: Sequence[JobBid], room: Capacity) -> dict[str, Quota]:
    """Return the quota of each bidding job.

    Parameters
    ----------
    room
        What the bidding jobs hold now, and what is free.
    """
    if _all_fit(bids, room):
        return {bid.name: UNLIMITED for bid in bids}
    try:
        plans = select_plans(bids, room).plans
    except CapacityError as error:
        logger.info("no job of %d may grow: %s", len(bids), error)
        return {bid.name: _quota(bid.current.plan, 0.0, 0.0) for bid in bids}
    chosen = {bid.name: plans[bid.name] or bid.current.plan for bid in bids}
    spare_cpu = (room.total_cpu - sum(p.total_cpu for p in chosen.values())) / len(bids)
    spare_mib = (room.total_memory_mib - sum(p.total_memory_mib for p in chosen.values())) / len(bids)
    return {name: _quota(plan, max(spare_cpu, 0.0), max(spare_mib, 0.0)) for name, plan in chosen.items()}


def _quota(plan: ResourcePlan, spare_cpu: float, spare_mib: float) -> Quota:
    return Quota(round(plan.total_cpu + spare_cpu, 2), int(plan.total_memory_mib + spare_mib))


def _all_fit(bids: Sequence[JobBid], room: Capacity) -> bool:
    """Whether the largest plans of all bidding jobs fit together."""
    wishes = [[c.plan for c in (bid.current, *bid.candidates)] for bid in bids]
    cpu = sum(max(plan.total_cpu for plan in own) for own in wishes)
    mib = sum(max(plan.total_memory_mib for plan in own) for own in wishes)
    return cpu <= room.total_cpu and mib <= room.total_memory_mib

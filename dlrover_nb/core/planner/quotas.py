"""How much each of many jobs may plan with, when all of them want more than there is (Eqs. 12-14).

Jobs in auto mode decide for themselves, each by its own fit. Where their wishes together exceed the room,
whoever asks first would take it all; so from time to time the best plans for all are chosen together
(`planner.cluster.select_plans`), and each job is told a quota: what its chosen plan needs, and an equal
share of what is left over, so that it can still try things out. The controller stays the only one who
changes its job's plan; a quota only narrows what auto mode may take. Where all wishes fit, there are none.
Where not even all that runs finds a place (nodes were lost and wait, or leave gaps), nobody may grow until
the next look.
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
        What the bidders hold now, and what is free.
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
    """Whether every bidder could have the largest of its wishes at once."""
    wishes = [[c.plan for c in (bid.current, *bid.candidates)] for bid in bids]
    cpu = sum(max(plan.total_cpu for plan in own) for own in wishes)
    mib = sum(max(plan.total_memory_mib for plan in own) for own in wishes)
    return cpu <= room.total_cpu and mib <= room.total_memory_mib

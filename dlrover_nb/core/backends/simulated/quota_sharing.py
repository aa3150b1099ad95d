"""Divides the capacity of a simulated cluster among its jobs in auto mode, as long as nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.brain.cluster_plan import BrainSettings, plan_cluster
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.offers import JobOffer
from dlrover_nb.core.structs.views.events import QuotaChanged

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dlrover_nb.core.backends.simulated.simulated_job import SimulatedRun
    from dlrover_nb.core.simulator.world import SimulatedWorld
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

SHARE_S = 300.0  # of virtual time
PLENTY = 0.5  # of all cores: below this use, jobs do not compete


class QuotaSharing:
    """Makes quotas periodically.

    Parameters
    ----------
    world
        The simulated world.

    Attributes
    ----------
    is_planned_outside
        Whether another program plans for all jobs: then it makes none.
    """

    def __init__(self, world: SimulatedWorld) -> None:
        self._world, self._shared_s, self._is_shared = world, world.now_s, False
        self.is_planned_outside = False
        self._before: Mapping[str, ResourcePlan] = {}

    def quotas(self, runs: Collection[SimulatedRun]) -> tuple[tuple[str, QuotaChanged], ...]:
        """Return the quotas of jobs in auto mode, by name, when they are due."""
        at_s = self._world.now_s
        if self.is_planned_outside or at_s < self._shared_s + SHARE_S:
            return ()
        self._shared_s = at_s
        used, whole = self._world.cluster.used_cpu, self._world.cluster.capacity.total_cpu
        if used < PLENTY * whole and not self._is_shared:
            return ()
        offers = [offer for run in runs if isinstance(offer := run.offer(), JobOffer) and not offer.asks]
        if not offers:
            return ()
        room = self._world.room_for(offer.job for offer in offers)
        cluster_plan = plan_cluster(offers, room, BrainSettings(), self._before)
        self._before = {job: share.plan for job, share in cluster_plan.shares.items()}
        self._is_shared = any(share.quota != Quota() for share in cluster_plan.shares.values())
        return tuple(
            (job, QuotaChanged(at_s, share.quota, share.why)) for job, share in cluster_plan.shares.items()
        )

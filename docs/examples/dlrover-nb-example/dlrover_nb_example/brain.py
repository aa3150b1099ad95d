"""What a brain may be given: an order of the queue, a weight of jobs' gains, and a method of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.brain.shares import ClusterPlan, Share
from dlrover_nb.core.structs.plan.bounds import Quota

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.brain.cluster_plan import BrainSettings
    from dlrover_nb.core.brain.queue_order import QueueState
    from dlrover_nb.core.greedy import Bids
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.offers import JobOffer
    from dlrover_nb.core.structs.plan.queued_jobs import WaitingOffer
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


def smallest_first(job: WaitingOffer, state: QueueState) -> float:
    """Rank a waiting job by the share of the cluster that it asks for; the lowest is next."""
    return state.dominant_share(job)


def samples_left(bids: Bids, capacity: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weight of each candidate: the more rows its job has left, the more it counts."""
    return np.asarray(1.0 + bids.samples_left[bids.job])


def equal_cores(
    offers: Sequence[JobOffer], room: Capacity, settings: BrainSettings, before: Mapping[str, ResourcePlan]
) -> ClusterPlan:
    """Let every job use an equal part of the cores; its own policy plans within it."""
    cores = room.total_cpu / len(offers)
    why = f"Each job may use {cores:g} cores."
    quotas = {offer.job: Quota(cpu=max(cores, offer.plan.total_cpu)) for offer in offers}
    return ClusterPlan({offer.job: Share(offer.plan, quotas[offer.job], why) for offer in offers})

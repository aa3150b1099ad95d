"""In which order jobs of the queue start, as functions of one signature.

An order returns a rank for each waiting job, the lowest first; the longer wait decides between equal ones.
`fair share` depends on who holds what, so the rest of a queue is ranked anew after each admission.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from dlrover_nb.core import extensions
from dlrover_nb.core.structs.job.tuning import ClusterLoads

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.queued_jobs import WaitingOffer

SIZE_WEIGHT = 0.5  # of a job that takes the whole cluster, where 1 is the urgency of one with no time to lose
LEAST_S = 1.0  # a deadline that has passed is as urgent as one within this time


@dataclass(frozen=True, slots=True)
class QueueState:
    """What a rank may depend on beside the job.

    Parameters
    ----------
    whole
        All machines, as if empty.
    used
        Share of the cores, or of the memory if that is more, that jobs hold: 0 to 1.
    owner_share
        The dominant share of the cluster that each owner holds.
    loads
        Used shares of a cluster under light and under heavy load (Qore-DL's theta 1, 3).
    """

    whole: Capacity
    used: float
    owner_share: Mapping[str, float]
    loads: ClusterLoads = field(default_factory=ClusterLoads)

    def dominant_share(self, job: WaitingOffer) -> float:
        """Return the share of the cluster that a job asks for."""
        return share_of(job.plan.total_cpu, job.plan.total_memory_mib, self.whole)


Rank = Callable[["WaitingOffer", QueueState], float]


def share_of(cpu: float, memory_mib: float, whole: Capacity) -> float:
    """Return the larger of the shares of cores and memory (DRF's dominant share)."""
    return max(cpu / max(whole.total_cpu, 1e-9), memory_mib / max(whole.total_memory_mib, 1))


def _first_come(job: WaitingOffer, state: QueueState) -> float:
    del state
    return job.since_s


def _shortest(job: WaitingOffer, state: QueueState) -> float:
    """Rank by predicted seconds; jobs of unknown length come last."""
    del state
    return math.inf if job.lasts_s is None else job.lasts_s


def _priority(job: WaitingOffer, state: QueueState) -> float:
    del state
    return -job.priority


def _fair_share(job: WaitingOffer, state: QueueState) -> float:
    return state.owner_share.get(job.owner, 0.0)


def _qore(job: WaitingOffer, state: QueueState) -> float:
    """Rank by urgency and size, by the two principles of Qore-DL's scheduler; its Eq. 8 is not public.

    Urgency is the share of the time to the deadline that the job would train: 1 where no length is known, 0
    without a deadline. Large jobs come first under light load, small ones under heavy load, and between both
    size counts less. It counts less than urgency: a deadline is a promise, the order of sizes is packing.
    """
    urgency = 0.0
    if job.deadline_left_s is not None:
        lasts_s = math.inf if job.lasts_s is None else job.lasts_s
        urgency = min(lasts_s / max(job.deadline_left_s, LEAST_S), 1.0)
    size = min(state.dominant_share(job), 1.0)
    light, heavy = state.loads.light, state.loads.heavy
    heaviness = min(max((state.used - light) / (heavy - light), 0.0), 1.0)
    return -(urgency + SIZE_WEIGHT * (1 - 2 * heaviness) * size)


ORDERS: Mapping[str, Rank] = MappingProxyType(
    {
        "first come": _first_come,
        "shortest": _shortest,
        "priority": _priority,
        "fair share": _fair_share,
        "qore": _qore,
    }
)


@cache
def order_of(name: str) -> Rank:
    """Return an order by its name, ours or one that an installed package adds.

    Raises
    ------
    InvalidValueError
        When there is none, with the nearest name, or the package that adds it is broken.
    """
    return extensions.find_function(extensions.QUEUE_ORDERS, name, ORDERS)


def first_of(waiting: Sequence[WaitingOffer], order: str, state: QueueState) -> WaitingOffer:
    """Return which of some waiting jobs is next, by an order's name."""
    rank = order_of(order)
    return min(waiting, key=lambda job: (rank(job, state), job.since_s, job.job))

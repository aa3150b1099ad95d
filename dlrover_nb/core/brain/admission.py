"""Which jobs of the queue start now, and when the others do by prediction.

Jobs start in the order of the queue (`queue_order`), each on the largest plan within its bounds that fits now
and has at least a part of the cores that it asks for. The first that finds no room holds up the others: no
running job may grow into what is free, so that it does not starve. A later one may start before it only if,
by prediction, it ends before the first one could start (backfilling, as batch schedulers do it).

Starts are predicted by sums of cores and memory, from the ends of running jobs at their present speeds. What
depends on a job whose end is not known is not guessed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.brain.queue_order import QueueState, first_of, share_of
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.planner.availability.waiting import free_of, largest_fitting
from dlrover_nb.core.structs.cluster.waits import Holder
from dlrover_nb.core.structs.job.tuning import ClusterLoads
from dlrover_nb.core.structs.plan.capacity import without
from dlrover_nb.core.structs.plan.deadline import span_words
from dlrover_nb.core.structs.plan.queued_jobs import QueuePlace, WaitingOffer
from dlrover_nb.core.structs.plan.resources import CPU_STEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import Need, ResourcePlan

MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class AdmissionPlan:
    """What the queue gets.

    Parameters
    ----------
    admitted
        The plan with which each job starts now.
    places
        Where each of the others stands.
    first
        The first of those; None: no job waits.
    why
        Why each admitted job starts now, and on that plan.
    needs
        What the nodes of all admitted jobs take.
    """

    admitted: Mapping[str, ResourcePlan] = field(default_factory=dict)
    places: Mapping[str, QueuePlace] = field(default_factory=dict)
    first: WaitingOffer | None = None
    why: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()


@dataclass(slots=True)
class _Room:
    """What is free, and who holds the rest until when."""

    whole: Capacity
    free: Capacity
    holders: list[Holder]
    loads: ClusterLoads

    def take(self, job: WaitingOffer, plan: ResourcePlan) -> None:
        self.free = free_of(self.free, job.needs(plan))
        self.holders.append(_holder(job, plan))

    @property
    def state(self) -> QueueState:
        shares: dict[str, tuple[float, float]] = {}
        for each in self.holders:
            cpu, mib = shares.get(each.owner, (0.0, 0.0))
            shares[each.owner] = (cpu + each.cpu, mib + each.memory_mib)
        used_cpu = self.whole.total_cpu - self.free.total_cpu
        used_mib = self.whole.total_memory_mib - self.free.total_memory_mib
        used = share_of(used_cpu, used_mib, self.whole)
        shares_of = {owner: share_of(*sums, self.whole) for owner, sums in shares.items()}
        return QueueState(self.whole, used, shares_of, self.loads)


def admit(  # noqa: PLR0913 - what is there, and the settings by keyword
    waiting: Sequence[WaitingOffer],
    whole: Capacity,
    free: Capacity,
    holders: Iterable[Holder],
    *,
    order: str,
    least_share: float,
    loads: ClusterLoads | None = None,
) -> AdmissionPlan:
    """Decide who starts.

    Parameters
    ----------
    waiting
        Of different jobs.
    whole, free
        All machines as if empty, and what no job holds.
    holders
        Jobs that hold something, with the seconds until their ends.
    order
        One of `queue_order.ORDERS`.
    least_share
        Of the cores that a job asks for, with which it may start.
    loads
        From which utilisation on the cluster is loaded; None: as in the paper.
    """
    room = _Room(whole, free, list(holders), loads or ClusterLoads())
    left, behind = list(waiting), list[WaitingOffer]()
    admitted: dict[str, ResourcePlan] = {}
    why: dict[str, str] = {}
    needs: list[Need] = []
    starts_in_s: float | None = 0.0  # of the first that waits
    while left:
        job = first_of(left, order, room.state)
        left.remove(job)
        plan = start_plan(job, room.free, least_share)
        if plan is None or (behind and not _ends_before(job, plan, starts_in_s)):
            if not behind:
                starts_in_s = _starts([job], room, least_share)[0][0]
            behind.append(job)
            continue
        admitted[job.job] = plan
        why[job.job] = _why(job, plan, order, behind)
        needs += job.needs(plan)
        room.take(job, plan)
    places, first = _places(behind, room, least_share), behind[0] if behind else None
    return AdmissionPlan(admitted, places, first, why, tuple(needs))


def start_plan(job: WaitingOffer, free: Capacity, least_share: float) -> ResourcePlan | None:
    """Return the plan on which a job can start in what is free; None: there is none that is large enough."""
    left = without(free, job.beside_needs)
    if left is None or not left.shapes:
        return None
    try:
        plan = largest_fitting(job.plan, left, job.bounds, job.pins)
    except InvalidValueError:  # no bounds follow from so little
        return None
    least = least_share * job.plan.total_cpu
    return plan if plan is not None and plan.total_cpu >= least - CPU_STEP / 2 else None


def least_of(job: WaitingOffer, least_share: float) -> tuple[float, float]:
    """Return about how many cores and MiB a job needs to start."""
    cpu, mib = _beside(job)
    return job.plan.total_cpu * least_share + cpu, job.plan.total_memory_mib * least_share + mib


def _beside(job: WaitingOffer) -> tuple[float, int]:
    return sum(cpu for cpu, _ in job.beside), sum(mib for _, mib in job.beside)


def _ends_before(job: WaitingOffer, plan: ResourcePlan, start_s: float | None) -> bool:
    """Whether a job ends before the first one of the queue could start, both by prediction."""
    left_s = _holder(job, plan).left_s
    return start_s is not None and left_s is not None and left_s <= start_s


def _holder(job: WaitingOffer, plan: ResourcePlan) -> Holder:
    """Return a job as one that runs a plan; on fewer cores it takes longer in proportion."""
    slower = job.plan.total_cpu / max(plan.total_cpu, CPU_STEP)
    left_s = None if job.lasts_s is None else job.lasts_s * max(slower, 1.0)
    cpu, mib = _beside(job)
    return Holder(job.job, job.owner, plan.total_cpu + cpu, plan.total_memory_mib + mib, left_s)


def _why(job: WaitingOffer, plan: ResourcePlan, order: str, before: Sequence[WaitingOffer]) -> str:
    reason = f"it is next by the order {order!r}"
    if before:
        reason = f"it should end before {before[0].job}, which is next in the queue, can start"
    if plan == job.plan:
        return reason
    return f"{reason}; it starts smaller than the {job.plan.short} that it asks for"


# predictions


def _places(behind: Sequence[WaitingOffer], room: _Room, least_share: float) -> dict[str, QueuePlace]:
    starts = _starts(behind, room, least_share)
    return {
        job.job: QueuePlace(i + 1, len(behind), _waits_for(job, room, least_share, words), in_s)
        for i, (job, (in_s, words)) in enumerate(zip(behind, starts, strict=True))
    }


def _waits_for(job: WaitingOffer, room: _Room, least_share: float, start: str) -> str:
    cpu, mib = least_of(job, least_share)
    free = f"{room.free.total_cpu:g} cores and {room.free.total_memory_mib} MiB are free"
    return f"it needs at least {cpu:g} cores and {mib:.0f} MiB to start, and {free}; {start}"


def _starts(
    behind: Sequence[WaitingOffer], room: _Room, least_share: float
) -> list[tuple[float | None, str]]:
    """Return for each waiting job, in their order, when it starts, and the words for it."""
    cpu, mib = room.free.total_cpu, float(room.free.total_memory_mib)
    ends = sorted((h for h in room.holders if h.left_s is not None), key=lambda h: h.left_s or 0.0)
    unknown = [h.job for h in room.holders if h.left_s is None]
    starts: list[tuple[float | None, str]] = []
    now_s = 0.0
    for job in behind:
        need_cpu, need_mib = least_of(job, least_share)
        waited_for = []
        while (cpu < need_cpu - CPU_STEP / 2 or mib < need_mib) and ends:
            end = ends.pop(0)
            now_s = max(now_s, end.left_s or 0.0)
            cpu, mib = cpu + end.cpu, mib + end.memory_mib
            waited_for.append(end.job)
        if cpu < need_cpu - CPU_STEP / 2 or mib < need_mib:
            return starts + [(None, _never(unknown))] * (len(behind) - len(starts))
        starts.append((now_s, _in_words(now_s, waited_for)))
        own = _holder(job, job.plan)
        own = replace(own, cpu=min(own.cpu, cpu), memory_mib=int(min(own.memory_mib, mib)))
        cpu, mib = cpu - own.cpu, mib - own.memory_mib
        if own.left_s is None:
            unknown.append(job.job)
        else:
            ends.append(replace(own, left_s=now_s + own.left_s))
            ends.sort(key=lambda h: h.left_s or 0.0)
    return starts


def _never(unknown: Sequence[str]) -> str:
    if not unknown:
        return "it would not fit even if all jobs ended: it needs more machines or a smaller plan"
    named = and_list(unknown, most=MOST_NAMED)
    return f"we cannot say when it starts, because we do not know when {named} will end"


def _in_words(in_s: float, ended: Sequence[str]) -> str:
    after = ""
    if ended:
        named = and_list(ended, most=MOST_NAMED)
        after = f", after {named}"
    if in_s <= 0:
        return f"it starts once each of its nodes fits on a machine, and jobs before it have started{after}"
    return f"it starts in about {span_words(math.ceil(in_s))}{after}"

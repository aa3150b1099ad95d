"""Which running jobs give up cores, so that the first of the queue can start.

Nothing is stopped: a job in auto mode goes to a smaller plan of those that it offers, and a job whose
deadline that would break to none. Least time is lost: the choice is the one job whose smaller plan makes room
and delays it least; where none does alone, jobs give way one after the other, the fewest seconds of delay for
each core first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.brain.admission import start_plan
from dlrover_nb.core.brain.offer_columns import columns_of
from dlrover_nb.core.brain.shares import ClusterPlan, Share, quota_of
from dlrover_nb.core.planner.availability.waiting import free_of
from dlrover_nb.core.structs.plan.capacity import plan_needs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.offers import JobOffer
    from dlrover_nb.core.structs.plan.queued_jobs import WaitingOffer
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


@dataclass(frozen=True, slots=True)
class _Step:
    """A smaller plan of a job, with the seconds that it delays its end, and the cores that it frees."""

    job: str
    plan: ResourcePlan
    delay_s: float
    cpu: float


def make_room(
    first: WaitingOffer, offers: Sequence[JobOffer], room: Capacity, least_share: float
) -> ClusterPlan | None:
    """Return what each job may plan with, so that the first of the queue finds room; None: nothing helps.

    Parameters
    ----------
    room
        What these running jobs hold, and what is free.
    least_share
        Of the cores that a waiting job asks for, with which it may start.
    """
    running = {offer.job: offer.plan for offer in offers}

    def helps(chosen: Mapping[str, ResourcePlan]) -> bool:
        needs = [need for plan in (running | dict(chosen)).values() for need in plan_needs(plan)]
        return start_plan(first, free_of(room, needs), least_share) is not None

    steps = list(_steps(offers))
    for step in sorted(steps, key=lambda s: (s.delay_s, s.cpu)):
        if helps({step.job: step.plan}):
            return _plan(first, offers, {step.job: step.plan})
    chosen: dict[str, ResourcePlan] = {}
    for step in sorted(steps, key=lambda s: (s.delay_s / s.cpu, s.job)):
        if step.cpu > running[step.job].total_cpu - chosen.get(step.job, running[step.job]).total_cpu:
            chosen[step.job] = step.plan
            if helps(chosen):
                return _plan(first, offers, chosen)
    return None


def _steps(offers: Sequence[JobOffer]) -> Iterator[_Step]:
    """Yield all smaller plans of jobs, but none that misses a deadline which the present one meets."""
    columns = columns_of(offers, {})
    bids = columns.bids
    for i, offer in enumerate(offers):
        now_s = offer.n_sample_left / offer.samples_per_s
        left_s = offer.deadline_left_s
        for at in range(bids.offsets[i], bids.offsets[i + 1]):
            plan, then_s = columns.plan(i, int(at - bids.offsets[i])), float(bids.remaining_s[at])
            misses = left_s is not None and now_s <= left_s < then_s
            freed = offer.plan.total_cpu - plan.total_cpu
            if freed > 0 and plan.total_memory_mib <= offer.plan.total_memory_mib and not misses:
                yield _Step(offer.job, plan, max(then_s - now_s, 0.0), freed)


def _plan(first: WaitingOffer, offers: Sequence[JobOffer], chosen: Mapping[str, ResourcePlan]) -> ClusterPlan:
    reason = f"{first.job} is next in the queue, so the free cores are reserved for it."

    def share(offer: JobOffer) -> Share:
        plan = chosen.get(offer.job)
        if plan is None:
            return Share(offer.plan, quota_of(offer.plan), reason)
        cores = offer.plan.total_cpu - plan.total_cpu
        why = f"{first.job} is next in the queue and starts on {cores:g} of this job's cores."
        return Share(plan, replace(quota_of(plan), binds=True), why)

    return ClusterPlan({offer.job: share(offer) for offer in offers})

"""One round of the brain: ask each master what its job could use, choose for all, hand out quotas.

Jobs of the queue come first: what is free goes to them, in their order, before running jobs may grow.

A master that does not answer, or of a release without these calls, takes no part: what it holds is not free
(`holdings`), and it goes on as it is. An offer whose numbers cannot be is left out in the same way.
Allotments are handed out in every round, changed or not, since they hold for a time only.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.core.brain.admission import AdmissionPlan, admit
from dlrover_nb.core.brain.cluster_plan import before_queue, plan_cluster
from dlrover_nb.core.brain.holdings import Holdings
from dlrover_nb.core.brain.make_room import make_room
from dlrover_nb.core.brain.offer_columns import check
from dlrover_nb.core.brain.shares import unchanged
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.planner.availability.waiting import free_of, needs_of
from dlrover_nb.core.structs.cluster.waits import Holder
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.capacity import plan_needs
from dlrover_nb.core.structs.plan.offers import Allotment, JobOffer, NoOffer
from dlrover_nb.core.structs.plan.queued_jobs import QueuePlace, WaitingOffer
from dlrover_nb.core.structs.plan.resources import total_need
from dlrover_nb.core.structs.views.brain import BrainRound, Holding, JobShare, QueuedJob

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from dlrover_nb.core.brain.cluster_plan import BrainSettings
    from dlrover_nb.core.brain.shares import ClusterPlan
    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.client.link.protocols import MasterLink
    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import Need, ResourcePlan
    from dlrover_nb.core.structs.views.summary import JobSummary

logger = logging.getLogger(__name__)

T = TypeVar("T")

N_AT_ONCE = 32  # masters that are asked at the same time
AWAY = "its master does not answer, so we leave its cores and memory to it"
_COMING = frozenset({JobPhase.STARTING, JobPhase.RESCALING})
_ASKED = frozenset({JobPhase.TRAINING, JobPhase.STARTING})  # a job in the queue is starting


@dataclass(frozen=True, slots=True)
class Term:
    """Who plans, and in which term of its lease; `may_act`: whether it holds the lease still."""

    by: str
    number: int
    may_act: Callable[[], bool]


class Rounds:
    """Plans for the jobs of one cluster.

    Parameters
    ----------
    cluster, name
        The cluster, and what it is called.
    settings
        How plans are chosen.
    lasts_s
        How long an allotment holds without another.
    clock
        The time.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        settings: BrainSettings,
        *,
        lasts_s: float,
        clock: Clock,
    ) -> None:
        self._cluster, self._name, self._settings = cluster, name, settings
        self._lasts_s, self._clock = lasts_s, clock
        self._links: dict[tuple[str, float], MasterLink] = {}  # by job and its start
        self._before: Mapping[str, ResourcePlan] = {}
        self._in_queue: frozenset[tuple[str, float]] = frozenset()  # who waited after the last round
        self._number = 0
        self._holdings = Holdings(lasts_s)

    def adopt(self, holdings: Iterable[Holding]) -> None:
        """Note what jobs held by the last round of another brain."""
        self._holdings.adopt(holdings)

    def run(self, term: Term) -> BrainRound:
        """Ask, choose, hand out; return what was decided.

        Raises
        ------
        BackendError
            When the cluster does not answer.
        """
        began_s = time.monotonic()
        answered = self._cluster.live_jobs()
        live = [job for job in answered if not job.phase.is_final]
        away = self._holdings.away(answered, self._cluster.jobs, began_s)
        offers, waiting, apart = self._offers(live)
        others = [job for job in live if job.name not in offers and job.name not in waiting]
        capacity = self._cluster.capacity()
        apart |= {each.job: AWAY for each in away}
        needs_of = {job.name: self._held(job) for job in others}
        needs_of |= {each.job: plan_needs(each.plan) for each in away}
        beside = [need for offer in offers.values() for need in offer.beside_needs]  # in any plan
        room = free_of(capacity, [*beside, *(need for needs in needs_of.values() for need in needs)])
        holders = [_holder(offer) for offer in offers.values()]
        sums = {name: total_need(needs)[:2] for name, needs in needs_of.items()}
        holders += [Holder(job.name, job.owner, *sums[job.name], job.left_s) for job in others]
        holders += [Holder(each.job, each.owner, *sums[each.job], None) for each in away]
        queue = self._admission(waiting, offers, holders, capacity, room)
        plan = self._planned(tuple(offers.values()), room, queue)
        self._remember(plan, {job.name for job in live} | {each.job for each in away})
        self._holdings.remember((*away, *self._holding(live, plan, queue, needs_of)))
        self._in_queue = frozenset(_key(job) for job in live if job.name in queue.places)
        refused = self._hand_out(self._allotments(plan, queue, term), term)
        self._number += 1
        shares = tuple(
            JobShare(name, offer.owner, offer.plan, own.plan, own.quota, own.why, refused.get(name, ""))
            for name, offer in offers.items()
            for own in (plan.shares[name],)
        )
        took_s = time.monotonic() - began_s
        return BrainRound(
            self._name,
            term.by,
            term.number,
            self._number,
            self._clock.now_s(),
            shares,
            tuple(sorted(apart.items())),
            plan.note,
            plan.is_kept,
            round(took_s, 4),
            _queued(waiting, queue, refused),
            self._holdings.all,
        )

    def _admission(
        self,
        waiting: Mapping[str, WaitingOffer],
        offers: Mapping[str, JobOffer],
        holders: Iterable[Holder],
        capacity: Capacity,
        room: Capacity,
    ) -> AdmissionPlan:
        """Decide who of the queue starts in what no job holds."""
        if not waiting:
            return AdmissionPlan()
        free = free_of(room, [need for offer in offers.values() for need in plan_needs(offer.plan)])
        return admit(
            tuple(waiting.values()),
            capacity,
            free,
            holders,
            order=self._settings.order,
            least_share=self._settings.start_share,
            loads=self._settings.tuning.qore,
        )

    def _held(self, job: JobSummary) -> list[Need]:
        """Return what a job holds, or takes at once: the plan that it runs, though nodes of it are missing.

        Those that were lost come again, and those of a restarted master connect again. One that changes its
        plan takes what it was given. One that waited in the queue holds nothing, though its master may not
        answer at the moment.
        """
        if job.phase is JobPhase.STARTING and _key(job) in self._in_queue:
            return []
        plan = self._plan_of(job)
        return max(needs_of(job), [] if plan is None else plan_needs(plan), key=total_need)

    def _plan_of(self, job: JobSummary) -> ResourcePlan | None:
        """Return the plan that a job runs, or the larger one that it changes to."""
        given = self._holdings.plan_of(job) if job.phase in _COMING else None
        plans = [plan for plan in (job.plan, given) if plan is not None]
        return max(plans, key=_size, default=None)

    def _holding(
        self,
        live: Iterable[JobSummary],
        plan: ClusterPlan,
        queue: AdmissionPlan,
        needs_of: Mapping[str, Sequence[Need]],
    ) -> Iterator[Holding]:
        """Yield what each of the jobs holds, or may take by this round."""
        for job in live:
            given = queue.admitted.get(job.name)
            if (share := plan.shares.get(job.name)) is not None:
                given = max(share.plan, job.plan or share.plan, key=_size)
            elif needs_of.get(job.name):
                given = self._plan_of(job)
            if given is not None:
                yield Holding(job.name, job.owner, job.started_at_s, given)

    def _planned(self, offers: tuple[JobOffer, ...], room: Capacity, queue: AdmissionPlan) -> ClusterPlan:
        """Plan for the running jobs beside the queue: a job that waits in it comes before their growth.

        Late jobs may come before it, by the method (`cluster_plan.before_queue`).
        """
        room = free_of(room, queue.needs)
        if queue.first is None:
            return self._beside(offers, room)
        sure = tuple(offer for offer in offers if not offer.asks)
        urgent = before_queue(sure, room_beside(offers, sure, room), self._settings)
        if urgent is not None:
            asking = [offer for offer in offers if offer.asks]
            rest = unchanged(asking, why="Jobs that would miss their deadlines come first.")
            return replace(urgent, shares={**urgent.shares, **rest.shares})
        why = f"{queue.first.job} is next in the queue, so the free cores are reserved for it."
        if not self._settings.shrink:
            return unchanged(offers, why=why)
        for some in (sure, offers):  # who only proposes to a user may not give way
            shrunk = make_room(queue.first, some, room_beside(offers, some, room), self._settings.start_share)
            if shrunk is not None:
                rest = unchanged([offer for offer in offers if offer.job not in shrunk.shares], why=why)
                return replace(shrunk, shares={**shrunk.shares, **rest.shares})
        return unchanged(offers, why=why)

    def _beside(self, offers: Sequence[JobOffer], room: Capacity) -> ClusterPlan:
        """Plan for the jobs in auto mode, then for those that propose to a user in what they leave.

        Room that a user may never accept would be withheld from jobs that would use it.
        """
        sure = [offer for offer in offers if not offer.asks]
        asking = [offer for offer in offers if offer.asks]
        for_auto = plan_cluster(sure, room_beside(offers, sure, room), self._settings, self._before)
        if not asking:
            return for_auto
        left = free_of(room, [need for share in for_auto.shares.values() for need in plan_needs(share.plan)])
        for_asking = plan_cluster(asking, left, self._settings, self._before)
        return replace(
            for_auto, shares={**for_auto.shares, **for_asking.shares}, note=for_auto.note or for_asking.note
        )

    def _remember(self, plan: ClusterPlan, live: Collection[str]) -> None:
        """Remember what jobs are meant to have, also of those that take no part for the moment."""
        apart = {job: meant for job, meant in self._before.items() if job in live}
        self._before = apart | {job: share.plan for job, share in plan.shares.items()}

    def _offers(
        self, live: Iterable[JobSummary]
    ) -> tuple[dict[str, JobOffer], dict[str, WaitingOffer], dict[str, str]]:
        """Return what running jobs and those in the queue offer, by job, and why others take no part."""
        jobs = [job for job in live if job.phase in _ASKED]
        apart = {job.name: f"it is {job.phase}" for job in live if job.phase is not JobPhase.TRAINING}
        self._links = {key: link for key, link in self._links.items() if key in {_key(job) for job in jobs}}
        offers: dict[str, JobOffer] = {}
        waiting: dict[str, WaitingOffer] = {}
        for job, answer in zip(jobs, _at_once(self._offer, jobs), strict=True):
            if isinstance(answer, JobOffer):
                offers[job.name] = answer
            elif isinstance(answer, WaitingOffer):
                waiting[job.name] = answer
                apart.pop(job.name, None)
            elif job.phase is JobPhase.TRAINING:
                apart[job.name] = answer
        return offers, waiting, apart

    def _offer(self, job: JobSummary) -> JobOffer | WaitingOffer | str:
        try:
            answer = self._link(job).offer()
            if isinstance(answer, NoOffer):
                return answer.why
            if isinstance(answer, JobOffer):
                check(answer)
        except DlroverError as error:
            return f"its master gave no usable answer: {error.text}"
        return replace(answer, job=job.name)  # it may name no other

    def _link(self, job: JobSummary) -> MasterLink:
        link = self._links.get(_key(job))
        if link is None:
            link = self._links[_key(job)] = self._cluster.job(job.name).with_short_timeout.link
        return link

    def _allotments(self, plan: ClusterPlan, queue: AdmissionPlan, term: Term) -> dict[str, Allotment]:
        """Return what each job is told."""
        usual = Allotment(by=term.by, term=term.number, lasts_s=self._lasts_s)
        allotments = {
            job: replace(usual, quota=share.quota, why=share.why) for job, share in plan.shares.items()
        }
        allotments |= {
            job: replace(usual, admit=start, why=queue.why[job]) for job, start in queue.admitted.items()
        }
        return allotments | {job: replace(usual, queue=place) for job, place in queue.places.items()}

    def _hand_out(self, allotments: Mapping[str, Allotment], term: Term) -> dict[str, str]:
        """Tell the masters; return why they refused."""
        links = {name: link for (name, _), link in self._links.items()}

        def hand(name: str) -> str:
            if not term.may_act():
                return "another brain has taken over"
            try:
                links[name].allot(allotments[name])
            except DlroverError as error:
                return error.text
            return ""

        names = list(allotments)
        return {name: why for name, why in zip(names, _at_once(hand, names), strict=True) if why}


def room_beside(offers: Sequence[JobOffer], some: Sequence[JobOffer], room: Capacity) -> Capacity:
    """Return what some of the running jobs hold, and what is free."""
    named = {offer.job for offer in some}
    others = [offer for offer in offers if offer.job not in named]
    return free_of(room, [need for offer in others for need in plan_needs(offer.plan)])


def _size(plan: ResourcePlan) -> tuple[float, int]:
    return plan.total_cpu, plan.total_memory_mib


def _holder(offer: JobOffer) -> Holder:
    cpu, mib, _ = total_need([*plan_needs(offer.plan), *offer.beside_needs])
    return Holder(offer.job, offer.owner, cpu, mib, offer.n_sample_left / offer.samples_per_s)


def _queued(
    waiting: Mapping[str, WaitingOffer], queue: AdmissionPlan, refused: Mapping[str, str]
) -> tuple[QueuedJob, ...]:
    """Return the queue as it is kept: who starts, then the others in their order."""
    order = (*queue.admitted, *sorted(queue.places, key=lambda job: queue.places[job].place))
    return tuple(
        QueuedJob(
            job,
            waiting[job].owner,
            waiting[job].plan,
            queue.admitted.get(job),
            queue.places.get(job, QueuePlace(why=queue.why.get(job, ""))),
            refused.get(job, ""),
        )
        for job in order
    )


def _key(job: JobSummary) -> tuple[str, float]:
    return job.name, job.started_at_s


def _at_once(call: Callable[[T], object], items: list[T]) -> list:  # type: ignore[type-arg]
    """Return what a call returns for each item, some at the same time."""
    if len(items) < 2:
        return [call(each) for each in items]
    with ThreadPoolExecutor(min(N_AT_ONCE, len(items))) as pool:
        return list(pool.map(call, items))

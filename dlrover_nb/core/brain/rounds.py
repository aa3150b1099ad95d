"""One round of the brain: ask each master what its job could use, choose for all, hand out quotas.

A master that does not answer, or of a release without these calls, takes no part: what it holds is not free,
and it goes on as it is. An offer whose numbers cannot be is left out in the same way. Allotments are handed
out in every round, changed or not, since they hold for a time only.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from dlrover_nb.core.brain.cluster_plan import plan_cluster
from dlrover_nb.core.brain.offer_columns import check
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.planner.waiting import free_of, needs_of
from dlrover_nb.core.structs.brain import BrainRound, JobShare
from dlrover_nb.core.structs.job import JobPhase
from dlrover_nb.core.structs.offers import Allotment, JobOffer, NoOffer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from dlrover_nb.core.brain.cluster_plan import BrainSettings, ClusterPlan
    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.client.master_link import MasterLink
    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.structs.resources import ResourcePlan
    from dlrover_nb.core.structs.summary import JobSummary

logger = logging.getLogger(__name__)

T = TypeVar("T")

N_AT_ONCE = 32  # masters that are asked at the same time


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
        self._number = 0

    def run(self, term: Term) -> BrainRound:
        """Ask, choose, hand out; return what was decided.

        Raises
        ------
        BackendError
            When the cluster does not answer.
        """
        began_s = time.monotonic()
        live = [job for job in self._cluster.live_jobs() if not job.phase.is_final]
        offers, apart = self._offers(live)
        others = [job for job in live if job.name not in offers]
        room = free_of(self._cluster.capacity(), [need for job in others for need in needs_of(job)])
        plan = plan_cluster(tuple(offers.values()), room, self._settings, self._before)
        self._remember(plan, {job.name for job in live})
        refused = self._hand_out(plan, term)
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
        )

    def _remember(self, plan: ClusterPlan, live: Collection[str]) -> None:
        """Remember what jobs are meant to have, also of those that take no part for the moment."""
        apart = {job: meant for job, meant in self._before.items() if job in live}
        self._before = apart | {job: share.plan for job, share in plan.shares.items()}

    def _offers(self, live: Iterable[JobSummary]) -> tuple[dict[str, JobOffer], dict[str, str]]:
        """Return the offers by job, and why others take no part."""
        jobs = [job for job in live if job.phase is JobPhase.TRAINING]
        apart = {job.name: f"it is {job.phase}" for job in live if job.phase is not JobPhase.TRAINING}
        self._links = {key: link for key, link in self._links.items() if key in {_key(job) for job in jobs}}
        offers: dict[str, JobOffer] = {}
        for job, answer in zip(jobs, _at_once(self._offer, jobs), strict=True):
            if isinstance(answer, JobOffer):
                offers[job.name] = answer
            else:
                apart[job.name] = answer
        return offers, apart

    def _offer(self, job: JobSummary) -> JobOffer | str:
        try:
            answer = self._link(job).offer()
            if isinstance(answer, NoOffer):
                return answer.why
            check(answer)
        except DlroverError as error:
            return f"its master takes no part: {error.text}"
        return replace(answer, job=job.name)  # it may name no other

    def _link(self, job: JobSummary) -> MasterLink:
        known = self._links.get(_key(job))
        if known is None:
            known = self._links[_key(job)] = self._cluster.job(job.name).with_short_timeout.link
        return known

    def _hand_out(self, plan: ClusterPlan, term: Term) -> dict[str, str]:
        """Hand out what jobs may plan with; return why masters refused."""
        links = {name: link for (name, _), link in self._links.items()}

        def hand(name: str) -> str:
            if not term.may_act():
                return "another planner has taken over"
            share = plan.shares[name]
            own = Allotment(share.quota, share.why, term.by, term.number, self._lasts_s)
            try:
                links[name].allot(own)
            except DlroverError as error:
                return error.text
            return ""

        names = list(plan.shares)
        return {name: why for name, why in zip(names, _at_once(hand, names), strict=True) if why}


def _key(job: JobSummary) -> tuple[str, float]:
    return job.name, job.started_at_s


def _at_once(call: Callable[[T], object], items: list[T]) -> list:  # type: ignore[type-arg]
    """Return what a call returns for each item, some at the same time."""
    if len(items) < 2:
        return [call(each) for each in items]
    with ThreadPoolExecutor(min(N_AT_ONCE, len(items))) as pool:
        return list(pool.map(call, items))

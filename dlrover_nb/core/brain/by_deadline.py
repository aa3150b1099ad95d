"""Who grows and who gives back by deadlines: the adjuster of Qore-DL for all jobs of a cluster.

Of each job its predicted run, at the speed that it reaches with the wanted probability, is compared with the
time until its deadline (O), and its speed with that of plans a little larger and smaller (S). Both, and the
weighted utilisation of the machines (U), choose the jobs by the paper's four cases (`deadline.adjuster`).

Sizes: each job offers at most 64 plans, so the fittest of them is found by looking at all; the genetic
algorithm stays with the job's own policy, which chooses among all plans within the quota
(`planner.policies.qore`). Rejected: the search here, over plans that the job did not offer, whose speed would
have to be guessed.

A late job grows into what is free now. What a job with slack gives back is free in a later round, once it has
moved; it gives back no more than late jobs lack, and never so much that it would be late itself. The paper
lets it give back whatever it can spare, which makes the next noise a miss.

Quotas lead (`Quota.leads`): a job's policy neither grows nor gives back beside what is decided here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.brain.machines import all_fit
from dlrover_nb.core.brain.offer_columns import columns_of
from dlrover_nb.core.brain.shares import ClusterPlan, Share, quota_of
from dlrover_nb.core.deadline.adjuster import (
    RunningJob,
    eagerness,
    fitness,
    sensitivity,
    targets,
    timeout_degree,
)
from dlrover_nb.core.deadline.utilisation import CPU_WEIGHT, host_load, utilisation
from dlrover_nb.core.structs.job.tuning import ClusterLoads
from dlrover_nb.core.structs.plan.capacity import plan_needs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.brain.offer_columns import OfferColumns
    from dlrover_nb.core.deadline.adjuster import Target
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.offers import JobOffer
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

    Array = NDArray[np.float64]

LEAST_TARGETS, TARGET_SHARE = 3, 0.25  # jobs that grow, or give back, in one round: so many, or of all jobs
SLACK = -0.2  # time-out degree from which on a job may give back
KEPT_SLACK = -0.1  # what it keeps of it


def adjusted(
    offers: Sequence[JobOffer],
    room: Capacity,
    *,
    shrink: bool,
    late_only: bool = False,
    loads: ClusterLoads | None = None,
) -> ClusterPlan:
    """Choose what each of some jobs may plan with.

    Parameters
    ----------
    offers
        Of different jobs; checked (`offer_columns.check`).
    room
        What these jobs hold now, and what is free.
    shrink
        Whether a job may be made slower for others.
    late_only
        Whether only late jobs may grow: the rest of what is free is for others.
    loads
        From which utilisation on the cluster is loaded; None: as in the paper.
    """
    return _Round(offers, room, loads or ClusterLoads(), shrink=shrink, late_only=late_only).plan()


def load_of(room: Capacity, plans: Sequence[ResourcePlan], cpu_weight: float = CPU_WEIGHT) -> float:
    """Return U of machines with the nodes of some plans on them (Eq. 1 of Qore-DL).

    Where nodes stand is not known here. They count as Qore-DL places them, each on the lightest machine,
    largest first: clusters that pack leave machines empty, by which U would be low until they are full.
    """
    shapes = [(s.cpu, float(s.memory_mib)) for s in room.shapes for _ in range(s.count)]
    if not shapes:
        return 1.0
    whole = np.array(shapes)
    used = np.zeros_like(whole)
    loads = np.zeros(len(whole))
    for need in sorted((need for plan in plans for need in plan_needs(plan)), reverse=True):
        lightest = int(np.argmin(loads))
        used[lightest] += need[:2]
        cpu, memory = np.minimum(used[lightest] / whole[lightest], 1.0).tolist()
        loads[lightest] = host_load(cpu, memory, cpu_weight)
    return utilisation(loads.tolist())


@dataclass(frozen=True, slots=True)
class _Plans:
    """The plans that a job offers: arrays of shape (n_plans,), and its O on each."""

    speed: Array
    cpu: Array
    memory_mib: Array
    timeout: Array


class _Round:
    """One choice for all jobs; keeps what is granted so far."""

    def __init__(
        self,
        offers: Sequence[JobOffer],
        room: Capacity,
        loads: ClusterLoads,
        *,
        shrink: bool,
        late_only: bool,
    ) -> None:
        self._loads = loads
        self._offers = {offer.job: offer for offer in offers}
        self._index = {offer.job: i for i, offer in enumerate(offers)}
        self._columns: OfferColumns = columns_of(offers, {})
        self._room, self._may_shrink, self._late_only = room, shrink, late_only
        self._chosen = np.full(len(offers), -1, dtype=np.intp)
        self._why: dict[str, str] = {}
        self._free_cpu = room.total_cpu - sum(offer.plan.total_cpu for offer in offers)
        self._free_mib: float = room.total_memory_mib - sum(offer.plan.total_memory_mib for offer in offers)
        self._late: set[str] = set()  # that grow
        self._lacks_cpu = 0.0  # cores that late jobs would take, were they free

    def plan(self) -> ClusterPlan:
        plans = [offer.plan for offer in self._offers.values()]
        load = load_of(self._room, plans, self._loads.cpu_weight)
        n = max(LEAST_TARGETS, math.ceil(TARGET_SHARE * len(self._offers)))
        ranked = targets([self._running(job) for job in self._offers], load, n=n, loads=self._loads)
        for target in ranked:
            if target.grows:
                self._grow(target)
        if self._may_shrink and not self._late_only:
            is_for_late = any(target.grows for target in ranked)
            for target in ranked:
                if not target.grows and (self._lacks_cpu > 0 or not is_for_late):
                    self._shrink(target)
        spare = self._spare()
        return ClusterPlan({job: self._share(job, spare) for job in self._offers})

    def _spare(self) -> tuple[float, int]:
        """Return the cores and MiB beyond its plan that each late job which grows may use.

        What is left is shared equally: the job's own policy sizes the change, among other plans than it
        offers, and takes no more than its deadline needs.
        """
        n = len(self._late)
        if not n:
            return 0.0, 0
        plans = [self._columns.plan(i, int(own)) for i, own in enumerate(self._chosen)]
        grown = [
            plan if plan.total_cpu > offer.plan.total_cpu else offer.plan
            for plan, offer in zip(plans, self._offers.values(), strict=True)
        ]
        cpu = self._room.total_cpu - sum(plan.total_cpu for plan in grown)
        mib = self._room.total_memory_mib - sum(plan.total_memory_mib for plan in grown)
        return max(cpu / n, 0.0), max(mib // n, 0)

    def _running(self, job: str) -> RunningJob:
        offer, plans = self._offers[job], self._plans(job)
        now = (offer.samples_per_s, offer.plan.total_cpu)
        gain, loss = sensitivity(plans.speed, plans.cpu, now=now, unit=offer.plan.worker.cpu)
        degree = _timeout(offer, offer.samples_per_s)
        return RunningJob(job, degree if degree > 0 or degree <= SLACK else 0.0, gain, loss)

    def _grow(self, target: Target) -> None:
        offer, plans = self._offers[target.name], self._plans(target.name)
        is_late = _timeout(offer, offer.samples_per_s) > 0
        if self._late_only and not is_late:
            return
        worth = np.array(
            [
                fitness(timeout, cpu / offer.plan.total_cpu, grows=True)
                if is_late
                else eagerness(speed / offer.samples_per_s, cpu / offer.plan.total_cpu)
                for speed, cpu, timeout in zip(plans.speed, plans.cpu, plans.timeout, strict=True)
            ]
        )
        now = fitness(_timeout(offer, offer.samples_per_s), 1.0, grows=True) if is_late else 0.0
        better = (worth > now) & (plans.cpu > offer.plan.total_cpu) & (plans.speed > offer.samples_per_s)
        best = np.flatnonzero(better)[np.argsort(-worth[better], kind="stable")]
        own = self._index[target.name]
        more_cpu, more_mib = plans.cpu - offer.plan.total_cpu, plans.memory_mib - offer.plan.total_memory_mib
        in_sum = (more_cpu <= self._free_cpu + 1e-6) & (more_mib <= self._free_mib)
        granted = next((int(i) for i in best if in_sum[i] and self._fits(own, int(i))), None)
        if is_late and len(best) and granted != best[0]:
            granted_cpu = offer.plan.total_cpu if granted is None else plans.cpu[granted]
            self._lacks_cpu += max(float(plans.cpu[best[0]] - granted_cpu), 0.0)
        if granted is not None:
            if is_late:
                self._late.add(target.name)
            self._free_cpu -= float(more_cpu[granted])
            self._free_mib -= float(more_mib[granted])
            self._chosen[own], self._why[target.name] = granted, target.why

    def _shrink(self, target: Target) -> None:
        """Let a job give back the cores that late jobs lack (of no late job: all that it can spare)."""
        offer, plans = self._offers[target.name], self._plans(target.name)
        freed = offer.plan.total_cpu - plans.cpu
        may = (freed > 0) & (plans.memory_mib <= offer.plan.total_memory_mib) & (plans.timeout <= KEPT_SLACK)
        index = np.flatnonzero(may)
        if not len(index):
            return
        enough = index[freed[index] >= self._lacks_cpu] if self._lacks_cpu > 0 else index[:0]
        own = int(enough[np.argmax(plans.speed[enough])] if len(enough) else index[np.argmax(freed[index])])
        self._chosen[self._index[target.name]] = own
        self._why[target.name] = target.why
        self._lacks_cpu -= float(freed[own])

    def _fits(self, job: int, own: int) -> bool:
        """Whether the nodes find a place beside those of all present plans and all growth so far."""
        trial = self._chosen.copy()
        trial[job] = own
        return all_fit(self._columns.groups(trial), self._room)

    def _plans(self, job: str) -> _Plans:
        i, offer = self._index[job], self._offers[job]
        first, last = self._columns.bids.offsets[i], self._columns.bids.offsets[i + 1]
        speed, demands = self._columns.bids.samples_per_s[first:last], self._columns.bids.demands[first:last]
        timeout = np.array([_timeout(offer, each) for each in speed.tolist()])
        return _Plans(speed, demands[:, 0], demands[:, 1], timeout)

    def _share(self, job: str, spare: tuple[float, int]) -> Share:
        offer, i = self._offers[job], self._index[job]
        plan = self._columns.plan(i, int(self._chosen[i]))
        gives = plan.total_cpu < offer.plan.total_cpu
        quota = quota_of(plan, *spare) if job in self._late else quota_of(plan)
        quota = replace(quota, leads=True, binds=gives)
        words = f"By qore: {self._why[job]}." if job in self._why else ""
        usual = "By qore: it will be in time as it is, or other jobs need the room more."
        return Share(plan, quota, words or usual)


def _timeout(offer: JobOffer, samples_per_s: float) -> float:
    """Return O at a predicted speed; 0 without a deadline."""
    if offer.deadline_left_s is None:
        return 0.0
    run_s = offer.n_sample_left / (samples_per_s * offer.sure_share)
    return min(timeout_degree(run_s, offer.deadline_left_s), 1e6)

"""Offers of many jobs as the columns that the selection reads: ten thousand jobs are a few arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.greedy import Bids
from dlrover_nb.core.pareto.space import ps_memory
from dlrover_nb.core.structs.plan.offers import N_COLUMN
from dlrover_nb.core.structs.plan.prices import MIB_PER_GIB
from dlrover_nb.core.structs.plan.resources import CORES_PER_GPU, GIB_PER_CORE, ResourcePlan, RolePlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.structs.plan.offers import JobOffer

    Array = NDArray[np.float64]
    Index = NDArray[np.intp]

RESOURCES = ("cores", "MiB", "GPUs")  # the last one where a job has some
NO_DEADLINE_S = 30 * 86400.0  # weight of a job without a deadline among jobs with one


def check(offer: JobOffer) -> None:
    """Refuse an offer whose numbers cannot be: a job that is wrong about itself must not decide for others.

    Raises
    ------
    InvalidValueError
        When a number is not finite, a plan has no node or no speed, or the present plan is faster than any
        machine could make it.
    """
    columns = _matrix(offer)
    if not np.isfinite(columns).all() or (columns[[0, 1, 2, 3, 4]] <= 0).any() or (columns[6] < 0).any():
        raise InvalidValueError(
            f"an offer must have finite numbers, nodes, cores and a speed in each plan, got others from job "
            f"{offer.job}; it takes no part until it offers again"
        )


@dataclass(frozen=True, slots=True, eq=False)
class OfferColumns:
    """The plans of many jobs.

    Parameters
    ----------
    offers
        One per job.
    bids
        Their plans, as `greedy.select` takes them.
    axes
        ndarray of shape (n_candidate, 4): workers, PS, cores per worker, cores per PS.
    memory_mib
        ndarray of shape (n_candidate, 2): MiB of each worker and each PS.
    """

    offers: tuple[JobOffer, ...]
    bids: Bids
    axes: Array
    memory_mib: Array

    def plan(self, job: int, own: int) -> ResourcePlan:
        """Return a job's plan: its candidate `own`, or what runs (-1)."""
        if own < 0:
            return self.offers[job].plan
        index = self.bids.offsets[job] + own
        w, p, worker_cpu, ps_cpu = self.axes[index].tolist()
        worker_mib, ps_mib = (int(each) for each in self.memory_mib[index])
        plan = ResourcePlan(RolePlan(int(w), worker_cpu, worker_mib), RolePlan(int(p), ps_cpu, ps_mib))
        return plan.with_gpus(self.offers[job].plan.gpus)

    def groups(self, chosen: Index) -> Array:
        """Return the nodes of all chosen plans: shape (2 * n_job, 4) of count, cores, MiB and GPUs."""
        index = self.bids.offsets[:-1] + np.maximum(chosen, 0)
        safe = np.minimum(index, max(len(self.axes) - 1, 0))
        has_plans = len(self.axes) > 0
        axes = self.axes[safe] if has_plans else np.zeros((len(chosen), 4))
        memory_mib = self.memory_mib[safe] if has_plans else np.zeros((len(chosen), 2))
        for job in np.flatnonzero(chosen < 0).tolist():
            plan = self.offers[job].plan
            axes[job] = plan.worker.count, plan.ps.count, plan.worker.cpu, plan.ps.cpu
            memory_mib[job] = plan.worker.memory_mib, plan.ps.memory_mib
        gpus = _gpus(self.offers)
        workers = np.column_stack((axes[:, 0], axes[:, 2], memory_mib[:, 0], gpus[:, 0]))
        return np.vstack((workers, np.column_stack((axes[:, 1], axes[:, 3], memory_mib[:, 1], gpus[:, 1]))))


def _gpus(offers: Sequence[JobOffer]) -> Array:
    """Return the GPUs of each worker and each PS of each job: shape (n_job, 2)."""
    return np.array([offer.plan.gpus for offer in offers], dtype=np.float64).reshape(-1, 2)


def _memory_mib(offers: Sequence[JobOffer], parts: Sequence[Array]) -> Array:
    """Return MiB of each worker and each PS of each plan: shape (n_candidate, 2)."""
    rows = [
        np.column_stack((np.full(part.shape[1], offer.worker_memory_mib), _ps_mib(offer, part[1])))
        for offer, part in zip(offers, parts, strict=True)
    ]
    return np.vstack([np.zeros((0, 2)), *rows])


def _ps_mib(offer: JobOffer, n_ps: Array) -> Array:
    return ps_memory(n_ps, offer.ps_memory_mib, offer.ps_share)


def columns_of(offers: Sequence[JobOffer], ceilings: Mapping[str, float]) -> OfferColumns:
    """Return the plans of all jobs as columns.

    Parameters
    ----------
    ceilings
        Money per hour that the jobs of an owner may cost together: one more resource for each such owner.
        They count where every price is known.
    """
    parts = [_matrix(offer) for offer in offers]
    counts = np.array([part.shape[1] for part in parts], dtype=np.intp)
    every = np.hstack(parts) if parts else np.zeros((N_COLUMN, 0))
    axes, speed, gain, cost = every[:4].T, every[4], every[5], every[6]
    job = np.repeat(np.arange(len(offers)), counts)
    memory_mib = _memory_mib(offers, parts)
    need_cpu = axes[:, 0] * axes[:, 2] + axes[:, 1] * axes[:, 3]
    need_mib = axes[:, 0] * memory_mib[:, 0] + axes[:, 1] * memory_mib[:, 1]
    gpus = _gpus(offers)
    need_gpu = (axes[:, :2] * gpus[job]).sum(axis=1)
    n_resource = len(RESOURCES) if gpus.any() else len(RESOURCES) - 1
    present = np.array(
        [(o.plan.total_cpu, o.plan.total_memory_mib, o.plan.total_gpu) for o in offers], dtype=np.float64
    ).reshape(-1, len(RESOURCES))
    now = np.array([o.cost for o in offers], dtype=np.float64)
    is_priced = all(offer.is_priced for offer in offers)
    if not is_priced:  # costs are compared between jobs, so they must be in one unit
        cost = need_cpu + need_mib / MIB_PER_GIB / GIB_PER_CORE + need_gpu * CORES_PER_GPU
        now = np.array([o.plan.effort for o in offers], dtype=np.float64)
    capped = [owner for owner in ceilings if is_priced and any(o.owner == owner for o in offers)]
    of = np.array([[float(o.owner == owner) for owner in capped] for o in offers]).reshape(
        len(offers), len(capped)
    )
    owners = {owner: i for i, owner in enumerate(dict.fromkeys(o.owner or o.job for o in offers))}
    deadlines = [NO_DEADLINE_S if o.deadline_left_s is None else max(o.deadline_left_s, 0.0) for o in offers]
    bids = Bids(
        offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.intp),
        demands=np.column_stack((*(need_cpu, need_mib, need_gpu)[:n_resource], of[job] * cost[:, None])),
        gains=_in_time(offers, job, speed, gain),
        costs=cost - now[job],
        samples_per_s=speed,
        samples_left=np.array([o.n_sample_left for o in offers], dtype=np.float64),
        present=np.column_stack((present[:, :n_resource], of * now[:, None])),
        resources=(*RESOURCES[:n_resource], *(f"an hour's money of {owner}" for owner in capped)),
        deadline_s=np.array(deadlines, dtype=np.float64),
        priority=np.array([o.priority for o in offers], dtype=np.float64),
        owner=np.array([owners[o.owner or o.job] for o in offers], dtype=np.intp),
    )
    return OfferColumns(tuple(offers), bids, axes, memory_mib)


def _in_time(offers: Sequence[JobOffer], job: Index, speed: Array, gain: Array) -> Array:
    """Return the gains, below zero for plans that miss a deadline which the present plan meets.

    The selection takes no plan of a negative gain. Of a job that is late by every plan all stay, as the
    fastest one is the best then.
    """
    left_s = np.array([np.inf if o.deadline_left_s is None else o.deadline_left_s for o in offers])
    samples = np.array([o.n_sample_left for o in offers], dtype=np.float64)
    own_s = samples / np.array([o.samples_per_s for o in offers])
    misses = (samples[job] / speed > left_s[job]) & (own_s <= left_s)[job]
    return np.where(misses, -np.abs(gain) - 1.0, gain)


def _matrix(offer: JobOffer) -> Array:
    return np.frombuffer(offer.columns, dtype="<f8").reshape(N_COLUMN, -1)

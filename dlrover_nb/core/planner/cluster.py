"""Which plan each of many jobs gets: their candidate fronts, and one cluster for all (Eqs. 12-14).

`greedy.select` chooses within sums of cores and memory. Whether the nodes of all chosen plans also fit on the
machines, one by one, is checked here afterwards; where they do not (large nodes leave gaps), the sums are cut
by a few percent and the choice is made again. It assumes that running nodes may be rescheduled. Rejected:
packing inside the selection, which would make each of its steps a bin packing for a loss that is a few
percent at the most.

Costs of different jobs are compared, so they must be in one unit: money where every price is known, else the
plans' effort in cores for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import CapacityError, InvalidValueError
from dlrover_nb.core.greedy import Bids, refusal, select
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.capacity import Capacity, fits, plan_needs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dlrover_nb.core.greedy import Selection, Weight
    from dlrover_nb.core.structs.decisions import Candidate
    from dlrover_nb.core.structs.resources import ResourcePlan

RESOURCES = ("cores", "MiB")
CUTS = (1.0, 0.98, 0.95, 0.9, 0.8, 0.7)  # of the cluster, until the chosen nodes fit
NO_DEADLINE_S = 30 * 86400.0  # weight of a job without a deadline among jobs with one


@dataclass(frozen=True, slots=True)
class JobBid:
    """The plans that one job could use.

    Parameters
    ----------
    name
        Unique among the bids.
    current
        The plan that runs, or for a job that waits the plan that its user asked for.
    candidates
        Other plans, such as a `ParetoFront`'s; the current one may be among them.
    n_sample_left
        Training samples still to do.
    waits
        Whether the job holds nothing yet.
    priority, deadline_s, owner
        For the weights that use them; seconds from now, None without a deadline; a job without an owner
        counts as its own owner.
    """

    name: str
    current: Candidate
    candidates: tuple[Candidate, ...]
    n_sample_left: int
    waits: bool = False
    priority: float = 1.0
    deadline_s: float | None = None
    owner: str = ""

    def __post_init__(self) -> None:
        _check.at_least("n_sample_left", self.n_sample_left, 0)
        _check.at_least("priority", self.priority, 0)
        if self.deadline_s is not None:
            _check.at_least("deadline_s", self.deadline_s, 0)

    @property
    def options(self) -> tuple[Candidate, ...]:
        """The plans to choose from beside staying as it is."""
        others = tuple(c for c in self.candidates if c.plan != self.current.plan)
        return (self.current, *others) if self.waits else others


@dataclass(frozen=True, slots=True, eq=False)
class ClusterChoice:
    """What every job gets.

    Parameters
    ----------
    plans
        Plan of each job by name; None for a job that goes on waiting.
    refusals
        Why jobs did not get the plan that is worth most for them, one sentence by name.
    selection
        The numbers behind the choice: objective, bound, shadow prices of cores and MiB.
    """

    plans: dict[str, ResourcePlan | None]
    refusals: dict[str, str]
    selection: Selection


def select_plans(
    jobs: Sequence[JobBid],
    capacity: Capacity,
    *,
    rho: float = 2.5,
    weight: Weight | None = None,
    shrink: bool = False,
) -> ClusterChoice:
    """Choose one plan per job, maximizing the weighted resource efficiency within the machines (Eqs. 12-14).

    Parameters
    ----------
    rho, weight, shrink
        As in `greedy.select`.

    Raises
    ------
    InvalidValueError
        When two jobs have one name.
    CapacityError
        When the running jobs do not fit on the machines and must not or cannot be made smaller.
    """
    names = [job.name for job in jobs]
    if len(set(names)) < len(names):
        raise InvalidValueError(f"job names must differ, got {names}; bid once for each job")
    bids = bids_of(jobs)
    whole = np.array([capacity.total_cpu, float(capacity.total_memory_mib)])
    held = np.zeros(2) if shrink else bids.present.sum(axis=0)
    for cut in CUTS if shrink else (*CUTS, 0.0):  # 0: only what frees room
        found = select(
            bids, np.maximum(cut * whole, np.minimum(held, whole)), rho=rho, weight=weight, shrink=shrink
        )
        plans = {job.name: _plan(job, int(own)) for job, own in zip(jobs, found.chosen, strict=True)}
        needs = [need for plan in plans.values() if plan is not None for need in plan_needs(plan)]
        if fits(capacity, needs):
            sentences = {job.name: refusal(bids, found, i) for i, job in enumerate(jobs)}
            return ClusterChoice(plans, {n: why for n, why in sentences.items() if why}, found)
    raise CapacityError(
        f"nodes of all jobs must find a place on {capacity.shapes}, these do not: "
        f"{', '.join(f'{n} {p.short}' for n, p in plans.items() if p)}; allow shrinking, or stop a job"
    )


def bids_of(jobs: Sequence[JobBid]) -> Bids:
    """Return the bids as columns; a waiting job gains all that its plan does, and pays for all of it."""
    options = [job.options for job in jobs]
    flat = [(job, candidate) for job, own in zip(jobs, options, strict=True) for candidate in own]
    cost = _cost(jobs)
    gains = [c.prediction.samples_per_s if job.waits else c.gain_samples_per_s for job, c in flat]
    added = [cost(c) - (0.0 if job.waits else cost(job.current)) for job, c in flat]
    owners = {owner: i for i, owner in enumerate(dict.fromkeys(job.owner or job.name for job in jobs))}
    return Bids(
        offsets=np.concatenate(([0], np.cumsum([len(own) for own in options], dtype=np.intp))).astype(
            np.intp
        ),
        demands=np.array([_demand(c) for _, c in flat]).reshape(-1, 2),
        gains=np.array(gains, dtype=np.float64),
        costs=np.array(added, dtype=np.float64),
        samples_per_s=np.array([c.prediction.samples_per_s for _, c in flat], dtype=np.float64),
        samples_left=np.array([job.n_sample_left for job in jobs], dtype=np.float64),
        present=np.array([(0.0, 0.0) if j.waits else _demand(j.current) for j in jobs]).reshape(-1, 2),
        resources=RESOURCES,
        priority=np.array([job.priority for job in jobs], dtype=np.float64),
        deadline_s=np.array([NO_DEADLINE_S if j.deadline_s is None else j.deadline_s for j in jobs]),
        owner=np.array([owners[job.owner or job.name] for job in jobs], dtype=np.intp),
    )


def _cost(jobs: Sequence[JobBid]) -> Callable[[Candidate], float]:
    """Return the cost that plans are compared by: money where all prices are known, else effort in cores."""
    priced = all(c.cost_per_hour for job in jobs for c in (job.current, *job.candidates))
    return lambda c: c.cost_per_hour or 0.0 if priced else c.plan.effort


def _demand(candidate: Candidate) -> tuple[float, float]:
    return candidate.plan.total_cpu, float(candidate.plan.total_memory_mib)


def _plan(job: JobBid, own: int) -> ResourcePlan | None:
    if own >= 0:
        return job.options[own].plan
    return None if job.waits else job.current.plan

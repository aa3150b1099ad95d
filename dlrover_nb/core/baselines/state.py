"""The input of baseline policies, and their common signature.

A policy is a function of a frozen state: it keeps nothing between calls, so that the simulator can replay it
and compare it with others on the same job. Results of earlier decisions are in `samples`, because every plan
that was tried is measured there. Rejected: policies as objects with state, which would decide differently
after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.capacity import Capacity, fits, plan_needs
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.bounds import PlanBounds
    from dlrover_nb.core.structs.training.samples import ProfileSample


@dataclass(frozen=True, slots=True)
class JobState:
    """One job at the moment of a decision.

    Parameters
    ----------
    plan
        What runs.
    samples
        Steady windows so far, in the order of time; may be empty.
    n_sample_left
        Training samples that the job has still to do, by its data.
    bounds
        The plans that the job may be given.
    capacity
        Machines that the job may use: what it holds already and what is free.
    batch_size
        m of Eq. 1, samples of one worker's mini-batch.
    global_batch
        Samples of one step of all workers, where it is independent of their number (the DL2 tables); None:
        each worker keeps `batch_size`.
    """

    plan: ResourcePlan
    samples: tuple[ProfileSample, ...]
    n_sample_left: int
    bounds: PlanBounds
    capacity: Capacity
    batch_size: int
    global_batch: int | None = None

    def __post_init__(self) -> None:
        _check.at_least("n_sample_left", self.n_sample_left, 0)
        _check.at_least("batch_size", self.batch_size, 1)
        if self.global_batch is not None:
            _check.at_least("global_batch", self.global_batch, 1)

    def allows(self, plan: ResourcePlan) -> bool:
        """Whether a plan's counts are within the bounds and its nodes fit."""
        b = self.bounds
        most_workers, most_ps = b.counts
        within = plan.worker.count <= most_workers and plan.ps.count <= most_ps
        cheap = b.quota_cpu is None or plan.total_cpu <= b.quota_cpu
        light = b.quota_memory_mib is None or plan.total_memory_mib <= b.quota_memory_mib
        return within and cheap and light and fits(self.capacity, plan_needs(plan))


Policy = Callable[[JobState], ResourcePlan | None]  # None: leave the job as it is


def with_count(plan: ResourcePlan, role: Role, count: int) -> ResourcePlan:
    """Return the plan with another number of nodes of one role."""
    changed = replace(plan.role(role), count=count)
    return replace(plan, worker=changed) if role is Role.WORKER else replace(plan, ps=changed)


def static(state: JobState) -> ResourcePlan | None:
    """Leave the job on the plan of its user."""
    del state
    return None

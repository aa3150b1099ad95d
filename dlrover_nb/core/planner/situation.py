"""The input of planning, and the cost of a transition."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.planner.deadline import Due
from dlrover_nb.core.structs.bounds import Pins
from dlrover_nb.core.structs.default_bounds import completed
from dlrover_nb.core.structs.fixed_roles import fixed_per_hour
from dlrover_nb.core.structs.job import Migration
from dlrover_nb.core.structs.resources import ResourcePlan, Role, ScalePlan, diff

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.memory import MemoryUse
    from dlrover_nb.core.structs.capacity import Capacity
    from dlrover_nb.core.structs.host_load import HostLoad
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.past import FitSummary
    from dlrover_nb.core.structs.samples import ProfileSample
    from dlrover_nb.core.structs.stopping import StopForecast

    Array = NDArray[np.float64]

DEADLINE_CHANCE = 0.9
HOUR_S = 3600.0
HORIZON_S = 3600.0  # longest time over which a transition is paid off (Eq. 8)
WORKERS_PAUSE_S = 0.5  # until transitions of this job have been measured
MOVE_PAUSE_S = {Migration.SEAMLESS: 0.5, Migration.RESTART: 6.0}


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of planning; bounds that are still open are completed for the machines."""

    spec: JobSpec
    capacity: Capacity
    dense_bytes: int
    embedding_dim: int
    plan: ResourcePlan  # what runs
    samples: tuple[ProfileSample, ...]
    n_sample_left: int
    pauses: tuple[tuple[str, float], ...] = ()  # (kind, seconds) of this job's transitions
    memory_mib: tuple[tuple[Role, int], ...] = ()  # to give each node, where not as now
    pins: Pins = field(default_factory=Pins)  # of every plan that is searched
    prior: FitSummary | None = None  # of similar finished jobs
    deadline_left_s: float | None = None  # until the job should be done; negative: late; None: no deadline
    must_move: bool = False  # new PS must fit beside those that serve
    deadline_chance: float = DEADLINE_CHANCE  # the wanted probability to finish by the deadline
    memory_use: tuple[MemoryUse, ...] = ()  # of roles whose memory may be lowered
    stop: StopForecast | None = None  # of a job that may stop early: then `n_sample_left` is by it
    host: HostLoad | None = None  # what other work on its hosts leaves to the job; None: not known
    money_left: float | None = None  # of the total budget, to end within; None: no limit, or no known end

    def __post_init__(self) -> None:
        bounds = completed(self.spec.bounds, self.capacity, self.spec.plan)
        object.__setattr__(self, "spec", replace(self.spec, bounds=bounds))

    @property
    def due(self) -> Due | None:
        """What is left to do and until when; None without a deadline."""
        return None if self.deadline_left_s is None else self._until(self.deadline_left_s)

    def paid_for(self, cost_per_hour: Array | float | None) -> Due | None:
        """Return what is left to do, and for how long the total budget pays for plans of these prices.

        None without a limit, or where nothing costs anything.
        """
        if self.money_left is None or self.spec.prices.is_free or cost_per_hour is None:
            return None
        per_hour = np.asarray(cost_per_hour, dtype=np.float64) + fixed_per_hour(self.spec)
        return self._until(self.money_left / per_hour * HOUR_S)

    def _until(self, left_s: float | Array) -> Due:
        stop = self.stop
        if stop is None or stop.why_not:
            return Due(self.n_sample_left, left_s)
        all_left = max(stop.n_total - stop.n_done, self.n_sample_left)
        return Due(self.n_sample_left, left_s, stop.n_more, stop.n_less, all_left)

    @property
    def beside(self) -> ResourcePlan | None:
        """The plan beside which new PS must fit; None: a change may go through a checkpoint."""
        return self.plan if self.must_move else None


def transition_kind(scale: ScalePlan) -> str:
    """Return ``workers`` where workers come or go while others train, ``moves`` where nodes are replaced."""
    joins = all(c.role is Role.WORKER and not c.replaces_nodes for c in scale.changes)
    return "workers" if joins else "moves"


def transition_s(
    scale: ScalePlan, pauses: tuple[tuple[str, float], ...], migration: Migration = Migration.SEAMLESS
) -> float:
    """Return the seconds without training to expect: the median of this kind so far, or a default."""
    if not scale:
        return 0.0
    kind = transition_kind(scale)
    seen = [pause_s for seen_kind, pause_s in pauses if seen_kind == kind]
    if seen:
        return median(seen)
    return WORKERS_PAUSE_S if kind == "workers" else MOVE_PAUSE_S[migration]


def transitions_s(axes: Array, memory_mib: tuple[int | Array, int | Array], s: Situation) -> Array:
    """Return `transition_s` from the present plan to each of many: shape (n_plans,).

    Parameters
    ----------
    axes
        ndarray of shape (n_plans, 4): workers, PS, cores per worker, cores per PS.
    memory_mib
        Of each worker, and of each PS: each for all plans or for each.
    """
    now = s.plan
    here = np.array([now.worker.count, now.ps.count, now.worker.cpu, now.ps.cpu])
    changed = axes != here
    worker_mib, ps_mib = memory_mib
    same_memory = (np.asarray(worker_mib) == now.worker.memory_mib) & (
        np.asarray(ps_mib) == now.ps.memory_mib
    )
    joins = np.logical_not(changed[:, 1:].any(axis=1)) & same_memory
    is_now = ~changed.any(axis=1) & same_memory
    worker_more = replace(now, worker=replace(now.worker, count=now.worker.count + 1))
    ps_more = replace(now, ps=replace(now.ps, count=now.ps.count + 1))
    workers_s, move_s = (
        transition_s(diff(now, plan), s.pauses, s.spec.migration) for plan in (worker_more, ps_more)
    )
    return np.where(is_now, 0.0, np.where(joins, workers_s, move_s))


def gains(speed: Array, now: float, pause_s: Array, left_s: Array) -> Array:
    """Return TG(A): throughput gained less the transition's loss, spread over the rest of the run (Eq. 8)."""
    horizon_s = np.clip(left_s, 1.0, HORIZON_S)
    return np.asarray(speed - now - pause_s * now / horizon_s)  # (eq. 8)

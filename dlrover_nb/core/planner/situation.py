"""The input of planning."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.planner.finish_chance import Due
from dlrover_nb.core.structs.job.fixed_roles import fixed_per_hour
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.default_bounds import completed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.memory import MemoryUse
    from dlrover_nb.core.structs.cluster.host_load import HostLoad
    from dlrover_nb.core.structs.job.early_stopping import StopForecast
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role
    from dlrover_nb.core.structs.training.quality import QualityCurve
    from dlrover_nb.core.structs.training.samples import ProfileSample
    from dlrover_nb.core.structs.views.past_jobs import FitSummary

    Array = NDArray[np.float64]

DEADLINE_CHANCE = 0.9
HOUR_S = 3600.0


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
    curves: tuple[QualityCurve, ...] = ()  # held-out quality by the age of gradients
    n_sample_total: int = 0  # of the whole job; 0: not known

    def __post_init__(self) -> None:
        bounds = completed(
            self.spec.bounds, self.capacity, self.spec.plan, most_workers=self.spec.step_batches
        )
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

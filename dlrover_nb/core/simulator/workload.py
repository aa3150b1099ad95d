"""Arrivals of jobs: from a trace, or a Poisson process with a daily rhythm; and random jobs.

Arrivals of traces are read from files that the user names (Philly, or Pollux's samples of it); the product
needs neither. Jobs are sampled: their true speed is Eqs. 1-6 with coefficients spread around those of a click
model, and their first plan is the request of a user, which is rarely right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.simulator.description import MemoryGrowth, SimulatedJob
from dlrover_nb.core.simulator.faults import DAY_S
from dlrover_nb.core.simulator.truth import TermsTruth
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.past_jobs import JobTraits

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

BATCH = 512  # DLRover-RM section 6
FLOAT_BYTES = 4
SIZES = (1.0, 2.0, 4.0, 8.0)  # cores of a node
BOUNDS = PlanBounds(max_workers=24, max_ps=8, worker_cpus=SIZES, ps_cpus=SIZES)


def read_arrivals(
    path: Path, *, load: float | None = None, workload: int | None = None
) -> NDArray[np.float64]:
    """Read arrival times in seconds since the first, ascending, from a trace as CSV (it may be compressed).

    Parameters
    ----------
    path
        With a column ``time`` (seconds: Pollux's workloads) or ``timestamp`` (dates: Philly).
    load, workload
        Which of Pollux's workloads; None: all rows.

    Raises
    ------
    InvalidValueError
        When there is neither column, or no row.
    """
    rows = pd.read_csv(path)
    for name, value in (("load", load), ("wl", workload)):
        if value is not None and name in rows:
            rows = rows[rows[name] == value]
    if "time" in rows:
        at_s = rows["time"].to_numpy(np.float64)
    elif "timestamp" in rows:
        at_s = (
            pd.to_datetime(rows["timestamp"])
            .dropna()
            .astype("datetime64[s]")
            .astype("int64")
            .to_numpy(np.float64)
        )
    else:
        raise InvalidValueError(f"{path.name} must have a column time or timestamp, got {list(rows.columns)}")
    at_s = np.sort(at_s[np.isfinite(at_s)])
    if not len(at_s):
        raise InvalidValueError(
            f"{path.name} must have at least one arrival, got none; check load and workload"
        )
    return np.asarray(at_s - at_s[0])


def poisson_arrivals(
    n: int, *, per_day: float, rng: np.random.Generator, swing: float = 0.5
) -> NDArray[np.float64]:
    """Draw `n` arrival times in seconds: a Poisson process whose rate follows the hour of the day.

    Parameters
    ----------
    per_day
        Mean arrivals a day.
    swing
        How far the rate moves around its mean, in [0, 1): most arrivals at noon, fewest at midnight.

    Notes
    -----
    By thinning: candidates at the largest rate, each kept with the share that its hour's rate has of it.
    """
    most = per_day * (1 + swing) / DAY_S
    at_s: list[float] = []
    now_s = 0.0
    while len(at_s) < n:
        now_s += float(rng.exponential(1 / most))
        rate = 1 - swing * math.cos(2 * math.pi * now_s / DAY_S)
        if rng.random() < rate / (1 + swing):
            at_s.append(now_s)
    return np.array(at_s)


@dataclass(frozen=True, slots=True)
class JobSampler:
    """Samples jobs of realistic size.

    Parameters
    ----------
    hours
        Length of a job on `typical_plan`: median, and standard deviation of the logarithm.
    max_hours
        The longest.
    spread
        Standard deviation of the logarithm of each coefficient.
    bounds
        The plans that a job may be given; it starts on any of them (`first_plan`).
    mode
        Who decides.
    """

    hours: tuple[float, float] = (4.0, 0.6)
    max_hours: float = 20.0
    spread: float = 0.5
    bounds: PlanBounds = BOUNDS
    mode: Mode = Mode.AUTO

    def sample(self, name: str, rng: np.random.Generator) -> SimulatedJob:
        """Draw one job."""
        truth = random_truth(rng, spread=self.spread)
        n_table, dim = int(rng.integers(10, 40)), int(rng.choice([8, 16, 32]))
        n_sample = self._n_sample(truth, rng)
        grown_mib = float(rng.lognormal(math.log(4000), 0.5))
        plan = first_plan(rng, self.bounds)
        dense_bytes = int(rng.lognormal(math.log(4e6), 0.7))
        spec = JobSpec(name=name, plan=plan, bounds=self.bounds, mode=self.mode, batch_size=BATCH)
        return SimulatedJob(
            spec=spec,
            truth=truth,
            n_sample=n_sample,
            dense_bytes=dense_bytes,
            embedding_dim=n_table * (dim + 1),
            worker_memory=MemoryGrowth(float(rng.uniform(800, 2000))),
            ps_memory=MemoryGrowth(600.0, grown_mib, n_sample, float(rng.uniform(0.5, 0.9))),
            traits=JobTraits(
                model="wide_deep",
                n_table=n_table,
                embedding_dim=n_table * (dim + 1),
                n_table_row=n_table << 16,
                dense_bytes=dense_bytes,
                batch_size=BATCH,
                n_sample=n_sample,
                name=name,
            ),
        )

    def _n_sample(self, truth: TermsTruth, rng: np.random.Generator) -> int:
        median_h, scatter = self.hours
        length_s = 3600 * min(float(rng.lognormal(math.log(median_h), scatter)), self.max_hours)
        return max(int(truth.speed(typical_plan(self.bounds), BATCH) * length_s), 1)


def random_truth(rng: np.random.Generator, *, spread: float = 0.5, contention: bool = True) -> TermsTruth:
    """Draw coefficients around those of a click model.

    Notes
    -----
    On the typical plan (8 workers and 2 PS of 4 cores) the gradients take about 40 % of an iteration of
    0.3 s, the lookups 25 %, updates and synchronisation 15 % each, the rest is constant. With one PS the
    lookups take 32 %, within the 30-48 % that DLRover-RM reports of production jobs (section 2).
    """
    scatter = rng.lognormal(0.0, spread, 6)
    parts = np.array([0.12, 0.045, 0.045, 0.075, 0.012, 0.001 * contention]) * scatter
    grad_s, update_s, sync_s, lookup_s, constant_s, contention_s = (float(x) for x in parts)
    return TermsTruth(
        grad_s=grad_s * 4 / BATCH,
        update_s=update_s * 2 * 4 / 8,
        sync_s=sync_s * 2 / 8,
        lookup_s=lookup_s * 2 / BATCH,
        constant_s=constant_s,
        contention_s=contention_s,
    )


def typical_plan(bounds: PlanBounds) -> ResourcePlan:
    """Return a middling plan within the bounds, by which the length of jobs is set."""
    most_workers, most_ps = bounds.counts
    w, p = max(most_workers // 3, 1), max(most_ps // 4, 1)
    worker_cpu = bounds.worker_cpus[len(bounds.worker_cpus) // 2]
    ps_cpu = bounds.ps_cpus[len(bounds.ps_cpus) // 2]
    return ResourcePlan(RolePlan(w, worker_cpu, 4096), RolePlan(p, ps_cpu, 8192))


def first_plan(rng: np.random.Generator, bounds: PlanBounds) -> ResourcePlan:
    """Draw the first plan of a user: within the bounds, and rarely right.

    Notes
    -----
    Counts are spread evenly in the logarithm up to the bounds, sizes over the allowed ones. An assumption: no
    available trace contains requests of users of parameter servers.
    """
    most_workers, most_ps = bounds.counts
    w = math.floor(math.exp(rng.uniform(0, math.log(most_workers + 1))))
    p = math.floor(math.exp(rng.uniform(0, math.log(most_ps + 1))))
    worker_cpu, ps_cpu = float(rng.choice(bounds.worker_cpus)), float(rng.choice(bounds.ps_cpus))
    return ResourcePlan(
        RolePlan(min(max(w, 1), most_workers), worker_cpu, 4096),
        RolePlan(min(max(p, 1), most_ps), ps_cpu, 16384),
    )

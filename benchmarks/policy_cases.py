"""The jobs of `policies.py`: random ones of Eqs. 1-6 and measured ones, each with its best plan."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.baselines import JobState
from dlrover_nb.core.perf.terms import axes_of
from dlrover_nb.core.simulator import SimulatedJob, SimulatedWorld, SpeedTruth
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.samples import TimeSplit
from dlrover_nb.core.warmstart import into_space

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.plans.well_tuned import well_tuned

from dlrover_nb.core.lab.measured_speeds import read_tables
from dlrover_nb.core.simulator.workload import BATCH, BOUNDS, random_truth

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.spec_choices import Objective

MACHINES = (NodeShape(32.0, 192 * 1024, 20),)  # DLRover-RM's small cluster
KINDS = ("terms", "contended", "tables")
QUOTAS = (48.0, 96.0, 144.0)  # cores of a job


@dataclass(frozen=True)
class Case:
    """A job and its best plan."""

    kind: str
    name: str
    job: SimulatedJob
    best: ResourcePlan

    def on(self, plan: ResourcePlan) -> SimulatedJob:
        return replace(self.job, spec=replace(self.job.spec, plan=plan, mode=Mode.MANUAL))

    def speed(self, plan: ResourcePlan) -> float:
        """Return the true samples per second of a plan, now."""
        return self.job.truth.speed(plan, self.job.spec.batch_of(plan.worker.count))


class Drifting:
    """The speeds of a truth, all multiplied by a factor from a moment on; the run sets `at_s`."""

    def __init__(self, truth: SpeedTruth, factor: float, from_s: float) -> None:
        self._truth, self._factor, self._from_s = truth, factor, from_s
        self.at_s = 0.0

    def speed(self, plan: ResourcePlan, batch_size: int) -> float:
        return self._truth.speed(plan, batch_size) * self._now

    def split(self, plan: ResourcePlan, batch_size: int) -> TimeSplit:
        return stretched(self._truth.split(plan, batch_size), self._now)

    @property
    def _now(self) -> float:
        return 1.0 if self.at_s < self._from_s else self._factor


class Related:
    """The truth of a similar job: another level of speed, and other exponents of workers and PS."""

    def __init__(self, truth: SpeedTruth, rng: np.random.Generator) -> None:
        self._truth = truth
        self._log_level, self._per_worker, self._per_ps = rng.normal(0, (0.2, 0.05, 0.05))

    def speed(self, plan: ResourcePlan, batch_size: int) -> float:
        return self._truth.speed(plan, batch_size) * self._factor(plan)

    def split(self, plan: ResourcePlan, batch_size: int) -> TimeSplit:
        return stretched(self._truth.split(plan, batch_size), self._factor(plan))

    def _factor(self, plan: ResourcePlan) -> float:
        by_workers = self._per_worker * math.log(plan.worker.count)
        return math.exp(self._log_level + by_workers + self._per_ps * math.log(plan.ps.count))


def stretched(parts: TimeSplit, speed: float) -> TimeSplit:
    """Return the parts of an iteration when all is faster by a factor."""
    return TimeSplit(**{f.name: getattr(parts, f.name) / speed for f in fields(parts)})


def drifting(case: Case, factor: float, from_s: float) -> Case:
    """Return a job whose speeds change by a factor after so many seconds; the best plan stays the best."""
    return replace(case, job=replace(case.job, truth=Drifting(case.job.truth, factor, from_s)))


def best_plan(spec: JobSpec, truth: SpeedTruth) -> ResourcePlan:
    def measure(rows: np.ndarray) -> np.ndarray:
        plans = (_row_plan(spec, row) for row in rows)
        return np.array([truth.speed(plan, spec.batch_of(plan.worker.count)) for plan in plans])

    world = SimulatedWorld(MACHINES, rng=np.random.default_rng(0))
    state = JobState(spec.plan, (), 1, spec.bounds, world.cluster.capacity, spec.batch_size)
    return well_tuned(state, measure=measure) or spec.plan


def _row_plan(spec: JobSpec, row: np.ndarray) -> ResourcePlan:
    w, p, worker_cpu, ps_cpu = row
    return ResourcePlan(
        RolePlan(int(w), float(worker_cpu), spec.plan.worker.memory_mib),
        RolePlan(int(p), float(ps_cpu), spec.plan.ps.memory_mib),
    )


def make_case(kind: str, job: SimulatedJob, hours: float) -> Case:
    best = best_plan(job.spec, job.truth)
    speed = job.truth.speed(best, job.spec.batch_of(best.worker.count))
    n_sample = int(speed * hours * 3600)
    return Case(kind, job.spec.name, replace(job, n_sample=n_sample), best)


def terms_cases(n: int, hours: float, *, contention: bool = False) -> list[Case]:
    """Return random jobs of Eqs. 1-6, or with the paper's missing term: workers that slow each other down."""
    kind = "contended" if contention else "terms"
    grid = replace(BOUNDS, max_workers=32, max_ps=12)
    start = ResourcePlan(RolePlan(2, 4.0, 4096), RolePlan(1, 4.0, 8192))
    cases = []
    for i in range(n):
        bounds = replace(grid, quota_cpu=QUOTAS[i % len(QUOTAS)])
        spec = JobSpec(name=f"{kind}-{i + 1}", plan=start, bounds=bounds, mode=Mode.AUTO, batch_size=BATCH)
        truth = random_truth(np.random.default_rng(1000 + i), contention=contention)
        cases.append(make_case(kind, SimulatedJob(spec, truth, 1), hours))
    return cases


def table_cases(path: Path, hours: float) -> list[Case]:
    cases = []
    for name, measured in read_tables(path).items():
        plans = measured.truth.plans
        bounds = PlanBounds(
            max(w for _, w in plans), max(p for p, _ in plans), (2.0,), (2.0,), quota_cpu=48.0
        )
        start = ResourcePlan(RolePlan(2, 2.0, 4096), RolePlan(2, 2.0, 4096))
        spec = JobSpec(
            name=f"table-{name}",
            plan=start,
            bounds=bounds,
            mode=Mode.AUTO,
            global_batch=measured.global_batch,
            sync=Sync.BSP,
        )
        job = SimulatedJob(spec, measured.truth, 1, dense_bytes=int(measured.model_mib * 2**20))
        cases.append(make_case("tables", job, hours))
    return cases


def aimed(case: Case, objective: Objective) -> Case:
    return replace(case, job=replace(case.job, spec=replace(case.job.spec, objective=objective)))


def user_plans(case: Case, n: int, *, seed: int = 7) -> list[ResourcePlan]:
    """Draw users' choices: each number of the best plan wrong by a factor of about two."""
    rng, spec = np.random.default_rng(seed), case.job.spec
    into = into_space(spec.bounds, Capacity(MACHINES))
    plans: list[ResourcePlan] = []
    while len(plans) < n:
        factors = rng.lognormal(0.0, math.log(2), 4)
        w, p, worker_cpu, ps_cpu = (float(x) for x in axes_of([case.best])[0] * factors)
        wanted = ResourcePlan(
            replace(case.best.worker, count=max(round(w), 1), cpu=worker_cpu),
            replace(case.best.ps, count=max(round(p), 1), cpu=ps_cpu),
        )
        plan = into(wanted)
        if plan is not None:
            plans.append(plan)
    return plans

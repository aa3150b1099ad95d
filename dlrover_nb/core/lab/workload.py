"""The jobs of a lab: when each arrives, what its user asks for, how much there is to train, and its truth.

They come from one of three sources: a description of sizes and rates, a trace as CSV (arrivals, and where the
trace has them, durations and sizes), or runs in the history. What a source does not say is drawn, by seed.

A job of a trace or of the history trains as many samples as its own plan would have trained in the time that
it took. So a policy is compared on the work that was done, not on the hours that it took then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.lab.truths import FittedTruth, LabTruth, OverlapTruth, drawn_overlap, relative_of
from dlrover_nb.core.simulator.workload import BATCH, SIZES, first_plan, poisson_arrivals, typical_plan
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.past_jobs import JobTraits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from dlrover_nb.core.lab.lab_file import Workload
    from dlrover_nb.core.lab.measured_speeds import MeasuredJob
    from dlrover_nb.core.lab.traces import TraceRow
    from dlrover_nb.core.structs.views.past_jobs import FitSummary

HOUR_S, DAY_S = 3600.0, 86_400.0
TABLE_CPU = 2.0  # of each node while the tables were measured
DENSE_BYTES, EMBEDDING_DIM = 1 << 22, 256
WORKER_MIB, PS_MIB = 4096, 16384
WORKERS_OF_PS = 4  # of a trace, which knows no parameter servers


@dataclass(frozen=True, slots=True)
class LabJob:
    """One job of a lab.

    Parameters
    ----------
    spec
        What its user asks for.
    truth
        How fast it is on any plan.
    at_s
        When it is submitted, from the begin of the lab.
    n_sample
        Samples to train.
    deadline_after_s
        Seconds after it was submitted by which it should end; None: no deadline.
    estimate
        The user's guess of its length over its length on the requested plan.
    kind
        Name of the kind of jobs that it is of; empty: there is no other one like it.
    """

    spec: JobSpec
    truth: LabTruth
    at_s: float
    n_sample: int
    deadline_after_s: float | None = None
    estimate: float = 1.0
    dense_bytes: int = DENSE_BYTES
    embedding_dim: int = EMBEDDING_DIM
    kind: str = ""

    @property
    def traits(self) -> JobTraits:
        """What tells similar jobs from others before they run."""
        kind = self.kind or self.name
        return JobTraits(
            model=kind,
            n_table=1,
            embedding_dim=self.embedding_dim,
            n_table_row=0,
            dense_bytes=self.dense_bytes,
            batch_size=self.spec.batch_size,
            n_sample=self.n_sample,
            owner=self.spec.owner,
            name=self.kind,
            code_hash=kind,
            data_hash=kind,
        )

    @property
    def name(self) -> str:
        """Its name."""
        return self.spec.name

    def speed(self, plan: ResourcePlan) -> float:
        """Return samples per second of a plan, without noise."""
        return self.truth.speed(plan, self.spec.batch_of(plan.worker.count))

    @property
    def alone_s(self) -> float:
        """Seconds on the requested plan without any wait: what fairness is measured against."""
        return self.n_sample / self.speed(self.spec.plan)


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run of the history, as a lab needs it: `lasted_s` from its start to its end."""

    spec: JobSpec
    started_at_s: float
    lasted_s: float
    fit: FitSummary | None = None
    n_sample: int | None = None


def described_jobs(
    workload: Workload, tables: Mapping[str, MeasuredJob], rng: np.random.Generator
) -> tuple[LabJob, ...]:
    """Draw the jobs of a description."""
    at_s = poisson_arrivals(workload.jobs, per_day=workload.jobs / workload.days, rng=rng)
    kinds = _kinds(workload, tables, rng)
    return tuple(_drawn(f"job-{i + 1}", float(each), workload, kinds, rng=rng) for i, each in enumerate(at_s))


def traced_jobs(
    rows: Sequence[TraceRow], workload: Workload, tables: Mapping[str, MeasuredJob], rng: np.random.Generator
) -> tuple[LabJob, ...]:
    """Return jobs that arrive as in a trace; each lasts, on its request, as long as it did there."""
    kinds = _kinds(workload, tables, rng)
    return tuple(
        _drawn(f"job-{i + 1}", row.at_s, workload, kinds, rng=rng, row=row) for i, row in enumerate(rows)
    )


def past_jobs_again(
    runs: Sequence[PastRun], workload: Workload, rng: np.random.Generator
) -> tuple[LabJob, ...]:
    """Return one's own jobs again: their requests and the work they did, and a truth by their last fits.

    Raises
    ------
    InvalidValueError
        When there is no run.
    """
    if not runs:
        raise InvalidValueError(
            "the history has no finished runs in that time; name more days, or describe a workload"
        )
    began_s = min(run.started_at_s for run in runs)
    jobs = []
    for i, run in enumerate(sorted(runs, key=lambda run: run.started_at_s)):
        truth: LabTruth = drawn_overlap(rng) if run.fit is None else FittedTruth(run.fit, rng)
        spec = replace(run.spec, name=f"job-{i + 1}", mode=Mode.AUTO, bounds=_closed(run.spec))
        speed = truth.speed(spec.plan, spec.batch_of(spec.plan.worker.count))
        n_sample = run.n_sample or max(int(speed * run.lasted_s), 1)
        job = LabJob(spec, truth, run.started_at_s - began_s, n_sample, kind=run.spec.name)
        jobs.append(_with_wishes(job, workload, rng))
    return tuple(jobs)


def _closed(spec: JobSpec) -> PlanBounds:
    """Return bounds in which nothing is open: a lab has other machines than the run had."""
    own, plan = spec.bounds, spec.plan
    return replace(
        own,
        max_workers=own.max_workers or max(24, plan.worker.count),
        max_ps=own.max_ps or max(8, plan.ps.count),
        worker_cpus=own.worker_cpus or tuple(sorted({*SIZES, plan.worker.cpu})),
        ps_cpus=own.ps_cpus or tuple(sorted({*SIZES, plan.ps.cpu})),
    )


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Of what jobs are drawn: measured ones by name, or kinds that come again; neither: each is new."""

    tables: Mapping[str, MeasuredJob]
    truths: tuple[OverlapTruth, ...] = ()

    def draw(self, workload: Workload, rng: np.random.Generator) -> tuple[str, LabTruth, MeasuredJob | None]:
        """Return the name of a kind, a truth of it, and its measurements."""
        if self.tables:
            name = str(rng.choice(sorted(self.tables)))
            return name, self.tables[name].truth, self.tables[name]
        if not self.truths:
            return "", drawn_overlap(rng, spread=workload.spread), None
        i = int(rng.integers(len(self.truths)))
        return f"kind-{i + 1}", relative_of(self.truths[i], rng, kinship=workload.kinship), None


def _kinds(workload: Workload, tables: Mapping[str, MeasuredJob], rng: np.random.Generator) -> _Kinds:
    n = 0 if tables else workload.families
    return _Kinds(tables, tuple(drawn_overlap(rng, spread=workload.spread) for _ in range(n)))


def _drawn(
    name: str,
    at_s: float,
    workload: Workload,
    kinds: _Kinds,
    *,
    rng: np.random.Generator,
    row: TraceRow | None = None,
) -> LabJob:
    kind, truth, measured = kinds.draw(workload, rng)
    bounds = workload.bounds if measured is None else _table_bounds(measured)
    request = _requested(workload.request, bounds, rng)
    if row is not None and row.workers is not None:
        request = _traced_plan(row.workers, row.cpu, bounds)
    spec = JobSpec(
        name=name,
        owner=f"team-{int(rng.integers(workload.owners)) + 1}",
        plan=request,
        bounds=bounds,
        mode=Mode.AUTO,
        batch_size=BATCH,
        global_batch=None if measured is None else measured.global_batch,
        sync=Sync(workload.sync) if measured is None else Sync.BSP,
        prices=workload.prices,
    )
    on = typical_plan(bounds) if row is None else request  # the work of a trace was done on its own plan
    lasts_s = _drawn_length_s(workload, rng)
    if row is not None and row.lasts_s is not None:
        lasts_s = min(row.lasts_s, workload.max_hours * HOUR_S)
    n_sample = max(int(truth.speed(on, spec.batch_of(on.worker.count)) * lasts_s), 1)
    dense = DENSE_BYTES if measured is None else int(measured.model_mib * 2**20)
    job = LabJob(spec, truth, at_s, n_sample, dense_bytes=dense, kind=kind)
    return _with_wishes(job, workload, rng)


def _requested(how: str, bounds: PlanBounds, rng: np.random.Generator) -> ResourcePlan:
    """Return what a user asks for; the same numbers are drawn however that is."""
    plan = first_plan(rng, bounds)
    if how == "small":
        return ResourcePlan(replace(plan.worker, count=2), replace(plan.ps, count=1))
    if how == "generous":
        most = bounds.worker_cpus[-1], bounds.ps_cpus[-1]
        return ResourcePlan(replace(plan.worker, cpu=most[0]), replace(plan.ps, cpu=most[1]))
    return plan


def _drawn_length_s(workload: Workload, rng: np.random.Generator) -> float:
    median_h, scatter = workload.hours
    return HOUR_S * min(float(rng.lognormal(math.log(median_h), scatter)), workload.max_hours)


def _with_wishes(job: LabJob, workload: Workload, rng: np.random.Generator) -> LabJob:
    """Give a job its user's guess of its length, and a deadline if it has one."""
    estimate = float(rng.lognormal(0.0, workload.estimate_error))
    has_deadline = bool(rng.random() < workload.deadlines)
    slack = float(rng.uniform(*workload.slack))
    after_s = job.alone_s * slack if has_deadline else None
    return replace(job, estimate=estimate, deadline_after_s=after_s)


def _table_bounds(measured: MeasuredJob) -> PlanBounds:
    plans = measured.truth.plans
    return PlanBounds(max(w for _, w in plans), max(p for p, _ in plans), (TABLE_CPU,), (TABLE_CPU,))


def _traced_plan(workers: int, cpu: float | None, bounds: PlanBounds) -> ResourcePlan:
    """Return the plan of a job of a trace: its workers, and a PS for each four of them."""
    most_workers, most_ps = bounds.counts
    w = min(max(workers, 1), most_workers)
    p = min(max(math.ceil(w / WORKERS_OF_PS), 1), most_ps)
    wanted = bounds.worker_cpus[len(bounds.worker_cpus) // 2] if cpu is None else cpu
    size = min(bounds.worker_cpus, key=lambda each: abs(each - wanted))
    ps_size = min(bounds.ps_cpus, key=lambda each: abs(each - size))
    return ResourcePlan(RolePlan(w, size, WORKER_MIB), RolePlan(p, ps_size, PS_MIB))

"""A stream of jobs with deadlines on one simulated cluster, and what comes of it under one way to plan.

Jobs come in families, as most jobs of a cluster repeat (Qore-DL counts 65 % that ran over five times): the
jobs of a family differ in length, level of speed and how it grows with nodes. What is simulated is the truth
of speeds and the cluster; who waits, starts, grows and gives back is decided by the product's own queue and
controllers (`core.brain.planning_round`, `core.controller`), or by a baseline.
"""

from __future__ import annotations

import math
import statistics
import sys
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from policies import traits_of
from policy_cases import Related
from policy_runs import QUIET, REPORT_S, SETTINGS, Ours, simulate

from dlrover_nb.core.backends.simulated.simulated_job import SimulatedRun
from dlrover_nb.core.brain.planning_round import Rounds, Term
from dlrover_nb.core.deadline.utilisation import host_load, utilisation
from dlrover_nb.core.driver.job_start import initial_plan
from dlrover_nb.core.simulator import SimulatedJob, SimulatedWorld, TermsTruth, WorldSettings
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Admission, Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, plan_needs
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import JobSubmitted, NodeReported, quota_changed
from dlrover_nb.core.structs.views.past_jobs import JobTraits, PastJob
from dlrover_nb.core.warmstart import into_space

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.virtual_time import ManualClock

from dlrover_nb.core.simulator.workload import BATCH, SIZES, random_truth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.brain.cluster_plan import BrainSettings
    from dlrover_nb.core.structs.plan.capacity import Need
    from dlrover_nb.core.structs.plan.offers import Allotment, Offer
    from dlrover_nb.core.structs.views.events import Event
    from dlrover_nb.core.structs.views.summary import JobSummary

MACHINES = (NodeShape(32.0, 192 * 1024, 4),)
BOUNDS = PlanBounds(max_workers=24, max_ps=8, worker_cpus=SIZES, ps_cpus=SIZES, quota_cpu=64.0)
USUAL = ResourcePlan(RolePlan(4, 4.0, 4096), RolePlan(1, 4.0, 8192))
N_FAMILY, N_PAST = 6, 2
HOURS = (1.0, 0.5, 3.0)  # of a job on the usual plan: median, deviation of the logarithm, the longest
SLACK = (1.2, 2.5)  # deadline over that length
REQUEST_SD = math.log(2)
NOISE = 0.02
ROUND_S = 60.0
LIMIT_S = 3 * 86_400.0


@dataclass(frozen=True)
class Stream:
    """Jobs with their arrivals in seconds, and the history of their families; pure data, the same for all."""

    jobs: tuple[SimulatedJob, ...]
    at_s: tuple[float, ...]
    past: tuple[PastJob, ...]


@dataclass(frozen=True)
class Setting:
    """One way to plan.

    Parameters
    ----------
    brain
        Of the queue, and of who plans for running jobs in auto mode.
    policy, mode
        Of each job.
    knows_past
        Whether the history of the families tells the speed of a job that waits.
    """

    brain: BrainSettings
    policy: str = "fixed-plan"
    mode: Mode = Mode.MANUAL
    knows_past: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of a stream: of each job its time-out degree at the end, and the use of the cluster."""

    timeouts: tuple[float, ...]
    used: tuple[float, ...] = field(repr=False)
    cores: tuple[float, ...] = field(repr=False)
    core_h: float = 0.0

    @property
    def n_in_time(self) -> int:
        return sum(each <= 0 for each in self.timeouts)

    @property
    def mean_timeout(self) -> float:
        """Mean time over the deadline, as a share of the time until it; a job in time counts 0."""
        return statistics.fmean(max(each, 0.0) for each in self.timeouts)


class Steering:
    """What a baseline decides beside the queue: nothing, by default."""

    def hear(self, name: str, event: Event) -> None:
        """Take note of an event of a job."""

    def plans(self, at_s: float, running: Sequence[str], held: Sequence[Need]) -> dict[str, ResourcePlan]:
        """Return new plans of running jobs; `held` are the nodes of those that start or change now."""
        del at_s, running, held
        return {}


# jobs


def stream_of(load: float, n_job: int, seed: int) -> Stream:
    """Draw a stream; on usual plans its jobs would keep `load` of the cluster's cores busy."""
    rng = np.random.default_rng(seed)
    families = [_family(i, seed) for i in range(N_FAMILY)]
    jobs = tuple(_job(i, families, rng) for i in range(n_job))
    work = statistics.fmean(_usual_s(job) for job in jobs) * USUAL.total_cpu
    gap_s = work / (load * Capacity(MACHINES).total_cpu)
    at_s = np.cumsum(rng.exponential(gap_s, n_job))
    past = [each for i in range(N_FAMILY) for each in _past(i, seed)]
    return Stream(jobs, tuple(at_s.tolist()), tuple(past))


def _family(i: int, seed: int) -> TermsTruth:
    return random_truth(np.random.default_rng((seed, i)), contention=True)


def _job(i: int, families: Sequence[TermsTruth], rng: np.random.Generator) -> SimulatedJob:
    which = int(rng.integers(len(families)))
    truth = Related(families[which], rng)
    median_h, scatter, most_h = HOURS
    length_s = 3600 * min(float(rng.lognormal(math.log(median_h), scatter)), most_h)
    spec = JobSpec(
        f"job-{i + 1}",
        plan=request(rng),
        bounds=BOUNDS,
        batch_size=BATCH,
        deadline_s=float(rng.uniform(*SLACK)) * length_s,
        admission=Admission.QUEUE,
        warm_start=False,
        stragglers=SolutionName.NONE,  # no node is slow here
        straggler_window_s=86_400.0,
        owner=f"family-{which}",
    )
    return SimulatedJob(spec, truth, int(truth.speed(USUAL, BATCH) * length_s))


def request(rng: np.random.Generator) -> ResourcePlan:
    """Draw a user's request: each number of the usual plan wrong by a factor of about two."""
    into = into_space(BOUNDS, Capacity(MACHINES))
    while True:
        w, p, worker_cpu, ps_cpu = rng.lognormal(0.0, REQUEST_SD, 4).tolist()
        wanted = ResourcePlan(
            replace(USUAL.worker, count=max(round(4 * w), 1), cpu=4 * worker_cpu),
            replace(USUAL.ps, count=max(round(p), 1), cpu=4 * ps_cpu),
        )
        plan = into(wanted)
        if plan is not None:
            return plan


def _usual_s(job: SimulatedJob) -> float:
    return job.n_sample / job.truth.speed(USUAL, BATCH)


@lru_cache
def _past(family: int, seed: int) -> tuple[PastJob, ...]:
    """Run similar jobs by the product's default policy, as a history of the family."""
    rng, found = np.random.default_rng((seed, 100 + family)), []
    for i in range(N_PAST):
        spec = JobSpec(f"past-{family}-{i}", plan=USUAL, bounds=BOUNDS, batch_size=BATCH, mode=Mode.AUTO)
        kin = Related(_family(family, seed), rng)
        job = SimulatedJob(replace(spec, owner=f"family-{family}"), kin, int(kin.speed(USUAL, BATCH) * 3600))
        ours = Ours(SETTINGS)
        run = simulate(job, ours, 100 + i, NOISE)
        found.append(PastJob(_traits(job, family), USUAL, run.last, ours.fit))
    return tuple(found)


def _traits(job: SimulatedJob, family: int) -> JobTraits:
    return replace(traits_of(job), owner=job.spec.owner, n_table=20 + family, code_hash=job.spec.owner)


# one run


def run_stream(stream: Stream, setting: Setting, steering: Steering, seed: int) -> Outcome:
    """Run a stream to its end."""
    world = SimulatedWorld(
        MACHINES,
        rng=np.random.default_rng(seed),
        settings=WorldSettings(report_s=REPORT_S, faults=replace(QUIET, speed_noise=NOISE, node_noise=NOISE)),
    )
    for job, at_s in zip(stream.jobs, stream.at_s, strict=True):
        world.submit(_begun(job, setting, stream.past), at_s)
    cluster = _Cluster(world, setting, steering)
    used, cores, next_s = [], [], ROUND_S
    while world.next_at_s < LIMIT_S:
        cluster.handle(world.step(next_s)[1])
        if world.now_s >= next_s:
            cluster.plan()
            next_s += ROUND_S
            if stream.at_s[0] <= world.now_s <= stream.at_s[-1]:
                used.append(_load(world))
                cores.append(world.cluster.used_cpu / world.cluster.capacity.total_cpu)
    timeouts = []
    for sim in world.jobs:
        if sim.phase is not JobPhase.SUCCEEDED or sim.ended_at_s is None:
            raise RuntimeError(f"{sim.job.spec.name} has {sim.phase}: {sim.message}")
        timeouts.append((sim.ended_at_s - sim.started_at_s) / (sim.job.spec.deadline_s or math.inf) - 1)
    core_h = sum(sim.progress.core_s for sim in world.jobs) / 3600
    return Outcome(tuple(timeouts), tuple(used), tuple(cores), core_h)


def _begun(job: SimulatedJob, setting: Setting, past: Sequence[PastJob]) -> SimulatedJob:
    spec = replace(job.spec, mode=setting.mode, policy=setting.policy)
    if not setting.knows_past:
        return replace(job, spec=spec)
    traits = _traits(job, int(spec.owner.removeprefix("family-")))
    begun = initial_plan(spec, traits, Capacity(MACHINES), past)
    return replace(job, spec=begun.spec, prior=begun.prior, traits=traits, why=begun.why)


def _load(world: SimulatedWorld) -> float:
    """Return U of the cluster."""
    c = world.cluster
    loads = []
    for machine, free_cpu, free_mib in zip(c.machines, c.free_cpu, c.free_mib, strict=True):
        cpu_load = 1 - float(free_cpu) * 0.01 / machine.cpu
        loads.append(host_load(cpu_load, 1 - float(free_mib) / machine.memory_mib))
    return utilisation(loads)


class _Cluster:
    """The part of a cluster that a brain uses, in virtual time, and the controllers of the jobs.

    A real brain lets masters change their jobs while it asks others; here what it allots is handed out once
    the round is over.
    """

    def __init__(self, world: SimulatedWorld, setting: Setting, steering: Steering) -> None:
        self._world, self._steering = world, steering
        self._is_manual = setting.mode is Mode.MANUAL
        self._clock = ManualClock()
        part: Any = self  # a round uses no more of a cluster than this has
        self._rounds = Rounds(part, "bench", setting.brain, lasts_s=10 * ROUND_S, clock=self._clock)
        self._runs: dict[str, SimulatedRun] = {}
        self._told: list[tuple[str, Allotment]] = []

    def handle(self, events: Sequence[tuple[str, Event]]) -> None:
        for name, event in events:
            self._steering.hear(name, event)
            if self._is_manual and isinstance(event, NodeReported):
                continue  # measurements change nothing where no policy decides, and cost most of the time
            if isinstance(event, JobSubmitted):
                self._runs[name] = SimulatedRun(self._world.job(name), event, self.capacity(), SETTINGS)
            else:
                self._handle(name, event)

    def _handle(self, name: str, event: Event) -> None:
        for order in self._runs[name].handle(event):
            self._world.obey(name, order)

    def plan(self) -> None:
        self._clock.advance(self._world.now_s - self._clock.now_s())
        self._rounds.run(Term("bench", 1, lambda: True))
        for name, allotment in self._told:
            self._handle(name, quota_changed(allotment, self._world.now_s))
        self._told.clear()
        running = [name for name, run in self._runs.items() if run.phase is JobPhase.TRAINING]
        others = [sim for sim in self._world.jobs if sim.job.spec.name not in running and sim.nodes]
        held = [need for sim in others for need in plan_needs(sim.target)]
        for name, plan in self._steering.plans(self._world.now_s, running, held).items():
            self._world.job(name).set_target(plan)

    # as `core.client.cluster.Cluster`

    def capacity(self) -> Capacity:
        return self._world.cluster.capacity

    def jobs(self) -> tuple[JobSummary, ...]:
        return tuple(run.summary(self._world.now_s) for run in self._runs.values())

    def live_jobs(self) -> tuple[JobSummary, ...]:
        return tuple(job for job in self.jobs() if not job.phase.is_final)

    def job(self, name: str) -> _Handle:
        return _Handle(self._runs[name], self._told)


@dataclass(frozen=True)
class _Handle:
    """A job's handle and its link in one."""

    run: SimulatedRun
    told: list[tuple[str, Allotment]]

    @property
    def with_short_timeout(self) -> _Handle:
        return self

    @property
    def link(self) -> _Handle:
        return self

    def offer(self) -> Offer:
        return self.run.queries().offer()

    def allot(self, allotment: Allotment) -> None:
        self.told.append((self.run.name, allotment))

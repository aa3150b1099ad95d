"""A fleet of jobs with users' requests, with and without the product: completion and use of what is reserved.

It stands for the paper's production cluster, whose traces are not public. A job is one of the simulator's
sampler: true speed, request of cores and counts, growth of the PS' memory. Its user asks for a multiple of
the memory that it will need at its end; the multiple is lognormal with the two shares that the paper
reports: 6.5 % of jobs ask for too little (5 to 8 % die of memory, section 1) and 80 % for more than twice
the need (section 2.2, Fig. 3). Nodes fail and slow down as often as in the paper (1.5 % a day).

Without the product a job keeps its request; a node that is killed for its memory is replaced by an equal
one, until the job fails. With it, each job has the product's controller in auto mode with the default
objective. Use is cores busy and memory held by the nodes' own reports, over what placed nodes have
reserved, both summed over time: a node that starts has reserved and uses nothing. Waiting for others is not
busy.

What keeps the use of memory from rising further with the product: a request stays until enough is measured,
here for the first ten to twenty minutes of jobs of an hour, since nodes report once a minute; later a fifth
of margin, on PS a copy of their parameters, and what early forecasts leave open.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.controller.controller import Controller
from dlrover_nb.core.simulator import SimulatedWorld, WorldSettings
from dlrover_nb.core.simulator.workload import JobSampler, poisson_arrivals
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.views.events import JobSubmitted, NodeReported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.simulator import SimulatedJob

TOO_LITTLE, HALF_USED = 0.065, 0.80  # shares of jobs, from the paper
MACHINE_MIB = 192 * 1024
MIB_PER_GIB = 1024
REPORT_S = 60.0
HOURS = (2.0, 0.6)
LIMIT_S = 7 * 86_400.0  # of virtual time: a job that has not ended by then has not completed


@dataclass(frozen=True)
class Used:
    """What a fleet came to: completed jobs of all, and resources used and reserved over time."""

    n_done: int
    n_job: int
    used_core_s: float
    core_s: float
    used_gib_s: float
    gib_s: float

    @property
    def completion(self) -> float:
        return self.n_done / self.n_job

    @property
    def cpu(self) -> float:
        return self.used_core_s / self.core_s

    @property
    def memory(self) -> float:
        return self.used_gib_s / self.gib_s


def request_law(too_little: float, half_used: float) -> tuple[float, float]:
    """Return mean and deviation of the logarithm of request over need, from two shares of jobs.

    Parameters
    ----------
    too_little
        Share of jobs that ask for less than they need.
    half_used
        Share of jobs that ask for more than twice their need; 1 less this must exceed `too_little`.
    """
    normal = statistics.NormalDist()
    low, high = normal.inv_cdf(too_little), normal.inv_cdf(1 - half_used)
    deviation = math.log(2) / (high - low)
    return -low * deviation, deviation


def needs_mib(job: SimulatedJob) -> tuple[float, float]:
    """Return the memory that a worker and the fullest PS hold at the end of the job on its first plan."""
    n_ps = job.spec.plan.ps.count
    share = min((1 + job.hot_ps) / n_ps, 1.0) if n_ps > 1 else 1.0
    return job.worker_memory.at(job.n_sample), job.ps_memory.at(job.n_sample, share)


def requested(job: SimulatedJob, factor: float) -> SimulatedJob:
    """Return the job with `factor` times the memory that it needs: at least its first megabytes."""
    plan = job.spec.plan
    firsts = (job.worker_memory.base_mib, job.ps_memory.base_mib)
    worker, ps = (
        min(max(math.ceil(need * factor), math.ceil(first * 1.1)), MACHINE_MIB // 2)
        for need, first in zip(needs_mib(job), firsts, strict=True)
    )
    asked = replace(plan, worker=replace(plan.worker, memory_mib=worker), ps=replace(plan.ps, memory_mib=ps))
    return replace(job, spec=replace(job.spec, plan=asked))


def fleet_of(n_job: int, seed: int) -> list[SimulatedJob]:
    rng = np.random.default_rng(seed)
    mean, deviation = request_law(TOO_LITTLE, HALF_USED)
    sampler = JobSampler(hours=HOURS)
    jobs = [sampler.sample(f"job-{i + 1}", rng) for i in range(n_job)]
    return [requested(job, float(rng.lognormal(mean, deviation))) for job in jobs]


def run_fleet(jobs: Sequence[SimulatedJob], seed: int, settings: ControllerSettings | None) -> Used:
    """Run a fleet under controllers, or (None) on the users' requests."""
    rng = np.random.default_rng(seed)
    arrivals = poisson_arrivals(len(jobs), per_day=4.0 * len(jobs), rng=rng)
    world = SimulatedWorld(
        [NodeShape(32.0, MACHINE_MIB, 10 * len(jobs))], rng=rng, settings=WorldSettings(report_s=REPORT_S)
    )
    for job, at_s in zip(jobs, arrivals, strict=True):
        world.submit(job, float(at_s))
    controllers: dict[str, Controller] = {}
    used_core_s = used_mib_s = 0.0
    while world.next_at_s < LIMIT_S:
        _, told = world.step()
        orders = []
        for name, event in told:
            if isinstance(event, NodeReported):
                used_core_s += event.sample.cpu_cores * event.sample.window_s
                used_mib_s += event.sample.memory_mib * event.sample.window_s
            if settings is not None and isinstance(event, JobSubmitted):
                controllers[name] = Controller(event, settings)
            elif name in controllers:
                orders += [(name, order) for order in controllers[name].handle(event)]
        for name, order in orders:
            world.obey(name, order)
    for sim in world.jobs:
        if sim.phase is not JobPhase.SUCCEEDED:
            print(f"  {sim.job.spec.name} of seed {seed}: {sim.phase}, {sim.message}")
    n_done = sum(sim.phase is JobPhase.SUCCEEDED for sim in world.jobs)
    core_s, gib_s = (sum(getattr(s.progress, name) for s in world.jobs) for name in ("core_s", "gib_s"))
    return Used(n_done, len(jobs), used_core_s, core_s, used_mib_s / MIB_PER_GIB, gib_s)


def fleet_figures(seeds: Sequence[int], n_job: int, settings: ControllerSettings) -> dict[str, object]:
    """Return completion and utilisation with and without the product: medians over seeds."""
    own = replace(settings, window_s=2 * REPORT_S, max_window_s=10 * REPORT_S, settle_s=REPORT_S)
    runs: dict[str, list[Used]] = {"without": [], "with": []}
    for seed in seeds:
        jobs = fleet_of(n_job, seed)
        for name, chosen in (("without", None), ("with", own)):
            print(f"fleet {name} the product")
            runs[name].append(run_fleet(jobs, seed, chosen))
    return beside(runs)


def beside(runs: dict[str, list[Used]]) -> dict[str, object]:
    """Return each figure with and without the product, and its difference: medians over fleets."""
    line: dict[str, object] = {}
    keys = {"completion_rate": "completion", "cpu_utilisation": "cpu", "memory_utilisation": "memory"}
    for key, name in keys.items():
        found = {mode: [getattr(used, name) for used in fleets] for mode, fleets in runs.items()}
        gains = [a - b for a, b in zip(found["with"], found["without"], strict=True)]
        line[key] = {mode: round(statistics.median(values), 4) for mode, values in found.items()}
        line[f"{key}_gain"] = round(statistics.median(gains), 4)
    jobs = {
        mode: (sum(u.n_done for u in fleets), sum(u.n_job for u in fleets)) for mode, fleets in runs.items()
    }
    return line | {f"n_done_{mode}": f"{done} of {n}" for mode, (done, n) in jobs.items()}

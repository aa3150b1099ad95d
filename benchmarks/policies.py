"""Job completion time under several policies, simulated: DLRover-RM, Optimus, ES, a user's choice, an oracle.

Each case is a job whose true speed is known to the simulator alone: four jobs measured on a real cluster over
(PS, workers), and random jobs of Eqs. 1-6. All policies start with the same small plan, see the same kind of
reports with the same noise, pay the same for changes of plan, and have the same bounds and the same quota of
cores. The oracle runs the fastest plan from the start. A user's choice is the best plan with each number
wrong by a factor of about two. `warm` is DLRover again, started from a history of similar jobs that it ran
before (DLRover-RM, Algorithm 1): the paper runs it so in section 6.1. Nodes neither fail nor slow down here:
DLRover-RM too compares on a cluster without such faults (6.1).

A job takes `--hours` on the oracle's plan. DLRover is the product's own controller in auto mode.

    python benchmarks/policies.py --shared ../shared [--jobs 8 --hours 4 --objective speed]

Beside it, DLRover alone under several noises and seeds: JCT over the oracle, begun small and on the best
plan, and how many jobs end on a slower plan than they began with.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from policy_cases import MACHINES, Case, aimed, table_cases, terms_cases, user_plans
from simulated_day import day

from dlrover_nb.core.baselines import JobState, elastic_scheduling, optimus
from dlrover_nb.core.controller import Controller, ControllerSettings
from dlrover_nb.core.controller.auto_policy import AutoSettings
from dlrover_nb.core.controller.windows import SteadyWindows
from dlrover_nb.core.planner import PlannerSettings, axes_key, warm_start
from dlrover_nb.core.simulator import (
    Faults,
    SimulatedJob,
    SimulatedWorld,
    TableTruth,
    TermsTruth,
    WorldSettings,
)
from dlrover_nb.core.structs.capacity import Capacity
from dlrover_nb.core.structs.events import (
    Event,
    JobSubmitted,
    NodeReported,
    PlanApplied,
    ProgressMade,
    Scale,
    Ticked,
)
from dlrover_nb.core.structs.job import JobPhase, Objective
from dlrover_nb.core.structs.past import FitSummary, JobTraits, PastJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.baselines import Policy
    from dlrover_nb.core.planner import Axes
    from dlrover_nb.core.structs.resources import ResourcePlan
    from dlrover_nb.core.structs.samples import ProfileSample

REPORT_S = 15.0
DECIDE_S = 180.0  # "every three minutes" (DLRover-RM section 6.2)
QUIET = Faults(failures_per_day=0, slow_per_day=0)
SETTINGS = ControllerSettings(
    window_s=REPORT_S,
    max_window_s=8 * REPORT_S,
    settle_s=REPORT_S,
    refit_s=1200.0,
    refit_growth=0.5,
    cool_down_s=6 * REPORT_S,
    memory_check_s=1200.0,
    planner=PlannerSettings(experiment_s=8 * REPORT_S),
)


class Runner(Protocol):
    """Decides for one job."""

    def hear(self, event: Event) -> ResourcePlan | None: ...


class Still:
    """Leaves the job as it is."""

    def hear(self, event: Event) -> ResourcePlan | None:
        del event
        return None


class Ours:
    """The product's controller."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._controller: Controller | None = None
        self.fit: FitSummary | None = None

    def hear(self, event: Event) -> ResourcePlan | None:
        target = None
        if isinstance(event, JobSubmitted):
            self._controller = Controller(event, self._settings)
            return None
        assert self._controller is not None
        for order in self._controller.handle(event):
            if isinstance(order, Scale):
                target = order.target
            elif isinstance(order.record, FitSummary):
                self.fit = order.record
        return target


class Baseline:
    """Calls a baseline policy at every decision interval, with the same steady windows as ours."""

    def __init__(self, policy: Policy, settings: ControllerSettings, global_batch: int | None) -> None:
        self._policy, self._settings, self._global_batch = policy, settings, global_batch
        self._samples: dict[ResourcePlan, deque[ProfileSample]] = {}
        self._n_done, self._decided_s = 0, 0.0
        self._plan: ResourcePlan | None = None

    def hear(self, event: Event) -> ResourcePlan | None:
        match event:
            case JobSubmitted():
                self._job = event
                self._windows = SteadyWindows(self._settings, event.spec)
            case NodeReported():
                if event.plan != self._plan:
                    self._restart(event.plan, event.at_s)
                for window in self._windows.add(event.sample, event.at_s):
                    kept = self._samples.setdefault(window.plan, deque(maxlen=self._settings.n_kept))
                    kept.append(window)
            case PlanApplied():
                self._restart(event.plan, event.at_s)
            case ProgressMade():
                self._n_done = event.n_sample_done
            case Ticked() if self._plan is not None and event.at_s >= self._decided_s + DECIDE_S:
                self._decided_s = event.at_s
                return self._decide(self._plan)
            case _:
                pass
        return None

    def _restart(self, plan: ResourcePlan | None, at_s: float) -> None:
        self._plan = plan
        self._windows.restart(plan, at_s)

    def _decide(self, plan: ResourcePlan) -> ResourcePlan | None:
        if plan not in self._samples:
            return None
        spec = self._job.spec
        state = JobState(
            plan,
            tuple(sample for kept in self._samples.values() for sample in kept),
            max(self._job.n_sample_total - self._n_done, 0),
            spec.bounds,
            self._job.capacity,
            spec.batch_size,
            global_batch=self._global_batch,
        )
        return self._policy(state)


@dataclass(frozen=True)
class Run:
    jct_s: float
    core_h: float
    n_change: int
    n_return: int  # changes to a plan that ran before, ways back from experiments included
    last: ResourcePlan


def simulate(job: SimulatedJob, runner: Runner, seed: int, noise: float) -> Run:
    """Run a job whose windows and nodes differ by `noise`, the standard deviation of log speed."""
    settings = WorldSettings(report_s=REPORT_S, faults=replace(QUIET, speed_noise=noise, node_noise=noise))
    world = SimulatedWorld(MACHINES, rng=np.random.default_rng(seed), settings=settings)
    sim, plans = world.submit(job), [axes_key(job.spec.plan)]
    while world.next_at_s < math.inf:
        _, told = world.step()
        for name, event in told:
            target = runner.hear(event)
            if target is not None:
                plans.append(axes_key(target))
                world.obey(name, Scale("policy", target))
    if sim.phase is not JobPhase.SUCCEEDED or sim.ended_at_s is None:
        raise RuntimeError(f"{job.spec.name} has {sim.phase}: {sim.message}")
    jct_s, core_h = sim.ended_at_s - sim.started_at_s, sim.progress.core_s / 3600
    return Run(jct_s, core_h, len(plans) - 1, n_returns(plans), sim.target)


def n_returns(plans: Sequence[Axes]) -> int:
    """Count the changes that led to a plan that was left before; memory alone is no other plan."""
    changes = enumerate(itertools.pairwise(plans))
    return sum(after != before and after in plans[:i] for i, (before, after) in changes)


# the comparison


def warm(case: Case, settings: ControllerSettings, n_past: int, noise: float) -> SimulatedJob:
    """Return the job warm-started: from similar jobs, run cold, with coefficients a tenth apart."""
    rng, job, traits = np.random.default_rng(11), case.job, traits_of(case.job)
    past = []
    for i in range(n_past):
        truth = job.truth
        if isinstance(truth, TermsTruth):
            off = rng.lognormal(0.0, 0.1, 6)
            names = TermsTruth.__slots__
            truth = TermsTruth(*(getattr(truth, n) * float(x) for n, x in zip(names, off, strict=True)))
        ours = Ours(settings)
        run = simulate(replace(job, truth=truth), ours, 100 + i, noise)
        past.append(PastJob(traits, job.spec.plan, run.last, ours.fit))
    start = warm_start(job.spec, Capacity(MACHINES), traits, past)
    return replace(job, spec=replace(job.spec, plan=start.plan), prior=start.prior)


def traits_of(job: SimulatedJob) -> JobTraits:
    return JobTraits(
        model="wide_deep",
        n_table=26,
        embedding_dim=job.embedding_dim,
        n_table_row=1 << 20,
        dense_bytes=job.dense_bytes,
        batch_size=job.spec.batch_size,
        n_sample=job.n_sample,
        owner="user",
        name=job.spec.name,
    )


def compare(
    case: Case, settings: ControllerSettings, n_user: int, n_past: int, seed: int, noise: float
) -> dict[str, list[Run]]:
    batch = case.job.spec.global_batch
    runners: dict[str, Runner] = {
        "dlrover": Ours(settings),
        "optimus": Baseline(optimus, settings, batch),
        "es": Baseline(partial(elastic_scheduling, step=1), settings, batch),
    }
    runs = {name: [simulate(case.job, runner, seed, noise)] for name, runner in runners.items()}
    runs["warm"] = [simulate(warm(case, settings, n_past, noise), Ours(settings), seed, noise)]
    runs["oracle"] = [simulate(case.on(case.best), Still(), seed, noise)]
    runs["static"] = [simulate(case.on(plan), Still(), seed, noise) for plan in user_plans(case, n_user)]
    return runs


def ratio(rows: list[dict[str, list[Run]]], policy: str, ours_is: str) -> float:
    """Return the geometric mean of the DLRover JCT over that of a policy."""
    logs = []
    for row in rows:
        ours = row[ours_is][0].jct_s
        logs.append(statistics.fmean(math.log(ours / run.jct_s) for run in row[policy]))
    return math.exp(statistics.fmean(logs))


def final_speed(rows: list[tuple[Case, dict[str, list[Run]]]], policy: str) -> float:
    """Return the true speed of the plan that a policy ended on over that of the best: geometric mean."""
    logs = []
    for case, row in rows:
        truth, m = case.job.truth, case.job.spec.batch_size
        logs.append(math.log(truth.speed(row[policy][0].last, m) / truth.speed(case.best, m)))
    return math.exp(statistics.fmean(logs))


def change_counts(rows: list[dict[str, list[Run]]]) -> dict[str, int]:
    """Return the changes of plan of all jobs, and the returns among them, by policy."""
    line = {}
    for name in ("dlrover", "warm", "optimus", "es"):
        own = [run for row in rows for run in row[name]]
        line[f"n_change_{name}"] = sum(run.n_change for run in own)
        line[f"n_return_{name}"] = sum(run.n_return for run in own)
    return line


def under_noise(
    cases: list[Case], settings: ControllerSettings, noise: float, n_seed: int
) -> dict[str, object]:
    """Return JCT over the oracle's, begun small and on the best plan, and jobs that end slower than begun."""
    line: dict[str, object] = {}
    for mark, is_best in (("", False), ("_from_best", True)):
        logs, n_slower = [], 0
        for case, seed in itertools.product(cases, range(n_seed)):
            job, truth, m = case.job, case.job.truth, case.job.spec.batch_size
            if is_best:
                job = replace(job, spec=replace(job.spec, plan=case.best))
            run = simulate(job, Ours(settings), seed, noise)
            oracle = simulate(case.on(case.best), Still(), seed, noise)
            logs.append(math.log(run.jct_s / oracle.jct_s))
            n_slower += truth.speed(run.last, m) < truth.speed(job.spec.plan, m) * (1 - 1e-9)
        key = f"{mark}_noise_{noise:g}"
        line[f"over_oracle{key}"] = round(math.exp(statistics.fmean(logs)), 4)
        line[f"n_slower{key}"] = f"{n_slower} of {len(logs)}"
    return line


def show(case: Case, runs: dict[str, list[Run]]) -> None:
    truth = case.job.truth
    beyond = truth.n_clamped if isinstance(truth, TableTruth) else 0
    note = f"; {beyond} plans beyond the measured ones, at the nearest one's speed" if beyond else ""
    print(f"{case.name:32} best {case.best.short}{note}")
    for name, own in runs.items():
        jct_h = statistics.geometric_mean(r.jct_s for r in own) / 3600
        cores = statistics.fmean(r.core_h for r in own)
        last = own[0].last.short if len(own) == 1 else f"{len(own)} drawn"
        print(f"  {name:8} {jct_h:7.2f} h {cores:8.0f} core-h {own[0].n_change:4} changes   {last}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--jobs", type=int, default=8, help="random jobs of Eqs. 1-6")
    parser.add_argument("--hours", type=float, default=4.0, help="length of a job on the oracle's plan")
    parser.add_argument("--users", type=int, default=4, help="draws of the user's choice per job")
    parser.add_argument("--past", type=int, default=2, help="similar jobs in the history of a warm start")
    parser.add_argument("--min-gain", type=float, default=AutoSettings().min_gain)
    parser.add_argument("--objective", type=Objective, choices=list(Objective), default=Objective.VALUE)
    parser.add_argument("--no-day", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise", type=float, default=0.02, help="of windows and of nodes, in log speed")
    parser.add_argument("--noises", type=float, nargs="*", default=[0.02, 0.15, 0.3], help="of DLRover alone")
    parser.add_argument("--seeds", type=int, default=2, help="of each of these noises")
    options = parser.parse_args()
    settings = replace(SETTINGS, auto=replace(SETTINGS.auto, min_gain=options.min_gain))
    cases = terms_cases(options.jobs, options.hours)
    tables = options.shared / "data" / "dl2_ps_speed" / "ps_worker_speed.csv"
    cases += table_cases(tables, options.hours)
    cases = [aimed(case, options.objective) for case in cases]
    results: dict[str, list[dict[str, list[Run]]]] = {"terms": [], "tables": []}
    ordered = []
    for case in cases:
        runs = compare(case, settings, options.users, options.past, options.seed, options.noise)
        show(case, runs)
        results[case.kind].append(runs)
        ordered.append(runs)
    line: dict[str, object] = {"benchmark": "policies", "hours": options.hours, "min_gain": options.min_gain}
    line |= {"objective": str(options.objective), "noise": options.noise, "seed": options.seed}
    both = results["terms"] + results["tables"]
    for ours, mark in (("dlrover", ""), ("warm", "_warm")):
        for suffix, rows in (("", both), *((f"_{kind}", own) for kind, own in results.items())):
            line[f"over_oracle{mark}{suffix}"] = round(ratio(rows, "oracle", ours), 4)
            for name in ("optimus", "es", "static"):
                line[f"vs_{name}{mark}{suffix}"] = round(1 - ratio(rows, name, ours), 4)
    pairs = list(zip(cases, ordered, strict=True))
    for name in ("dlrover", "warm", "optimus", "es"):
        line[f"final_speed_{name}"] = round(final_speed(pairs, name), 4)
    for name in ("dlrover", "warm", "oracle", "optimus", "es", "static"):
        line[f"core_h_{name}"] = round(statistics.fmean(r.core_h for row in both for r in row[name]), 1)
    line |= change_counts(both)
    for noise in options.noises:
        line |= under_noise(cases, settings, noise, options.seeds)
    if not options.no_day:
        arrivals = options.shared / "data" / "pollux_adaptdl" / "workloads.csv.gz"
        line |= day(100, SETTINGS, arrivals if arrivals.exists() else None, options.seed)
    print(json.dumps(line))


if __name__ == "__main__":
    main()

"""Job completion time under several policies, simulated: DLRover-RM, Optimus, ES, a user's choice, an oracle.

Each case is a job whose true speed is known to the simulator alone: four jobs measured on a real cluster
over (PS, workers), random jobs of Eqs. 1-6, and half as many with a cost of contention between workers,
which the paper's equations lack (`contended`). All policies start with the same small plan, see the same
kind of reports with the same noise, pay the same for changes of plan, and have the same bounds and the
same quota of cores. The oracle runs the fastest plan from the start. A user's choice is the best plan with
each number wrong by a factor of about two. `warm` is DLRover again, started from a history of similar jobs
that it ran before (DLRover-RM, Algorithm 1): the paper runs it so in section 6.1. None of them is the same
job: names, rows and speeds differ, and speed grows otherwise with workers and PS. Nodes neither fail nor
slow down here: DLRover-RM too compares on a cluster without such faults (6.1).

A job takes `--hours` on the oracle's plan. DLRover is the product's own controller in auto mode.

    python benchmarks/policies.py --shared ../shared [--jobs 8 --hours 4 --objectives speed value]

All of it takes hours. `--parts` and `--kinds` choose: what DLRover does alone on measured tables, under three
noises and beside other work, is `--parts noise hosts --kinds tables --objectives speed --no-day
--noises .05 .15 .3`.

All figures are of the objective `speed`; those of `value`, whose plans should cost less, end in `_value`.

Beside it, DLRover alone under several noises and seeds, begun small and on the best plan: time and core
hours over the oracle's, speed of the last plan over the best plan's, changes of plan, returns to plans that
were left, and how many jobs end on a slower plan than they began with. The same where all speeds halve on
the way (`_drift`), as when other jobs fill the network: what was measured before looks twice as fast then.
Last beside other work on the hosts, which takes half of the speed every other ten minutes (`_on_off`), or
another part each five minutes (`_host_walk`); jobs begun on the best plan too (`_from_best_`).
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from lengths import parsed, print_figures
from policy_cases import KINDS, MACHINES, Case, Related, aimed, drifting, table_cases, terms_cases, user_plans
from policy_runs import SETTINGS, Baseline, HostParts, Ours, Run, Runner, Still, simulate
from simulated_day import day

from dlrover_nb.core.baselines import elastic_scheduling, optimus
from dlrover_nb.core.controller.auto_policy import AutoSettings
from dlrover_nb.core.planner.policies.stages import warm_start
from dlrover_nb.core.structs.job.spec_choices import Objective
from dlrover_nb.core.structs.plan.capacity import Capacity
from dlrover_nb.core.structs.views.past_jobs import JobTraits, PastJob

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from dlrover_nb.core.lab.measured_speeds import TableTruth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.simulator import SimulatedJob

PARTS = ("compared", "noise", "drift", "hosts")
DRIFT, DRIFTS_AT = 0.5, 0.4  # of all speeds; after this part of the time that the oracle would take


# the comparison


def warm(
    case: Case, settings: ControllerSettings, n_past: int, noise: float, *, seed: int = 11
) -> SimulatedJob:
    """Return the job warm-started: from similar jobs, run cold."""
    rng, job, traits, past = np.random.default_rng(seed), case.job, traits_of(case.job), []
    for i in range(n_past):
        ours = Ours(settings)
        similar = replace(
            job, truth=Related(job.truth, rng), n_sample=int(job.n_sample * rng.lognormal(0.0, 0.5))
        )
        run = simulate(similar, ours, 100 + i, noise)
        kin = replace(traits, name=f"{job.spec.name}-{i}", n_sample=similar.n_sample)
        past.append(PastJob(kin, job.spec.plan, run.last, ours.fit))
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


def final_speed(rows: Sequence[tuple[Case, dict[str, list[Run]]]], policy: str) -> float:
    """Return the true speed of the plan that a policy ended on over that of the best: geometric mean."""
    return statistics.geometric_mean(
        case.speed(row[policy][0].last) / case.speed(case.best) for case, row in rows
    )


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
    """Return the figures of DLRover alone, begun small and on the best plan, under one noise."""
    line = alone(cases, settings, noise, n_seed, f"_noise_{noise:g}")
    return line | alone(
        [begun_best(case) for case in cases], settings, noise, n_seed, f"_from_best_noise_{noise:g}"
    )


def begun_best(case: Case) -> Case:
    """Return a job that begins on its best plan."""
    return replace(case, job=replace(case.job, spec=replace(case.job.spec, plan=case.best)))


DAY_S = 86_400
ON_OFF: HostParts = tuple((float(at), 0.5 if at // 600 % 2 else 1.0) for at in range(0, DAY_S, 600))


def host_walk(seed: int) -> HostParts:
    """Return what other work leaves of the speed, drawn anew each five minutes."""
    parts = np.random.default_rng(seed).uniform(0.4, 1.0, DAY_S // 300)
    return tuple((300.0 * i, float(part)) for i, part in enumerate(parts))


def beside_others(
    cases: list[Case], settings: ControllerSettings, noise: float, n_seed: int
) -> dict[str, object]:
    """Return the figures of DLRover alone on hosts with other work, begun small and on the best plan."""
    line: dict[str, object] = {}
    for mark, host in (("_on_off", ON_OFF), ("_host_walk", host_walk(0))):
        line |= alone(cases, settings, noise, n_seed, mark, host)
        best = [begun_best(case) for case in cases]
        line |= alone(best, settings, noise, n_seed, f"_from_best{mark}", host)
    named = {"over_oracle_walk": "over_oracle_host_walk", "from_best_walk": "over_oracle_from_best_host_walk"}
    return line | {name: line[of] for name, of in named.items()}


def alone(
    cases: list[Case],
    settings: ControllerSettings,
    noise: float,
    n_seed: int,
    mark: str,
    host: HostParts = (),
) -> dict[str, object]:
    """Return what DLRover makes of the jobs, against their best plans: geometric means, and counts of all."""
    time, speed, cores, n_change, n_return, n_slower = [], [], [], 0, 0, 0
    for case, seed in itertools.product(cases, range(n_seed)):
        run = simulate(case.job, Ours(settings), seed, noise, host)
        oracle = simulate(case.on(case.best), Still(), seed, noise, host)
        time.append(run.jct_s / oracle.jct_s)
        cores.append(run.core_h / oracle.core_h)
        speed.append(case.speed(run.last) / case.speed(case.best))
        n_change, n_return = n_change + run.n_change, n_return + run.n_return
        n_slower += case.speed(run.last) < case.speed(case.job.spec.plan) * (1 - 1e-9)
    means = {"over_oracle": time, "final_speed": speed, "core_h_over_oracle": cores}
    line: dict[str, object] = {f"{k}{mark}": round(statistics.geometric_mean(x), 4) for k, x in means.items()}
    counts = {"n_change": n_change, "n_return": n_return, "n_slower": f"{n_slower} of {len(time)}"}
    return line | {f"{key}{mark}": n for key, n in counts.items()}


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
    parser.add_argument("--jobs", type=int, default=2, help="random jobs of Eqs. 1-6")
    parser.add_argument("--hours", type=float, default=4.0, help="length of a job on the oracle's plan")
    parser.add_argument("--users", type=int, default=1, help="draws of the user's choice per job")
    parser.add_argument("--past", type=int, default=1, help="similar jobs in the history of a warm start")
    parser.add_argument("--min-gain", type=float, default=AutoSettings().min_gain)
    parser.add_argument(
        "--objectives",
        type=Objective,
        choices=list(Objective),
        nargs="*",
        default=[Objective.SPEED],
    )
    parser.add_argument("--parts", choices=PARTS, nargs="*", default=PARTS[:1])
    parser.add_argument("--kinds", choices=KINDS, nargs="*", default=KINDS[:1], help="of jobs")
    parser.add_argument("--no-day", action="store_true", default=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise", type=float, default=0.02, help="of windows and of nodes, in log speed")
    parser.add_argument(
        "--noises", type=float, nargs="*", default=[0.02, 0.05, 0.15, 0.3], help="of DLRover alone"
    )
    parser.add_argument("--seeds", type=int, default=2, help="of each of these noises")
    options = parsed(
        parser, jobs=8, users=4, past=2, objectives=list(Objective), parts=PARTS, kinds=KINDS, no_day=False
    )
    settings = replace(SETTINGS, auto=replace(SETTINGS.auto, min_gain=options.min_gain))
    cases = terms_cases(options.jobs, options.hours)
    cases += terms_cases(options.jobs // 2, options.hours, contention=True)
    tables = options.shared / "data" / "dl2_ps_speed" / "ps_worker_speed.csv"
    cases += table_cases(tables, options.hours)
    cases = [case for case in cases if case.kind in options.kinds]
    line: dict[str, object] = {"benchmark": "policies", "hours": options.hours, "min_gain": options.min_gain}
    line |= {"noise": options.noise, "seed": options.seed, "seeds": options.seeds}
    for objective in options.objectives:
        print(f"objective {objective}")
        found = figures([aimed(case, objective) for case in cases], settings, options)
        mark = "" if objective is Objective.SPEED else f"_{objective}"
        line |= {f"{key}{mark}": value for key, value in found.items()}
    if not options.no_day:
        arrivals = options.shared / "data" / "pollux_adaptdl" / "workloads.csv.gz"
        line |= day(100, SETTINGS, arrivals if arrivals.exists() else None, options.seed)
    print_figures("policies", line)


def figures(
    cases: list[Case], settings: ControllerSettings, options: argparse.Namespace
) -> dict[str, object]:
    """Return all figures of the jobs: beside other policies, and of DLRover alone under noise and drift."""
    line: dict[str, object] = {}
    if "compared" in options.parts:
        line |= compared([beside_policies(case, settings, options) for case in cases])
    for noise in options.noises if "noise" in options.parts else ():
        line |= under_noise(cases, settings, noise, options.seeds)
    if "drift" in options.parts:
        drifted = [drifting(case, DRIFT, DRIFTS_AT * options.hours * 3600) for case in cases]
        line |= alone(drifted, settings, options.noise, options.seeds, "_drift")
    if "hosts" in options.parts:
        line |= beside_others(cases, settings, options.noise, options.seeds)
    return line


def beside_policies(
    case: Case, settings: ControllerSettings, options: argparse.Namespace
) -> tuple[Case, dict[str, list[Run]]]:
    """Run a job under each policy, and print how it went."""
    runs = compare(case, settings, options.users, options.past, options.seed, options.noise)
    show(case, runs)
    return case, runs


def compared(pairs: list[tuple[Case, dict[str, list[Run]]]]) -> dict[str, object]:
    """Return DLRover, cold and warm, beside the other policies."""
    both = [runs for _, runs in pairs]
    kinds = {kind: [runs for case, runs in pairs if case.kind == kind] for kind in KINDS}
    line: dict[str, object] = {}
    for ours, mark in (("dlrover", ""), ("warm", "_warm")):
        for suffix, rows in (("", both), *((f"_{kind}", own) for kind, own in kinds.items() if own)):
            line[f"over_oracle{mark}{suffix}"] = round(ratio(rows, "oracle", ours), 4)
            for name in ("optimus", "es", "static"):
                line[f"vs_{name}{mark}{suffix}"] = round(1 - ratio(rows, name, ours), 4)
    for name in ("dlrover", "warm", "optimus", "es"):
        line[f"final_speed_{name}"] = round(final_speed(pairs, name), 4)
    for name in ("dlrover", "warm", "oracle", "optimus", "es", "static"):
        line[f"core_h_{name}"] = round(statistics.fmean(r.core_h for row in both for r in row[name]), 1)
    return line | change_counts(both)


if __name__ == "__main__":
    main()

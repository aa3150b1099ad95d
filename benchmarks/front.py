"""Speed and quality of the search for plans: exact front, NSGA-II, planning for 1000 jobs.

- `exact_ms_1m`: the non-dominated filter over cost and throughput of 1,048,576 plans (64 workers, 16 PS and
  32 x 32 CPU sizes), the two arrays given; median of the rounds. Making the arrays (listing the plans,
  placing each on the machines, pricing and predicting it) is timed separately.
- `analysis_ms_1m`, `analysis_cpu_ms_1m`: the whole analysis of the same plans with a fitted model, from the
  grid to the front with its named picks, reasons, bands and the curves; median of the rounds, and CPU time.
- `nsga2_hv_ratio`, `nsga2_s`: NSGA-II on the same plans; hypervolume of its front over that of the exact
  one, worst of the seeds, and the slowest run, model included. Reference point: the cost of the most
  expensive plan of the space and zero throughput. Random search with as many plans is shown for comparison.
- `replan_1000_jobs_s`: 1000 jobs with fitted models, each with its own present plan and 288 plans to choose
  from (8 workers, 4 PS, 3 x 3 CPU sizes): predict, take the front, price it, subtract the transition from
  the gain, choose the most efficient plan. All 288 plans are predicted by the mean coefficients, the best 96
  by the whole model (`planner.bid`). The models are fitted beforehand, 40 different ones in turn. `agree` is
  the share of jobs for which predicting all 288 plans leads to the same choice.

The models are fitted to windows of Eqs. 1-6 with 2 % noise.

    python benchmarks/front.py [--rounds 5 --seeds 5 --jobs 1000]
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from lengths import parsed, print_figures

from dlrover_nb.core.pareto.dominance import hypervolume, non_dominated
from dlrover_nb.core.pareto.exact import exact_search
from dlrover_nb.core.pareto.nsga2 import nsga2_search
from dlrover_nb.core.planner.analysis import analyse, fitted
from dlrover_nb.core.planner.bid import Bid, bid
from dlrover_nb.core.planner.shortlist import Rough, grid_of
from dlrover_nb.core.planner.situation import Situation
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dlrover_nb.core.perf.model import ThroughputModel
    from dlrover_nb.core.planner.analysis import Analysis

    Array = NDArray[np.float64]

SIZES = tuple(float(c) for c in np.arange(1, 33) / 4)
MILLION = PlanBounds(max_workers=64, max_ps=16, worker_cpus=SIZES, ps_cpus=SIZES)
HUNDREDS = PlanBounds(max_workers=8, max_ps=4, worker_cpus=(1, 2, 4), ps_cpus=(1, 2, 4))
CLUSTER = Capacity((NodeShape(32, 131_072, 40),))
BATCH = 512
N_MODEL = 40


def plan(w: int, p: int, worker_cpu: float, ps_cpu: float) -> ResourcePlan:
    return ResourcePlan(RolePlan(w, worker_cpu, 2048), RolePlan(p, ps_cpu, 4096))


def situation(bounds: PlanBounds, rng: np.random.Generator) -> Situation:
    """Return a job with true coefficients, measured plans and present plan drawn from the generator."""
    grad, upd, sync, emb, rest = np.array([0.15, 0.05, 0.002, 0.1, 0.01]) * np.exp(rng.normal(0, 0.5, 5))
    samples = []
    for _ in range(6):
        w, p = int(rng.integers(1, 9)), int(rng.integers(1, 5))
        a, b = float(rng.choice([1, 2, 4])), float(rng.choice([1, 2, 4]))
        iter_s = grad / a + upd * w / (p * b) + sync * w / p + emb / p + rest
        speeds = w * BATCH / iter_s * np.exp(rng.normal(0, 0.02, 4))
        samples += [ProfileSample(float(i), 2.0, plan(w, p, a, b), BATCH, v) for i, v in enumerate(speeds)]
    return Situation(
        spec=JobSpec("front", bounds=bounds, batch_size=BATCH),
        capacity=CLUSTER,
        dense_bytes=1_000_000,
        embedding_dim=16,
        plan=samples[-1].plan,
        samples=tuple(samples),
        n_sample_left=int(rng.integers(10**7, 10**9)),
    )


def timed(call: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def whole(job: Situation, model: ThroughputModel) -> Analysis:
    """Return an analysis of which all is computed that a view or advice reads."""
    found = analyse(job, model=model)
    _ = found.front, found.curves, found.gain_samples_per_s, found.finish_s, found.measured
    return found


@dataclass(frozen=True)
class Million:
    """Medians over the rounds, in ms, and the plans."""

    exact_ms: float
    analysis_ms: float
    analysis_cpu_ms: float
    rough: Rough
    axes: Array


def million(rounds: int) -> Million:
    """Time the exact front of a million plans, by step."""
    job = situation(MILLION, np.random.default_rng(1))
    fit_s, model = timed(lambda: fitted(job))
    rough = Rough(grid_of(job), model, job)
    list_s, axes = timed(lambda: np.concatenate(list(rough.grid.chunks())))
    rough_s, (cost, speed) = timed(lambda: rough(axes))
    filter_s = [timed(lambda: non_dominated(cost, speed))[0] for _ in range(rounds)]
    sort_s, _ = timed(lambda: np.lexsort((-speed, cost)))
    cpu_s, analyse_s = [], []
    for _ in range(rounds):
        began_s = time.process_time()
        own_s, analysis = timed(lambda: whole(job, model))
        cpu_s.append(time.process_time() - began_s)
        analyse_s.append(own_s)
    whole_s, predicted = timed(lambda: model.predict(axes, BATCH).samples_per_s)
    worst = (float(cost.max()), 0.0)
    kept = hypervolume(analysis.cost, analysis.predictions.samples_per_s, worst=worst) / hypervolume(
        cost, predicted, worst=worst
    )
    print(f"exact front of {len(axes):,} plans (all that fit, of {rough.grid.n_plan:,})")
    rows = (
        ("filter, arrays given", statistics.median(filter_s), f"worst {1e3 * max(filter_s):.1f} ms"),
        ("sort all, for scale", sort_s, ""),
        ("list plans and place them", list_s, ""),
        ("price, mean coefficients", rough_s, ""),
        ("fit the model", fit_s, ""),
        (
            "analyse, model fitted",
            statistics.median(analyse_s),
            (
                f"on a core {1e3 * statistics.median(cpu_s):.1f} ms; "
                f"{len(analysis.space):,} plans with bands, {len(analysis.front.candidates)} shown"
            ),
        ),
        ("predict all, bands and all", whole_s, f"front covers {1 / kept:.6f} of what `analyse` found"),
    )
    for name, seconds, note in rows:
        print(f"  {name:26} {1e3 * seconds:9.1f} ms  {note}")
    in_ms = [1e3 * statistics.median(seconds) for seconds in (filter_s, analyse_s, cpu_s)]
    return Million(*in_ms, rough, axes)


def search(rough: Rough, axes: Array, n_seed: int) -> tuple[float, float]:
    """Compare NSGA-II with the exact front; return the worst ratio and the slowest run."""
    cost, speed = rough(axes)
    worst = (float(cost.max()), 0.0)
    exact_s, (exact, _) = timed(lambda: exact_search(rough.grid, rough))
    whole = hypervolume(*rough(exact), worst=worst)
    print(f"\nNSGA-II on the same plans (exact: {exact_s:.2f} s and {len(exact)} plans on the front)")
    print("  seed       s  plans weighed  on front  hypervolume ratio  random search")
    ratios, seconds = [], []
    for seed in range(n_seed):
        run_s, (found, n) = timed(
            lambda s=seed: nsga2_search(rough.grid, rough, rng=np.random.default_rng(s))
        )
        ratio = hypervolume(*rough(found), worst=worst) / whole
        chance = np.random.default_rng(seed).integers(0, len(axes), n)
        random = hypervolume(cost[chance], speed[chance], worst=worst) / whole
        print(f"  {seed:4} {run_s:7.2f} {n:14,} {len(found):9} {ratio:18.6f} {random:14.5f}")
        ratios.append(ratio)
        seconds.append(run_s)
    return min(ratios), max(seconds)


def best_plan(offered: Bid) -> ResourcePlan | None:
    return None if offered.best is None else offered.plan(offered.best)


def replan(n_job: int) -> float:
    """Plan for many jobs and return the seconds."""
    rng = np.random.default_rng(7)
    known = [(job, fitted(job)) for job in (situation(HUNDREDS, rng) for _ in range(N_MODEL))]
    jobs = []
    for i in range(n_job):
        job, model = known[i % N_MODEL]
        left = int(rng.integers(10**7, 10**9))
        now = job.samples[4 * (i // N_MODEL) % 24].plan
        now = replace(now, worker=replace(now.worker, memory_mib=2048 + i))  # no two jobs share a space
        jobs.append((replace(job, n_sample_left=left, plan=now), model))
    cpu_s = time.process_time()
    total_s, chosen = timed(lambda: [best_plan(bid(job, model)) for job, model in jobs])
    cpu_s = time.process_time() - cpu_s
    n_plan = grid_of(jobs[0][0]).n_plan
    checked = jobs[:: max(n_job // 100, 1)]
    whole = [best_plan(bid(job, model, enough=n_plan)) for job, model in checked]
    agree = sum(a == b for a, b in zip(whole, chosen[:: max(n_job // 100, 1)], strict=True)) / len(checked)
    print(
        f"\n{n_job} jobs with {n_plan} plans each: {total_s:.2f} s, of it {cpu_s:.2f} s on a core; "
        f"{1e3 * total_s / n_job:.2f} ms a job"
    )
    print(f"  {sum(c is not None for c in chosen)} jobs have a plan worth a change; agree {agree:.2f}")
    return total_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1000)
    options = parsed(parser, rounds=5, seeds=5)
    found = million(options.rounds)
    ratio, search_s = search(found.rough, found.axes, options.seeds)
    replan_s = replan(options.jobs)
    print_figures(
        "front",
        {
            "plans": len(found.axes),
            "exact_ms_1m": round(found.exact_ms, 1),
            "analysis_ms_1m": round(found.analysis_ms, 1),
            "analysis_cpu_ms_1m": round(found.analysis_cpu_ms, 1),
            "nsga2_hv_ratio": round(ratio, 5),
            "nsga2_s": round(search_s, 2),
            "jobs": options.jobs,
            "replan_1000_jobs_s": round(replan_s, 2),
        },
    )


if __name__ == "__main__":
    main()

"""Weighted greedy selection against the exact optimum (HiGHS), and on ten thousand jobs.

Instances are random and of three kinds, in turn: *fronts* (each job's candidates lie on a saturating curve
of throughput over cores, remaining time log-normal, rho drawn from 0, 1 and 2.5: the planner's form), *rough*
(values and needs independent of each other) and *correlated* (value proportional to need, plus or minus half:
the hard case of knapsack problems). Two resources, capacity 5 to 60 % of the way from the jobs' holdings to
their maximum. The exact solver may take `--limit` seconds; where it does not finish, its best selection so
far is used, and the case is counted.

    python benchmarks/select.py [--instances 200 --seed 0]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengths import parsed, print_figures

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from dlrover_nb.core.greedy import WEIGHTS, Bids, remaining_time, select

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dlrover_nb.core.greedy import Weight

    Array = NDArray[np.float64]

KINDS = ("fronts", "rough", "correlated")


@dataclass(frozen=True)
class Instance:
    bids: Bids
    capacity: Array
    weight: Weight


def capacity_of(demands: Array, present: Array, tight: float) -> Array:
    """Return the capacity at the fraction `tight` from the jobs' holdings to their maximum."""
    most = np.maximum(demands.max(axis=1), present).sum(axis=0)
    return present.sum(axis=0) + tight * (most - present.sum(axis=0))


def fronts(rng: np.random.Generator, n_job: int, n_candidate: int, tight: float) -> Instance:
    start = rng.lognormal(1.0, 0.7, (n_job, 1))
    growth = np.sort(rng.uniform(0, 1, (n_job, n_candidate)), axis=1) * rng.uniform(2, 30, (n_job, 1))
    cores = np.hstack((start, start * (1 + growth)))
    gib = cores * rng.uniform(1, 8, (n_job, 1)) * rng.lognormal(0, 0.2, cores.shape)
    speed = 1000 * cores ** rng.uniform(0.3, 0.95, (n_job, 1)) * rng.lognormal(0, 0.05, cores.shape)
    cost = 0.034 * cores + 0.0045 * gib
    whole = np.stack((cores, gib), axis=2)
    demands, present = whole[:, 1:], whole[:, 0]
    bids = Bids(
        np.arange(n_job + 1) * n_candidate,
        demands.reshape(-1, 2),
        (speed[:, 1:] - speed[:, :1]).ravel(),
        (cost[:, 1:] - cost[:, :1]).ravel(),
        speed[:, 1:].ravel(),
        rng.lognormal(np.log(1e7), 1.2, n_job),
        present,
        ("cores", "GiB"),
    )
    rho = float(rng.choice([0.0, 1.0, 2.5]))
    return Instance(bids, capacity_of(demands, present, tight), remaining_time(rho))


def rough(rng: np.random.Generator, n_job: int, n_candidate: int, tight: float, *, tied: bool) -> Instance:
    demands = rng.uniform(1, 20, (n_job, n_candidate, 2))
    present = rng.uniform(0, 2, (n_job, 2))
    if tied:
        value = (demands.sum(axis=2) - present.sum(axis=1)[:, None]) * rng.uniform(
            0.5, 1.5, (n_job, n_candidate)
        )
    else:
        value = rng.lognormal(0, 1, (n_job, n_candidate))
    n = n_job * n_candidate
    bids = Bids(
        np.arange(n_job + 1) * n_candidate,
        demands.reshape(-1, 2),
        np.maximum(value, 0).ravel(),
        np.ones(n),
        np.ones(n),
        np.ones(n_job),
        present,
        ("cores", "GiB"),
    )
    return Instance(bids, capacity_of(demands, present, tight), WEIGHTS["equal"])


def draw(rng: np.random.Generator, kind: str, n_job: int, n_candidate: int) -> Instance:
    tight = rng.uniform(0.05, 0.6)
    if kind == "fronts":
        return fronts(rng, n_job, n_candidate, tight)
    return rough(rng, n_job, n_candidate, tight, tied=kind == "correlated")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drop what HiGHS writes directly to the standard output."""
    kept = os.dup(1)
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a descriptor is needed, not a path
        os.dup2(nowhere.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def exact(instance: Instance, values: Array, limit_s: float) -> tuple[float, bool]:
    """Return the objective that HiGHS finds and whether it is proved optimal."""
    bids, unit = instance.bids, float(np.abs(values).max())
    keep = np.flatnonzero(bids.gains >= 0)
    need = (bids.demands - bids.present[bids.job])[keep].T
    one_each = csr_array(
        (np.ones(len(keep)), (bids.job[keep], np.arange(len(keep)))), (bids.n_job, len(keep))
    )
    with quiet():
        found = milp(
            -values[keep] / unit,
            constraints=[
                LinearConstraint(one_each, -np.inf, 1),
                LinearConstraint(need, -np.inf, instance.capacity - bids.present.sum(axis=0)),
            ],
            integrality=np.ones(len(keep)),
            bounds=Bounds(0, 1),
            options={"time_limit": limit_s, "mip_rel_gap": 1e-5},
        )
    return (-found.fun * unit if found.fun is not None else 0.0), found.status == 0


def by_falling_value(instance: Instance, values: Array) -> float:
    """Return the objective of the plain greedy: candidates by falling RE * WG while they fit."""
    bids = instance.bids
    need, job = bids.demands - bids.present[bids.job], bids.job
    free, done, total = instance.capacity - bids.present.sum(axis=0), set(), 0.0
    for i in np.argsort(-values, kind="stable"):
        if values[i] <= 0:
            break
        if job[i] not in done and (need[i] <= free).all():
            free, total = free - need[i], total + float(values[i])
            done.add(job[i])
    return total


def compare(n_instance: int, seed: int, limit_s: float) -> list[dict[str, float | str]]:
    rows = []
    for i in range(n_instance):
        rng = np.random.default_rng([seed, i])
        kind = KINDS[i % len(KINDS)]
        instance = draw(rng, kind, int(rng.integers(10, 41)), int(rng.integers(5, 21)))
        began = time.perf_counter()
        ours = select(instance.bids, instance.capacity, weight=instance.weight)
        took = time.perf_counter() - began
        began = time.perf_counter()
        best, proven = exact(instance, ours.values, limit_s)
        milp_s = time.perf_counter() - began
        assert (ours.used <= instance.capacity * (1 + 1e-9)).all()
        plain = by_falling_value(instance, ours.values)
        rows.append(
            {
                "kind": kind,
                "ratio": ours.objective / best if best else 1.0,
                "plain": plain / best if best else 1.0,
                "greedy_s": took,
                "milp_s": milp_s,
                "proven": float(proven),
            }
        )
    return rows


def scale(n_job: int, n_candidate: int, runs: int) -> tuple[float, float]:
    """Return the median seconds of selecting for many jobs, and the proven gap to the optimum."""
    instance = fronts(np.random.default_rng(1), n_job, n_candidate, 0.3)
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        found = select(instance.bids, instance.capacity)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds), found.gap


def column(rows: list[dict[str, float | str]], name: str) -> list[float]:
    return [float(row[name]) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=3.0, help="seconds for the exact solver")
    options = parsed(parser, instances=200)
    greedy_s, gap = scale(10_000, 50, runs=5)
    rows = compare(options.instances, options.seed, options.limit)
    print("instances     n  greedy/milp mean   min  plain mean   min  greedy ms  milp ms  milp unproven")
    for kind in (*KINDS, "all"):
        some = [r for r in rows if kind in {r["kind"], "all"}]
        if not some:
            continue
        ratio, plain = column(some, "ratio"), column(some, "plain")
        print(
            f"{kind:<11} {len(some):>3} {statistics.mean(ratio):>17.4f} {min(ratio):.3f} "
            f"{statistics.mean(plain):>11.4f} {min(plain):.3f} "
            f"{1e3 * statistics.median(column(some, 'greedy_s')):>10.1f} "
            f"{1e3 * statistics.median(column(some, 'milp_s')):>8.1f} "
            f"{len(some) - sum(column(some, 'proven')):>14.0f}"
        )
    print(f"10,000 jobs x 50 candidates: {greedy_s:.3f} s, at most {gap:.2e} below the optimum")
    print_figures(
        "select",
        {
            "greedy_s": round(greedy_s, 3),
            "greedy_gap": float(f"{gap:.2e}"),
            "greedy_over_milp": round(statistics.mean(column(rows, "ratio")), 5),
            "greedy_over_milp_min": round(min(column(rows, "ratio")), 5),
            "plain_over_milp": round(statistics.mean(column(rows, "plain")), 5),
            "plain_over_milp_min": round(min(column(rows, "plain")), 5),
            "milp_s": round(statistics.mean(column(rows, "milp_s")), 4),
            "milp_unproven": int(len(rows) - sum(column(rows, "proven"))),
            "n_instance": len(rows),
        },
    )


if __name__ == "__main__":
    main()

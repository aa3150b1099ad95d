"""Error, coverage and speed of the throughput model on measured speeds of real PS jobs (DL2 testbed).

Four MXNet jobs, synchronous PS, measured over the number of workers and PS; failed rows dropped. The
global batch B is fixed there, so that m = B/w. Three protocols, RMSLE of throughput on plans not shown:

- 70/30: a random 70 % of the plans; 12 probes: 12 random plans; both over 20 seeded draws;
- extrapolate: plans with p and w up to a quantile of each are shown, 40 to 60 % of p and 40 to 70 % of w in
  twelve splits; all larger plans are predicted.

The model is compared, on the same splits, with Eqs. 1-6 as written, Optimus, and Eqs. 1-6 with one term in w,
each by NNLS refined on log residuals. Coverage is the share of unseen plans inside the 90 % band, by job and
protocol; `coverage90` is the mean over all.

    python benchmarks/fit.py [--shared ../shared --draws 20]
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

for name in (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
):  # small matrices: more threads only wait for each other
    os.environ.setdefault(name, "1")

import numpy as np
import pandas as pd
from lengths import parsed, print_figures
from scipy.optimize import nnls

from dlrover_nb.core.perf.model import ThroughputModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Columns = Callable[[pd.DataFrame], Array]

PROTOCOLS = ("7030", "12probes", "extrapolate")
N_PROBE = 12
UP_TO_PS, UP_TO_WORKERS = (0.4, 0.5, 0.6), (0.4, 0.5, 0.6, 0.7)  # quantiles of p and w that are shown
CPU = 2.0  # of every worker and PS of the testbed
AXES = ["workers", "ps", "worker_cpu", "ps_cpu"]


def load(shared: Path) -> dict[str, tuple[pd.DataFrame, float]]:
    """Return each job's samples in the model's form, and M in bytes."""
    table = pd.read_csv(shared / "data" / "dl2_ps_speed" / "ps_worker_speed.csv")
    table = table[table["failed"] == 0]
    jobs = {}
    for name, rows in table.groupby("model"):
        samples = pd.DataFrame(
            {
                "workers": rows["num_worker"],
                "ps": rows["num_ps"],
                "worker_cpu": CPU,
                "ps_cpu": CPU,
                "batch_size": rows["global_batch"] / rows["num_worker"],
                "samples_per_s": rows["speed_total"],
            }
        )
        jobs[str(name)] = (samples.reset_index(drop=True), float(rows["model_size_mb"].iloc[0]) * 1e6)
    return jobs


def splits(samples: pd.DataFrame, protocol: str, draws: int) -> Iterator[Array]:
    """Yield masks of the plans shown to the fit."""
    n, p, w = len(samples), samples["ps"], samples["workers"]
    if protocol == "extrapolate":
        for of_p, of_w in itertools.product(UP_TO_PS, UP_TO_WORKERS):
            yield ((p <= p.quantile(of_p)) & (w <= w.quantile(of_w))).to_numpy()
        return
    for seed in range(draws):
        order = np.random.default_rng(seed).permutation(n)
        shown = np.zeros(n, dtype=bool)
        shown[order[: int(0.7 * n) if protocol == "7030" else N_PROBE]] = True
        yield shown


def iteration(samples: pd.DataFrame) -> Array:
    return (samples["workers"] * samples["batch_size"] / samples["samples_per_s"]).to_numpy()


def equations(s: pd.DataFrame) -> Array:
    """Columns of Eqs. 1-6; CPU never varies here, so that updates and sync are one column."""
    return np.column_stack(
        (s["batch_size"], s["workers"] / s["ps"], s["batch_size"] / s["ps"], np.ones(len(s)))
    )


def with_workers(s: pd.DataFrame) -> Array:
    return np.column_stack((equations(s), s["workers"]))


def optimus(s: pd.DataFrame) -> Array:
    """Columns of Optimus (Peng et al., 2018), t0*m + t1 + t2*w/p + t3*w + t4*p of T_iter."""
    return np.column_stack((s["batch_size"], np.ones(len(s)), s["workers"] / s["ps"], s["workers"], s["ps"]))


def predict_nnls(columns: Columns, shown: pd.DataFrame, hidden: pd.DataFrame) -> Array:
    """Return T_iter of the hidden plans: NNLS on relative rows, two Gauss-Newton steps on log residuals."""
    rows = columns(shown) / iteration(shown)[:, None]
    coefficients = nnls(rows, np.ones(len(shown)))[0]
    for _ in range(2):
        ratio = rows @ coefficients
        slope = rows / ratio[:, None]
        coefficients = nnls(slope, slope @ coefficients - np.log(ratio))[0]
    return np.asarray(columns(hidden) @ coefficients)


def rmsle(log_ratio: Array) -> float:
    return float(np.sqrt(np.mean(np.square(log_ratio))))


REFERENCES: dict[str, Columns] = {
    "Eqs. 1-6 as written": equations,
    "Optimus": optimus,
    "Eqs. 1-6 + w": with_workers,
}


def run(
    jobs: dict[str, tuple[pd.DataFrame, float]], protocol: str, draws: int
) -> tuple[dict[str, list[float]], list[float]]:
    """Return per method the error of each job, and of the model the coverage of each job."""
    errors: dict[str, list[float]] = {name: [] for name in ("ThroughputModel", *REFERENCES)}
    coverage = []
    for samples, dense_bytes in jobs.values():
        found: dict[str, list[float]] = {name: [] for name in errors}
        inside: list[float] = []
        for mask in splits(samples, protocol, draws):
            shown, hidden = samples[mask], samples[~mask]
            model = ThroughputModel(dense_bytes=dense_bytes, embedding_dim=1).fit(shown)
            bands = model.predict(hidden[AXES].to_numpy(dtype=float), hidden["batch_size"].to_numpy())
            seen = hidden["samples_per_s"].to_numpy()
            found["ThroughputModel"].append(rmsle(np.log(bands.samples_per_s / seen)))
            inside.append(float(np.mean((bands.low <= seen) & (seen <= bands.high))))
            for name, columns in REFERENCES.items():
                predicted = predict_nnls(columns, shown, hidden)
                found[name].append(rmsle(np.log(predicted / iteration(hidden))))
        for name, values in found.items():
            errors[name].append(statistics.mean(values))
        coverage.append(statistics.mean(inside))
    return errors, coverage


def made_up(n: int) -> pd.DataFrame:
    """Return samples of n different plans with CPU varied, for the timing."""
    rng = np.random.default_rng(0)
    grid = np.array(
        [(w, p, a, b) for w in range(1, 21) for p in range(1, 11) for a in (1, 2, 4) for b in (1, 2)]
    )
    w, p, a, b = grid[rng.choice(len(grid), n, replace=False)].T.astype(float)
    iter_s = (0.05 + 0.2 / a + 0.1 * w / p / b + 0.01 * w + 0.1 / p) * np.exp(rng.normal(0, 0.03, n))
    return pd.DataFrame(
        {
            "workers": w,
            "ps": p,
            "worker_cpu": a,
            "ps_cpu": b,
            "batch_size": 512,
            "samples_per_s": w * 512 / iter_s,
        }
    )


def milliseconds(call: Callable[[], object], repeats: int = 40) -> float:
    """Return the shortest time of a call: other load on the machine only adds to it."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--draws", type=int, default=5)
    options = parsed(parser, draws=20)
    jobs = load(options.shared)
    results = {protocol: run(jobs, protocol, options.draws) for protocol in PROTOCOLS}
    print(f"RMSLE of unseen plans, mean of {len(jobs)} jobs ({', '.join(jobs)})")
    print(f"{'':28}" + "".join(f"{p:>15}" for p in PROTOCOLS))
    for name in results["7030"][0]:
        print(f"{name:28}" + "".join(f"{statistics.mean(results[p][0][name]):>15.4f}" for p in PROTOCOLS))
    print("ThroughputModel, each job: RMSLE (share of unseen plans inside the 90 % band)")
    for i, job in enumerate(jobs):
        cells = [(results[p][0]["ThroughputModel"][i], results[p][1][i]) for p in PROTOCOLS]
        print(f"  {job:<26}" + "".join(f"{error:>8.3f} ({held:.2f})" for error, held in cells))
    coverage = {p: statistics.mean(results[p][1]) for p in PROTOCOLS}
    samples = made_up(200)
    model = ThroughputModel(dense_bytes=1e8, embedding_dim=16)
    fit_ms = milliseconds(lambda: model.fit(samples))
    plans = made_up(1000)[AXES].to_numpy(dtype=float)
    predict_ms = milliseconds(lambda: model.predict(plans, 512))
    print(f"fit of 200 samples {fit_ms:.1f} ms, prediction of 1,000 plans with bands {predict_ms:.1f} ms")
    print_figures(
        "fit",
        {
            "data": "DL2 testbed, 4 jobs",
            "draws": options.draws,
            **{f"rmsle_{p}": round(statistics.mean(results[p][0]["ThroughputModel"]), 4) for p in PROTOCOLS},
            "coverage90": round(statistics.mean(coverage.values()), 3),
            **{f"coverage90_{p}": round(coverage[p], 3) for p in PROTOCOLS},
            **{
                f"coverage90_{p}_by_job": dict(zip(jobs, np.round(results[p][1], 3).tolist(), strict=True))
                for p in PROTOCOLS
            },
            "fit_ms_200": round(fit_ms, 1),
            "predict_ms_1000": round(predict_ms, 1),
            "references": {
                name: {p: round(statistics.mean(results[p][0][name]), 4) for p in PROTOCOLS}
                for name in REFERENCES
            },
        },
    )


if __name__ == "__main__":
    main()

"""What older gradients cost, measured with imposed delays, and how well it is predicted.

For samples of Criteo, iPinYou, MovieLens 100k and Census: the change of held-out AUC and loss against one
worker, at the delays of 1 to 32 workers, by the engine of `rehearse`. Each number is the median over seeds
of paired differences, with an interval of that median of at least 90 %.

`auc_error` is the mean distance between the AUC change that a fitted curve (`core.staleness.curves`) tells
for 3, 6, 12 and 24 workers, none of which it was fitted to, and the change that runs of other seeds had
there, and `auc_error_median` the median; `bands_hold` is the share of these within its 90 % bands.
`auc_error_beyond` is the same for 24 and 32 workers by a curve of at most 16. Where the runs themselves
know the change less exactly than the target of .0007 (their standard error), they cannot tell whether a
prediction is right: such points count in `..._all` alone, and `n_point` says how many there are.

`gba_auc_loss` is what the AUC of 16 workers with gathered global batches loses against one worker with the
same global batch; `asp_auc_loss` the same with one step for each batch. Both on Criteo at the tuned rate.

`paddle` sets public figures of one CTR network on Criteo by an asynchronous PS (5 + 5, 10 + 10 and 20 + 20
nodes, batches of 100 and 1,000) beside a rehearsal of 5, 10 and 20 workers with batches of a ratio of ten:
sign and order can be compared, sizes cannot, see `UNKNOWN`.

`overhead_percent` is the CPU time of counting the age of a gradient beside that of a whole step, worker and
PS.

    python benchmarks/staleness.py [--seeds 5] [--whole] [--full] [--parts curves gba paddle overhead real]

The parts `gba` and `overhead` take a minute of one core; `--whole` adds `curves` (two minutes) and `paddle`.
`--full` takes 10 seeds and all rows. The part `real`, which is left out unless it is asked for, starts jobs
of processes for their throughput (`gathering.py`). The last line is JSON.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from lengths import parsed, print_figures
from scipy.stats import binom, kendalltau
from staleness_data import Setting, sample_of, with_other_seeds

from dlrover_nb.core.rehearsal.curves import curve_of, points_by_workers
from dlrover_nb.core.rehearsal.delays import Delay
from dlrover_nb.core.rehearsal.rehearsal import Settings, rehearse, single_threaded
from dlrover_nb.core.rehearsal.runs import Trial
from dlrover_nb.core.rehearsal.ways import AsTheyCome, WayName
from dlrover_nb.core.runtime.ps.update_ages import UpdateAges
from dlrover_nb.core.staleness.curves import FittedCurve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.rehearsal.rehearsal import Rehearsal
    from dlrover_nb.core.rehearsal.runs import Run
    from dlrover_nb.core.rehearsal.sample import Sample

CURVES = (
    Setting("criteo"),
    Setting("criteo", "tuned"),
    Setting("ipinyou"),
    Setting("movielens"),
    Setting("census"),
)
FITTED, LEFT_OUT = (1, 2, 4, 8, 16, 32), (3, 6, 12, 24)
NEAR, BEYOND = 16, (24, 32)
OTHER_SEEDS = 1000  # of the runs that predictions are compared with
AUC_TARGET = 0.0007
N_JOB, N_PASS = 1, 2  # of the part `real`: jobs for each median, and their passes
N_COUNTED = 20_000  # ages whose counting is timed
N_WORKER = 16  # of the comparison with GBA
GBA = Setting("criteo", "tuned", batch_size=32, global_batch=512)
PADDLE = {100: Setting("criteo", "tuned", batch_size=32), 1000: Setting("criteo", "tuned", batch_size=320)}
PADDLE_NODES = (5, 10, 20)
UNKNOWN = (
    "learning rate, optimizer and passes are not stated",
    "whether each of the 11 threads of a node is a worker of its own, so that ages are 11 times as high",
    "one run a cell, without noise",
    "the model and the 46 million rows: a sample of 40,000 has a thousandth of the updates",
)


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, and the ends of its interval of at least 90 %, or as near to it as n allows."""
    ordered, n = sorted(values), len(values)
    left = next((k for k in range((n - 1) // 2, -1, -1) if 1 - 2 * binom.cdf(k, n, 0.5) >= 0.9), 0)
    return median(ordered), ordered[left], ordered[n - 1 - left]


def differences(runs: Sequence[Run], n_worker: int, measure: str, way: WayName) -> list[float]:
    """Return the change of a measure against one worker, seed by seed."""
    mine = [run for run in runs if run.way == way]
    bases = {run.seed: getattr(run, measure) for run in mine if run.delay.n_worker == 1}
    return [getattr(run, measure) - bases[run.seed] for run in mine if run.delay.n_worker == n_worker]


def rounded(value: float) -> float:
    return round(value, 6)


def measured(sample: Sample, workers: tuple[int, ...], n_seed: int, way: WayName = WayName.ASP) -> Rehearsal:
    return rehearse(sample, Settings(n_row=sample.n_row, n_seed=n_seed, workers=workers, ways=(way,)))


def curve_rows(result: Rehearsal, way: WayName = WayName.ASP) -> list[dict[str, object]]:
    """Return the points of a curve: medians and intervals of AUC and loss."""
    rows = []
    for n_worker, point in points_by_workers(result.runs, way).items():
        auc, loss = (interval(differences(result.runs, n_worker, name, way)) for name in ("auc", "loss"))
        rows.append(
            {
                "workers": n_worker,
                "age": round(point.age, 2),
                "auc": [*map(rounded, auc)],
                "loss": [*map(rounded, loss)],
                "auc_mean": rounded(point.auc),
                "auc_error": rounded(point.auc_error),
            }
        )
    return rows


def predictions(
    fit: Rehearsal, test: Rehearsal, sample: Sample, *, workers: Sequence[int], most: int
) -> list[dict[str, float]]:
    """Return predicted and measured changes at numbers of workers, by a curve of at most `most` workers."""
    runs = [run for run in fit.runs if run.delay.n_worker <= most]
    curve = curve_of(runs, WayName.ASP, sample.spec, n_row=fit.n_row, n_epoch=1)
    points, rows = points_by_workers(test.runs, WayName.ASP), []
    for n_worker in workers:
        point = points[n_worker]
        says = FittedCurve(curve).auc([point.age], error=[point.auc_error])
        low, mean, high = (float(each[0]) for each in (says.low, says.mean, says.high))
        rows.append(
            {
                "workers": n_worker,
                "predicted": rounded(mean),
                "low": rounded(low),
                "high": rounded(high),
                "measured": rounded(point.auc),
                "error": rounded(abs(mean - point.auc)),
                "holds": float(low <= point.auc <= high),
                "own_error": rounded(point.auc_error),
            }
        )
    return rows


def curves(options: argparse.Namespace, scratch: Path) -> dict[str, object]:
    """Measure the curve of each setting, and how well plans are predicted that were left out."""
    by_name: dict[str, object] = {}
    between: list[dict[str, float]] = []
    beyond: list[dict[str, float]] = []
    for setting in CURVES:
        sample = sample_of(setting, options.shared, scratch, times=options.times)
        if sample is None:
            print(f"{setting.name}: its rows are not below {options.shared}")
            continue
        fit = measured(sample, FITTED, options.seeds)
        other = with_other_seeds(sample, OTHER_SEEDS)
        test = measured(other, tuple(sorted({1, *LEFT_OUT, *BEYOND})), options.seeds)
        left_out = predictions(fit, test, sample, workers=LEFT_OUT, most=max(FITTED))
        further = predictions(fit, test, sample, workers=BEYOND, most=NEAR)
        between, beyond = between + left_out, beyond + further
        curve = fit.curves[0]
        by_name[setting.name] = {
            "rows": fit.n_row,
            "held_out": fit.n_held_out,
            "updates": fit.n_update,
            "batch": setting.batch_size,
            "learning_rate": curve.learning_rate,
            "auc_of_one": rounded(curve.base_auc),
            "loss_of_one": rounded(curve.base_loss),
            "points": curve_rows(fit),
            "left_out": left_out,
            "beyond": further,
        }
        show(setting.name, by_name[setting.name])
    return {"curves": by_name, **errors(between, ""), **errors(beyond, "_beyond")}


def errors(rows: list[dict[str, float]], suffix: str) -> dict[str, object]:
    """Return mean errors and the share of bands that hold, over all points and over those that tell."""
    telling = [row for row in rows if row["own_error"] < AUC_TARGET]
    return {
        f"auc_error{suffix}": mean_of(telling, "error"),
        f"auc_error_median{suffix}": median([row["error"] for row in telling]) if telling else None,
        f"bands_hold{suffix}": mean_of(telling, "holds"),
        f"auc_error_all{suffix}": mean_of(rows, "error"),
        f"bands_hold_all{suffix}": mean_of(rows, "holds"),
        f"n_point{suffix}": [len(telling), len(rows)],
    }


def mean_of(rows: list[dict[str, float]], key: str) -> float | None:
    return rounded(float(np.mean([row[key] for row in rows]))) if rows else None


def gba(options: argparse.Namespace, scratch: Path) -> dict[str, object]:
    """Compare 16 workers that gather global batches with one, and with one step for each batch."""
    sample = sample_of(GBA, options.shared, scratch)
    if sample is None:
        return {"gba_auc_loss": None, "asp_auc_loss": None, "gba_note": "the rows of Criteo are not there"}
    each = replace(sample, spec=replace(sample.spec, global_batch=None))
    lines: dict[str, object] = {}
    for name, way, rows in (
        ("gba", WayName.GBA, sample),
        ("asp", WayName.ASP, each),
        ("normalised", WayName.NORMALISED, each),
    ):
        result = measured(rows, (1, N_WORKER), options.seeds, way)
        change, low, high = interval(differences(result.runs, N_WORKER, "auc", way))
        lines[f"{name}_auc_loss"] = rounded(-change)
        lines[f"{name}_auc_loss_interval"] = [rounded(-high), rounded(-low)]
        lines[f"{name}_auc_of_one"] = rounded(result.curves[0].base_auc)
        print(f"{name}: {N_WORKER} workers change the AUC by {change:+.5f} ({low:+.5f} to {high:+.5f})")
    return lines


def paddle(options: argparse.Namespace, scratch: Path) -> dict[str, object]:
    """Set public falls of AUC beside those of a rehearsal with as many workers as there were nodes."""
    table = options.shared / "paddle_ps" / "paddle_ps_scaling.csv"
    samples = {batch: sample_of(setting, options.shared, scratch) for batch, setting in PADDLE.items()}
    if not table.exists() or None in samples.values():
        return {"paddle": None, "paddle_note": "its table or the rows of Criteo are not there"}
    public = public_aucs(table)
    rows = []
    for batch, sample in samples.items():
        assert sample is not None
        result = measured(sample, (1, *PADDLE_NODES), options.seeds)
        first = differences(result.runs, PADDLE_NODES[0], "auc", WayName.ASP)
        for nodes in PADDLE_NODES[1:]:
            own = differences(result.runs, nodes, "auc", WayName.ASP)
            change, low, high = interval([b - a for a, b in zip(first, own, strict=True)])
            fall = public[batch, nodes] - public[batch, PADDLE_NODES[0]]
            rows.append(
                {
                    "batch": batch,
                    "nodes": nodes,
                    "public": rounded(fall),
                    "rehearsed": rounded(change),
                    "low": rounded(low),
                    "high": rounded(high),
                }
            )
            print(f"batch {batch}, 5 -> {nodes} nodes: public {fall:+.4f}, rehearsed {change:+.4f}")
    tau = kendalltau([row["public"] for row in rows], [row["rehearsed"] for row in rows]).statistic
    signs = sum((row["public"] < 0) == (row["rehearsed"] < 0) for row in rows)
    verdict = {"rows": rows, "same_sign": f"{signs} of {len(rows)}", "order_kendall_tau": rounded(float(tau))}
    return {"paddle": {**verdict, "unknown": UNKNOWN}}


def public_aucs(table: Path) -> dict[tuple[int, int], float]:
    """Return the AUC of each batch and number of nodes of the network that Paddle trained asynchronously."""
    with table.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["system"].startswith("paddle") and row["test_auc"]]
    return {
        (int(row["batch"]), int(row["n_worker"])): float(row["test_auc"])
        for row in rows
        if row["mode"] == "async PS" and row["job"].startswith("ctr-dnn")
    }


def overhead(options: argparse.Namespace, scratch: Path) -> dict[str, object]:
    """Measure what counting ages costs, as a share of a step."""
    sample = sample_of(CURVES[0], options.shared, scratch) or sample_of(
        Setting("census"), options.shared, scratch
    )
    assert sample is not None
    ages, batch = UpdateAges(sample.spec), next(sample.batches(0, 1, sample.spec.batch_size))
    rows = {"pushed": batch.rows, "pulled": batch.rows}
    with single_threaded():
        trial = Trial(sample, Delay(1), AsTheyCome())
        began_s = time.process_time()
        n_step = sum(1 for _ in trial.steps())
        step_s = (time.process_time() - began_s) / n_step
    began_s = time.process_time()
    for i in range(N_COUNTED):
        ages.count(b"worker", f"worker-{i % N_WORKER}", has_pushed=True, **rows)
    count_s = (time.process_time() - began_s) / N_COUNTED
    return {
        "overhead_percent": rounded(100 * count_s / step_s),
        "count_us": round(1e6 * count_s, 2),
        "step_us": round(1e6 * step_s, 1),
    }


def real(options: argparse.Namespace, scratch: Path) -> dict[str, object]:  # noqa: ARG001 - as the other parts
    """Compare the speed of jobs of processes."""
    from gathering import figures  # its jobs are loaded where they are asked for

    return {**figures(N_JOB, N_PASS)}


def show(name: str, curve: object) -> None:
    """Print a curve and its predictions."""
    assert isinstance(curve, dict)
    print(f"{name}: {curve['rows']:,} rows, {curve['updates']} updates, AUC of one {curve['auc_of_one']:.4f}")
    for row in curve["points"]:
        middle, low, high = row["auc"]
        who, loss = f"{row['workers']:3} workers, age {row['age']:5.1f}", row["loss"][0]
        print(f"  {who}: AUC {middle:+.5f} ({low:+.5f} to {high:+.5f}), loss {loss:+.5f}")
    for row in (*curve["left_out"], *curve["beyond"]):
        print(
            f"  {row['workers']:3} workers: predicted {row['predicted']:+.5f} ({row['low']:+.5f} to "
            f"{row['high']:+.5f}), measured {row['measured']:+.5f}"
        )


PARTS = {"curves": curves, "gba": gba, "paddle": paddle, "overhead": overhead, "real": real}
NOT_RUN = {
    "real": {
        "gba_over_asp": None,
        "gba_over_bsp_slow": None,
        "real_note": "needs jobs of processes on a quiet machine: --parts real",
    }
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="10 seeds, and all rows")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["gba", "overhead"])
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="where criteo/ is")
    options = parsed(parser, parts=[part for part in PARTS if part not in NOT_RUN])
    options.times = 4 if options.full else 1
    options.seeds = 10 if options.full else options.seeds
    line: dict[str, object] = {"benchmark": "staleness", "seeds": options.seeds}
    with tempfile.TemporaryDirectory() as scratch:
        for part in options.parts:
            line |= PARTS[part](options, Path(scratch))
    for part, figures in NOT_RUN.items():
        line |= {} if part in options.parts else figures
    line["cpu_s"] = round(time.process_time(), 1)
    print_figures("staleness", line)


if __name__ == "__main__":
    main()

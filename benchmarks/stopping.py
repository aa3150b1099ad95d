"""Where jobs with early stopping end: predictions from real loss curves, and which curve goes on best.

Small models of the product (wide & deep, DCN v2) are trained on census, Criteo, iPinYou and MovieLens rows,
12 passes each, with two learning rates. On their curves:

- tails: a curve is fitted to the first quarter, half and three quarters of the evaluations, and compared with
  the rest: root mean square error as a share of the curve's range. `curve` is the product's
  (`core.deadline.remaining`), `inverse` Optimus's (`core.baselines.losscurve`), `lstm` that of Qore-DL,
  `last` the mean of the last three.
- ends: rules of early stopping (targets, patience, decline rates on AUC, log loss and training loss) are
  followed on the whole curve, and predicted at 30, 50 and 70 % of the way. Errors are shares of the true end;
  `full` is the error of a planner that counts on all passes. Only seed 0 was looked at when the constants of
  the prediction were chosen: figures are of seed 1.

    python benchmarks/stopping.py [--shared FOLDER --curves FILE --most 2 --lstm] [--whole]

Without the shared folder census alone is left. `--curves` keeps the curves, or reads them where the file is
there. Training all takes some ten minutes, the LSTM a quarter of an hour. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from lengths import parsed, print_figures
from stopping_curves import TrainedCurve, jobs, train
from stopping_lstm import fit_lstm

from dlrover_nb.core.deadline.remaining import LEAST_POINTS, Extent, fit_curve, forecast
from dlrover_nb.core.deadline.stop_rule import evaluation_step, stops_at
from dlrover_nb.core.structs.job.early_stopping import EarlyStopping, Metric

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.plans.loss_curve import fit_loss_curve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Fit = Callable[[Array, Array], Callable[[Array], Array] | None]

N_TRAIN = 10_000  # rows of a pass in predictions: ends count in passes
PARTS, WAYS = (0.25, 0.5, 0.75), (0.3, 0.5, 0.7)
FIRST_WINDOWS = 8  # of the training loss, before which nothing is predicted


def own(k: Array, y: Array) -> Callable[[Array], Array]:
    return fit_curve(k, y).at


def inverse(k: Array, y: Array) -> Callable[[Array], Array] | None:
    found = fit_loss_curve(list(zip(k.tolist(), y.tolist(), strict=True)))
    return None if found is None else lambda ahead: np.array([found.loss(each) for each in ahead])


def lstm(k: Array, y: Array) -> Callable[[Array], Array] | None:
    found = fit_lstm(np.column_stack((k, y)), seed=0)
    return None if found is None else found.losses


def last(_k: Array, y: Array) -> Callable[[Array], Array]:
    return lambda ahead: np.full(len(ahead), y[-3:].mean())


def values_of(curve: TrainedCurve, metric: Metric) -> Array:
    return np.array(
        {Metric.AUC: curve.aucs, Metric.LOG_LOSS: curve.log_losses, Metric.LOSS: curve.losses}[metric]
    )


def tails(curves: Sequence[TrainedCurve], fits: dict[str, Fit]) -> dict[str, float]:
    """Return the mean error of each curve on evaluations that it has not seen."""
    errors: dict[str, list[float]] = defaultdict(list)
    for curve in curves:
        for metric in Metric:
            y = values_of(curve, metric) * (-1 if metric is Metric.AUC else 1)
            k = np.arange(1, len(y) + 1, dtype=np.float64)
            for part in PARTS:
                n = max(int(len(y) * part), LEAST_POINTS + 1)
                found = {name: fit(k[:n], y[:n]) for name, fit in fits.items()}
                for name, ahead in found.items():
                    if ahead is not None:
                        off = ahead(k[n:]) - y[n:]
                        errors[name].append(float(np.sqrt(np.mean(off**2)) / np.ptp(y)))
    return {name: round(float(np.mean(all_)), 4) for name, all_ in errors.items()}


def rules(curve: TrainedCurve) -> Iterator[tuple[str, EarlyStopping]]:
    """Yield rules of each kind; targets lie between two evaluations of the curve."""
    for part in (0.4, 0.6, 0.8):
        for metric in Metric:
            y = values_of(curve, metric)
            i, half = int(len(y) * part), 3 if metric is Metric.LOSS else 1
            target = float(y[i - half : i + half].mean())
            if target < 1:
                yield f"{metric} target", EarlyStopping(metric, patience=len(y) + 1, target=target)
    for patience in (1, 2):
        for metric in (Metric.AUC, Metric.LOG_LOSS):
            yield f"{metric} patience", EarlyStopping(metric, patience=patience)
            yield f"{metric} decline", EarlyStopping(metric, patience=patience, decline=0.03)
    for patience in (5, 10):
        yield "loss patience", EarlyStopping(Metric.LOSS, patience=patience)
        yield "loss decline", EarlyStopping(Metric.LOSS, patience=patience, decline=0.02)


def ends(curves: Sequence[TrainedCurve]) -> dict[str, list[tuple[float, float, bool]]]:
    """Return by kind of rule: error of the prediction, of all passes, and whether the band held the end."""
    found: dict[str, list[tuple[float, float, bool]]] = defaultdict(list)
    for curve in curves:
        n_epoch = len(curve.aucs)
        for kind, rule in rules(curve):
            y = values_of(curve, Metric(rule.metric))
            at = np.arange(1, len(y) + 1) * evaluation_step(rule, N_TRAIN, n_epoch)
            end = int(stops_at(y[None, :-1], rule)[0])
            total, true = N_TRAIN * n_epoch, at[min(end, len(y) - 1)]
            for way in WAYS:
                n = max(int((end + 1) * way), FIRST_WINDOWS if rule.metric == Metric.LOSS else LEAST_POINTS)
                if n >= end:
                    continue
                points = list(zip(at[:n].tolist(), y[:n].tolist(), strict=True))
                told = forecast(points, rule, Extent(int(at[n - 1]), N_TRAIN, n_epoch))
                holds = told.low <= true <= told.high
                found[kind].append((abs(told.at - true) / true, (total - true) / true, holds))
    return found


def trained(shared: Path, file: Path | None, most: int) -> list[TrainedCurve]:
    """Return curves of seed 1, at most so many, of as many data sets and models as that allows."""
    if file is not None and file.exists():
        curves = [TrainedCurve(**json.loads(line)) for line in file.read_text().splitlines()]
        return [curve for curve in curves if curve.name.endswith("-1")]
    with tempfile.TemporaryDirectory(prefix="dlrover-nb-stopping-") as scratch:
        specs = {name: spec for name, spec in jobs(shared, Path(scratch)).items() if name.endswith("-1")}
        names = list(specs)[:: max(1, len(specs) // most)][:most]
        curves = [train(name, specs[name]) for name in names]
    if file is not None:
        file.write_text("".join(json.dumps(asdict(curve)) + "\n" for curve in curves))
    return curves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    here = Path(__file__).resolve().parent
    parser.add_argument("--shared", type=Path, default=here.parent.parent / "shared" / "data")
    parser.add_argument("--curves", type=Path)
    parser.add_argument("--most", type=int, default=2, help="curves")
    parser.add_argument("--lstm", action="store_true")
    options = parsed(parser, most=1000, lstm=True)
    torch.set_num_threads(1)
    unseen = trained(options.shared, options.curves, options.most)
    fits: dict[str, Fit] = {"curve": own, "inverse": inverse, "last": last}
    if options.lstm:
        fits["lstm"] = lstm
    off = tails(unseen, fits)
    print(f"{len(unseen)} curves; error on their tails: {off}")
    every = []
    for kind, rows in sorted(ends(unseen).items()):
        error, full, holds = np.array(rows, dtype=np.float64).T
        every += rows
        print(
            f"{kind:18s} {len(rows):4d} predictions: off by {np.median(error):.1%} in the median, "
            f"{error.mean():.1%} in the mean (all passes: {np.median(full):.1%}, {full.mean():.1%}); "
            f"in the band {holds.mean():.0%}"
        )
    error, full, holds = np.array(every, dtype=np.float64).T
    figures = {
        "curves": len(unseen),
        "predictions": len(every),
        "tail_errors": off,
        "end_error": round(float(error.mean()), 4),
        "end_error_median": round(float(np.median(error)), 4),
        "all_passes_error": round(float(full.mean()), 4),
        "in_band": round(float(holds.mean()), 4),
    }
    print_figures("stopping", figures)


if __name__ == "__main__":
    main()

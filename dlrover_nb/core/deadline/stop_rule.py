"""The rule of early stopping, on a series of evaluations: where training ends.

The master applies it to what was measured, the planner to what is likely to come (`remaining`): one function,
over many series at once, so that both mean the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.job.early_stopping import NAMES, EarlyStopping, Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]


TENTH, MOST_EVALUATIONS = 10, 200  # evaluations of the training loss: of a pass, and of a job at most


def evaluation_step(rule: EarlyStopping, n_train: int, n_epoch: int) -> int:
    """Return the training samples between two evaluations.

    Parameters
    ----------
    n_train, n_epoch
        Rows of one pass, and passes of the job.
    """
    if rule.is_held_out:
        return n_train
    return max(-(-n_train // TENTH), -(-n_train * n_epoch // MOST_EVALUATIONS), 1)


def merits(values: Array | Sequence[float] | float, metric: Metric) -> Array:
    """Return values of a metric as numbers of which more is better."""
    numbers = np.asarray(values, dtype=np.float64)
    return numbers if metric == Metric.AUC else -numbers


def stops_at(values: Array, rule: EarlyStopping) -> NDArray[np.intp]:
    """Return at which evaluation training ends in each series: shape (n_series,); n_points where in none.

    Parameters
    ----------
    values
        ndarray of shape (n_series, n_points) of the rule's metric, oldest first.
    """
    return _followed(merits(values, rule.metric), rule)[0]


def stop_reason(passes: Sequence[float], values: Sequence[float], rule: EarlyStopping) -> str:
    """Return why training should end now, by all evaluations so far; empty: it continues.

    Parameters
    ----------
    passes, values
        Passes at each evaluation, and what it gave.
    """
    if not values:
        return ""
    merit = merits(values, rule.metric)[None, :]
    end, best = _followed(merit, rule)
    if end[0] == len(values):
        return ""
    name, at, last = NAMES[Metric(rule.metric)], f"stopped early after {_pass(passes[-1])}", values[-1]
    if rule.target is not None and merit[0, -1] >= merits(rule.target, rule.metric):
        return f"{at}: {name} {last:.4f} has reached the target of {rule.target:g}"
    least = f" of more than {rule.min_gain:g}" * bool(rule.min_gain)
    least += f" of {rule.decline:.3g} of all so far" * bool(rule.decline)
    chosen = int(best[0])
    return f"{at}: no gain{least} in {name} since {_pass(passes[chosen])} ({values[chosen]:.4f})"


def decline_rate(values: Sequence[float], metric: Metric) -> float | None:
    """Return the last gain as a share of all that was gained so far; None before there is one.

    Negative where the last evaluation is worse than the one before it.
    """
    merit = merits(values, metric)
    width = float(np.ptp(merit)) if len(merit) > 1 else 0.0
    if not np.isfinite(width) or width <= 0:
        return None
    return float(merit[-1] - merit[-2]) / width  # (Qore-DL, eq. 10)


def _followed(merit: Array, rule: EarlyStopping) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where each series ends, and its best evaluation until then (of none: until its last)."""
    n_series, n_point = merit.shape
    best, worst = merit[:, 0].copy(), merit[:, 0].copy()
    best_at, end = np.zeros(n_series, dtype=np.intp), np.full(n_series, n_point, dtype=np.intp)
    target = np.inf if rule.target is None else float(merits(rule.target, rule.metric))
    for i in range(n_point):
        now, goes_on = merit[:, i], end == n_point
        least = np.maximum(rule.min_gain, rule.decline * (best - worst))
        gains = goes_on & (now > best + least)
        best, best_at = np.where(gains, now, best), np.where(gains, i, best_at)
        worst = np.minimum(worst, now)
        end[goes_on & ((now >= target) | (i - best_at >= rule.patience))] = i
    return end, best_at


def _pass(n_pass: float) -> str:
    return f"pass {n_pass:g}" if n_pass == int(n_pass) else f"{n_pass:.1f} passes"

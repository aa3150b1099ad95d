"""The next best experiment: which plan to try when the fit cannot tell which plan is better.

Trying a plan fixes its own T_iter, and through the coefficient sets that remain (`ThroughputModel`'s draws)
it also tells something about plans that were not tried. What matters is not the width of a band but of
bands that a decision hangs on: those of plans that might be better than the present one. So the value of an
experiment is the share of the uncertainty about *plausibly better* plans that it removes, per cost of a
sample trained meanwhile. That is an I-optimal design with the plausible gain as weight; a D-optimal one
would spend experiments on plans that nobody would choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.perf.model import ThroughputModel

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Experiment:
    """A plan to try: index into the trials, and the share of uncertainty that it would remove."""

    index: int
    removes: float


@dataclass(frozen=True, slots=True)
class Options:
    """Plans with their money per hour: `axes` of shape (n, 4) as `terms.axes_of` makes it, `cost` (n,)."""

    axes: Array
    cost: Array


def next_experiment(
    model: ThroughputModel,
    batch_size: int,
    trials: Options,
    *,
    targets: Options,
    now: tuple[float, float],
    effort: Array | float = 1.0,
) -> Experiment | None:
    """Return the trial that tells most about better plans for its cost; None when none tells anything.

    Parameters
    ----------
    trials
        Plans that may be tried, cheap to reach from the present one.
    targets
        Plans that could be chosen in the end.
    now
        Throughput (samples/s) and cost per hour of the present plan.
    effort
        How much longer each trial takes than measuring alone, because getting there stops the training:
        ndarray of shape (n_trials,), >= 1.

    Notes
    -----
    Only trials that are themselves plausibly worth half of the best one count: an experiment runs on the
    user's time and money, so that it should be able to pay for itself.
    """
    if not len(trials.axes):
        return None
    removes = _removed_shares(model, batch_size, trials.axes, targets, now)
    worth = plausible_worth(model, batch_size, trials, now)
    speed = model.predict(trials.axes, batch_size).samples_per_s
    value = removes * speed / (trials.cost * effort)  # per money of a sample trained on trial
    value = np.where((worth > 0) & (worth >= worth.max() / 2), value, 0.0)
    best = int(np.argmax(value))
    return Experiment(best, float(removes[best])) if value[best] > 0 else None


def plausible_worth(
    model: ThroughputModel, batch_size: int, plans: Options, now: tuple[float, float]
) -> Array:
    """Return what each plan may bring at best: speed gained, or half of the cost saved at equal speed."""
    high = model.predict(plans.axes, batch_size).high
    faster = high / now[0] - 1
    cheaper = np.where(high >= now[0], 1 - plans.cost / now[1], 0) / 2
    return np.maximum(np.maximum(faster, cheaper), 0)


def _removed_shares(
    model: ThroughputModel, batch_size: int, trials: Array, targets: Options, now: tuple[float, float]
) -> Array:
    """Return, per trial, the worth-weighted share of the targets' variance that measuring it explains."""
    worth = plausible_worth(model, batch_size, targets, now)
    tried, aimed = (_centred(model.log_draws(axes, batch_size)) for axes in (trials, targets.axes))
    covariance = aimed @ tried.T / model.n_draw  # (n_targets, n_trials)
    error = model.error_**2 + model.evidence_.noise**2
    explained = covariance**2 / (np.mean(tried**2, axis=1) + error)
    total = float(worth @ np.mean(aimed**2, axis=1))
    return np.asarray(worth @ explained / total) if total > 0 else np.zeros(len(trials))


def _centred(draws: Array) -> Array:
    return np.asarray(draws - draws.mean(axis=1, keepdims=True))

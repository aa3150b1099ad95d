"""The next best experiment: which plan to try when the fit cannot decide which plan is better.

Trying a plan determines its own T_iter, and through the remaining coefficient sets (`ThroughputModel`'s
draws) also moves the means of plans that were not tried. Only what a decision depends on matters: so the
value of an experiment is by how much the best plan is expected to be better after it, over the rest of the
job, less what the trial costs. That is the knowledge gradient for correlated beliefs (Frazier, Powell and
Dayanik 2009, INFORMS Journal on Computing 21:4). A D-optimal design would spend experiments on plans that are
never chosen. Rejected: the share of the uncertainty that a trial removes, times what complete knowledge
would be worth. It promises the more the less is known, and took a third more trials from a job that ran its
best plan already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dlrover_nb.core.perf.model import ThroughputModel

    Array = NDArray[np.float64]
    BatchOf = Callable[[Array], Array]


N_VAIN = 2.0  # trials in vain that halve the promised value
PER_MONEY = 0.5  # a part of the cost is worth half of such a part of the speed
N_NODE = 7  # of the quadrature over what a trial may show


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


@dataclass(frozen=True, slots=True)
class Present:
    """What runs: its throughput, its cost per hour, and for how many seconds a better plan is of use."""

    samples_per_s: float
    cost: float
    left_s: float


@dataclass(frozen=True, slots=True)
class Effort:
    """Cost of trying: seconds of measuring, and for each trial the seconds of its transition."""

    measure_s: float
    pause_s: Array


def next_experiment(
    model: ThroughputModel,
    batch_of: BatchOf,
    trials: Options,
    *,
    targets: Options,
    now: Present,
    effort: Effort,
) -> Experiment | None:
    """Return the trial with the most information on better plans per cost; None when none is worth its cost.

    Parameters
    ----------
    batch_of
        Returns the mini-batches of plans given as rows, m of Eq. 1.
    trials
        Plans that may be tried, cheap to reach from the present one.
    targets
        Plans that could be chosen in the end.

    Notes
    -----
    An experiment must pay for itself: what it is expected to bring, by its knowledge or by staying with the
    trial, must exceed the training and money lost meanwhile, both transitions included. Trials in vain since
    the best plan was found are evidence that the model promises too much (`_trust`). So experiments end by
    themselves, the later the more is at stake, and begin again where a better plan is found.
    """
    if not len(trials.axes):
        return None
    batch = batch_of(trials.axes)
    after_s = now.left_s - effort.measure_s - 2 * effort.pause_s
    predicted = model.predict(trials.axes, batch)
    tried, aimed = (model.log_draws(each.axes, batch_of(each.axes)) for each in (trials, targets))
    slower = np.maximum(1 - predicted.samples_per_s / now.samples_per_s, 0)
    dearer = np.maximum(trials.cost / now.cost - 1, 0) * PER_MONEY
    lost_s = effort.measure_s * (slower + dearer) + 2 * effort.pause_s
    itself = _drawn_worth(tried, batch, trials, now).mean(axis=1)
    mean = np.log(targets.axes[:, 0] * batch_of(targets.axes)) - aimed.mean(axis=1)
    gain = np.maximum(_expected_gains(model, (tried, aimed), mean, targets, now), itself)
    worth = _worth(predicted.mean_high, trials.cost, now)
    value = np.where(worth > 0, _trust(model) * gain * after_s - lost_s, 0.0)
    best = int(np.argmax(value))
    if value[best] <= 0:
        return None
    weights = plausible_worth(model, batch_of, targets, now)
    removes = _removed_shares(model, tried[[best]], aimed, weights)
    return Experiment(best, float(removes[0]))


def _trust(model: ThroughputModel) -> float:
    """Return which part of the promised value counts, by the trials since a better plan was found.

    Better is what is surely faster than any plan before: among plans that are alike, chance alone would name
    another one the best again and again.
    """
    evidence = model.evidence_
    log_speed = np.log(evidence.axes[:, 0]) + np.log(evidence.batch_size) - evidence.log_iter
    best, n_vain = -np.inf, -1
    for i in np.argsort(evidence.first_at_s, kind="stable"):
        n_vain = 0 if log_speed[i] - evidence.mean_half_width[i] > best else n_vain + 1
        best = max(best, log_speed[i])
    return float(0.5 ** (max(n_vain, 0) / N_VAIN))


def plausible_worth(model: ThroughputModel, batch_of: BatchOf, plans: Options, now: Present) -> Array:
    """Return the best plausible worth of each plan: speed gained, or half the cost saved at equal speed."""
    return _worth(model.predict(plans.axes, batch_of(plans.axes)).mean_high, plans.cost, now)


def _worth(samples_per_s: Array, cost: Array, now: Present) -> Array:
    faster = samples_per_s / now.samples_per_s - 1
    cheaper = np.where(samples_per_s >= now.samples_per_s, 1 - cost / now.cost, 0) * PER_MONEY
    return np.maximum(np.maximum(faster, cheaper), 0)


def _drawn_worth(log_draws: Array, batch: Array, plans: Options, now: Present) -> Array:
    """Return the worth of each plan in each draw of log T_iter: shape (n_plans, n_draw)."""
    speed = (plans.axes[:, 0] * batch)[:, None] / np.exp(log_draws)
    return _worth(speed, plans.cost[:, None], now)


def _expected_gains(
    model: ThroughputModel, draws: tuple[Array, Array], log_speed: Array, targets: Options, now: Present
) -> Array:
    """Return by how much the worth of the best target is expected to grow by measuring each trial.

    A measurement that is one standard error off its prediction moves the mean of each target by the targets'
    covariance with it over that error.

    Parameters
    ----------
    draws
        log T_iter of the trials and of the targets under each draw.
    log_speed
        Mean log throughput of the targets.
    """
    tried, aimed = draws
    covariance = _centred(aimed) @ _centred(tried).T / model.n_draw  # (n_targets, n_trials)
    error2 = tried.var(axis=1) + model.error_**2 + model.evidence_.noise**2
    moved = covariance / np.sqrt(error2)
    nodes, weights = np.polynomial.hermite_e.hermegauss(N_NODE)
    best = [_best_worth(log_speed[:, None] - moved * node, targets, now) for node in nodes]
    return np.asarray(
        weights @ np.array(best) / weights.sum() - _best_worth(log_speed[:, None], targets, now)
    )


def _best_worth(log_speed: Array, plans: Options, now: Present) -> Array:
    """Return the worth of the best plan in each column of log speeds: `_worth` without a power for each."""
    over_now = log_speed - np.log(now.samples_per_s)
    worth = np.maximum(np.exp(over_now.max(axis=0)) - 1, 0.0)
    saves = 1 - plans.cost / now.cost
    if saves.max() <= 0:
        return np.asarray(worth)
    saved = np.where(over_now >= 0, saves[:, None], 0.0).max(axis=0)
    return np.asarray(np.maximum(worth, saved * PER_MONEY))


def _removed_shares(model: ThroughputModel, tried: Array, aimed: Array, worth: Array) -> Array:
    """Return, per trial, the worth-weighted share of the targets' variance that measuring it explains."""
    tried, aimed = _centred(tried), _centred(aimed)
    covariance = aimed @ tried.T / model.n_draw  # (n_targets, n_trials)
    error = model.error_**2 + model.evidence_.noise**2
    explained = covariance**2 / (np.mean(tried**2, axis=1) + error)
    total = float(worth @ np.mean(aimed**2, axis=1))
    return np.asarray(worth @ explained / total) if total > 0 else np.zeros(len(tried))


def _centred(draws: Array) -> Array:
    return np.asarray(draws - draws.mean(axis=1, keepdims=True))

"""The next best experiment: which plan to try when the fit cannot decide which plan is better.

Trying a plan determines its own T_iter, and through the remaining coefficient sets (`ThroughputModel`'s
draws) also narrows the bands of plans that were not tried. Only bands that a decision depends on matter:
those of plans that might be better than the present one. So the value of an experiment is the share of the
uncertainty about *plausibly better* plans that it removes, per cost of a sample trained meanwhile. That is an
I-optimal design with the plausible gain as weight; a D-optimal one would spend experiments on plans that are
never chosen.
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
    Only trials whose plausible worth is at least half of the best one's count: an experiment costs the user
    time and money, so it should be able to pay for itself. It must: the value of its share of the uncertainty
    over the rest of the job, or the possible gain of staying with the trial, must exceed the training lost
    meanwhile, both transitions included. Trials in vain since the best plan was found are evidence that the
    model promises too much (`_trust`). So experiments end by themselves, the later the more is at stake, and
    begin again where a better plan is found. Rejected: to choose by the expected gain of the trial itself,
    which takes the plans that the model is most wrong about (on measured tables twice as many trials).
    """
    if not len(trials.axes):
        return None
    after_s = now.left_s - effort.measure_s - 2 * effort.pause_s
    removes = _removed_shares(model, batch_of, trials.axes, targets, now)
    worth = plausible_worth(model, batch_of, trials, now)
    speed = model.predict(trials.axes, batch_of(trials.axes)).samples_per_s
    lost_s = effort.measure_s * np.maximum(1 - speed / now.samples_per_s, 0) + 2 * effort.pause_s
    stake = _drawn_worth(model, batch_of, targets, now).max(axis=0).mean()
    itself = _drawn_worth(model, batch_of, trials, now).mean(axis=1)
    pays = _trust(model) * np.maximum(removes * stake, itself) * after_s > lost_s
    longer = 1 + effort.pause_s / effort.measure_s
    value = removes * speed / (trials.cost * longer)  # per money of a sample trained on trial
    value = np.where(pays & (worth > 0) & (worth >= worth.max() / 2), value, 0.0)
    best = int(np.argmax(value))
    return Experiment(best, float(removes[best])) if value[best] > 0 else None


def _trust(model: ThroughputModel) -> float:
    """Return which part of the promised value counts, by the trials since the best plan was found."""
    known = model.evidence_
    if not len(known):
        return 1.0
    sure = np.log(known.axes[:, 0]) + np.log(known.batch_size) - known.log_iter - known.mean_half_width
    n_vain = int((known.first_at_s > known.first_at_s[np.argmax(sure)]).sum())
    return float(0.5 ** (n_vain / N_VAIN))


def plausible_worth(model: ThroughputModel, batch_of: BatchOf, plans: Options, now: Present) -> Array:
    """Return the best plausible worth of each plan: speed gained, or half the cost saved at equal speed."""
    return _worth(model.predict(plans.axes, batch_of(plans.axes)).mean_high, plans.cost, now)


def _worth(samples_per_s: Array, cost: Array, now: Present) -> Array:
    faster = samples_per_s / now.samples_per_s - 1
    cheaper = np.where(samples_per_s >= now.samples_per_s, 1 - cost / now.cost, 0) / 2
    return np.maximum(np.maximum(faster, cheaper), 0)


def _drawn_worth(model: ThroughputModel, batch_of: BatchOf, plans: Options, now: Present) -> Array:
    """Return the worth of each plan in each draw: shape (n_plans, n_draw)."""
    batch = batch_of(plans.axes)
    speed = (plans.axes[:, 0] * batch)[:, None] / np.exp(model.log_draws(plans.axes, batch))
    return _worth(speed, plans.cost[:, None], now)


def _removed_shares(
    model: ThroughputModel, batch_of: BatchOf, trials: Array, targets: Options, now: Present
) -> Array:
    """Return, per trial, the worth-weighted share of the targets' variance that measuring it explains."""
    worth = plausible_worth(model, batch_of, targets, now)
    tried, aimed = (_centred(model.log_draws(axes, batch_of(axes))) for axes in (trials, targets.axes))
    covariance = aimed @ tried.T / model.n_draw  # (n_targets, n_trials)
    error = model.error_**2 + model.evidence_.noise**2
    explained = covariance**2 / (np.mean(tried**2, axis=1) + error)
    total = float(worth @ np.mean(aimed**2, axis=1))
    return np.asarray(worth @ explained / total) if total > 0 else np.zeros(len(trials))


def _centred(draws: Array) -> Array:
    return np.asarray(draws - draws.mean(axis=1, keepdims=True))

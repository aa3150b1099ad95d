"""Whether a plan finishes by the job's deadline, or within its total budget: how probable that is.

What is left to train is known and a pause is predicted, so a plan meets the deadline when it trains at least
``samples left / (seconds left - pause)``. Its mean throughput is log-normal with the fit's 90 % band of the
mean, each side of the centre with its own width; the probability that it is fast enough is the plan's chance.
It is a constraint of planning: among the plans that reach the wanted chance advice chooses as it does without
a deadline, and where none does, the most probable one (`planner.advising.advice`).

A job that may stop early has as much left as its evaluations predict (`deadline.remaining`): the doubt in
that adds to the one in the speed. It is never less probable than if the job trained all its passes.

What is left of a total budget is a deadline of each plan: the time for which it pays for the plan.

Rejected: the predicted finish against the deadline. It promises a plan that is late every second time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.numerics import Z_90, ndtr, ndtri

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.perf.predictions import Predictions
    from dlrover_nb.core.structs.decisions.candidates import Candidate, Prediction

    Array = NDArray[np.float64]

LEAST_SD = 1e-3  # of the logarithm of a throughput: nothing is known better
ALIKE = 0.02  # a difference of two chances that is no reason for a change of plan
RESCUE = 0.1  # a gain of chance that outweighs rules which keep auto mode from changing back and forth


@dataclass(frozen=True, slots=True)
class Due:
    """What a job has left to do, and until when: samples, and seconds (negative: the deadline has passed).

    The seconds may be those of each plan: what is left of a budget lasts longer with a cheaper one.

    Parameters
    ----------
    n_more, n_less
        Of a job that may stop early: from `n_sample_left` to the ends of their 90 % band.
    all_left
        The samples that it trains if it does not; None: it cannot stop early.
    """

    n_sample_left: int
    left_s: float | Array
    n_more: int = 0
    n_less: int = 0
    all_left: int | None = None

    @property
    def doubt_more(self) -> float:
        """The band above `n_sample_left` as a logarithm."""
        return math.log1p(self.n_more / max(self.n_sample_left, 1))

    @property
    def doubt_less(self) -> float:
        """The band below it as a logarithm."""
        n = max(self.n_sample_left, 1)
        return math.log(n / max(n - self.n_less, 1))


def chances(predictions: Predictions | Prediction, pause_s: Array | float, due: Due) -> Array:
    """Return the probability of each plan to finish by the deadline: shape (n_plans,), or a scalar.

    Parameters
    ----------
    predictions
        Throughput with bands.
    pause_s
        Seconds without training until the plan runs.
    """
    centre = np.asarray(predictions.samples_per_s, dtype=np.float64)
    time_s = np.broadcast_to(due.left_s - np.asarray(pause_s, dtype=np.float64), centre.shape)
    if due.n_sample_left <= 0:
        return np.broadcast_to(np.float64(np.asarray(due.left_s) >= 0), centre.shape)
    with np.errstate(over="ignore"):  # of next to no time: no finite speed is enough
        needed = np.divide(due.n_sample_left, time_s, out=np.full(centre.shape, np.inf), where=time_s > 0)
    ahead = np.log(centre) - np.log(needed)
    below = np.hypot(predictions.doubt_below, due.doubt_more)
    above = np.hypot(predictions.doubt_above, due.doubt_less)
    doubt = np.where(ahead >= 0, below, above) / Z_90
    chance = np.asarray(ndtr(ahead / np.maximum(doubt, LEAST_SD)))
    if due.all_left is None:
        return chance
    at_latest = chances(predictions, pause_s, Due(due.all_left, due.left_s))
    return np.asarray(np.maximum(chance, at_latest))


def sure_share(prediction: Prediction, chance: float, due: Due | None = None) -> float:
    """Return which share of a predicted speed is reached with a probability of at least one half.

    A plan finishes in time with that probability where this share of its speed is enough. Of a job that may
    stop early, the doubt in its end counts as one in its speed.
    """
    quantile = float(ndtri(chance)) / Z_90

    def share(more: float) -> float:
        return math.exp(-quantile * max(math.hypot(prediction.doubt_below, more), LEAST_SD * Z_90))

    if due is None or due.all_left is None:
        return share(0.0)
    return max(share(due.doubt_more), share(0.0) * max(due.n_sample_left, 1) / max(due.all_left, 1))


def most_probable(chance: Array, finish_s: Array) -> int:
    """Return the index of the highest chance; of equal ones (of none, mostly) that of the earliest finish."""
    return int(np.lexsort((-finish_s, chance))[-1])


def rescues_deadline(candidate: Candidate, now: Candidate) -> bool:
    """Whether a plan makes deadline and budget so much more probable that other gains do not count."""
    if candidate.chance is None or now.chance is None:
        return False
    return candidate.chance >= now.chance + RESCUE

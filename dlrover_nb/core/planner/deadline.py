"""Whether a plan finishes by the job's deadline: how probable that is, and what can be promised.

What is left to train is known and a pause is predicted, so a plan meets the deadline when it trains at least
``samples left / (seconds left - pause)``. Its mean throughput is log-normal with the fit's 90 % band of the
mean, each side of the centre with its own width; the probability that it is fast enough is the plan's chance.
It is a constraint of planning: among the plans that reach the wanted chance advice chooses as it does without
a deadline, and where none does, the most probable one (`planner.advice`).

Rejected: the predicted finish against the deadline. It promises a plan that is late every second time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.numerics import ndtr, ndtri

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.perf.predictions import Predictions
    from dlrover_nb.core.structs.decisions import Candidate, Prediction

    Array = NDArray[np.float64]

Z_90 = 1.6448536269514722  # standard deviations from the centre of a 90 % band to its end
LEAST_SD = 1e-3  # of the logarithm of a throughput: nothing is known better
ALIKE = 0.02  # a difference of two chances that is no reason for a change of plan
RESCUE = 0.1  # a gain of chance that outweighs rules which keep auto mode from changing back and forth


@dataclass(frozen=True, slots=True)
class Due:
    """What a job has left to do, and until when: samples, and seconds (negative: the deadline has passed)."""

    n_sample_left: int
    left_s: float


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
    time_s = due.left_s - np.asarray(pause_s, dtype=np.float64)
    if due.n_sample_left <= 0:
        return np.broadcast_to(np.float64(due.left_s >= 0), centre.shape)
    with np.errstate(over="ignore"):  # of next to no time: no finite speed is enough
        needed = np.divide(due.n_sample_left, time_s, out=np.full(centre.shape, np.inf), where=time_s > 0)
    ahead = np.log(centre) - np.log(needed)
    doubt = np.where(ahead >= 0, predictions.doubt_below, predictions.doubt_above) / Z_90
    return np.asarray(ndtr(ahead / np.maximum(doubt, LEAST_SD)))


def sure_share(prediction: Prediction, chance: float) -> float:
    """Return which share of a predicted speed is reached with a probability of at least one half.

    A plan finishes in time with that probability where this share of its speed is enough.
    """
    doubt = max(prediction.doubt_below / Z_90, LEAST_SD)
    return float(np.exp(-ndtri(chance) * doubt))


def most_probable(chance: Array, finish_s: Array) -> int:
    """Return the index of the highest chance; of equal ones (of none, mostly) that of the earliest finish."""
    return int(np.lexsort((-finish_s, chance))[-1])


def rescues_deadline(candidate: Candidate, now: Candidate) -> bool:
    """Whether a plan makes the deadline so much more probable that other gains do not count."""
    if candidate.in_time is None or now.in_time is None:
        return False
    return candidate.in_time >= now.in_time + RESCUE

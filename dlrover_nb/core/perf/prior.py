"""The prior of similar finished jobs before a job has samples of its own, and how its influence decreases.

A `FitSummary` holds coefficients. Between jobs of one kind the scale of all of them differs (another machine,
other jobs beside it) more than their proportions do. So without samples the coefficients are drawn with a
common factor and one of their own; with samples only their proportions count, as beliefs about shares of
T_iter with a standard deviation that a few measured configurations outweigh: the weight of the belief is
constant, the data grows.

A past job may be dissimilar. So the forms are fitted without the prior too (`perf.forms`), with the weight
DOUBT: the bands of a new job still cover those of a job without a prior, and once plans can be left out,
their errors decide between the two.

The figures are judgment, not fits: a machine of another generation or with other jobs on it is up to twice as
fast or slow (SCALE_SD), a coefficient of the same model on it within a third (TERM_SD), and one past job in
five found by metadata alone turns out not to be similar (DOUBT).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.perf.coefficients import PRIOR_SD, Belief, no_belief
from dlrover_nb.core.perf.terms import TERMS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.structs.views.past_jobs import FitSummary

    Array = NDArray[np.float64]

SCALE_SD = 0.5  # of the logarithm of all coefficients together, between jobs of one kind
TERM_SD = 0.3  # of the logarithm of one coefficient that the past job had determined
OPEN_SD = 1.0  # of one that it had not
SHARE_SD = 0.15  # of a determined share, where the prior counts for one configuration
DOUBT = 0.2  # probability that the past job is not similar


@dataclass(frozen=True, slots=True)
class Prior:
    """Coefficients of a similar job, in the order of `TERMS`.

    `weight` is the number of configurations that the prior counts for.
    """

    coefficients: Array
    identified: NDArray[np.bool_]
    log_error: float
    weight: float

    def belief(self, index: NDArray[np.intp], columns: Array, log_iter: Array) -> Belief:
        """Return the shares that some terms, `index` of `TERMS`, should have at the measured configurations.

        `columns` are those of these terms: shape (n_plan, n_term).
        """
        shares = (columns / np.exp(log_iter)[:, None]).mean(axis=0) * self.coefficients[index]
        if not np.isfinite(shares).all() or shares.sum() <= 0:
            return no_belief(len(index))
        own_sd = SHARE_SD / np.sqrt(self.weight)
        return Belief(
            shares / shares.sum(), np.where(self.identified[index], min(own_sd, PRIOR_SD), PRIOR_SD)
        )

    def draw(self, n_draw: int, seed: int) -> Array:
        """Return coefficients as they may be before any sample: shape (n_draw, 12), in mirrored pairs."""
        rng = np.random.default_rng(seed)
        own = np.where(self.identified, TERM_SD, OPEN_SD)
        exponent = rng.normal(0, 1, (n_draw, len(TERMS))) * own + rng.normal(0, SCALE_SD, (n_draw, 1))
        exponent[1::2] = -exponent[::2]
        return np.asarray(self.coefficients * np.exp(exponent))

    def guesses(self, belief: Belief, n_draw: int, seed: int) -> Array:
        """Return shares around the belief: shape (n_draw, n_term)."""
        rng = np.random.default_rng(seed)
        off = rng.standard_normal((n_draw, len(belief.mean))) * np.minimum(belief.sd, SHARE_SD)
        return np.asarray(np.maximum(belief.mean + off, 0))


def prior_of(summary: FitSummary, weight: float) -> Prior:
    """Read a past fit.

    Raises
    ------
    InvalidValueError
        When a coefficient is not a finite number >= 0, or none is above zero.
    """
    values, identified = np.zeros(len(TERMS)), np.zeros(len(TERMS), dtype=np.bool_)
    for term in summary.terms:
        if term.term not in TERMS:
            raise InvalidValueError(f"the terms of a fit are {', '.join(TERMS)}, got {term.term!r}")
        if not (np.isfinite(term.value) and term.value >= 0):
            raise InvalidValueError(f"the prior's {term.term} must be a finite number >= 0, got {term.value}")
        values[TERMS.index(term.term)] = term.value
        identified[TERMS.index(term.term)] = term.identified
    if not values.any():
        raise InvalidValueError("a prior needs a coefficient > 0, got none; fit without a prior")
    return Prior(values, identified, summary.log_error, weight)

"""Width of the bands: coefficients that fit equally well, calibrated by left-out configurations.

Between the plans that were tried, `widening` compares each configuration's error, predicted without it, with
the standard deviation claimed for it; the band is scaled so that 90 % of the errors lie inside (conformal in
spirit: the error of rank 0.9 (n + 1), no normal law). Ten errors of a calibrated model are mixed in, so that
twelve configurations do not dominate.

Beyond what was tried the error grows with the distance. `drift` leaves out the largest values of each axis in
turn, predicts them from the rest, and takes the error per doubling. Where an axis has too few values, 0.1 is
assumed: a term missing from the forms, a tenth of an iteration and growing with the axis, adds a tenth with
the first doubling.

The draws are of all forms together, in proportion to their weights. One table of draws carries three
uncertainties at once: which form, which coefficients, and how large the errors are. To get a spread (bands,
the next experiment), multiply a design matrix with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.numerics import Z_90, ndtri
from dlrover_nb.core.perf import coefficients
from dlrover_nb.core.perf.coefficients import TINY, shares_without
from dlrover_nb.core.perf.forms import N_CHOICE
from dlrover_nb.core.perf.terms import TERMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.perf.evidence import Evidence
    from dlrover_nb.core.perf.forms import FittedForm
    from dlrover_nb.core.perf.prior import Prior

    Array = NDArray[np.float64]

N_CALM = 10  # errors of a calibrated model, added to the job's own
PRIOR_DRIFT = 0.1  # of log T_iter per doubling, see above
N_PRIOR_DRIFT = 2.0  # axes that the assumed drift counts for
INNER = 0.6  # share of the configurations that predict the outer ones of an axis


@dataclass(frozen=True, slots=True)
class Errors:
    """Standard errors of log T_iter of each configuration, and the degrees of freedom behind their size."""

    each: Array
    freedom: float


def draw_all(
    forms: Sequence[FittedForm], errors: Errors, *, n_draw: int, seed: int, prior: Prior | None
) -> Array:
    """Return coefficients of all `TERMS`: ndarray of shape (n_draw, 12), in mirrored pairs."""
    table = []
    for i, (form, n) in enumerate(zip(forms, _counts([w.weight for w in forms], n_draw), strict=True)):
        rows = np.zeros((n, len(TERMS)))
        if n:
            rows[:, form.form.index] = _draw_form(form, errors, n, seed + i, prior) / form.solved.scale
        table.append(rows)
    return np.vstack(table)


def _draw_form(form: FittedForm, errors: Errors, n_draw: int, seed: int, prior: Prior | None) -> Array:
    belief = form.solved.belief
    wider = np.sqrt(errors.freedom / np.random.default_rng(seed).chisquare(errors.freedom, n_draw))
    if form.led and prior is not None:
        guesses = prior.guesses(belief, n_draw, seed)
    else:
        guesses = coefficients.open_guesses(
            n_draw, len(belief.mean), corner_mass=coefficients.CORNER_MASS, seed=seed
        )
    return coefficients.draw(form.solved, guesses, error=errors.each, wider=wider, seed=seed)


def _counts(weights: Sequence[float], n_draw: int) -> list[int]:
    """Return even numbers of draws in proportion to the weights, summing to `n_draw` (largest remainder)."""
    pairs = np.asarray(weights) / np.sum(weights) * (n_draw // 2)
    counts = np.floor(pairs).astype(int)
    rest = np.argsort(counts - pairs, kind="stable")[: n_draw // 2 - counts.sum()]
    counts[rest] += 1
    return [2 * int(n) for n in counts]


def widening(errors: Array, claimed: Array) -> float:
    """Return by what claimed standard deviations must be multiplied for 90 % of the errors to lie inside."""
    calm = ndtri(0.5 + np.arange(1, N_CALM + 1) / (N_CALM + 1) / 2)
    ratios = np.concatenate((np.abs(errors) / claimed, calm))
    return float(np.quantile(ratios, 0.9, method="weibull")) / Z_90


def drift(evidence: Evidence, forms: Sequence[FittedForm], error: float) -> float:
    """Return the error of log T_iter per doubling beyond what was tried, `error` within it left aside."""
    rates = [_rate(np.log2(axis), forms, error) for axis in evidence.axes.T]
    squares = [rate for rate in rates if rate is not None]
    pooled = (N_PRIOR_DRIFT * PRIOR_DRIFT**2 + sum(squares)) / (N_PRIOR_DRIFT + len(squares))
    return float(np.sqrt(pooled))


def beyond(evidence: Evidence, axes: Array) -> Array:
    """Return how many doublings plans lie outside what was tried: shape (n_plans,)."""
    if not len(evidence):
        return np.zeros(len(axes))
    measured, here = np.log2(evidence.axes), np.log2(axes)
    out = np.maximum(np.maximum(measured.min(axis=0) - here, here - measured.max(axis=0)), 0)
    return np.asarray(np.sqrt((out**2).sum(axis=1)))


def _rate(axis: Array, forms: Sequence[FittedForm], error: float) -> float | None:
    """Return the squared error per doubling when the outer configurations of an axis are predicted."""
    inner = axis <= np.quantile(axis, INNER)
    if inner.sum() < N_CHOICE or inner.all() or np.ptp(axis[inner]) == 0:
        return None
    off = sum(form.weight * _predict_outer(form, inner) for form in forms)
    far = axis[~inner] - axis[inner].max()
    return float(np.sum(np.maximum(off**2 - error**2, 0)) / np.sum(far**2))


def _predict_outer(form: FittedForm, inner: NDArray[np.bool_]) -> Array:
    """Return predicted minus measured log T_iter of the outer configurations, fitted without them."""
    shares = shares_without(form.solved, ~inner)
    return np.asarray(np.log(np.maximum(form.solved.rows[~inner] @ shares, TINY)))

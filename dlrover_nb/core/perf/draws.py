"""Coefficient sets that fit equally well: of all forms together, draws in proportion to their weights.

One table of draws carries three uncertainties at once: which form, which coefficients, and how large the
errors are. To get a spread (bands, the next experiment), multiply a design matrix with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.perf import coefficients
from dlrover_nb.core.perf.terms import TERMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.perf.forms import FittedForm
    from dlrover_nb.core.perf.prior import Prior

    Array = NDArray[np.float64]


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

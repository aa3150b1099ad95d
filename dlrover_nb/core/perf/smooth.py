"""Correction of the forms near measured plans: a Gaussian process over the residuals in (log w, log p).

Real jobs deviate locally from any sum of smooth terms: five servers for four large tensors, a mini-batch
rounded up, a worker on a busy machine. Neighboring plans share the deviation. So the residuals of log T_iter
are smoothed by kriging with a product of Matern-3/2 kernels over log2 w and log2 p. Lengths and amplitude
come from the marginal likelihood, the size of the noise in closed form with it. Far from measured plans the
correction goes to zero: extrapolation is left to the forms. On the DL2 jobs it takes 25 % off the error at
70/30, 3 % with 12 plans measured, and a tenth beyond the range tried.

CPU is left out on purpose. The correction is one factor for all plans of the same (w, p), so a property of
the forms holds for the whole: more CPU per worker or PS never makes a plan slower.

Rejected: a squared exponential kernel (too smooth, a tenth worse at 70/30), one length for both axes (a tenth
worse), a kernel over all four axes (CPU rarely has more than three steps, and monotonicity is lost).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.numerics import dposv
from dlrover_nb.core.perf.coefficients import ASSUMED_ERROR, N_PRIOR_PLAN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

N_CELL = 6  # distinct (w, p) from which on the smoothness of residuals can be estimated
LENGTHS = (0.5, 1.0, 2.0, 4.0)  # doublings
N_SEARCH = 150  # configurations that choose lengths and ratio: more make the search slow, not better
RATIOS = (0.5, 2.0, 8.0)  # variance of the smooth part over that of the noise


@dataclass(frozen=True, slots=True)
class Cells:
    """Configurations by their (w, p): `cell` of each, and of each cell log2 (w, p) and the count."""

    cell: NDArray[np.intp]
    where: Array  # (n_cell, 2)
    count: Array

    def means(self, values: Array) -> Array:
        """Return the mean of each cell: values of shape (n_plan,) or (n_plan, k)."""
        total = np.zeros((len(self.count), *values.shape[1:]))
        np.add.at(total, self.cell, values)
        return np.asarray((total.T / self.count).T)


def cells_of(axes: Array) -> Cells:
    """Group plans, rows of `terms.axes_of`, by workers and PS."""
    where, cell, count = np.unique(np.log2(axes[:, :2]), axis=0, return_inverse=True, return_counts=True)
    return Cells(cell.reshape(-1), where, count.astype(np.float64))


@dataclass(frozen=True, slots=True)
class Smooth:
    """A Gaussian process over residuals: `error` is the noise between configurations that remains.

    `inverse` is that of the cells' covariance over the noise's variance, ``ratio * K + diag(1 / count)``.
    """

    cells: Cells
    lengths: tuple[float, float]
    ratio: float
    inverse: Array
    error: float

    def weights(self, residuals: Array) -> Array:
        """Return the weights of the residuals that `at` needs: shape (n_cell,) or (n_cell, k)."""
        return np.asarray(self.inverse @ self.cells.means(residuals))

    def at(self, axes: Array, weights: Array) -> tuple[Array, Array]:
        """Return corrections of log T_iter at plans, and the remaining variance.

        Shapes (n_plans,) or (n_plans, k), and (n_plans,). The noise between configurations is included.
        Plans of the same (w, p) are computed once: a plan space has few of them.
        """
        _, first, pair = np.unique(axes[:, 0] + 1j * axes[:, 1], return_index=True, return_inverse=True)
        gain = self.ratio * _kernel(np.log2(axes[first, :2]), self.cells.where, self.lengths)
        explained = np.einsum("ij,ij->i", gain @ self.inverse, gain)
        variance = self.error**2 * (1 + np.maximum(self.ratio - explained, 0))
        pair = pair.reshape(-1)
        return (gain @ weights)[pair], variance[pair]

    def leave_one_out(self, residuals: Array) -> tuple[Array, Array]:
        """Return residuals from the process of the other cells, and their variances: shape (n_plan,)."""
        means, own = self.cells.means(residuals), np.diag(self.inverse)
        far = (self.inverse @ means) / own
        variance = self.error**2 * (1 + 1 / own - 1 / self.cells.count)
        cell = self.cells.cell
        return residuals - means[cell] + far[cell], variance[cell]


def smooth(axes: Array, residuals: Array) -> Smooth | None:
    """Return the process of highest marginal likelihood; None with fewer than `N_CELL` distinct (w, p)."""
    cells = cells_of(axes)
    if len(cells.count) < N_CELL:
        return None
    step = -(-len(axes) // N_SEARCH)
    lengths, ratio = _search(cells_of(axes[::step]), residuals[::step])
    return _process(cells, residuals, lengths, ratio)


def _search(cells: Cells, residuals: Array) -> tuple[tuple[float, float], float]:
    """Return the lengths and the ratio of highest marginal likelihood."""
    means, within = _split(cells, residuals)
    tables = {(i, s): _matern(cells.where[:, i], cells.where[:, i], s) for i in (0, 1) for s in LENGTHS}
    best, chosen = -np.inf, ((LENGTHS[0], LENGTHS[0]), RATIOS[0])
    for length_w, length_p in product(LENGTHS, LENGTHS):
        kernel = tables[0, length_w] * tables[1, length_p]
        for ratio in RATIOS:
            likelihood = _likelihood(_covariance(cells, kernel, ratio), means, within, len(residuals))
            if likelihood > best:
                best, chosen = likelihood, ((length_w, length_p), ratio)
    return chosen


def refit(process: Smooth, axes: Array, residuals: Array) -> Smooth:
    """Return a process of the same lengths and ratio over other residuals."""
    return _process(cells_of(axes), residuals, process.lengths, process.ratio)


def _process(cells: Cells, residuals: Array, lengths: tuple[float, float], ratio: float) -> Smooth:
    means, within = _split(cells, residuals)
    covariance = _covariance(cells, _kernel(cells.where, cells.where, lengths), ratio)
    inverse = np.linalg.inv(covariance)
    error = _variance(float(means @ inverse @ means) + within, len(residuals)) ** 0.5
    return Smooth(cells, lengths, ratio, np.asarray(inverse, dtype=np.float64), error)


def _split(cells: Cells, residuals: Array) -> tuple[Array, float]:
    """Return the cells' means and the sum of squares around them."""
    means = cells.means(residuals)
    return means, float(np.sum((residuals - means[cells.cell]) ** 2))


def _covariance(cells: Cells, kernel: Array, ratio: float) -> Array:
    return np.asarray(ratio * kernel + np.diag(1 / cells.count))


def _likelihood(covariance: Array, means: Array, within: float, n: int) -> float:
    """Return the log marginal likelihood at the best variance of the noise."""
    root, solved = dposv(covariance, means)
    squares = float(means @ solved) + within
    spread = float(np.log(np.diag(root)).sum())
    return -0.5 * (n + N_PRIOR_PLAN) * float(np.log(_variance(squares, n))) - spread


def _variance(squares: float, n: int) -> float:
    return (squares + N_PRIOR_PLAN * ASSUMED_ERROR**2) / (n + N_PRIOR_PLAN)


def _kernel(here: Array, there: Array, lengths: tuple[float, float]) -> Array:
    w, p = (_matern(here[:, i], there[:, i], lengths[i]) for i in (0, 1))
    return np.asarray(w * p)


def _matern(here: Array, there: Array, length: float) -> Array:
    distance = np.sqrt(3) * np.abs(here[:, None] - there[None, :]) / length
    return np.asarray((1 + distance) * np.exp(-distance))

"""Non-negative coefficients from few configurations: one best set, and the sets that fit as well.

Everything here works in shares: column k of the design is scaled so that coefficient k is the average
share of T_iter that its term takes over the measured configurations. Then one weak prior suits all
jobs: shares are in [0, 1] and sum to about 1.

The spread is found by randomised optimisation: each draw perturbs the measurements by their
errors, takes a prior guess of the shares, and solves the same non-negative least squares. What the data
determines follows the data; what it does not determine stays where the guess was. The guesses are the
corners of the simplex ("all of T_iter is this term") and uniform points within. Each corner has 10 % of
the draws, with mirrored errors, so that 5 % lie at or beyond it: with one configuration the 90 % band at
any other plan reaches from "the whole of T_iter scales with what changed" to "nothing of it does", an
exact statement and not a shape of a prior.

Rejected: a Laplace approximation (most coefficients sit at their bound 0, where it is wrong),
importance weights on prior draws (with 2 % noise and 5 terms next to none survives), and MCMC (slow, and the
bands would jitter from fit to fit; the fixed draws here do not).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares, nnls

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

PRIOR_SD = 1.0  # of a share: as weak as can be for a number in [0, 1]
CORNER_MASS = 0.1  # of the draws, for each term
N_PRIOR_PLAN = 3.0  # configurations that the assumed model error counts for


def best_shares(rows: Array, error: Array) -> Array:
    """Return the shares that minimise the robust error of log T_iter.

    Parameters
    ----------
    rows
        ndarray of shape (n_plan, n_term): share columns divided by the measured T_iter, so that
        ``rows @ shares`` is predicted over measured.
    error
        ndarray of shape (n_plan,): standard error of log T_iter, model error included.

    Notes
    -----
    DLRover-RM section 4.3 minimises RMSLE by NNLS alone; NNLS minimises relative, not logarithmic, error,
    so we take it as the start and refine on log residuals. The soft loss keeps one odd plan from bending
    the rest. The prior pulls what the data leaves open to equal shares.
    """
    n_term = rows.shape[1]
    prior = np.full(n_term, 1.0 / n_term)
    start = nnls(*_system(rows, error, np.ones(len(rows)), prior))[0]

    def residual(shares: Array) -> Array:
        return np.concatenate((np.log(rows @ shares) / error, (shares - prior) / PRIOR_SD))

    def jacobian(shares: Array) -> Array:
        return np.vstack((rows / ((rows @ shares) * error)[:, None], np.eye(n_term) / PRIOR_SD))

    solved = least_squares(
        residual,
        np.maximum(start, 1e-6),
        jac=jacobian,
        bounds=(0, np.inf),
        loss="soft_l1",
        f_scale=2.0,
        max_nfev=40,
        xtol=1e-6,
        ftol=1e-6,
        gtol=1e-6,
    )
    return np.asarray(solved.x)


def model_error(rows: Array, error: Array, shares: Array, assumed: float) -> tuple[float, float]:
    """Return the between-plan error of the model and the degrees of freedom behind it.

    The assumed error counts like `N_PRIOR_PLAN` configurations; residuals add what they show, also where
    there are no more configurations than parameters: a residual that non-negative parameters cannot remove
    says that the form is wrong.
    """
    spectrum = np.linalg.svd(rows / error[:, None], compute_uv=False) ** 2
    n_free = float(np.sum(spectrum / (spectrum + PRIOR_SD**-2)))
    n_spare = max(len(rows) - n_free, 0.0)
    squares = float(np.sum(np.log(rows @ shares) ** 2))
    freedom = N_PRIOR_PLAN + n_spare
    return float(np.sqrt((N_PRIOR_PLAN * assumed**2 + squares) / freedom)), freedom


def share_errors(rows: Array, error: Array) -> Array:
    """Return the posterior standard deviation of each share, bounds left aside: which ones are known."""
    scaled = rows / error[:, None]
    precision = scaled.T @ scaled + np.eye(rows.shape[1]) / PRIOR_SD**2
    return np.asarray(np.sqrt(np.diag(np.linalg.inv(precision))))


def draw_shares(rows: Array, error: Array, *, freedom: float, n_draw: int, seed: int) -> Array:
    """Return sets of shares that fit as well as the errors allow: ndarray of shape (n_draw, n_term).

    The error's own uncertainty widens each draw by a factor of the chi-square law with `freedom`. `n_draw`
    is even: each draw has a twin with mirrored errors.
    """
    rng = np.random.default_rng(seed)
    n_plan, n_term = rows.shape
    guesses = _guesses(rng, n_draw, n_term)
    wider = np.sqrt(freedom / rng.chisquare(freedom, n_draw))
    errors = rng.standard_normal((n_draw, n_plan)) * wider[:, None] * error
    errors[1::2] = -errors[::2]
    noise = np.exp(errors)
    system, _ = _system(rows, error, np.ones(n_plan), guesses[0])
    q, r = np.linalg.qr(system)  # 5 x 5 whatever the number of plans
    targets = np.hstack((noise / error, guesses / PRIOR_SD)) @ q
    return np.array([nnls(r, target)[0] for target in targets])


def _guesses(rng: np.random.Generator, n_draw: int, n_term: int) -> Array:
    n_corner = 2 * round(CORNER_MASS * n_draw / 2)  # even: each has its mirrored twin
    corners = np.repeat(np.eye(n_term), n_corner, axis=0)
    return np.vstack((corners, rng.dirichlet(np.ones(n_term), n_draw - len(corners))))


def _system(rows: Array, error: Array, seen: Array, prior: Array) -> tuple[Array, Array]:
    left = np.vstack((rows / error[:, None], np.eye(rows.shape[1]) / PRIOR_SD))
    return left, np.concatenate((seen / error, prior / PRIOR_SD))

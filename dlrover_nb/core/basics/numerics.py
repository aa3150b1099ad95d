"""Numerical functions that decisions use; the libraries behind them are imported at their first call.

scipy is a third of the time that a master's process takes to start, and nothing of it is needed before a job
has trained for a while. So modules that a master imports take these functions from here. The first call takes
.3 s of CPU time in which a job's loop would answer no node: it loads them in a thread once the job trains.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Z_90 = 1.6448536269514722  # standard deviations from the centre of a 90 % band to its end
BY_CHANCE = 1.645  # standard errors that one in twenty series of independent values shows
MOST_ALIKE = 0.9


def load() -> None:
    """Import what the functions need, so that none of them does it at its first call; for any thread."""
    from scipy import optimize, special  # noqa: F401, PLC0415 - see the module
    from scipy.linalg import lapack  # noqa: F401, PLC0415 - see the module


@contextmanager
def one_thread() -> Iterator[None]:
    """Let libraries of linear algebra compute in one thread meanwhile, in the whole process.

    Matrices of a fit are small: with more threads each of them waits for the others most of its time, and a
    lab took three times the CPU time for the same result.
    """
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - a lab alone needs it

    with threadpool_limits(1, user_api="blas"):
        yield


def nnls(rows: Array, target: Array) -> tuple[Array, float]:
    """Return x >= 0 of least ``|rows @ x - target|``, and that distance."""
    from scipy import optimize  # noqa: PLC0415 - see the module

    x, distance = optimize.nnls(rows, target)
    return np.asarray(x, dtype=np.float64), float(distance)


def dposv(matrix: Array, right: Array) -> tuple[Array, Array]:
    """Return the lower Cholesky factor of a positive definite matrix, and the solution for `right`."""
    from scipy.linalg import lapack  # noqa: PLC0415 - see the module

    root, solved, _ = lapack.dposv(matrix, right, lower=1)
    return root, solved


def ndtr(x: Array | float) -> Array:
    """Return the distribution function of the normal distribution."""
    from scipy import special  # noqa: PLC0415 - see the module

    return np.asarray(special.ndtr(x), dtype=np.float64)


def log_ndtr(x: Array | float) -> Array:
    """Return the logarithm of `ndtr`."""
    from scipy import special  # noqa: PLC0415 - see the module

    return np.asarray(special.log_ndtr(x), dtype=np.float64)


def ndtri(probability: Array | float) -> Array:
    """Return the quantiles of the normal distribution."""
    from scipy import special  # noqa: PLC0415 - see the module

    return np.asarray(special.ndtri(probability), dtype=np.float64)


def stdtrit(freedom: Array | float, probability: Array | float) -> Array:
    """Return the quantiles of Student's t distribution."""
    from scipy import special  # noqa: PLC0415 - see the module

    return np.asarray(special.stdtrit(freedom, probability), dtype=np.float64)


def lag_one(squares: float, products: float, n: int, n_series: int) -> float:
    """Return the lag-one autocorrelation of short series, 0 to `MOST_ALIKE`; 0 where chance explains it.

    Parameters
    ----------
    squares, products
        Sums over all series of squares around each one's mean, and of products of neighbors around it.
    n, n_series
        Values of all series together, and their number.

    Notes
    -----
    Taking the mean off makes neighbors seem less alike by the variance over the length, which is put back.
    """
    n_pair = n - n_series
    if n_pair < 1 or squares <= 0:
        return 0.0
    alike = (products + n_series * squares / n_pair) / squares
    return min(alike, MOST_ALIKE) if alike * n_pair**0.5 > BY_CHANCE else 0.0


def independent(n: float, alike: float) -> float:
    """Return how many independent values determine a mean as n values with a lag-one autocorrelation do."""
    return max(n * (1 - alike) / (1 + alike), min(n, 1.0))

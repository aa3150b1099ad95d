"""How old gradients will be in a plan, before it runs.

The age of a gradient is the number of updates by other workers between the read of its parameters and its
apply (`structs.training.gradient_ages`). Its mean follows from a law of conservation: of w workers each has
one gradient in the making at any moment, and each update by one worker makes those of the w - 1 others one
update older. All updates together age gradients as much as they apply, so the mean age is w - 1, whatever
the speeds, waits and number of parameter servers (PS) are: as a mean over a run it is Mishchenko et al.
(arXiv 2206.07638) and Koloskova et al. (arXiv 2206.08307), in queueing theory Little's law. Speeds decide
whose gradients are old: worker i with r_i updates per second sees (R - r_i) / r_i of others in one iteration.

- Where exchanges overlap with computing, a gradient spans two iterations of its worker: twice the age.
- Where n gradients are applied together, as one step, an age in steps is that in gradients over n.
- In BSP and all-reduce all gradients of a step are of one version: 0.
- SSP has the same mean: a worker that must wait has its gradient in the making meanwhile. Its bound cuts the
  tail, by `greatest_age`.

Each exchange goes to all PS, and each PS counts its updates: so ages do not depend on their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.numerics import ndtr
from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]

N_WAVE = 4  # terms of the Fourier series of f (1 - f)
LEAST_DEVIATION = 0.3  # of an age, which is a whole number


@dataclass(frozen=True, slots=True)
class Updating:
    """How gradients are applied.

    Parameters
    ----------
    in_step
        All gradients of a step are computed from one version of the parameters, as in BSP.
    overlap
        Exchanges overlap with computing.
    n_per_step
        Gradients that are applied together.
    bound
        Iterations that a worker may be ahead of the slowest one, in SSP; None: no bound.
    """

    in_step: bool = False
    overlap: bool = False
    n_per_step: float = 1.0
    bound: int | None = None

    def __post_init__(self) -> None:
        _check.at_least("gradients of a step", self.n_per_step, 1)
        if self.bound is not None:
            _check.at_least("bound of staleness", self.bound, 0)

    @property
    def span(self) -> int:
        """Iterations of a worker from a read to the apply of the gradients of it."""
        return 2 if self.overlap else 1


def mean_ages(n_worker: ArrayLike, how: Updating) -> Array:
    """Return the mean age, in steps, with each number of workers."""
    w = np.asarray(n_worker, dtype=np.float64)
    return np.zeros_like(w) if how.in_step else how.span * (w - 1) / how.n_per_step


def greatest_age(n_worker: int, how: Updating) -> float | None:
    """Return the most updates that a gradient can miss, in steps; None: there is no limit.

    In SSP another worker makes at most 2 s + 1 updates within one iteration of a worker: it may be s behind
    when the iteration begins, and s ahead when it ends.
    """
    if how.in_step or n_worker == 1:
        return 0.0
    if how.bound is None:
        return None
    return (n_worker - 1) * (2 * how.bound + how.span) / how.n_per_step


@dataclass(frozen=True, slots=True)
class AgeSpread:
    """Ages of the gradients of each worker: their means, standard deviations, and shares of all gradients."""

    means: Array
    deviations: Array
    shares: Array
    greatest: float | None

    @property
    def mean(self) -> float:
        """Mean age of all gradients."""
        return float(self.means @ self.shares)

    def at_most(self, age: float) -> float:
        """Return the share of gradients that are at most so old."""
        if self.greatest is not None and age >= self.greatest:
            return 1.0
        below = ndtr((age + 0.5 - self.means) / self.deviations)
        return float(below @ self.shares)

    def quantile(self, share: float) -> int:
        """Return the least age which this share of gradients does not exceed."""
        age = 0
        while self.at_most(age) < share:
            age += 1
        return age


def age_spread(iter_s: ArrayLike, how: Updating, *, variation: float = 0.0) -> AgeSpread:
    """Return how old the gradients of each worker will be.

    Parameters
    ----------
    iter_s
        Seconds of an iteration of each worker: shape (n_workers,); slow workers have more. In step, and
        within a bound, all are as fast as the slowest in the long run.
    variation
        Coefficient of variation of one worker's iterations.

    Notes
    -----
    In one span S of worker i another worker j makes S / T_j updates on average. Their variance is that of its
    own iterations, that of the span, and f (1 - f) of the phase, f being what S / T_j is beyond a whole
    number, averaged over f where iterations vary (its Fourier series).
    """
    times = np.asarray(iter_s, dtype=np.float64)
    if how.in_step or len(times) == 1:
        zeros = np.zeros(len(times))
        return AgeSpread(zeros, np.full(len(times), LEAST_DEVIATION), _shares(times), 0.0)
    if how.bound is not None:
        times = np.full(len(times), times.max())
    per_other = how.span * times[:, None] / times[None, :]  # updates of j in a span of i
    np.fill_diagonal(per_other, 0.0)
    own = variation**2 * per_other
    span = variation**2 / how.span * per_other.sum(axis=1) ** 2
    variance = (own + _phase(per_other, variation**2 * (per_other + per_other**2 / how.span))).sum(axis=1)
    n = how.n_per_step
    return AgeSpread(
        means=per_other.sum(axis=1) / n,
        deviations=np.maximum(np.sqrt(variance + span) / n, LEAST_DEVIATION),
        shares=_shares(times),
        greatest=greatest_age(len(times), how),
    )


def _shares(times: Array) -> Array:
    rates = 1 / times
    return np.asarray(rates / rates.sum())


def _phase(count: Array, variance: Array) -> Array:
    """Return the mean of f (1 - f), f being normal around a count with a variance."""
    mean = np.full_like(count, 1 / 6)
    for k in range(1, N_WAVE + 1):
        damped = np.exp(-2 * (np.pi * k) ** 2 * variance)
        mean -= np.cos(2 * np.pi * k * count) * damped / (np.pi * k) ** 2
    np.fill_diagonal(mean, 0.0)
    return np.maximum(mean, 0.0)

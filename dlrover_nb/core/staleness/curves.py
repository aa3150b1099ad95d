"""Held-out quality against the age of gradients, from a few measured points: a curve with a band.

Worse quality W (a loss that rises, an AUC that falls) at mean age x is

    W(x) = a x^b + g(x) + h(x),    W(0) = 0

with a Gaussian process g for what a power law misses. It varies smoothly in log(1 + x), in proportion to the
power law itself, so that the band is narrow between measured ages and wide beyond them. Exponents b and sizes
of g are not chosen: each combination counts by its marginal likelihood. a is at least 0 (older gradients do
not train a better model) unless the points clearly say otherwise. h, as small as the errors of points, lets
a little staleness gain something, as momentum does: in some rehearsals it did.

Points are means of paired differences over a few seeds. Their errors are known as badly (Student's t), and
are alike, as each is a difference to the same runs. `SHARED`, `HEAVY` and `GAIN` are chosen so that bands
hold runs of other seeds on four public sets (`benchmarks/staleness.py`).

A curve of a sample is not the curve of the job: more rows may dilute the loss or, where rows are rare, leave
it as it is. We know of no law for it, and so shift nothing and widen the band: by `TRANSFER`, and by `ROWS`
and `BATCH` for each doubling between the rows and batches of the runs and those of the job, all as shares of
the change.

Rejected: least squares of a and b alone, whose band knows neither of other shapes nor of other exponents; and
splines, which have no opinion beyond the last point, where plans with more workers are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.numerics import Z_90, log_ndtr, stdtrit
from dlrover_nb.core.structs.training.quality import CurveOrigin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from dlrover_nb.core.structs.training.quality import QualityCurve, QualityPoint

    Array = NDArray[np.float64]

EXPONENTS = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.5)  # b; high ones where training diverges
MISFITS = (0.1, 0.3, 0.6, 1.2)  # standard deviation of g, as a share of the power law
GAIN = 2.0  # standard deviation of h, in usual errors of a point
SLOW = 1.2  # length of h in log(1 + age)
SMOOTH = 0.6  # length of g in log(1 + age): a bit less than a doubling
CLEARLY = 2.0  # standard errors below 0 from which on a may be negative
SHARED = 0.8  # correlation of the errors of two points: both are differences to the same runs at age 0
HEAVY = 2.0  # times the variance of a point beyond that of Student's t: some seeds are far off
MOST_FEW = 16.0  # the same of two seeds, or of one, which says nothing of others
NO_WEIGHT = 1e-6  # of a combination: left out
LEAST_ERROR = 1e-5  # of a point: two runs are never known more exactly
TRANSFER = {CurveOrigin.RUNS: 0.1, CurveOrigin.REHEARSAL: 0.3, CurveOrigin.SIMILAR: 0.6}
ROWS = 0.05  # for each doubling between the rows of the runs and of the job
BATCH = 0.3  # for each doubling between the batches of a worker


@dataclass(frozen=True, slots=True)
class Changes:
    """Expected changes of one measure with standard deviations: arrays of shape (n_ages,)."""

    mean: Array
    deviation: Array

    @property
    def low(self) -> Array:
        """Low ends of the 90 % bands."""
        return self.mean - Z_90 * self.deviation

    @property
    def high(self) -> Array:
        """High ends of the 90 % bands."""
        return self.mean + Z_90 * self.deviation

    def widened(self, share: ArrayLike) -> Changes:
        """Return the same with a further error that is this share of each change."""
        return Changes(self.mean, np.hypot(self.deviation, np.asarray(share) * self.mean))


@dataclass(frozen=True)  # no slots: what is computed once is kept in the instance
class FittedCurve:
    """Changes of loss and AUC at any mean age, by the points of one curve."""

    curve: QualityCurve

    def auc(self, ages: ArrayLike, since: float = 0.0, *, error: ArrayLike | None = None) -> Changes:
        """Return changes of AUC at mean ages, less that at age `since`, in the runs of the curve.

        Parameters
        ----------
        error
            Standard error with which the changes are measured over seeds, for the band of a measurement;
            None: the band is that of the mean.
        """
        worse = self._auc.at(ages, since)
        return Changes(-worse.mean, self._auc.measured(worse.deviation, error))

    def loss(self, ages: ArrayLike, since: float = 0.0, *, error: ArrayLike | None = None) -> Changes:
        """Return changes of the held-out loss at mean ages, less that at age `since`; see `auc`."""
        worse = self._loss.at(ages, since)
        return Changes(worse.mean, self._loss.measured(worse.deviation, error))

    def transfer(self, n_row: int, batch_size: ArrayLike | None = None) -> Array:
        """Return how far the changes in another job may differ, as a share of them.

        Parameters
        ----------
        n_row, batch_size
            Samples that it trains in all passes, and those of a worker's batch; None: as in the runs.
        """
        own = self.curve.n_row * self.curve.n_epoch
        share = TRANSFER[self.curve.origin] + ROWS * np.abs(np.log2(max(n_row, 1) / own))
        if batch_size is None:
            return np.asarray(share)
        batches = np.asarray(batch_size, dtype=np.float64) / self.curve.batch_size
        return np.asarray(share + BATCH * np.abs(np.log2(batches)))

    @cached_property
    def _auc(self) -> _Worse:
        points = self.curve.points
        return _Worse.of([(p.age, -p.auc, p.auc_error) for p in points], _n_seed(points))

    @cached_property
    def _loss(self) -> _Worse:
        points = self.curve.points
        return _Worse.of([(p.age, p.loss, p.loss_error) for p in points], _n_seed(points))


def combined(changes: Sequence[Changes]) -> Changes | None:
    """Return changes by several curves as one, each weighted by its precision; None of none.

    Curves that disagree by more than their bands widen the result (the Birge ratio).
    """
    if not changes:
        return None
    means = np.array([each.mean for each in changes])
    precision = np.maximum(np.array([each.deviation for each in changes]), 1e-12) ** -2
    mean = (precision * means).sum(axis=0) / precision.sum(axis=0)
    excess = (precision * (means - mean) ** 2).sum(axis=0) / max(len(changes) - 1, 1)
    deviation = np.sqrt(np.maximum(excess, 1.0) / precision.sum(axis=0))
    is_sure = np.array([each.deviation == 0 for each in changes]).any(axis=0)
    return Changes(mean, np.where(is_sure & (excess == 0), 0.0, deviation))


@dataclass(frozen=True, slots=True)
class _Power:
    """One exponent with one size of g, conditioned on the points.

    `scale` is a of the power law that fits best alone: g is in proportion to it.
    """

    exponent: float
    misfit: float
    scale: float
    prior: float  # standard deviation of a before any point
    gain: float  # standard deviation of what a little staleness may gain or lose beside it

    def cover(self, x: Array, y: Array) -> Array:
        """Return the covariance of W at ages x and y."""
        power = np.outer(x**self.exponent, y**self.exponent)
        apart = (np.log1p(x)[:, None] - np.log1p(y)[None, :]) / SMOOTH
        g = (self.misfit * self.scale) ** 2 * np.exp(-0.5 * apart**2)
        gain = self.gain**2 * np.outer(x / (1 + x), y / (1 + y)) * np.exp(-0.5 * (apart * SMOOTH / SLOW) ** 2)
        return np.asarray(power * (self.prior**2 + g) + gain)

    def variance(self, x: Array) -> Array:
        """Return the variance of W at each age."""
        power = x ** (2 * self.exponent) * (self.prior**2 + (self.misfit * self.scale) ** 2)
        return np.asarray(power + (self.gain * x / (1 + x)) ** 2)


@dataclass(frozen=True, slots=True)
class _Worse:
    """How much worse a measure is at an age, as a mixture of power laws with their weights.

    Parameters
    ----------
    ages, worse, errors
        Points, with errors as bands need them (`_pooled`).
    standard_errors, n_seed
        Their errors as measured, and over how many seeds.
    powers, is_free
        Power laws with their weights, and whether a may be negative.
    """

    ages: Array
    worse: Array
    errors: Array
    standard_errors: Array
    n_seed: int
    powers: tuple[tuple[float, _Power], ...]
    is_free: bool

    @classmethod
    def of(cls, points: Sequence[tuple[float, float, float]], n_seed: int) -> _Worse:
        """Fit points: age, how much worse, and its standard error; one at age 0 says nothing."""
        rows = [row for row in points if row[0] > 0]
        x, y, own = np.array(rows, dtype=np.float64).reshape(-1, 3).T
        error = np.maximum(_pooled(own, own, n_seed), LEAST_ERROR)
        gain = GAIN * float(np.median(error)) if len(error) else 0.0
        powers = [_power(x, y, error, b, share, gain=gain) for b, share in product(EXPONENTS, MISFITS)]
        logs = np.array([_log_likelihood(power, x, y, error) for power in powers])
        weights = np.exp(logs - logs.max())
        shares = (weights / weights.sum()).tolist()
        is_free = bool(len(x)) and _standardised(y, error) < -CLEARLY
        return cls(x, y, error, own, n_seed, tuple(zip(shares, powers, strict=True)), is_free)

    def at(self, ages: ArrayLike, since: float) -> Changes:
        """Return how much worse the measure is at ages than at age `since`."""
        x = np.atleast_1d(np.asarray(ages, dtype=np.float64))
        each = [(weight, *self._of(power, x, since)) for weight, power in self.powers if weight > NO_WEIGHT]
        total = sum(weight for weight, _, _ in each)
        mean = sum(weight * m for weight, m, _ in each) / total
        square = sum(weight * (v + m**2) for weight, m, v in each) / total
        deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
        return Changes(np.where(x == since, 0.0, mean), np.where(x == since, 0.0, deviation))

    def measured(self, deviation: Array, error: ArrayLike | None) -> Array:
        """Return the standard deviations of measurements."""
        if error is None:
            return deviation
        own = np.asarray(error, dtype=np.float64)
        return np.hypot(deviation, _pooled(own, self.standard_errors, self.n_seed))

    def _of(self, power: _Power, x: Array, since: float) -> tuple[Array, Array]:
        """Return mean and variance of W(x) - W(since) by one power law."""
        then = np.array([since])
        covariance = power.cover(self.ages, self.ages) + _error_covariance(self.errors)
        cross = power.cover(x, self.ages) - power.cover(then, self.ages)
        prior = power.variance(x) + power.variance(then) - 2 * power.cover(x, then)[:, 0]
        of_a = power.prior**2 * self.ages**power.exponent  # covariances with a
        to_a = power.prior**2 * (x**power.exponent - since**power.exponent)
        gain = np.linalg.solve(covariance, np.column_stack((self.worse, of_a, cross.T)))
        mean, variance = cross @ gain[:, 0], prior - np.einsum("ij,ji->i", cross, gain[:, 2:])
        a, a_variance = float(of_a @ gain[:, 0]), power.prior**2 - float(of_a @ gain[:, 1])
        if not self.is_free and a_variance > 0:
            more, less = _positive(a, a_variance)
            slope = (to_a - cross @ gain[:, 1]) / a_variance
            mean, variance = mean + slope * more, variance - slope**2 * less
        return mean, np.maximum(variance, 0.0)


def _n_seed(points: Sequence[QualityPoint]) -> int:
    return min(point.n_seed for point in points)


def _error_covariance(errors: Array) -> Array:
    """Return the covariance of the errors of points that are differences to the same runs."""
    shared = np.full((len(errors), len(errors)), SHARED)
    np.fill_diagonal(shared, 1.0)
    return np.asarray(shared * np.outer(errors, errors))


def _standardised(worse: Array, errors: Array) -> float:
    """Return how far points are from 0 together, in standard deviations."""
    scaled, n = worse / errors, len(worse)
    return float(scaled.sum() / np.sqrt(n + SHARED * n * (n - 1)))


def _pooled(error: Array, errors: Array, n_seed: int) -> Array:
    """Return standard errors as bands of 90 % need them.

    Each is half its own and half the usual one of a curve, as it is of few seeds.
    """
    usual = float(np.median(errors)) if len(errors) else 0.0
    few = HEAVY * (float(stdtrit(n_seed - 1, 0.95)) / Z_90) ** 2 if n_seed > 1 else MOST_FEW
    return np.sqrt(min(few, MOST_FEW) * (error**2 + usual**2) / 2)


def _power(x: Array, y: Array, error: Array, exponent: float, misfit: float, *, gain: float) -> _Power:
    """Return a power law before it is conditioned on the points."""
    h = x**exponent
    least = float(np.sqrt(1 / ((h / error) ** 2).sum())) if len(x) else 1.0
    scale = float((h * y / error**2).sum() / ((h / error) ** 2).sum()) if len(x) else 0.0
    scale = max(abs(scale), least)
    return _Power(exponent, misfit, scale, prior=10 * scale, gain=gain)


def _log_likelihood(power: _Power, x: Array, y: Array, error: Array) -> float:
    covariance = power.cover(x, x) + _error_covariance(error)
    _, log_det = np.linalg.slogdet(covariance)
    return -0.5 * (float(y @ np.linalg.solve(covariance, y)) + float(log_det)) if len(x) else 0.0


def _positive(mean: float, variance: float) -> tuple[float, float]:
    """Return what a's mean gains and its variance loses where it is known to be at least 0."""
    deviation = float(np.sqrt(variance))
    alpha = -mean / deviation
    log_density = -0.5 * (alpha**2 + np.log(2 * np.pi))
    ratio = float(np.exp(log_density - log_ndtr(-alpha)))
    return deviation * ratio, variance * ratio * (ratio - alpha)

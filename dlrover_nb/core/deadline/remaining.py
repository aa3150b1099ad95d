"""How many iterations a job still needs, from its loss curve, and when it has converged.

A job ends at its largest number of iterations, or earlier where its loss no longer falls. Two curves go on
from the losses so far: Optimus' inverse curve (`baselines.losscurve`) and a small LSTM, which assumes no form
(Qore-DL). Neither is right for all jobs, so both are fitted to the first part of the losses, and the one with
the smaller error on the rest, which it has not seen, is fitted to all of them and used. Rejected: the LSTM
alone, as in the paper; on a short smooth curve the inverse one is nearer and costs milliseconds.

The LSTM needs torch, an optional part of the product. Without it the inverse curve is used, and
`Forecast.words` says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dlrover_nb.core.baselines import LossCurve, fit_loss_curve
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

INVERSE, LSTM = "inverse curve", "LSTM"
LEAST_POINTS = 10
HELD_OUT = 0.25  # of the points, the last ones: to compare the curves on
N_AHEAD = 200  # points at which a forecast is read


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a job counts as converged.

    Parameters
    ----------
    decline
        Decline rate of one iteration (`decline_rates`) below which the loss counts as level.
    n_window
        Iterations in a row over which it must stay below that.
    """

    decline: float
    n_window: int = 100

    def __post_init__(self) -> None:
        _check.above_zero(
            "decline", self.decline, hint="it is a share of the loss's whole range, such as 1e-5"
        )
        _check.at_least("n_window", self.n_window, 1)


class Curve(Protocol):
    """A loss curve that goes on behind the losses that it was fitted to."""

    def losses(self, iterations: Array) -> Array:
        """Return the loss at iterations of any order: the same shape."""
        ...


@dataclass(frozen=True, slots=True)
class Inverse:
    """Optimus' curve."""

    curve: LossCurve

    def losses(self, iterations: Array) -> Array:
        """Return the loss at iterations of any order: the same shape."""
        return np.array([self.curve.loss(float(k)) for k in iterations])


@dataclass(frozen=True, slots=True)
class Forecast:
    """The curve that was chosen.

    Parameters
    ----------
    name
        Of the chosen curve.
    curve
        Fitted to all losses.
    errors
        Root mean square error of each curve on the losses that it had not seen, as a share of their range.
    words
        Why it was chosen.
    """

    name: str
    curve: Curve
    errors: tuple[tuple[str, float], ...]
    words: str


def decline_rates(losses: Sequence[tuple[float, float]]) -> Array:
    """Return the decline of the loss in one iteration, between each two points: shape (n_points - 1,).

    It is a share of the range of the loss so far, so it does not depend on the scale of the loss; negative
    where the loss rises.

    Raises
    ------
    InvalidValueError
        Where iterations do not rise, or a value is not finite.
    """
    k, loss = _checked(losses).T
    so_far = np.maximum.accumulate(loss) - np.minimum.accumulate(loss)
    fallen, width = loss[:-1] - loss[1:], so_far[1:]
    shares = np.divide(fallen, width, out=np.zeros_like(fallen), where=width > 0)
    return np.asarray(shares / np.diff(k))  # (eq. 10)


def converged_at(losses: Sequence[tuple[float, float]], rule: StopRule) -> float | None:
    """Return the iteration at which the loss had been level for long enough; None where it never was."""
    rates, level_from = decline_rates(losses), None
    for (before, after), rate in zip(pairwise(k for k, _ in losses), rates, strict=True):
        if rate >= rule.decline:
            level_from = None
            continue
        level_from = before if level_from is None else level_from
        if after - level_from >= rule.n_window:
            return float(level_from + rule.n_window)
    return None


def iterations_left(
    forecast: Forecast | None, losses: Sequence[tuple[float, float]], most: int, rule: StopRule
) -> int:
    """Return the iterations to the end of a job: until its loss is level, or `most` in all.

    Parameters
    ----------
    forecast
        None: nothing is known yet, so the job may need all that it is allowed.
    losses
        (iteration, loss) so far, in order.
    most
        Largest number of iterations of the job.
    """
    done = losses[-1][0] if losses else 0.0
    if done >= most or (losses and converged_at(losses, rule) is not None):
        return 0
    if forecast is None:
        return int(np.ceil(most - done))
    ahead = np.linspace(done, most, N_AHEAD)
    curve = list(zip(ahead.tolist(), forecast.curve.losses(ahead).tolist(), strict=True))
    # the first loss sets the range that a decline is a share of
    behind = [point for point in losses[:1] if point[0] < done]
    end = converged_at([*behind, *curve], rule)
    return int(np.ceil(min(most if end is None else max(end, done), most) - done))


def forecast(losses: Sequence[tuple[float, float]], *, seed: int = 0) -> Forecast | None:
    """Return the curve that goes on best from the losses; None where they are too few or do not fall.

    Parameters
    ----------
    losses
        (iteration, loss) in order.
    seed
        Of the LSTM's first weights; the global generator of torch stays as it is.
    """
    points = _checked(losses)
    if len(points) < LEAST_POINTS:
        return None
    fits, held = _fits(seed), max(int(len(points) * HELD_OUT), 2)
    errors = {name: _error(fit(points[:-held]), points, held) for name, fit in fits.items()}
    for name in sorted(errors, key=lambda each: errors[each]):
        curve = fits[name](points)
        if curve is not None and np.isfinite(errors[name]):
            return Forecast(name, curve, tuple(errors.items()), _words(name, errors, held))
    return None


def _fits(seed: int) -> Mapping[str, Callable[[Array], Curve | None]]:
    if find_spec("torch") is None:
        return {INVERSE: _inverse}
    from dlrover_nb.core.deadline.lstm import fit_lstm  # noqa: PLC0415 - torch is optional and slow to import

    return {INVERSE: _inverse, LSTM: lambda points: fit_lstm(points, seed=seed)}


def _inverse(points: Array) -> Curve | None:
    found = fit_loss_curve([(float(k), float(loss)) for k, loss in points])
    return None if found is None else Inverse(found)


def _error(curve: Curve | None, points: Array, held: int) -> float:
    if curve is None:
        return float("inf")
    k, loss = points[-held:].T
    off = curve.losses(k) - loss
    return float(np.sqrt(np.mean(off**2)) / max(float(np.ptp(points[:, 1])), 1e-12))


def _words(name: str, errors: Mapping[str, float], held: int) -> str:
    own = f"The {name} was off by {errors[name]:.1%} of the loss's range on the last {held} losses"
    if LSTM not in errors:
        return f"{own}; the {LSTM} was not tried, as torch is not installed."
    other = next(each for each in errors if each != name)
    if not np.isfinite(errors[other]):
        return f"{own}; the {other} did not fit."
    return f"{own}, the {other} by {errors[other]:.1%}."


def _checked(losses: Sequence[tuple[float, float]]) -> Array:
    points = np.asarray(losses, dtype=np.float64).reshape(-1, 2)
    if not np.isfinite(points).all() or (np.diff(points[:, 0]) <= 0).any():
        raise InvalidValueError(
            "losses must be finite (iteration, loss) points with rising iterations; leave out what is not"
        )
    return points

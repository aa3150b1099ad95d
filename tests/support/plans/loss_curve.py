"""Optimus's loss curve: l(k) = 1/(b0*k + b1) + b2, and the remaining steps.

For a given floor b2 the curve is a straight line in 1/(l - b2); we try several floors below the least loss
and keep the one whose curve is nearest to the losses themselves. NNLS keeps b0 and b1 above zero, as in
Optimus (section 3.1), whose normalization by the largest loss makes the errors of early and late points
comparable.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.numerics import nnls
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

MIN_POINTS = 5  # below it a curve with three parameters is not determined
N_FLOOR = 50


@dataclass(frozen=True, slots=True)
class LossCurve:
    """Training loss over steps: l(k) = 1/(b0*k + b1) + b2."""

    b0: float
    b1: float
    b2: float

    def loss(self, step: float) -> float:
        """Return the loss after `step` steps."""
        return 1 / (self.b0 * step + self.b1) + self.b2

    def converged_at(self, drop: float) -> float:
        """Return the step from which a step lowers the loss by less than `drop`; inf where it never falls.

        The slope of the curve is b0/(b0*k + b1)^2.
        """
        if drop <= 0:
            raise InvalidValueError(f"drop must be > 0, got {drop}; it is the loss that one step takes off")
        if self.b0 <= 0:
            return math.inf
        return max((math.sqrt(self.b0 / drop) - self.b1) / self.b0, 0.0)


def fit_loss_curve(losses: Sequence[tuple[float, float]]) -> LossCurve | None:
    """Fit the curve to (step, loss) points; None where they are too few or do not fall.

    Raises
    ------
    InvalidValueError
        When a step or a loss is not finite, or a step is below 0.
    """
    points = np.asarray(losses, dtype=np.float64).reshape(-1, 2)
    if not np.isfinite(points).all() or (points[:, 0] < 0).any():
        raise InvalidValueError("losses must be finite (step >= 0, loss) points; leave out what is not")
    steps, loss = points.T
    if len(np.unique(steps)) < MIN_POINTS or np.ptp(loss) <= 0:
        return None
    top, least = float(np.abs(loss).max()), float(loss.min())
    floors = least - np.geomspace(1e-3, 1.0, N_FLOOR) * max(float(np.ptp(loss)), 1e-12)
    fits = [_line(steps, loss / top, floor / top) for floor in floors]
    error, b0, b1, b2 = min(fits)
    if b0 <= 0 or not math.isfinite(error):
        return None
    return LossCurve(b0 / top, b1 / top, b2 * top)


def _line(steps: Array, loss: Array, floor: float) -> tuple[float, float, float, float]:
    """Return the squared error of the losses and (b0, b1, b2) for one floor."""
    above = loss - floor
    scale = max(float(steps.max()), 1.0)
    weight = above**2  # d(1/y) = dy/y^2: errors of 1/(l - b2) as errors of l
    rows = np.column_stack((steps / scale, np.ones_like(steps))) * weight[:, None]
    (slope, start), _ = nnls(rows, weight / above)
    curve = 1 / np.maximum(slope * steps / scale + start, 1e-12) + floor
    return float(np.sum((curve - loss) ** 2)), float(slope / scale), float(start), floor

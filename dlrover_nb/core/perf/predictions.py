"""Predicted throughput of many plans, with bands, and their comparison with one plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.decisions.candidates import SPEEDS, Prediction

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Predictions:
    """Throughput of many plans in samples per second with 90 % bands, as columns of length n_plans.

    The bands are those of `structs.decisions.Prediction`: of a window, and of the mean.
    """

    samples_per_s: Array
    low: Array
    high: Array
    extrapolates: NDArray[np.bool_]
    mean_low: Array
    mean_high: Array
    host: Array | None = None  # `Prediction.host` of each plan; None: 1

    def __getitem__(self, index: int) -> Prediction:
        return Prediction(
            float(self.samples_per_s[index]),
            float(self.low[index]),
            float(self.high[index]),
            bool(self.extrapolates[index]),
            float(self.mean_low[index]),
            float(self.mean_high[index]),
            1.0 if self.host is None else float(self.host[index]),
        )

    def at(self, indices: NDArray[np.intp]) -> Predictions:
        """Return those of some plans, in this order."""
        columns = {name: getattr(self, name)[indices] for name in (*SPEEDS, "extrapolates")}
        return replace(self, **columns, host=None if self.host is None else self.host[indices])

    @property
    def doubt_below(self) -> Array:
        """Half-width of the band of the mean below it, in log throughput."""
        return np.asarray(np.log(self.samples_per_s / self.mean_low))

    @property
    def doubt_above(self) -> Array:
        """Half-width of the band of the mean above it, in log throughput."""
        return np.asarray(np.log(self.mean_high / self.samples_per_s))

    @property
    def plan_samples_per_s(self) -> Array:
        """Throughput of each plan on a host without other load."""
        return self.samples_per_s if self.host is None else self.samples_per_s / self.host

    @property
    def without_host(self) -> Predictions:
        """The same on hosts without other load."""
        return self if self.host is None else replace(self.times(1 / self.host), host=None)

    def surely_over(self, now: Prediction) -> Array:
        """Return `Prediction.surely_over` of each plan."""
        doubt = np.hypot(self.doubt_below, now.doubt_above)
        return np.asarray(self.samples_per_s / now.samples_per_s * np.exp(-doubt))

    def possibly_over(self, now: Prediction) -> Array:
        """Return `Prediction.possibly_over` of each plan."""
        doubt = np.hypot(self.doubt_above, now.doubt_below)
        return np.asarray(self.samples_per_s / now.samples_per_s * np.exp(doubt))

    def times(self, factor: Array) -> Predictions:
        """Return them with the throughput of each plan multiplied, bands included."""
        return replace(self, **{name: getattr(self, name) * factor for name in SPEEDS})

    def on_host(self, factor: Array) -> Predictions:
        """Return them on a host that gives each plan this part of its speed."""
        return replace(self.times(factor), host=factor)

    def at_most(self, speed: Array) -> Predictions:
        """Return them with no plan faster than this, bands included."""
        return replace(self, **{name: np.minimum(getattr(self, name), speed) for name in SPEEDS})

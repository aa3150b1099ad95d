"""What the windows say, one row per configuration.

Many windows of one plan are not independent evidence on the form of the model: however often one plan
is measured, it fixes one number. So windows are first condensed to the median of each configuration
(robust against a straggling window) with its scatter; the fit sees configurations, not windows.
The scatter of few windows is itself uncertain: it is pooled with a prior of 2 %, the usual noise of
a steady window, as if two windows had shown it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.perf.terms import axes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.structs.samples import ProfileSample

PRIOR_SCATTER = 0.02  # of log T_iter between windows of one plan
PRIOR_WINDOWS = 2.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Measured configurations as columns of length n_plan.

    `log_iter` is the median of log T_iter, `scatter` the standard deviation of one window's log T_iter,
    `half_width` half of the 90 % band of log throughput that this scatter gives for another window.
    """

    axes: NDArray[np.float64]  # (n_plan, 4)
    batch_size: NDArray[np.float64]
    log_iter: NDArray[np.float64]
    n_window: NDArray[np.float64]
    scatter: NDArray[np.float64]
    half_width: NDArray[np.float64]

    @property
    def std_error(self) -> NDArray[np.float64]:
        """Standard error of `log_iter` by the windows' scatter alone."""
        return np.asarray(self.scatter / np.sqrt(self.n_window))


def condense(samples: Sequence[ProfileSample]) -> Evidence:
    """Condense windows to configurations, in the order in which they were first seen.

    Raises
    ------
    InvalidValueError
        When there is no sample.
    """
    if not samples:
        raise InvalidValueError("a fit needs >= 1 steady sample, got 0; wait until the job trains steadily")
    groups: dict[tuple[float, ...], list[float]] = {}
    for row, sample in zip(axes_of([s.plan for s in samples]), samples, strict=True):
        groups.setdefault((*row, float(sample.batch_size)), []).append(math.log(sample.iter_s))
    keys = np.array(list(groups))
    n = np.array([len(v) for v in groups.values()], dtype=np.float64)
    scatter = _scatter(list(groups.values()))
    quantile = stdtrit(PRIOR_WINDOWS + n - 1, 0.95)
    return Evidence(
        axes=keys[:, :4],
        batch_size=keys[:, 4],
        log_iter=np.array([float(np.median(v)) for v in groups.values()]),
        n_window=n,
        scatter=scatter,
        half_width=quantile * scatter * np.sqrt(1 + 1 / n),
    )


def _scatter(groups: list[list[float]]) -> NDArray[np.float64]:
    squares = np.array([float(np.sum((np.asarray(v) - np.mean(v)) ** 2)) for v in groups])
    n = np.array([len(v) for v in groups])
    return np.asarray(np.sqrt((PRIOR_WINDOWS * PRIOR_SCATTER**2 + squares) / (PRIOR_WINDOWS + n - 1)))

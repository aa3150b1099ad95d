"""The first windows of a run, in which its nodes are not yet as fast as they will be.

New nodes fill caches, fault pages in and open connections, after a window counts as steady too: a run that
begins slowly passes any test of a few windows. So the beginning is judged by what came later. It ends where
the mean of the rest is known best (MSER, White 1997, "An effective truncation heuristic for bias reduction
in simulation output", Simulation 69:6), if what is before differs from the rest by more than chance.

Rejected: a fixed time. It is too long for a worker on a warm machine and too short for PS that fill for a
minute, and each experiment pays for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.training.samples import ProfileSample

N_LOOK = 20  # windows of a run among which its beginning is looked for
LEAST_REST, LEAST_STEP = 4, 0.02  # windows that must remain, and of log speed: less is no beginning
Z = 5.0  # standard errors of independent windows; neighbors are alike
LEAST_SCATTER = 0.005  # of log speed: no two windows are ever alike


@dataclass(slots=True)
class RunStart:
    """The first windows of one run of a plan, and how many of them are its nodes' start."""

    windows: list[ProfileSample] = field(default_factory=list)
    n: int = 0

    def add(self, window: ProfileSample) -> bool:
        """Add a window and judge anew; return False where the run is past its first windows."""
        if len(self.windows) >= N_LOOK:
            return False
        self.windows.append(window)
        self.n = n_starting([log(w.plan_samples_per_s) for w in self.windows])
        return True

    @property
    def started(self) -> list[ProfileSample]:
        """The first windows in which all nodes had started."""
        return self.windows[self.n :]


def n_starting(log_speeds: Sequence[float]) -> int:
    """Return how many of the first windows of a run are its beginning, at most half of them.

    Parameters
    ----------
    log_speeds
        Of the first windows of the run, oldest first.
    """
    values = log_speeds[:N_LOOK]
    most = min(len(values) // 2, len(values) - LEAST_REST)
    if most < 1:
        return 0
    n = min(range(most + 1), key=lambda i: _error2(values[i:]))
    if n == 0:
        return 0
    first, rest = values[:n], values[n:]
    spread2 = max(_variance(rest), LEAST_SCATTER**2)
    error = (spread2 * (1 / n + 1 / len(rest))) ** 0.5
    return n if abs(fmean(first) - fmean(rest)) > max(Z * error, LEAST_STEP) else 0


def _error2(values: Sequence[float]) -> float:
    """Return the squared standard error of the mean."""
    return _variance(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values) / len(values)

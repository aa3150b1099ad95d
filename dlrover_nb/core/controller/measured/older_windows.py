"""Windows that are no longer kept one by one, and the present worth of all that were measured before.

A mean is known the better the more windows are behind it, also after hours. So a window that leaves the kept
ones enters the sums of its plan, in constant memory. It enters as `perf.evidence` would count it: where it is
an outlier among the windows that were kept with it, at the distance of three usual deviations.

The speed of a job may change under the same plan: a machine is shared, the rows of later days are longer.
Then plans that were left before look better, or worse, than they are. A change point is where the newest
windows of the running plan differ from its earlier ones by more than chance. Where other plans ran between,
it takes more, as two runs of a plan differ anyway. All that was measured before a change is scaled by its
factor. What touches every plan alike, and that is what there is to measure, then moves no comparison.
Rejected: to drop what was measured before, as every plan would have to be tried
anew; to let windows fade with age, as most jobs are steady for hours and a mean needs all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, inf, log, sqrt
from statistics import fmean, median
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.numerics import independent, lag_one
from dlrover_nb.core.perf.evidence import PRIOR_BETWEEN

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.samples import ProfileSample

OUTLIER = 3.0  # usual deviations from the median
LEAST_SCATTER = 0.02  # of log speed: the usual noise of a steady window
MAD_OF_NORMAL = 0.6745
MEAN_OFF_OF_NORMAL = 0.7979
MEDIAN_ERROR = 1.25  # standard error of a median over that of a mean
NEWEST = (8, 20)  # windows that are compared with those before them
LEAST_BEFORE = 12
ALIKE, N_ALIKE = 0.5, 20  # autocorrelation of neighbors before any is measured; weighted as so many
CHANGE_Z, LEAST_CHANGE = 5.0, 0.05  # standard errors, and log speed: less is no change


@dataclass(frozen=True, slots=True)
class WindowSums:
    """Windows of one plan as one: their number, the mean of their log speeds, and squares around it."""

    n: int
    log_mean: float
    squares: float
    last: ProfileSample
    first_at_s: float

    def plus(self, window: ProfileSample, log_speed: float) -> WindowSums:
        """Return the sums with one more window."""
        n = self.n + 1
        off = log_speed - self.log_mean
        mean = self.log_mean + off / n
        last = replace(
            window,
            compute_share=_running(self.last.compute_share, window.compute_share, n),
            wait_share=_running(self.last.wait_share, window.wait_share, n),
        )
        return WindowSums(n, mean, self.squares + off * (log_speed - mean), last, self.first_at_s)

    def sample(self) -> ProfileSample:
        """Return the windows as one row of the fit."""
        return replace(
            self.last,
            at_s=self.first_at_s,
            samples_per_s=exp(self.log_mean),
            host_share=0.0,
            n_window=self.n,
            log_scatter=sqrt(self.squares / self.n),
        )


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """All that was measured until then counts at this many times its speed, as a logarithm."""

    until_s: float
    log_factor: float


class OlderWindows:
    """Sums of the windows of one job that are no longer kept, and the changes of its speed."""

    def __init__(self) -> None:
        self._sums: dict[ResourcePlan, WindowSums] = {}
        self._changes: list[SpeedChange] = []

    def leave(self, window: ProfileSample, windows: Collection[ProfileSample]) -> None:
        """Add a window that leaves the `windows` of its plan."""
        value = self._log_speed(window)
        others = [self._log_speed(other) for other in windows]
        centre, usual = _centre(others or [value])
        value = min(max(value, centre - OUTLIER * usual), centre + OUTLIER * usual)
        sums = self._sums.get(window.plan)
        new = sums.plus(window, value) if sums else WindowSums(1, value, 0.0, window, window.at_s)
        self._sums[window.plan] = new

    def compare(self, running: Sequence[ProfileSample], every: Collection[Sequence[ProfileSample]]) -> bool:
        """Look for a change of speed among the windows of the running plan; return whether there is one.

        Parameters
        ----------
        every
            The windows of each plan: changes older than all of them are in the sums already.
        """
        newest = (windows[-1] for windows in every if windows)
        last_other_s = max((w.at_s for w in newest if w.plan != running[-1].plan), default=-inf)
        change = _change([self._log_speed(w) for w in running], [w.at_s for w in running], last_other_s)
        if change is None:
            return False
        for plan, sums in self._sums.items():
            self._sums[plan] = replace(sums, log_mean=sums.log_mean + change.log_factor)
        oldest_s = min(next(iter(windows)).at_s for windows in every if windows)
        self._changes = [c for c in self._changes if c.until_s >= oldest_s] + [change]
        return True

    def evidence(
        self, samples: Mapping[ResourcePlan, Collection[ProfileSample]]
    ) -> tuple[ProfileSample, ...]:
        """Return all that is known of each plan at the present speed of the job, as rows of a fit.

        Their speeds are those of the plans, without what the host's other load took.
        """
        rows: list[ProfileSample] = []
        for plan, windows in samples.items():
            sums = self._sums.get(plan)
            rows += [sums.sample()] if sums else []
            rows += [self._scaled(window) for window in windows]
        return tuple(rows)

    def _scaled(self, window: ProfileSample) -> ProfileSample:
        by = self._log_factor(window.at_s)
        if not by and not window.host_share:
            return window
        return replace(window, samples_per_s=window.plan_samples_per_s * exp(by), host_share=0.0)

    def _log_speed(self, window: ProfileSample) -> float:
        return log(window.plan_samples_per_s) + self._log_factor(window.at_s)

    def _log_factor(self, at_s: float) -> float:
        return sum(c.log_factor for c in self._changes if at_s <= c.until_s)


def _change(values: Sequence[float], times_s: Sequence[float], last_other_s: float) -> SpeedChange | None:
    """Return the change that the newest log speeds of a plan show; None where they do not.

    `times_s` is when each was measured, `last_other_s` when the last one of another plan was.
    """
    for n_before in (len(values) - n for n in NEWEST if len(values) - n >= LEAST_BEFORE):
        is_other_run = times_s[n_before // 2] < last_other_s  # of most of those before
        if _differ(values[:n_before], values[n_before:], is_other_run=is_other_run):
            break
    else:
        return None
    at = min(range(LEAST_BEFORE, len(values) - 3), key=lambda i: _cost(values[:i]) + _cost(values[i:]))
    return SpeedChange(times_s[at - 1], median(values[at:]) - median(values[:at]))


def _differ(before: Sequence[float], newest: Sequence[float], *, is_other_run: bool) -> bool:
    """Whether the newest values differ from those before by more than chance.

    Neighbors are alike, so n of them say less than n independent ones. Two runs of a plan differ without any
    change of the job (`perf.evidence`).
    """
    parts = (before, newest)
    middles = [median(part) for part in parts]
    off = [[v - middle for v in part] for part, middle in zip(parts, middles, strict=True)]
    sizes = [abs(v) for part in off for v in part]
    usual = max(median(sizes) / MAD_OF_NORMAL, fmean(sizes) / MEAN_OFF_OF_NORMAL, LEAST_SCATTER)
    squares = sum(v * v for part in off for v in part) + N_ALIKE * usual**2
    products = sum(a * b for part in off for a, b in pairwise(part)) + N_ALIKE * ALIKE * usual**2
    alike = lag_one(squares, products, len(sizes) + N_ALIKE, len(parts))
    variance = sum((MEDIAN_ERROR * usual) ** 2 / independent(len(part), alike) for part in parts)
    variance += 2 * PRIOR_BETWEEN**2 if is_other_run else 0.0
    return abs(middles[1] - middles[0]) > max(CHANGE_Z * sqrt(variance), LEAST_CHANGE)


def _cost(values: Sequence[float]) -> float:
    middle = median(values)
    return sum(abs(v - middle) for v in values)


def _centre(values: Sequence[float]) -> tuple[float, float]:
    middle = median(values)
    usual = median(abs(v - middle) for v in values) / MAD_OF_NORMAL
    return middle, max(usual, LEAST_SCATTER)


def _running(mean: float | None, new: float | None, n: int) -> float | None:
    """Return the mean of n values, `mean` being that of all but the new one; unknown ones are skipped."""
    if mean is None or new is None:
        return new if mean is None else mean
    return mean + (new - mean) / n

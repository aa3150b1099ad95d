"""Windows condensed to one row per configuration.

Many windows of one plan are not independent evidence on the form of the model: they determine one number. So
windows are first condensed to the mean of each configuration with its scatter; the fit uses configurations,
not windows.

Nor do n windows determine that mean as n draws would, for two reasons. Neighboring ones are alike, and count
for as many independent ones as their autocorrelation over all configurations says (`numerics.independent`).
And a plan that runs again later is a few percent faster or slower than before, however many windows each run
had: processes lie elsewhere in memory, and the clocks of processors have changed. That difference between
runs is estimated from plans that ran several times, and is 4 % before there are any (measured: 3 to 10 % on a
small virtual machine without other load).

Mean and scatter are robust: a window farther from the median than three of the usual deviations counts as
one at that distance, so that one straggling window of hundreds neither moves the mean nor widens a band. The
scatter of few windows is itself uncertain: it is pooled with a prior of 2 %, the usual noise of a steady
window, weighted as two windows. Where a model predicts many configurations, its error bounds the scatter
too, for the windows' noise is part of it (`bounded`): without that, the band of a single window is wider than
the errors at unmeasured plans, and bands of jobs with one window a plan hold up to 97 % of them, not 90 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.numerics import Z_90, independent, lag_one, stdtrit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.perf.fit_input import Windows

    Array = NDArray[np.float64]

PRIOR_SCATTER = 0.02  # of log T_iter between windows of one plan
PRIOR_WINDOWS = 2.0
PRIOR_BETWEEN, PRIOR_RUNS = 0.06, 3.0  # of log T_iter between runs of a plan; weighted as so many
LEAST_RUN = 3  # windows
OUTLIER = 3.0  # usual deviations from the median
MAD_OF_NORMAL = 0.6745  # median absolute deviation of a normal law with standard deviation 1


@dataclass(frozen=True, slots=True)
class Evidence:
    """Measured configurations as columns of length n_plan, in the order of their first windows.

    `n_window` is how many independent windows those of a configuration are worth. `log_iter` is the mean of
    log T_iter, `scatter` the standard deviation of one window's log T_iter. Of
    the 90 % bands of log throughput that this scatter gives, `half_width` is half of another window's, and
    `mean_half_width` half of the mean's.
    """

    axes: Array  # (n_plan, 4)
    batch_size: Array
    log_iter: Array
    n_window: Array
    scatter: Array
    half_width: Array
    mean_half_width: Array
    first_at_s: Array
    std_error: Array  # of `log_iter`
    shares: Array  # (n_plan, 2): mean parts of T_iter that workers computed and waited for PS; NaN: not known
    cpu_s: Array  # mean processor time of all nodes for an iteration of a worker; NaN: not known

    def __len__(self) -> int:
        return len(self.log_iter)

    @property
    def noise(self) -> float:
        """Largest scatter of any configuration: assumed for a window of an unmeasured plan."""
        return float(self.scatter.max()) if len(self) else PRIOR_SCATTER

    @property
    def latest(self) -> int:
        """Index of the newest configuration, by its first measurement."""
        return len(self) - 1 - int(np.argmax(self.first_at_s[::-1]))

    def bounded(self, error: float, freedom: float) -> Evidence:
        """Return the same with bands no wider than a model's error between configurations explains.

        Parameters
        ----------
        error
            Standard deviation of log T_iter between configurations, the windows' noise included.
        freedom
            Degrees of freedom behind it.
        """
        most = float(stdtrit(freedom, 0.95)) * error
        return replace(
            self,
            half_width=np.minimum(self.half_width, most * np.sqrt(1 + 1 / self.n_window)),
            mean_half_width=np.minimum(self.mean_half_width, most / np.sqrt(self.n_window)),
        )

    def index_of(self, axes: Array, batch_size: Array) -> NDArray[np.intp]:
        """Return the row of each plan among the measured ones, -1 where it was not measured."""
        index = np.full(len(axes), -1, dtype=np.intp)
        for i, (row, batch) in enumerate(zip(self.axes, self.batch_size, strict=True)):  # few, of many plans
            index[(batch_size == batch) & (axes == row).all(axis=1)] = i
        return index

    def ordered_by_cpu(self, axes: Array, batch_size: Array, log_iter: Array) -> Array:
        """Return log T_iter of plans, none slower than a measured one that differs by fewer cores alone.

        So does each form have it (Eqs. 2-5), but the mean of its draws is off by half of their variance.
        """
        log_iter = log_iter.copy()
        cores, counts = axes[:, 2:], np.column_stack((axes[:, :2], batch_size))
        for own, batch, measured in zip(self.axes, self.batch_size, self.log_iter, strict=True):
            same = (counts == (*own[:2], batch)).all(axis=1)
            more, fewer = (same & each.all(axis=1) for each in (cores >= own[2:], cores <= own[2:]))
            log_iter[more] = np.minimum(log_iter[more], measured)
            log_iter[fewer] = np.maximum(log_iter[fewer], measured)
        return log_iter


def condense(windows: Windows) -> Evidence:
    """Condense windows to configurations."""
    keys = np.column_stack((windows.axes, windows.batch_size))
    groups: dict[bytes, list[int]] = {}
    for i, row in enumerate(keys):
        groups.setdefault(row.tobytes(), []).append(i)
    log_iter = windows.log_iter
    groups_of = [(log_iter[m], windows.n_window[m], windows.log_scatter[m]) for m in groups.values()]
    means, n, squares = np.array([_moments(*group) for group in groups_of]).reshape(-1, 3).T
    first = np.array([members[0] for members in groups.values()], dtype=np.intp)
    freedom = PRIOR_WINDOWS + n - 1
    scatter = np.sqrt((PRIOR_WINDOWS * PRIOR_SCATTER**2 + squares) / freedom)
    members = list(groups.values())
    n = _independent(windows, members, n)
    between, n_run = _between_runs(windows, members)
    apart = np.where(n_run > 0, between, 0.0)  # another run differs from the mean of those before
    of_runs = apart**2 / np.maximum(n_run, 1)
    wide = np.asarray(stdtrit(freedom, 0.95), dtype=np.float64) * scatter
    return Evidence(
        axes=keys[first, :4],
        batch_size=keys[first, 4],
        log_iter=means,
        n_window=n,
        scatter=scatter,
        half_width=np.sqrt(wide**2 * (1 + 1 / n) + Z_90**2 * (apart**2 + of_runs)),
        mean_half_width=np.sqrt(wide**2 / n + Z_90**2 * of_runs),
        std_error=np.sqrt(scatter**2 / n + of_runs),
        first_at_s=np.array([windows.at_s[members].min() for members in groups.values()], dtype=np.float64),
        shares=np.array(
            [_mean_known(windows.shares[m], windows.n_window[m]) for m in groups.values()]
        ).reshape(-1, 2),
        cpu_s=np.array(
            [_mean_known(windows.cpu_s[m, None], windows.n_window[m])[0] for m in groups.values()]
        ),
    )


def _independent(windows: Windows, groups: list[list[int]], n: Array) -> Array:
    """Return how many independent windows the n of each configuration are worth."""
    series = [_in_time(windows, [i for i in members if windows.n_window[i] == 1]) for members in groups]
    series = [values - values.mean() for values in series if len(values) > 1]
    squares, products = (sum(float(a @ b) for a, b in pairs) for pairs in _pairs(series))
    alike = lag_one(squares, products, sum(map(len, series)), len(series))
    return np.array([independent(each, alike) for each in n.tolist()])


def _between_runs(windows: Windows, groups: list[list[int]]) -> tuple[float, Array]:
    """Return the standard deviation between runs of one configuration, and how many runs each has.

    A run is what was measured of a plan without another one between. Of those of one or two windows nothing
    is known beside their scatter, which contains the difference.
    """
    runs = _runs(windows, groups)
    means = [np.array([windows.log_iter[run].mean() for run in own]) for own in runs]
    squares = sum(float(((own - own.mean()) ** 2).sum()) for own in means if len(own) > 1)
    freedom = PRIOR_RUNS + sum(len(own) - 1 for own in means if len(own) > 1)
    between = float(np.sqrt((PRIOR_RUNS * PRIOR_BETWEEN**2 + squares) / freedom))
    return between, np.array([len(own) for own in runs])


def _runs(windows: Windows, groups: list[list[int]]) -> list[list[list[int]]]:
    """Return the runs of `LEAST_RUN` windows or more of each configuration, as indices of windows."""
    group_of = {i: g for g, members in enumerate(groups) for i in members}
    runs: list[list[list[int]]] = [[] for _ in groups]
    in_time = sorted(group_of, key=lambda i: float(windows.at_s[i]))
    for group, members in groupby(in_time, key=group_of.__getitem__):
        run = list(members)
        if windows.n_window[run].sum() >= LEAST_RUN:
            runs[group].append(run)
    return runs


def _in_time(windows: Windows, members: list[int]) -> Array:
    """Return log T_iter of single windows of one configuration, oldest first, outliers drawn in."""
    order = sorted(members, key=lambda i: windows.at_s[i])
    values = windows.log_iter[order]
    return _clipped(values, np.ones(len(values))) if len(values) else values


def _pairs(series: list[Array]) -> tuple[list[tuple[Array, Array]], list[tuple[Array, Array]]]:
    """Return each series with itself, and with itself one value later."""
    return [(values, values) for values in series], [(values[:-1], values[1:]) for values in series]


def _mean_known(values: Array, n_window: Array) -> Array:
    """Return the mean of rows without a NaN; NaN where there are none."""
    is_known = ~np.isnan(values).any(axis=1)
    if not is_known.any():
        return np.full(values.shape[1], np.nan)
    return np.asarray(np.average(values[is_known], axis=0, weights=n_window[is_known]))


def _moments(values: Array, n_window: Array, scatter: Array) -> tuple[float, float, float]:
    """Return the mean log T_iter of one configuration, its windows, and their squares around the mean."""
    drawn, n = np.where(n_window > 1, values, _clipped(values, n_window)), float(n_window.sum())
    mean = float(n_window @ drawn) / n
    return mean, n, float(n_window @ ((drawn - mean) ** 2 + scatter**2))


def _clipped(values: Array, n_window: Array) -> Array:
    """Return log T_iter of the rows of one configuration with outliers drawn to the single windows."""
    single = values[n_window == 1] if (n_window == 1).any() else values
    centre = np.median(single)
    usual = max(float(np.median(np.abs(single - centre))) / MAD_OF_NORMAL, PRIOR_SCATTER)
    return np.clip(values, centre - OUTLIER * usual, centre + OUTLIER * usual)

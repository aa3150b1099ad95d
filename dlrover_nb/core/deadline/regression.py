"""One target learnt from rows of jobs, with an error and an interval that hold for jobs not seen.

Qore-DL predicts peaks by gradient-boosted trees and the iteration time by a random forest, and reports R²
alone. A random forest draws rows, and cuts an input where it parts those best: with many rows of few jobs it
learns the jobs. For the iteration time we take extremely randomised trees instead, which see all rows and cut
anywhere, on logarithms of the inputs, since operations and parameters span orders of magnitude. For jobs not
seen that explains .39 to .49 of the variance of the authors' data, over four ways to fold the jobs, and the
random forest .03 to .52. Rows of one job resemble each other, so that a split by row shows the trees the very
job they are asked about and flatters them. Here each error is of jobs of which no row was shown: k folds by
job.

The interval is a conformal one, on the same held-out residuals of the logarithm. Within a job these are not
exchangeable, jobs are: each job has the same weight whatever its number of rows, and one more job's weight
lies at infinity for the job that is asked about (Dunn, Wasserman and Ramdas, 2023, pooled distributions). So
at least `level / (1 - level)` jobs are needed for an interval at all. Its coverage is measured as well: each
fold against the residuals of the others.

Trees answer with the nearest they saw, far away from it too. An answer names each input that lies outside of
the range of the rows learnt from; its interval then says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.deadline.training_rows import Setting
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.deadline.model_features import ModelFeatures
    from dlrover_nb.core.deadline.training_rows import TrainingRow

    Floats = NDArray[np.float64]

FEATURES = ("batch_size", "flops", "n_param")  # of a peak, as in the paper
SETTINGS = tuple(field.name for field in fields(Setting))
OF_PS = ("n_ps",)  # of a PS's peak too: parameters and requests are divided among all
LEAST_JOBS = 10  # two a fold
N_FOLD = 5
N_TREE = 100
SEED = 0


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Held-out error of a target: all numbers are of jobs of which the model had seen no row.

    Parameters
    ----------
    r2
        Share of the variance that is explained, of the target itself; below 0: worse than its mean.
    relative_error
        Median of |predicted - measured| / measured.
    coverage
        Share of measured values inside the interval, a mean over jobs.
    n_job, n_row
        Learnt from.
    """

    r2: float
    relative_error: float
    coverage: float
    n_job: int
    n_row: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """A prediction with its interval; `outside` names each input beyond what was learnt, in words."""

    value: float
    low: float
    high: float
    outside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class LearntTarget:
    """A fitted target; made by `learn`."""

    target: str
    columns: tuple[str, ...]
    ranges: Mapping[str, tuple[float, float]]
    accuracy: Accuracy
    level: float
    margin: float  # of the logarithm, to both sides
    trees: Any  # a regressor of scikit-learn, which has no types

    def predict(self, features: ModelFeatures, setting: Setting) -> Estimate:
        """Return the target for a job under a setting.

        Raises
        ------
        InvalidValueError
            When an input that the rows had is not known.
        """
        inputs = {name: _input(features, setting, name) for name in self.columns}
        if missing := [name for name, value in inputs.items() if value is None]:
            raise InvalidValueError(
                f"{self.target} was learnt by {', '.join(self.columns)}, got no {', '.join(missing)}; "
                "give it, or learn from rows without it"
            )
        row = np.array([[float(value or 0.0) for value in inputs.values()]])
        middle = float(self.trees.predict(np.log1p(row))[0])
        low, value, high = np.exp([middle - self.margin, middle, middle + self.margin]).tolist()
        return Estimate(value, low, high, self._outside(row[0]))

    def _outside(self, row: Floats) -> tuple[str, ...]:
        outside = []
        for name, value in zip(self.columns, row.tolist(), strict=True):
            low, high = self.ranges[name]
            if not low <= value <= high:
                outside.append(f"{name} {value:g} is outside of {low:g} to {high:g}")
        return tuple(outside)


def learn(target: str, rows: Sequence[TrainingRow], *, level: float = 0.9, seed: int = SEED) -> LearntTarget:
    """Learn one target from the rows in which it was measured.

    Parameters
    ----------
    target
        A field of `Measurements`. Peaks are learnt by the features of a job, those of a PS by the number of
        PS too, the iteration time by its whole setting. Inputs that are unknown in any of the rows are left
        out, those that never vary too.
    level
        Wanted coverage of the interval.

    Raises
    ------
    InvalidValueError
        When there are too few jobs, or no input varies; when scikit-learn is not installed.

    Notes
    -----
    Qore-DL, configurator: GBDT for peaks; for the iteration time see the module. We fit logarithms, since
    peaks and times span orders of magnitude, and give each job the same weight.
    """
    shown = [row for row in rows if getattr(row.measured, target) is not None]
    jobs = np.array([row.job for row in shown])
    _require_jobs(target, len(set(jobs.tolist())), level)
    columns = _columns(target, shown)
    table = np.array([[float(_input(r.features, r.setting, c) or 0.0) for c in columns] for r in shown])
    log_y = np.log([getattr(row.measured, target) for row in shown])
    maker, weights = _maker(target, seed), _job_weights(jobs)
    folds = folds_by_job(jobs, seed=seed)
    logs = np.log1p(table)  # of a load that is 0 too
    held_out = predict_held_out(maker, logs, log_y, folds, weights)
    residuals = np.abs(log_y - held_out)
    return LearntTarget(
        target=target,
        columns=columns,
        ranges={c: (float(table[:, i].min()), float(table[:, i].max())) for i, c in enumerate(columns)},
        accuracy=Accuracy(
            r2=r2_of(np.exp(log_y), np.exp(held_out)),
            relative_error=float(np.median(np.abs(np.expm1(held_out - log_y)))),
            coverage=_coverage(residuals, jobs, folds, level),
            n_job=len(set(jobs.tolist())),
            n_row=len(shown),
        ),
        level=level,
        margin=conformal_margin(residuals, jobs, level),
        trees=maker().fit(logs, log_y, sample_weight=weights),
    )


def least_jobs(level: float) -> int:
    """Return how many jobs an interval of this level needs, with one fold of them left out."""
    for_quantile = int(np.ceil(level / (1 - level) - 1e-9))
    return max(LEAST_JOBS, int(np.ceil(for_quantile * N_FOLD / (N_FOLD - 1))))


def folds_by_job(jobs: NDArray[Any], *, seed: int = SEED) -> NDArray[np.int64]:
    """Return the fold of each row; all rows of a job are in one, and folds differ by one job at most."""
    names, place = np.unique(jobs, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(names))
    return np.asarray(order % N_FOLD, dtype=np.int64)[place]


def predict_held_out(
    maker: Callable[[], Any], table: Floats, target: Floats, folds: NDArray[np.int64], weights: Floats
) -> Floats:
    """Return for each row the prediction of a model that was fitted without its fold."""
    predicted = np.empty_like(target)
    for fold in np.unique(folds):
        hidden = folds == fold
        model = maker().fit(table[~hidden], target[~hidden], sample_weight=weights[~hidden])
        predicted[hidden] = model.predict(table[hidden])
    return predicted


def conformal_margin(residuals: Floats, jobs: NDArray[Any], level: float) -> float:
    """Return the margin that holds for a row of a further job with a probability of `level`.

    Parameters
    ----------
    residuals
        ndarray of shape (n_row,): absolute, held out.
    jobs
        The job of each row.

    Returns
    -------
    float
        Infinite where the jobs are too few for the level.
    """
    n_job = len(np.unique(jobs))
    order = np.argsort(residuals)
    weights = _job_weights(jobs)[order] / (n_job + 1)  # the rest of 1 lies at infinity
    reached = np.flatnonzero(np.cumsum(weights) >= level - 1e-12)
    return float(residuals[order][reached[0]]) if len(reached) else float("inf")


def r2_of(measured: Floats, predicted: Floats) -> float:
    """Return the share of the variance that predictions explain; not a number where nothing varies."""
    varies = float(np.sum((measured - measured.mean()) ** 2))
    return 1 - float(np.sum((measured - predicted) ** 2)) / varies if varies else float("nan")


def _coverage(residuals: Floats, jobs: NDArray[Any], folds: NDArray[np.int64], level: float) -> float:
    inside = np.zeros(len(residuals))
    for fold in np.unique(folds):
        hidden = folds == fold
        inside[hidden] = residuals[hidden] <= conformal_margin(residuals[~hidden], jobs[~hidden], level)
    return float(np.average(inside, weights=_job_weights(jobs)))


def _job_weights(jobs: NDArray[Any]) -> Floats:
    """Return a weight for each row, such that those of a job add up to 1."""
    _, place, counts = np.unique(jobs, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / counts[place])


def _require_jobs(target: str, n_job: int, level: float) -> None:
    if not 0 < level < 1:
        raise InvalidValueError(f"level must be above 0 and below 1, got {level}; 0.9 is usual")
    if n_job < (least := least_jobs(level)):
        raise InvalidValueError(
            f"{target} needs rows of at least {least} jobs for intervals of {percent(level)}, got {n_job}; "
            "finish more jobs, or ask for a lower level"
        )


def _columns(target: str, rows: Sequence[TrainingRow]) -> tuple[str, ...]:
    beside = SETTINGS if target == "iter_s" else OF_PS if target.startswith("ps_") else ()
    names = (*FEATURES, *beside)
    columns = []
    for name in names:
        values = {_input(row.features, row.setting, name) for row in rows}
        if None not in values and len(values) > 1:
            columns.append(name)
    if not columns:
        raise InvalidValueError(
            f"{target} must be learnt by inputs that vary between rows, got the same ones in all; "
            "add jobs of other models"
        )
    return tuple(columns)


def _input(features: ModelFeatures, setting: Setting, name: str) -> float | None:
    value: float | None = getattr(features if name in FEATURES else setting, name)
    return value


def _maker(target: str, seed: int) -> Callable[[], Any]:
    """Return the maker of an unfitted model: randomised trees for the iteration time, else boosted ones."""
    try:
        from sklearn import ensemble  # noqa: PLC0415 - of an extra, and 2 s
    except ImportError as error:
        raise InvalidValueError(
            f'learning requirements of jobs needs scikit-learn ({error}); pip install "dlrover-nb[qore]"'
        ) from error
    if target == "iter_s":
        return lambda: ensemble.ExtraTreesRegressor(N_TREE, min_samples_leaf=2, random_state=seed)
    return lambda: ensemble.GradientBoostingRegressor(n_estimators=N_TREE, subsample=0.8, random_state=seed)

"""Qore-DL's configurator: what a job needs, from its model, its deadline and its number of iterations.

The owner gives a deadline and the iterations that one worker would take. Peaks of CPU and memory of a node,
and the time of an iteration, are predicted from the model's features (`regression`). With w workers an
iteration trains w batches, so that I / w iterations are left; the fewest workers that finish by the deadline
are chosen, and beside them the fewest parameter servers whose number per worker lies in the range that was
good in jobs seen.

The paper plans by the predicted iteration time. We plan by the upper end of its interval, since a job that
ends late costs its owner more than a worker costs the cluster; `cautious=False` plans as the paper does.

The paper read the range of PS per worker off a figure. Here a ratio is good in a job if its speed per worker
is within a tenth of the best with as many workers, and the range holds the middle of what was good over
jobs. Where no job tried two ratios nothing was learnt, and the caller must give the range.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.deadline.regression import Estimate, LearntTarget, learn
from dlrover_nb.core.deadline.training_rows import TARGETS, Setting
from dlrover_nb.core.errors import CapacityError, InvalidValueError
from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dlrover_nb.core.deadline.model_features import ModelFeatures
    from dlrover_nb.core.deadline.training_rows import TrainingRow

GOOD_WITHIN = 0.1  # of the best iteration time
LEAST_RATIO_JOBS = 3


@dataclass(frozen=True, slots=True)
class RatioRange:
    """Parameter servers per worker that are known to be good."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check.above_zero("low", self.low)
        if not (math.isfinite(self.high) and self.high >= self.low):
            raise InvalidValueError(f"high must be >= low ({self.low:g}), got {self.high}; swap them")

    def n_ps(self, n_worker: int) -> int:
        """Return the fewest parameter servers in the range; where it holds no whole number, the next one."""
        return max(1, math.ceil(self.low * n_worker - 1e-9))


@dataclass(frozen=True, slots=True)
class DeadlineGoal:
    """What the owner of a job asks for.

    Parameters
    ----------
    deadline_s
        Seconds from its start by which it should end.
    n_iteration
        Iterations that one worker alone would take.
    max_worker
        The most workers it may have.
    """

    deadline_s: float
    n_iteration: int
    max_worker: int = 64

    def __post_init__(self) -> None:
        _check.above_zero("deadline_s", self.deadline_s)
        _check.at_least("n_iteration", self.n_iteration, 1)
        _check.at_least("max_worker", self.max_worker, 1)


@dataclass(frozen=True, slots=True)
class Configuration:
    """How many nodes a job gets, what each needs, and when it then ends.

    Parameters
    ----------
    peaks
        By target, such as ``worker_cpu``; a target that could not be learnt is missing.
    iter_s
        Of the chosen counts.
    finish_s
        Seconds to the end, by the predicted iteration time and both ends of its interval.
    outside
        Inputs beyond what was learnt: the numbers are guesses then.
    """

    n_worker: int
    n_ps: int
    peaks: Mapping[str, Estimate]
    iter_s: Estimate
    finish_s: Estimate
    outside: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Configurator:
    """The learnt targets by name, why others are missing, and the good range of PS per worker."""

    learnt: Mapping[str, LearntTarget]
    missing: Mapping[str, str]
    ratio: RatioRange | None = None

    def peaks(self, features: ModelFeatures, setting: Setting) -> dict[str, Estimate]:
        """Return the predicted peaks of a job's nodes, in cores and MiB, as far as they were learnt."""
        return {
            name: self.learnt[name].predict(features, setting) for name in TARGETS[:-1] if name in self.learnt
        }

    def configure(
        self,
        features: ModelFeatures,
        goal: DeadlineGoal,
        *,
        setting: Setting | None = None,
        ratio: RatioRange | None = None,
        cautious: bool = True,
    ) -> Configuration:
        """Return the smallest configuration that meets a deadline.

        Parameters
        ----------
        setting
            What is known beside the counts, such as the cluster's load.
        ratio
            Instead of the learnt range.
        cautious
            Whether the upper end of the iteration time's interval must meet the deadline.

        Raises
        ------
        InvalidValueError
            When the iteration time, or without `ratio` the range, could not be learnt.
        CapacityError
            When no allowed number of workers meets the deadline.
        """
        if "iter_s" not in self.learnt:
            raise InvalidValueError(f"no step time was learned: {self.missing['iter_s']}")
        if (ratio := ratio or self.ratio) is None:
            raise InvalidValueError(
                f"the range of PS per worker needs {LEAST_RATIO_JOBS} jobs that ran with two of them, "
                "got fewer; give ratio"
            )
        base = setting or Setting()
        earliest_s = math.inf
        for n_worker in range(1, goal.max_worker + 1):
            counts = replace(base, n_worker=n_worker, n_ps=ratio.n_ps(n_worker))
            iter_s = self.learnt["iter_s"].predict(features, counts)
            finish_s = _times(iter_s, math.ceil(goal.n_iteration / n_worker))
            at_s = finish_s.high if cautious else finish_s.value
            if at_s <= goal.deadline_s:
                return self._configuration(features, counts, iter_s, finish_s)
            earliest_s = min(earliest_s, at_s)
        raise CapacityError(
            f"the job must end within {goal.deadline_s:,.0f} s, got {earliest_s:,.0f} s at best with up to "
            f"{goal.max_worker} workers; allow more workers, a later deadline or fewer steps"
        )

    def _configuration(
        self, features: ModelFeatures, counts: Setting, iter_s: Estimate, finish_s: Estimate
    ) -> Configuration:
        peaks = self.peaks(features, counts)
        outside = dict.fromkeys(text for each in (*peaks.values(), iter_s) for text in each.outside)
        n_worker, n_ps = counts.n_worker or 1, counts.n_ps or 1
        return Configuration(n_worker, n_ps, peaks, iter_s, finish_s, tuple(outside))


def learn_configurator(rows: Sequence[TrainingRow], *, level: float = 0.9) -> Configurator:
    """Learn all targets that the rows allow.

    Parameters
    ----------
    level
        Wanted coverage of the intervals.

    Raises
    ------
    InvalidValueError
        When no target can be learnt: the reasons by target.
    """
    learnt: dict[str, LearntTarget] = {}
    missing: dict[str, str] = {}
    for target in TARGETS:
        try:
            learnt[target] = learn(target, rows, level=level)
        except InvalidValueError as error:
            missing[target] = str(error)
    if not learnt:
        raise InvalidValueError("; ".join(missing.values()))
    return Configurator(learnt, missing, learn_ratio(rows))


def learn_ratio(rows: Sequence[TrainingRow]) -> RatioRange | None:
    """Return the range of PS per worker that was good; None where too few jobs ran with two ratios.

    Notes
    -----
    Ratio of N^P and N^w, Eq. (5) of Qore-DL. Of each job the least and the most good ratio; the range holds
    the medians of both over jobs.
    """
    by_job: defaultdict[str, list[float]] = defaultdict(list)
    for (job, n_worker), iter_s in _times_by_counts(rows).items():
        if len(iter_s) > 1:
            most_s = min(iter_s.values()) * (1 + GOOD_WITHIN)
            by_job[job] += [n_ps / n_worker for n_ps, time_s in iter_s.items() if time_s <= most_s]
    if len(by_job) < LEAST_RATIO_JOBS:
        return None
    lows, highs = [min(each) for each in by_job.values()], [max(each) for each in by_job.values()]
    return RatioRange(statistics.median(lows), statistics.median(highs))


def _times_by_counts(rows: Sequence[TrainingRow]) -> dict[tuple[str, int], dict[int, float]]:
    """Return by job and number of workers the mean iteration time of each number of parameter servers."""
    times: defaultdict[tuple[str, int], defaultdict[int, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        n_worker, n_ps, iter_s = row.setting.n_worker, row.setting.n_ps, row.measured.iter_s
        if n_worker is not None and n_ps is not None and iter_s is not None:
            times[row.job, n_worker][n_ps].append(iter_s)
    return {
        key: {n_ps: statistics.fmean(each) for n_ps, each in by_n_ps.items()}
        for key, by_n_ps in times.items()
    }


def _times(estimate: Estimate, factor: float) -> Estimate:
    low, value, high = (factor * each for each in (estimate.low, estimate.value, estimate.high))
    return Estimate(value, low, high, estimate.outside)

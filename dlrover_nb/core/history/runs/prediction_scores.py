"""How good predictions were: the share of measurements inside the 90 % band, and the median error.

A share has its count, and is None where nothing was predicted: 0 of 0 is no score.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dlrover_nb.core.structs.decisions.decisions import Outcome


@dataclass(frozen=True, slots=True)
class Score:
    """Predictions against measurements.

    Parameters
    ----------
    n_outcome, n_predicted
        Applied plans that were measured, and those of them with a prediction.
    inside
        Share of the predictions whose 90 % band held the measurement; None without any.
    median_error
        Median of |predicted / measured - 1|; None without any. A job without progress has no error.
    bias
        Median of predicted / measured - 1: above zero when predictions are too high; None without any.
    """

    n_outcome: int
    n_predicted: int
    inside: float | None
    median_error: float | None
    bias: float | None


@dataclass(frozen=True, slots=True)
class Scoreboard:
    """The score of all jobs together, and of each, by name; and the outcomes that it is made of."""

    total: Score
    jobs: tuple[tuple[str, Score], ...]
    outcomes: tuple[tuple[str, Outcome], ...] = ()  # with the name of the job


def score(outcomes: Sequence[Outcome]) -> Score:
    """Return the score of some outcomes."""
    predicted = [o for o in outcomes if o.predicted is not None]
    errors = [o.error for o in predicted if o.measured_samples_per_s > 0 and o.error is not None]
    n_inside = sum(bool(o.inside_band) for o in predicted)
    n = len(predicted)
    return Score(
        n_outcome=len(outcomes),
        n_predicted=n,
        inside=n_inside / n if n else None,
        median_error=median(map(abs, errors)) if errors else None,
        bias=median(errors) if errors else None,
    )


def scoreboard(outcomes: Mapping[str, Iterable[Outcome]]) -> Scoreboard:
    """Return the scores of jobs by name, and of all together."""
    listed = {job: tuple(of_job) for job, of_job in sorted(outcomes.items())}
    everything = tuple(outcome for of_job in listed.values() for outcome in of_job)
    return Scoreboard(
        total=score(everything),
        jobs=tuple((job, score(of_job)) for job, of_job in listed.items()),
        outcomes=tuple((job, outcome) for job, of_job in listed.items() for outcome in of_job),
    )

"""The way back: from an experiment that did not pay to the plan that is best by its measurements.

A plan is chosen by a prediction, and the better of many predictions is mostly one that was too good. So what
was measured counts once it was: the job returns to the plan whose mean is surely high, as soon as the mean
of the present one is lower. A present plan with the higher mean stays, as that costs nothing and makes it
surer; towards the end of the job it stays only if its mean is surely as high. `PlannerSettings.min_gain` does
not apply: it is the doubt of a prediction, and here both means are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.job.spec_choices import Objective

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.structs.decisions.candidates import Candidate

LEAST_GAIN = 0.003  # of the means: less is not worth a change
USERS_GAIN = 0.03  # where a user has to decide
LATE_S = 15.0  # times the seconds of an experiment: from then on only what is sure counts


def way_back(
    analysis: Analysis,
    allowed: NDArray[np.bool_],
    returns: Mapping[tuple[int, int, float, float], float] | None,
    experiment_s: float,
) -> Candidate | None:
    """Return the measured plan to go back to; None where the present one may stay.

    Parameters
    ----------
    allowed
        Which plans of the space may be chosen.
    returns
        Gains that the return to some plans requires, in auto mode; None where a user decides.
    experiment_s
        Seconds that measuring a plan takes.

    Notes
    -----
    Where cost matters too, only a plan that costs no more is gone back to: whether a faster and dearer one is
    worth it, `advise` decides.
    """
    space, p, now = analysis.space, analysis.predictions, analysis.current
    axes, measured = space.axes, allowed & analysis.measured
    needed = np.full(len(space), USERS_GAIN if returns is None else LEAST_GAIN)
    for row, gain in (returns or {}).items():
        needed[(axes == np.array(row)).all(axis=1)] += gain
    is_late = returns is not None and now.finish_s is not None and now.finish_s < LATE_S * experiment_s
    is_faster = p.samples_per_s >= (1 + needed) * now.prediction.samples_per_s
    better = measured & (p.mean_low > (1 + LEAST_GAIN) * now.prediction.mean_low)
    better &= is_late | (is_faster & (analysis.gain_samples_per_s > 0))
    if analysis.situation.spec.objective is not Objective.SPEED:
        better &= analysis.cost <= analysis.now_cost
    if not better.any():
        return None
    best = int(np.argmax(np.where(better, p.mean_low, 0.0)))
    return analysis.candidate(space.plan(best))

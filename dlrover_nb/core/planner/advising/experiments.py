"""Which experiment is proposed, and the way back from one that did not pay.

An experiment is the plan within reach whose trial is worth most over the rest of the job; the way back leads
to the plan that is best by its measurements. A plan is chosen by a prediction, and the better of many
predictions is mostly one that was too good. So what was measured counts once it was: the job returns to the
plan whose mean is surely high, as soon as the mean of the present one is lower. A present plan with the
higher mean stays, as that costs nothing and makes it surer; towards the end of the job it stays only if its
mean is surely as high. `PlannerSettings.min_gain` does not apply: it is the doubt of a prediction, and here
both means are known.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.pareto.reasons import change_words
from dlrover_nb.core.pareto.space import neighbours
from dlrover_nb.core.perf.explore import Effort, Options, Present, next_experiment
from dlrover_nb.core.perf.terms import axes_of
from dlrover_nb.core.planner.predictions.batch import batch_sizes
from dlrover_nb.core.planner.predictions.transitions import HORIZON_S
from dlrover_nb.core.structs.job.spec_choices import Objective

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

MOST_TRIALS = 200  # evaluated as experiments
MOST_TARGETS = 500  # whose uncertainty an experiment is to reduce: each takes some hundred draws


LEAST_GAIN = 0.003  # of the means: less is not worth a change
USERS_GAIN = 0.03  # where a user has to decide
LEAST_REMOVED = 0.01  # of the uncertainty: less is not said as a share
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


def experiment(
    analysis: Analysis, free: NDArray[np.bool_], undecided: NDArray[np.bool_], measure_s: float
) -> tuple[Candidate, str] | None:
    """Return the plan to try and the reason; None where no trial is worth what it costs.

    Parameters
    ----------
    free, undecided
        Which plans of the space may be tried, and which of them may be better than the present one.
    measure_s
        Seconds that measuring a plan takes.
    """
    s, now = analysis.situation, analysis.current
    speed = now.prediction.without_host.samples_per_s  # the model's are without it too
    near = _open_trials(analysis, free)
    if not undecided.any() or not len(near):
        return None
    aims = _most_promising(analysis, np.flatnonzero(undecided), MOST_TARGETS)
    left_s = HORIZON_S if now.finish_s is None else now.finish_s
    trial = next_experiment(
        analysis.model,
        partial(batch_sizes, s.spec),
        _options(analysis, near),
        targets=_options(analysis, aims),
        now=Present(speed, analysis.now_cost, left_s),
        effort=Effort(measure_s, analysis.transition_s[near]),
    )
    if trial is None:
        return None
    candidate = analysis.candidate(analysis.space.plan(int(near[trial.index])))
    return candidate, _explore_why(analysis, candidate, trial.removes, s.plan)


def _options(analysis: Analysis, index: NDArray[np.intp]) -> Options:
    """Return plans of the space; where speed is the objective all cost the same, as no saving is sought."""
    is_speed = analysis.situation.spec.objective is Objective.SPEED
    cost = np.full(len(index), analysis.current.cost) if is_speed else analysis.cost[index]
    return Options(analysis.space.axes[index], cost)


def _open_trials(analysis: Analysis, free: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the free plans within reach that are not measured yet, at most the most promising ones.

    Within reach is what at most halves or doubles each number of the present plan, and the next allowed value
    where that is farther. Plans beyond give more information, but their speed cannot be predicted.
    """
    s, axes = analysis.situation, analysis.space.axes
    here = axes_of([s.plan])[0]
    near = (np.abs(np.log2(axes / here)) <= 1 + 1e-9).all(axis=1)
    for row in neighbours(here, s.spec.bounds, s.pins):
        near = near | (axes == row).all(axis=1)
    for row in analysis.model.evidence_.axes:
        near = near & (axes != row).any(axis=1)
    return _most_promising(analysis, np.flatnonzero(near & free), MOST_TRIALS)


def _most_promising(analysis: Analysis, index: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    return index[np.argsort(-analysis.predictions.mean_high[index], kind="stable")[:most]]


def _explore_why(analysis: Analysis, candidate: Candidate, removes: float, plan: ResourcePlan) -> str:
    change = change_words(plan, candidate.plan)
    p = candidate.prediction
    if analysis.model.report_.n_plan == 1:
        evidence = "we have measured only this plan"
    else:
        evidence = f"the {analysis.model.report_.n_plan} plans measured so far do not show which is better"
    return (
        f"Experiment: {evidence}. With {change} the job would reach {p.low:,.0f} to {p.high:,.0f} samples/s "
        f"(now {analysis.current.prediction.samples_per_s:,.0f}). {_worth_words(removes)}"
    )


def _worth_words(removes: float) -> str:
    """Say what a trial is worth; one that says nothing of other plans is for that plan's own speed."""
    if removes < LEAST_REMOVED:
        return "It may itself be the best plan; trying it says little about others."
    return f"Trying it removes about {percent(removes)} of our uncertainty about better plans."

"""What the rest of a total budget does for the job: with the present plan, and with better ones.

A plan's predicted speed says how long the job takes with it, and its price for how long the rest pays. The
cheapest plan until the end is not the cheapest per hour: a slow one costs its price for longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.planner.finish_chance import chances
from dlrover_nb.core.planner.predictions.completion import end_cost
from dlrover_nb.core.structs.job.fixed_roles import fixed_per_hour
from dlrover_nb.core.structs.plan.budget import PlanBudget

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dlrover_nb.core.planner.situation import Situation
    from dlrover_nb.core.structs.decisions.candidates import Candidate

    Array = NDArray[np.float64]

SHARE_WORTH_NAMING = 0.05  # of what is left, that another plan trains more with the rest


@dataclass(frozen=True, slots=True)
class BudgetForecast:
    """What the rest does for the present plan, and for others; see `BudgetOutlook`."""

    now: PlanBudget
    best: PlanBudget | None
    most: PlanBudget | None


def most_until_end(money_left: float | None, now: float | None) -> float | None:
    """Return the money that a plan may take until the end: what is left of the total budget.

    Where the present plan takes more, `now`, any that takes less than it trains more for the rest. None: no
    limit, or no known end.
    """
    return None if money_left is None or now is None else max(money_left, now)


def budget_forecast(
    s: Situation, now: Candidate, chance: Array, end_cost: Array, at: Callable[[int], Candidate]
) -> BudgetForecast | None:
    """Return what the rest of the total budget does; None where nothing costs anything.

    Parameters
    ----------
    now
        The present plan.
    chance, end_cost
        Of each plan of the space: the probability that the rest is enough, and money until the end.
    at
        Returns the plan of a row.
    """
    present = _plan_budget(s, now)
    if present is None:
        return None
    if present.enough >= s.deadline_chance or not len(chance):
        return BudgetForecast(present, None, None)
    meeting = np.flatnonzero(chance >= s.deadline_chance)
    if len(meeting):
        best = int(meeting[int(np.argmin(end_cost[meeting]))])
        return BudgetForecast(present, _plan_budget(s, at(best)), None)
    most = _plan_budget(s, at(int(np.argmin(end_cost))))
    least = present.share + SHARE_WORTH_NAMING
    is_more = most is not None and most.plan != present.plan and most.share >= least
    return BudgetForecast(present, None, most if is_more else None)


def present_budget(
    situation: Situation, now: Candidate, *, money_left: float, n_sample_left: int
) -> PlanBudget | None:
    """Return what the rest does for the plan that runs, between two analyses: by the speed of the last one.

    What a job that may stop early has left is known by its last evaluation alone.
    """
    stop = situation.stop
    n_left = n_sample_left if stop is None or stop.why_not else situation.n_sample_left
    s = replace(situation, money_left=money_left, n_sample_left=n_left)
    paid, cost, speed = s.paid_for(now.cost_per_hour), now.cost_per_hour, now.prediction.samples_per_s
    if paid is None or cost is None:
        return None
    finish_s = n_left / speed
    enough = float(chances(now.prediction, 0.0, paid))
    return _plan_budget(s, replace(now, in_budget=enough, end_cost=end_cost(s, cost, finish_s)))


def _plan_budget(s: Situation, candidate: Candidate) -> PlanBudget | None:
    """Return what the rest does for one plan; None without a limit."""
    if candidate.in_budget is None or candidate.end_cost is None or s.money_left is None:
        return None
    price = (candidate.cost_per_hour or 0.0) + fixed_per_hour(s.spec)
    share = min(s.money_left / candidate.end_cost, 1.0) if candidate.end_cost > 0 else 1.0
    return PlanBudget(candidate.plan, price, candidate.end_cost, candidate.in_budget, share)

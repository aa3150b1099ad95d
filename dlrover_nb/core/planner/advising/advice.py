"""Advice on a plan: what it says, when a plan is worth one, and which limits it keeps to."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from dlrover_nb.core.planner.situation import DEADLINE_CHANCE
from dlrover_nb.core.structs.plan.bounds import Quota

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.decisions.decisions import ProposalKind
    from dlrover_nb.core.structs.plan.resources import Axes, ResourcePlan


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """When a plan is worth a proposal.

    Parameters
    ----------
    min_gain
        Gain in throughput at the low end of the band, relative.
    min_saving
        Saving in cost per hour at the same speed, relative.
    min_left_s
        Remaining seconds of the job below which no change is proposed.
    material_change
        By how much the prediction of a rejected plan must have risen for it to be proposed again.
    experiment_s
        Seconds that measuring a plan takes: settling, and five windows.
    deadline_chance
        The probability to finish by the deadline that a plan must reach, where any does.
    """

    min_gain: float = 0.10
    min_saving: float = 0.15
    min_left_s: float = 20.0
    material_change: float = 0.2
    experiment_s: float = 15.0
    deadline_chance: float = DEADLINE_CHANCE


def axes_key(plan: ResourcePlan) -> Axes:
    """Return what determines the speed of a plan: all but its memory."""
    return plan.axes


def was_rejected(plan: ResourcePlan, now: ResourcePlan, rejected_plans: Collection[ResourcePlan]) -> bool:
    """Whether a plan was rejected: itself, or, where it is no mere change of memory, with other memory."""
    if plan in rejected_plans:
        return True
    key = axes_key(plan)
    return key != axes_key(now) and any(axes_key(each) == key for each in rejected_plans)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of advice that is applied without a user's review (auto mode).

    Parameters
    ----------
    budget_per_hour
        The most that a plan may cost; one of unknown price is not advised either. None: no budget.
    within_total
        Whether a plan must end the job within what is left of its total budget, or for less money than the
        present plan. What is left stands in the situation, as it changes with every second, and limits that
        change would void each answer to a question (`controller.reviews`).
    returns
        Plans that were replaced by better ones, with the gain that is required to return to them.
    step
        The cores of an advised plan are at most this multiple of the present plan's.
    quota
        What other jobs on the same machines leave to this one.
    min_gain
        Sufficient gain, where less than `PlannerSettings.min_gain`: no user has to decide.
    """

    budget_per_hour: float | None = None
    returns: Mapping[Axes, float] = field(default_factory=dict)
    step: float = inf
    quota: Quota = field(default_factory=Quota)
    min_gain: float = inf
    within_total: bool = False

    def affords(self, candidate: Candidate, most_until_end: float | None) -> bool:
        """Whether a plan keeps to both budgets, by its price and its predicted end.

        Parameters
        ----------
        most_until_end
            `Analysis.most_until_end`.
        """
        price, until_end = candidate.cost_per_hour, candidate.end_cost
        if self.budget_per_hour is not None and (price is None or price > self.budget_per_hour):
            return False
        if not self.within_total or until_end is None or most_until_end is None:
            return True
        return until_end <= most_until_end


@dataclass(frozen=True, slots=True)
class Advice:
    """What to propose to the user, or to apply at once in auto mode.

    Parameters
    ----------
    kind, candidate, why
        The plan that is advised, and the reason in one sentence.
    batches
        Batch sizes (worker, size) with which the present plan, `candidate`, does better; empty: none.
    """

    kind: ProposalKind
    candidate: Candidate
    why: str
    batches: tuple[tuple[str, int], ...] = ()

"""The three stages of a job as DLRover-RM composes them.

- Warm start: the start plan, and the model's prior (`warm_start`).
- Auto-scaling: from the model to candidates to advice (`analyse`, then `auto_scale`).
- Post-scaling: memory before a node is killed and after one was (`post_scale`).

Each stage takes the others' results as arguments and returns advice; none applies anything. Post-scaling goes
first where both give advice: a faster plan is of no use to a node that is killed. Before both comes a plan
that keeps the user's pins, if the present one does not: pins hold whatever the gain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core import pricing, warmstart
from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.pareto.reasons import change_words
from dlrover_nb.core.planner.advising.advice import Advice, Limits, PlannerSettings
from dlrover_nb.core.planner.advising.improvement import advise
from dlrover_nb.core.planner.protect import Frame, protected
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.plan.default_bounds import completed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.planner.protect import MemoryNeed
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.bounds import Quota
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.past_jobs import FitSummary, JobTraits, PastJob


@dataclass(frozen=True, slots=True)
class Start:
    """What a job starts with; `why` is one sentence for the user."""

    plan: ResourcePlan
    prior: FitSummary | None
    why: str


def warm_start(spec: JobSpec, capacity: Capacity, traits: JobTraits, past: Sequence[PastJob]) -> Start:
    """Return what a job starts on, from similar jobs; its own plan with its pins where there are none.

    Notes
    -----
    No start plan is given that is over the budget, or of unknown price while there is a budget; the prior
    from similar jobs is given all the same. `JobSubmitted.traits` and `.prior` carry the result to the
    controller.
    """
    own, bounds = (
        spec.pins.applied(spec.plan),
        completed(spec.bounds, capacity, spec.plan, most_workers=spec.step_batches),
    )
    settings = warmstart.WarmStartSettings.of(spec.tuning.dlrover_rm)
    into = warmstart.into_space(bounds, capacity, spec.pins, own.gpus)
    start = warmstart.warm_start(traits, past, into=into, settings=settings)
    if start is None:
        return Start(own, None, "We start with the requested plan: no similar job has finished yet.")
    price, budget = pricing.cost_per_hour(start.plan, spec.prices), spec.budget_per_hour
    if budget is not None and (price is None or price > budget):
        why = (
            f"We start with the requested plan: the plan of similar jobs costs more than {budget:g} per hour."
        )
        return Start(own, start.prior, why)
    return Start(start.plan, start.prior, start.why)


def auto_scale(
    analysis: Analysis,
    settings: PlannerSettings,
    *,
    rejected_plans: Mapping[ResourcePlan, float],
    may_explore: bool,
    limits: Limits | None = None,
) -> Advice | None:
    """Return the plan to propose now: one that keeps the pins, a better one, an experiment, or None.

    Parameters
    ----------
    barred, may_explore, limits
        As of `advise`.
    """
    if not analysis.situation.pins.allows(analysis.situation.plan):
        return keep_pins(analysis, rejected_plans)
    return advise(analysis, settings, rejected_plans=rejected_plans, may_explore=may_explore, limits=limits)


def post_scale(
    analysis: Analysis, needs: Sequence[MemoryNeed], *, rejected_plans: Mapping[ResourcePlan, float]
) -> Advice | None:
    """Return a plan with the memory that nodes need; None where none is needed or none is feasible.

    Parameters
    ----------
    barred
        Plans that could not be applied.
    """
    plan = protected(analysis.situation.plan, needs, Frame.of(analysis.situation))
    if plan is None or plan in rejected_plans:
        return None
    return _with_reason(analysis, plan, ProposalKind.PROTECT, protect_why(plan, needs))


def protect_why(plan: ResourcePlan, needs: Sequence[MemoryNeed]) -> str:
    """Say why memory is needed and what the plan changes."""
    given = and_list(f"{plan.role(n.role).memory_mib} MiB for each {n.role}" for n in needs)
    return f"To avoid running out of memory: {'; '.join(n.why for n in needs)}. This plan gives {given}."


def keep_pins(analysis: Analysis, rejected_plans: Mapping[ResourcePlan, float]) -> Advice | None:
    """Return the present plan with the pins; where that does not fit, the fastest plan that does."""
    s = analysis.situation
    frame = Frame.of(s)
    plan: ResourcePlan | None = s.pins.applied(s.plan)
    if plan is None or not frame.holds(plan):
        plan = _fastest(analysis, frame)
    if plan is None or plan in rejected_plans:
        return None
    why = f"To match the pins ({s.pins}): {change_words(s.plan, plan)}."
    return _with_reason(analysis, plan, ProposalKind.IMPROVE, why)


def give_way(analysis: Analysis, quota: Quota, rejected_plans: Mapping[ResourcePlan, float]) -> Advice | None:
    """Return the fastest plan within a quota that the present plan is beyond; None where there is none."""
    plan = _fastest(analysis, Frame.of(analysis.situation), quota)
    if plan is None or plan in rejected_plans:
        return None
    now = analysis.situation.plan
    why = f"To make room for other jobs, which leave {quota}: {change_words(now, plan)}."
    return _with_reason(analysis, plan, ProposalKind.IMPROVE, why)


def _fastest(analysis: Analysis, frame: Frame, quota: Quota | None = None) -> ResourcePlan | None:
    order = np.argsort(-analysis.predictions.mean_low, kind="stable")
    plans = (analysis.space.plan(int(i)) for i in order)
    return next((plan for plan in plans if frame.holds(plan) and (quota is None or quota.allows(plan))), None)


def _with_reason(analysis: Analysis, plan: ResourcePlan, kind: ProposalKind, why: str) -> Advice:
    return Advice(kind, replace(analysis.candidate(plan), reason=why), why)

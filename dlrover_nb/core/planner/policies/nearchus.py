"""The policy `nearchus`: raise the cores that a job uses, by what its nodes report and without a model.

The search itself is `core.bottleneck.next_plan`, which `benchmarks/nearchus.py` measures; here its plans are
kept within what the job may have, and become advice. A plan whose search has ended stays, unless one that ran
before was clearly faster.

Its plans are experiments. No prediction speaks for them, so auto mode must not judge them by predictions; the
next measurement shows whether they bore fruit.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.bottleneck import (
    diagnose,
    fixed_roles,
    has_returned,
    is_stable,
    next_plan,
    node_moves,
    start_plan,
    way_back,
)
from dlrover_nb.core.pareto.reasons import change_words
from dlrover_nb.core.planner.advising.advice import Advice, Limits, PlannerSettings, was_rejected
from dlrover_nb.core.planner.availability.feasibility import has_room
from dlrover_nb.core.planner.policies.stages import keep_pins
from dlrover_nb.core.planner.protect import Frame
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.job.job import DEFAULT_PLAN
from dlrover_nb.core.structs.plan.default_bounds import completed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.bottleneck import Diagnosis, JobUse
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import Axes, ResourcePlan

NAME = "nearchus"


@dataclass(frozen=True, slots=True)
class _Frame:
    """What a plan must keep to: machines, quota, pins, what was rejected, and the limits of auto mode."""

    analysis: Analysis
    rejected_plans: Mapping[ResourcePlan, float]
    limits: Limits | None

    def holds(self, plan: ResourcePlan) -> bool:
        s = self.analysis.situation
        if was_rejected(plan, s.plan, self.rejected_plans) or not Frame.of(s).holds(plan):
            return False
        return self.limits is None or self._within(plan, self.limits)

    def _within(self, plan: ResourcePlan, limits: Limits) -> bool:
        most = limits.step * self.analysis.situation.plan.total_cpu
        if plan.total_cpu > most + 1e-9 or not limits.quota.allows(plan):
            return False
        most_until_end = self.analysis.most_until_end
        if limits.budget_per_hour is None and most_until_end is None:
            return True
        return limits.affords(self.analysis.candidate(plan), most_until_end)


def raise_use(
    analysis: Analysis,
    settings: PlannerSettings,
    use: JobUse | None,
    *,
    rejected_plans: Mapping[ResourcePlan, float],
    may_explore: bool,
    limits: Limits | None,
) -> Advice | None:
    """Return the next change of NEARCHUS; None where the job is not stable yet, or the search has ended.

    Parameters
    ----------
    use
        What the nodes of the present plan use; None: unknown.
    """
    s, now = analysis.situation, analysis.current
    if not s.pins.allows(s.plan):
        return keep_pins(analysis, rejected_plans)
    is_late = now.finish_s is not None and now.finish_s < settings.min_left_s
    if is_late or not may_explore or use is None or use.plan.axes != s.plan.axes:
        return None
    if not is_stable(use) or has_returned(use):
        return None
    if s.spec.foreign is None and node_moves(use, s.spec.bounds, s.pins):
        return None  # cores move within a role first, as actions on single nodes
    frame = _Frame(analysis, rejected_plans, limits)
    return _next(frame, use) or _back(frame, use)


def small_start(spec: JobSpec, capacity: Capacity) -> ResourcePlan | None:
    """Return the first plan of a job that names none: 1 PS and 2 workers on a part of its quota of cores.

    None where the user names a plan, or no quota, which is the budget: a part of a whole cluster is no small
    start.
    """
    quota = spec.bounds.quota_cpu
    if spec.policy != NAME or spec.plan != DEFAULT_PLAN or quota is None:
        return None
    bounds, share = (
        completed(spec.bounds, capacity, spec.plan, most_workers=spec.step_batches),
        spec.tuning.nearchus.start_share,
    )
    plan = start_plan(spec.plan, bounds, quota, share)
    own = spec.pins.applied(plan)
    return own if has_room(own, capacity, spec.bounds) else None


def diagnosis_of(analysis: Analysis, use: JobUse | None) -> Diagnosis | None:
    """Name the bottleneck of a job, whatever its policy; None while too little is measured."""
    s = analysis.situation
    if use is None or use.plan.axes != s.plan.axes:
        return None
    return diagnose(use, fixed=fixed_roles(use, s.spec.bounds, s.pins))


def _next(frame: _Frame, use: JobUse) -> Advice | None:
    s = frame.analysis.situation
    option = next_plan(use, s.spec.bounds, s.pins, frame.holds)
    if option is None:
        return None
    why = f"By nearchus: {change_words(s.plan, option.plan)}. {option.diagnosis.words}"
    return Advice(ProposalKind.EXPLORE, frame.analysis.candidate(option.plan), why)


def _back(frame: _Frame, use: JobUse) -> Advice | None:
    """Return to the fastest plan of the search, where it was clearly faster."""
    analysis = frame.analysis
    option = way_back(use, _speeds(analysis), frame.holds)
    if option is None:
        return None
    plan, gain = option
    faster = f"{plan.short}, which was {percent(gain)} faster"
    why = f"By nearchus: back to {faster}; nothing else raised it further."
    return Advice(ProposalKind.EXPLORE, analysis.candidate(plan), why)


def _speeds(analysis: Analysis) -> dict[Axes, float]:
    """Return the median speed of each measured plan."""
    by_plan: dict[Axes, list[float]] = {}
    for sample in analysis.situation.samples:
        by_plan.setdefault(sample.plan.axes, []).append(sample.samples_per_s)
    return {key: median(speeds) for key, speeds in by_plan.items()}

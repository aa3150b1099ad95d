"""The policy `nearchus`: raise the cores that a job uses, by what its nodes report and without a model.

The state of the search is in the measurements: which plans ran, and the cores that each used. A plan whose
search has ended stays, unless one that ran before was clearly faster; the paper keeps the last one, and would
leave a user on a change that made the job slower. A plan that the job returned to ends the search too.

Its plans are experiments. No prediction speaks for them, so auto mode must not judge them by predictions; the
next measurement shows whether they bore fruit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.bottleneck import (
    PlanUse,
    Step,
    diagnose,
    fixed_roles,
    fruitless,
    is_stable,
    node_moves,
    remedy_between,
    start_plan,
    wanted,
    with_remedy,
)
from dlrover_nb.core.pareto.reasons import change_words
from dlrover_nb.core.planner.advising.advice import Advice, Limits, PlannerSettings, axes_key, was_rejected
from dlrover_nb.core.planner.availability.feasibility import has_room
from dlrover_nb.core.planner.policies.stages import keep_pins
from dlrover_nb.core.planner.protect import Frame
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.job.job import DEFAULT_PLAN
from dlrover_nb.core.structs.plan.default_bounds import completed
from dlrover_nb.core.structs.plan.resources import ResourcePlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dlrover_nb.core.bottleneck import Diagnosis, JobUse
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity

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
    if is_late or not may_explore or use is None or axes_key(use.plan) != axes_key(s.plan):
        return None
    if not is_stable(use) or _has_returned(use):
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
    bounds, share = completed(spec.bounds, capacity, spec.plan), spec.tuning.nearchus.start_share
    plan = start_plan(spec.plan, bounds, quota, share)
    own = spec.pins.applied(plan)
    return own if has_room(own, capacity, spec.bounds) else None


def diagnosis_of(analysis: Analysis, use: JobUse | None) -> Diagnosis | None:
    """Name the bottleneck of a job, whatever its policy; None while too little is measured."""
    s = analysis.situation
    if use is None or axes_key(use.plan) != axes_key(s.plan):
        return None
    return diagnose(use, fixed=fixed_roles(s.plan, s.spec.bounds, s.pins))


def _next(frame: _Frame, use: JobUse) -> Advice | None:
    analysis = frame.analysis
    s, diagnosis = analysis.situation, diagnosis_of(analysis, use)
    if diagnosis is None:
        return None
    in_vain, ran = fruitless(steps(use), use.tuning), {axes_key(each.plan) for each in _trail(use)}

    def is_new(plan: ResourcePlan) -> bool:
        return axes_key(plan) not in ran and frame.holds(plan)

    for remedy in wanted(diagnosis):
        plan = with_remedy(remedy, use, s.spec.bounds, pins=s.pins, holds=is_new)
        if plan is not None and remedy_between(s.plan, plan) not in in_vain:
            why = f"By nearchus: {change_words(s.plan, plan)}. {diagnosis.words}"
            return Advice(ProposalKind.EXPLORE, analysis.candidate(plan), why)
    return None


def steps(use: JobUse) -> tuple[Step, ...]:
    """Return the search so far: it begins anew after a change that is none of its own."""
    trail = _trail(use)
    changes = (remedy_between(before.plan, after.plan) for before, after in pairwise(trail))
    return tuple(
        Step(remedy, each.used_cores, each.plan.total_cpu)
        for remedy, each in zip((None, *changes), trail, strict=True)
    )


def _trail(use: JobUse) -> Sequence[PlanUse]:
    """Return all plans in the order of time, the present one last; memory alone makes no other plan."""
    plans: list[PlanUse] = []
    for each in (*use.earlier, PlanUse(use.plan, use.cores())):
        if plans and axes_key(plans[-1].plan) == axes_key(each.plan):
            plans.pop()
        plans.append(each)
    return plans


def _has_returned(use: JobUse) -> bool:
    """Whether the present plan ran before others."""
    *before, now = _trail(use)
    return any(axes_key(each.plan) == axes_key(now.plan) for each in before)


def _back(frame: _Frame, use: JobUse) -> Advice | None:
    """Return to the fastest plan of the search, where it was faster by more than steady windows vary."""
    analysis = frame.analysis
    speeds = _speeds(analysis)
    now = speeds.get(axes_key(use.plan))
    before = [each.plan for each in _trail(use)[:-1] if axes_key(each.plan) in speeds]
    if now is None or not before:
        return None
    best = max(before, key=lambda plan: speeds[axes_key(plan)])
    plan = _with_memory(best, use.plan)
    gain = speeds[axes_key(best)] / now - 1
    if gain <= use.tuning.stable_cv or not frame.holds(plan):
        return None
    faster = percent(gain)
    why = f"By nearchus: back to {plan.short}, which was {faster} faster; nothing else raised it further."
    return Advice(ProposalKind.EXPLORE, analysis.candidate(plan), why)


def _speeds(analysis: Analysis) -> dict[object, float]:
    """Return the median speed of each measured plan."""
    by_plan: dict[object, list[float]] = {}
    for sample in analysis.situation.samples:
        by_plan.setdefault(axes_key(sample.plan), []).append(sample.samples_per_s)
    return {key: median(speeds) for key, speeds in by_plan.items()}


def _with_memory(plan: ResourcePlan, now: ResourcePlan) -> ResourcePlan:
    """Return a plan with the memory of another, which may have grown since."""
    worker = replace(plan.worker, memory_mib=max(plan.worker.memory_mib, now.worker.memory_mib))
    return ResourcePlan(worker, replace(plan.ps, memory_mib=max(plan.ps.memory_mib, now.ps.memory_mib)))

"""The policy `qore`: grow a job that would miss its deadline, and shrink one with slack (Qore-DL's adjuster).

A policy decides about one job, so of the paper's four cases those that follow from the job itself are
left: late, or slack. Growing a job that is in time, on an empty cluster, needs a view of all jobs. Workers
change in number or in size, and PS in proportion to workers; a genetic algorithm searches the size of the
change.

A job is late where its chance to be in time is below the wanted one: by the predicted finish alone, as in the
paper, it would be late every second time. A job without a deadline stays as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.deadline.adjuster import Size, changed, fitness, timeout_degree
from dlrover_nb.core.deadline.genetic import decoded, evolved
from dlrover_nb.core.pareto.reasons import change_words
from dlrover_nb.core.planner.advice import Advice, Limits, PlannerSettings
from dlrover_nb.core.planner.deadline import ALIKE
from dlrover_nb.core.planner.protect import Frame
from dlrover_nb.core.planner.stages import keep_pins
from dlrover_nb.core.structs.deadline import margin_words, percent
from dlrover_nb.core.structs.decisions import ProposalKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dlrover_nb.core.deadline.genetic import Change
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.structs.decisions import Candidate
    from dlrover_nb.core.structs.resources import ResourcePlan

SLACK = -0.2  # time-out degree below which a job may give back


def meet_deadline(
    analysis: Analysis,
    settings: PlannerSettings,
    *,
    rejected_plans: Mapping[ResourcePlan, float],
    limits: Limits | None,
) -> Advice | None:
    """Return the change by which the job is in time, or gives back what it does not need; None for none."""
    s, now = analysis.situation, analysis.current
    if not s.pins.allows(s.plan):
        return keep_pins(analysis, rejected_plans)
    if s.deadline_left_s is None or now.in_time is None or now.finish_s is None:
        return None
    grows = now.in_time < s.deadline_chance
    degree = timeout_degree(now.finish_s, s.deadline_left_s)
    if now.finish_s < settings.min_left_s or (not grows and degree > SLACK):
        return None
    found = _best(analysis, rejected_plans, limits, grows=grows)
    if found is None or not _is_worth(found, now, settings, grows=grows):
        return None
    state = f"with {s.plan.short} it is {percent(now.in_time)} probable to be in time"
    then = f"{percent(found.in_time or 0.0)} with this plan, {margin_words(found.margin_s or 0.0)}"
    reason = "The deadline is in danger" if grows else "The job has slack"
    why = f"By qore: {change_words(s.plan, found.plan)}. {reason}: {state}, {then}."
    return Advice(ProposalKind.IMPROVE, found, why)


def _is_worth(found: Candidate, now: Candidate, settings: PlannerSettings, *, grows: bool) -> bool:
    if not grows:
        return found.cost <= now.cost * (1 - settings.min_saving)
    more = (found.in_time or 0.0) - (now.in_time or 0.0)
    faster = found.prediction.samples_per_s / now.prediction.samples_per_s - 1
    return more > ALIKE or faster >= settings.min_gain


def _best(
    analysis: Analysis, rejected: Mapping[ResourcePlan, float], limits: Limits | None, *, grows: bool
) -> Candidate | None:
    frame = Frame.of(analysis.situation)
    known: dict[ResourcePlan, Candidate] = {}

    def value(code: int) -> float:
        plan = _plan(analysis, decoded(code), grows=grows)
        if plan is None or plan in rejected or not frame.holds(plan):
            return -np.inf
        known[plan] = found = known.get(plan) or analysis.candidate(plan)
        return _fitness(analysis, found, limits, grows=grows)

    def values(codes: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.array([value(int(code)) for code in codes])

    code = evolved(values, np.random.default_rng(0))  # a fixed seed: a replay decides alike
    plan = _plan(analysis, decoded(code), grows=grows)
    return known[plan] if plan is not None and np.isfinite(value(code)) else None


def _fitness(analysis: Analysis, found: Candidate, limits: Limits | None, *, grows: bool) -> float:
    s, now = analysis.situation, analysis.current
    if limits is not None and not _within(found, limits, s.plan):
        return -np.inf
    missing = s.deadline_chance - (found.in_time or 0.0)
    late = timeout_degree(found.finish_s or 0.0, s.deadline_left_s or 0.0)
    return fitness(max(missing, late), found.plan.effort / now.plan.effort, grows=grows)


def _within(found: Candidate, limits: Limits, now: ResourcePlan) -> bool:
    if found.plan.total_cpu > limits.step * now.total_cpu + 1e-9 or not limits.quota.allows(found.plan):
        return False
    price = found.cost_per_hour
    return limits.budget_per_hour is None or (price is not None and price <= limits.budget_per_hour)


def _plan(analysis: Analysis, change: Change, *, grows: bool) -> ResourcePlan | None:
    """Return the plan after a change, on the allowed sizes and with the pins; memory never shrinks."""
    s = analysis.situation
    bounds, worker, ps = s.spec.bounds, s.plan.worker, s.plan.ps
    after = changed(Size(worker.count, worker.cpu, worker.memory_mib), change, grows=grows)
    if after is None:
        return None
    most_workers, most_ps = bounds.counts
    cpu = worker.cpu if change.is_horizontal else min(bounds.worker_cpus, key=lambda c: abs(c - after.cpu))
    count = min(after.count, most_workers)
    n_ps = min(max(-(-count * ps.count // worker.count), 1), most_ps)
    plan = replace(s.plan, worker=replace(worker, count=count, cpu=cpu), ps=replace(ps, count=n_ps))
    plan = s.pins.applied(plan)
    return None if plan == s.plan else plan

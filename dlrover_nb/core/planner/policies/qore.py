"""The policy `qore`: grow a job that would miss its deadline, and shrink one with slack (Qore-DL's adjuster).

A policy decides about one job, so of the paper's four cases those that follow from the job itself are
left: late, or slack. Where the brain chooses the jobs by deadlines (`brain.by_deadline`), its quota says
which: within one that leads, a late job grows as far as that allows, one in time grows if there is more than
it has, and none gives back by itself.

Workers change in number or in size, and PS in proportion to workers; a genetic algorithm searches the size
of the change, as in the paper. Such changes keep the shape of the plan: a job that began with one large
worker is not helped by two of them where twelve small ones are as cheap and in time. So the plans of the
analysis, which have all shapes, are judged by the same fitness, and the fitter of both is taken.

A job is late where its chance to be in time is below the wanted one: by the predicted finish alone, as in the
paper, it would be late every second time. A job without a deadline stays as it is, unless it is led to grow.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.percents import chance_words, signed_percent
from dlrover_nb.core.deadline.adjuster import (
    CORE_WEIGHT,
    LATE_WEIGHT,
    Size,
    changed,
    eagerness,
    fitness,
    timeout_degree,
)
from dlrover_nb.core.deadline.genetic import decoded, evolved
from dlrover_nb.core.pareto.reasons import change_words
from dlrover_nb.core.planner.advising.advice import Advice, Limits, PlannerSettings, was_rejected
from dlrover_nb.core.planner.finish_chance import ALIKE
from dlrover_nb.core.planner.policies.stages import keep_pins
from dlrover_nb.core.planner.protect import Frame
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.deadline import margin_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dlrover_nb.core.deadline.genetic import Change
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

N_JUDGED = 16  # plans of other shapes that are judged in full
SLACK = -0.2  # time-out degree below which a job may give back


class Aim(Enum):
    """What a change is for."""

    IN_TIME = auto()
    GIVE_BACK = auto()
    FASTER = auto()  # on idle cores


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
    aim = _aim(analysis, limits)
    if aim is None or now.finish_s is None or now.finish_s < settings.min_left_s:
        return None
    best = _best(analysis, rejected_plans, limits, aim)
    if best is None or not _is_worth(best, now, settings, aim):
        return None
    why = f"By qore: {change_words(s.plan, best.plan)}. {_reason(best, now, aim)}."
    return Advice(ProposalKind.IMPROVE, best, why)


def _aim(analysis: Analysis, limits: Limits | None) -> Aim | None:
    s, now = analysis.situation, analysis.current
    quota = Quota() if limits is None else limits.quota
    is_led_to_grow = quota.invites(s.plan)
    if s.deadline_left_s is None or now.in_time is None or now.finish_s is None:
        return Aim.FASTER if is_led_to_grow else None
    if now.in_time < s.deadline_chance:
        return Aim.IN_TIME
    if quota.leads:
        return Aim.FASTER if is_led_to_grow else None
    return Aim.GIVE_BACK if timeout_degree(now.finish_s, s.deadline_left_s) <= SLACK else None


def _reason(best: Candidate, now: Candidate, aim: Aim) -> str:
    if aim is Aim.FASTER:
        faster = best.prediction.samples_per_s / now.prediction.samples_per_s - 1
        return f"Cores are idle: {signed_percent(faster)} samples/s with this plan"
    state = f"{now.plan.short} has a {chance_words(now.in_time or 0.0)} chance to be in time"
    then = f"this plan {chance_words(best.in_time or 0.0)}, {margin_words(best.margin_s or 0.0)}"
    return f"{'The deadline is in danger' if aim is Aim.IN_TIME else 'The job has slack'}: {state}, {then}"


def _is_worth(best: Candidate, now: Candidate, settings: PlannerSettings, aim: Aim) -> bool:
    if aim is Aim.GIVE_BACK:
        return best.cost <= now.cost * (1 - settings.min_saving)
    more = (best.in_time or 0.0) - (now.in_time or 0.0) if aim is Aim.IN_TIME else 0.0
    faster = best.prediction.samples_per_s / now.prediction.samples_per_s - 1
    return more > ALIKE or faster >= settings.min_gain


def _best(
    analysis: Analysis, rejected: Mapping[ResourcePlan, float], limits: Limits | None, aim: Aim
) -> Candidate | None:
    grows, now = aim is not Aim.GIVE_BACK, analysis.situation.plan
    frame = Frame.of(analysis.situation)
    candidates: dict[ResourcePlan, Candidate] = {}
    worth_of: dict[ResourcePlan | None, float] = {None: -np.inf}  # many genotypes lead to one plan

    def value(code: int) -> float:
        plan = _plan(analysis, decoded(code), grows=grows)
        if plan not in worth_of:
            worth_of[plan] = -np.inf if plan is None else worth(plan)
        return worth_of[plan]

    def worth(plan: ResourcePlan) -> float:
        if was_rejected(plan, now, rejected) or not frame.holds(plan):
            return -np.inf
        candidates[plan] = candidate = analysis.candidate(plan)
        return _fitness(analysis, candidate, limits, aim)

    def values(codes: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.array([value(int(code)) for code in codes])

    code = evolved(values, np.random.default_rng(0))  # a fixed seed: a replay decides alike
    plan, best = _plan(analysis, decoded(code), grows=grows), value(code)
    choice = candidates[plan] if plan is not None and np.isfinite(best) else None
    for other in _shapes(analysis, aim):
        if was_rejected(other.plan, now, rejected) or not frame.holds(other.plan):
            continue
        other_worth = _fitness(analysis, other, limits, aim)
        if other_worth > best:
            choice, best = other, other_worth
    return choice


def _shapes(analysis: Analysis, aim: Aim) -> tuple[Candidate, ...]:
    """Return the plans of the analysis that are likely to be fittest; with pins, those that keep them."""
    s, now, space = analysis.situation, analysis.current, analysis.space
    w, p, worker_cpu, ps_cpu = space.axes.T
    cpu = w * worker_cpu + p * ps_cpu
    resources = cpu / s.plan.total_cpu
    if aim is Aim.FASTER or analysis.in_time is None or s.deadline_left_s is None:
        faster = analysis.predictions.samples_per_s / now.prediction.samples_per_s
        worth = np.log(faster) - CORE_WEIGHT * np.log(resources)
    else:
        late = analysis.finish_s / max(s.deadline_left_s, 1.0) - 1
        late = np.maximum(np.maximum(late, s.deadline_chance - analysis.in_time), 0.0)
        worth = -LATE_WEIGHT * late - resources
        if aim is Aim.GIVE_BACK:
            worth = np.where(late > 0, -np.inf, worth)
    best = np.argsort(-worth, kind="stable")[:N_JUDGED]
    plans = [space.plan(int(i)) for i in best if np.isfinite(worth[i])]
    return analysis.candidates([plan for plan in plans if plan != s.plan])


def _fitness(analysis: Analysis, candidate: Candidate, limits: Limits | None, aim: Aim) -> float:
    s, now = analysis.situation, analysis.current
    if limits is not None and not _within(candidate, limits, analysis):
        return -np.inf
    resources = candidate.plan.effort / now.plan.effort
    if aim is Aim.FASTER:
        return eagerness(candidate.prediction.samples_per_s / now.prediction.samples_per_s, resources)
    missing = s.deadline_chance - (candidate.in_time or 0.0)
    late = timeout_degree(candidate.finish_s or 0.0, s.deadline_left_s or 0.0)
    return fitness(max(missing, late), resources, grows=aim is Aim.IN_TIME)


def _within(candidate: Candidate, limits: Limits, analysis: Analysis) -> bool:
    most = limits.step * analysis.situation.plan.total_cpu
    if candidate.plan.total_cpu > most + 1e-9 or not limits.quota.allows(candidate.plan):
        return False
    return limits.affords(candidate, analysis.most_until_end)


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

"""Why a plan is recommended, or why none is, and what would change that: an analysis in words and records.

Nothing is fitted or decided here: explanations come from the analysis and from calling the planner's own
advice again. A constraint binds a plan when it forbids the next step along one of the ladders, so "room for
one more worker" and "the bound of the job" are found by the same iteration as the marginals.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.percents import chance_words, signed_percent
from dlrover_nb.core.pareto.picks import most_efficient
from dlrover_nb.core.pareto.reasons import change_words
from dlrover_nb.core.pareto.space import ladders, plan_of
from dlrover_nb.core.perf.terms import AXES, axes_of
from dlrover_nb.core.planner.advising.advice import axes_key
from dlrover_nb.core.planner.availability.feasibility import over_quota
from dlrover_nb.core.planner.predictions.quality import over_bound
from dlrover_nb.core.structs.decisions.query_answers import Marginal, Measured, Weighed
from dlrover_nb.core.structs.job.spec_choices import Objective
from dlrover_nb.core.structs.plan.bounds import Pins, Quota
from dlrover_nb.core.structs.plan.capacity import holds
from dlrover_nb.core.structs.plan.deadline import margin_words, span_words
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dlrover_nb.core.planner.advising.advice import PlannerSettings
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.training.samples import ProfileSample

    Refuse = Callable[[ResourcePlan], str]

GIB_MIB = 1024


@dataclass(frozen=True, slots=True)
class AdviceContext:
    """What advice depends on beside the analysis.

    Parameters
    ----------
    refusal
        Says why a plan is not allowed: pins, room, quota; empty where it is.
    barred
        Plans that were rejected or failed.
    quota
        What the other jobs on the same machines leave free for this one.
    """

    settings: PlannerSettings
    refusal: Refuse
    rejected_plans: Mapping[ResourcePlan, float]
    quota: Quota


def marginals(analysis: Analysis, plan: ResourcePlan, refusal: Refuse) -> tuple[Marginal, ...]:
    """Return the effect of one step along each axis, up and down, within the job's ladders.

    Where a role's need of memory is forecast, a GiB more for each of its nodes is a step as well: it costs
    money and gains no speed.
    """
    steps = [*_steps(analysis, plan)]
    base, *candidates = analysis.candidates([plan, *steps])
    return tuple(_marginal(base, candidate, refusal) for candidate in candidates)


def binding(analysis: Analysis, candidate: Candidate, quota: Quota) -> tuple[str, ...]:
    """Return the constraints that bind a plan, in words: each forbids a next step."""
    plan, s = candidate.plan, analysis.situation
    steps = analysis.candidates([*_steps(analysis, plan)])
    larger = [c for c in steps if c.plan.effort > plan.effort]
    smaller = [c for c in steps if c.plan.effort < plan.effort]
    needs = _needs(analysis)
    constraints = [*_pinned(s.pins, plan), *_at_bounds(analysis, plan)]
    if s.host is not None and s.host.is_limiting:
        gives = f"{s.host.given_cores:.2g} of {s.host.wanted_cores:.2g} cores"
        constraints.append(f"the host is busy with other work: this job gets {gives}")
    constraints += _forbidden(
        "quota of the job", larger, plan, lambda c: bool(over_quota(c.plan, s.spec.bounds))
    )
    limits = s.capacity.node_limits.words if s.capacity.node_limits else ""
    notes = "; ".join(filter(None, (s.capacity.note, limits)))
    where = f"machines ({notes})" if notes else "machines"
    constraints += _forbidden(where, larger, plan, lambda c: not holds(s.capacity, c.plan))
    constraints += _forbidden(
        f"other jobs, which leave it {quota}", larger, plan, lambda c: not quota.allows(c.plan)
    )
    constraints += _forbidden(
        "the bound of AUC", larger, plan, lambda c: bool(over_bound(c, analysis.current, s.spec))
    )
    constraints += _budget(analysis, candidate, larger)
    constraints += _total_budget(analysis, candidate, larger)
    constraints += _deadline(analysis, candidate, smaller)
    words = (f"memory: by what we measured, each {role} needs {mib} MiB" for role, mib in needs.items())
    return (*constraints, *words)


def evidence(analysis: Analysis, plan: ResourcePlan) -> tuple[Measured, ...]:
    """Return the measured plans, nearest to `plan` first: by how many times each number differs."""
    groups: dict[object, list[ProfileSample]] = defaultdict(list)
    for sample in analysis.situation.samples:
        groups[axes_key(sample.plan)].append(sample)
    plans = [windows[-1].plan for windows in groups.values()]
    if not plans:
        return ()
    axes = axes_of(plans)
    away = np.linalg.norm(np.log(axes / axes_of([plan])), axis=1)
    predicted = analysis.completion.predict(axes).without_host  # as the samples: without other load
    windows_of = list(groups.values())
    return tuple(
        Measured(plans[i], _median_speed(windows_of[i]), sum(w.n_window for w in windows_of[i]), predicted[i])
        for i in np.argsort(away, kind="stable").tolist()
    )


def _median_speed(rows: Sequence[ProfileSample]) -> float:
    """Return the median over single windows; a row that stands for many counts where there is no other."""
    single = [row.samples_per_s for row in rows if row.n_window == 1]
    return median(single or [row.samples_per_s for row in rows])


def runner_up(analysis: Analysis, plan: ResourcePlan, grounds: AdviceContext) -> tuple[Candidate | None, str]:
    """Return the best plan of the front beside `plan` and the present one, and why it is not chosen."""
    out = (axes_key(plan), axes_key(analysis.situation.plan))
    others = [c for c in analysis.front.candidates if axes_key(c.plan) not in out]
    if not others:
        return None, ""
    best = others[_best(analysis, others)]
    return best, lack(analysis, best, plan, grounds)


def lack(analysis: Analysis, candidate: Candidate, chosen: ResourcePlan, grounds: AdviceContext) -> str:
    """Say why a plan is not chosen: a rule that it breaks, else where the chosen one is better."""
    refused = grounds.refusal(candidate.plan)
    against = (
        "It was rejected or failed before." if _is_barred(candidate, grounds) else "",
        refused and f"It would be refused: {refused}.",
        *(f"{words[0].upper()}{words[1:]}." for words in _exceeded(analysis, candidate)),
        _not_worth(analysis, candidate, grounds.settings.min_gain),
    )
    return next(filter(None, against), "") or _against(analysis, candidate, analysis.candidate(chosen))


def _is_barred(candidate: Candidate, grounds: AdviceContext) -> bool:
    """Whether a plan was rejected, and its prediction is no better since."""
    speed, most = candidate.prediction.without_host.samples_per_s, grounds.settings.material_change
    return any(
        axes_key(plan) == axes_key(candidate.plan) and not speed / then - 1 > most
        for plan, then in grounds.rejected_plans.items()
    )


def _exceeded(analysis: Analysis, candidate: Candidate) -> list[str]:
    """Return which of budgets, deadline and bound of AUC a plan exceeds."""
    budgets = (*_budget(analysis, candidate, ()), *_total_budget(analysis, candidate, ()))
    worse = over_bound(candidate, analysis.current, analysis.situation.spec)
    return [*budgets, *_deadline(analysis, candidate, ()), *([worse] if worse else [])]


def _not_worth(analysis: Analysis, candidate: Candidate, min_gain: float) -> str:
    """Say that a faster plan does not, or not certainly, pay for its pause; empty where it does."""
    p, speed = candidate.prediction, analysis.current.prediction.samples_per_s
    if p.samples_per_s <= speed:
        return ""
    if candidate.gain_samples_per_s <= 0:
        return (
            f"Too little training is left to make up for its pause of {span_words(candidate.transition_s)}."
        )
    least = (1 + min_gain) * speed
    if p.low >= least:
        return ""
    return (
        f"Its gain is uncertain: it may reach only {p.low:,.0f} samples/s, and a change needs {least:,.0f}."
    )


def _against(analysis: Analysis, candidate: Candidate, chosen: Candidate) -> str:
    """Say in throughput and cost how a plan differs from the chosen one."""
    faster = candidate.prediction.samples_per_s / chosen.prediction.samples_per_s - 1
    dearer = candidate.cost - chosen.cost
    cost = f"{dearer:+.4g} {analysis.cost_unit}"
    return f"Compared with the chosen plan: {signed_percent(faster)} samples/s for {cost}."


def _best(analysis: Analysis, candidates: Sequence[Candidate]) -> int:
    """Return the index of the plan that the job's objective ranks first, whether or not it gains."""
    low = np.array([c.prediction.low for c in candidates])
    if analysis.situation.spec.objective is Objective.SPEED:
        return int(np.argmax(low))
    cost = np.array([c.cost for c in candidates])
    gain = np.array([c.gain_samples_per_s for c in candidates])
    best = most_efficient(cost, gain, analysis.now_cost)
    return int(np.argmax(gain)) if best is None else best


def _steps(analysis: Analysis, plan: ResourcePlan) -> Iterator[ResourcePlan]:
    """Yield the plans one step away on each ladder, and those with a GiB more where that is needed."""
    here, memory_mib = axes_of([plan])[0], (plan.worker.memory_mib, plan.ps.memory_mib)
    for axis, ladder in enumerate(ladders(analysis.situation.spec.bounds)):
        above = [v for v in ladder if v > here[axis]][:1]
        below = [v for v in ladder if v < here[axis]][-1:]
        for value in (*above, *below):
            row = here.copy()
            row[axis] = value
            yield plan_of(row, *memory_mib, plan.gpus)
    for role in Role:
        if role in _needs(analysis):
            more = replace(plan.role(role), memory_mib=plan.role(role).memory_mib + GIB_MIB)
            yield replace(plan, worker=more) if role is Role.WORKER else replace(plan, ps=more)


def _needs(analysis: Analysis) -> dict[Role, int]:
    """Return the memory per node that a forecast or an OOM kill requires, user's pins left out."""
    pins = analysis.situation.pins
    pinned = {Role.WORKER: pins.worker_memory_mib, Role.PS: pins.ps_memory_mib}
    return {role: mib for role, mib in analysis.situation.memory_mib if pinned[role] is None}


def _marginal(base: Candidate, candidate: Candidate, refusal: Refuse) -> Marginal:
    priced = base.cost_per_hour is not None and candidate.cost_per_hour is not None
    return Marginal(
        what=change_words(base.plan, candidate.plan),
        weighed=Weighed(candidate.plan, candidate, refusal(candidate.plan)),
        samples_per_s=candidate.prediction.samples_per_s - base.prediction.samples_per_s,
        cost_per_hour=(candidate.cost_per_hour or 0) - (base.cost_per_hour or 0) if priced else None,
    )


def _pinned(pins: Pins, plan: ResourcePlan) -> Iterator[str]:
    for name in Pins.__slots__:
        value = getattr(pins, name)
        if value is not None:
            departs = "" if Pins(**{name: value}).allows(plan) else ", but the plan differs"
            yield f"{name}: {value:g}, pinned{departs}"


def _at_bounds(analysis: Analysis, plan: ResourcePlan) -> Iterator[str]:
    """Say which numbers are at a bound of the job; the minimum of one node per role is not counted."""
    s, here = analysis.situation, axes_of([plan])[0]
    free = zip(AXES, ladders(s.spec.bounds), here.tolist(), strict=True)
    for axis, ladder, own in free:
        if getattr(s.pins, axis) is not None:
            continue
        if own >= ladder[-1]:
            yield f"{axis}: {own:g}, the maximum that the job allows"
        elif own <= ladder[0] and axis not in {"workers", "ps"}:
            yield f"{axis}: {own:g}, the minimum that the job allows"


def _forbidden(
    name: str, steps: Sequence[Candidate], plan: ResourcePlan, is_forbidden: Callable[[Candidate], bool]
) -> list[str]:
    words = [change_words(plan, step.plan) for step in steps if is_forbidden(step)]
    return [f"{name}: no room for {' or '.join(words)}"] if words else []


def _budget(analysis: Analysis, candidate: Candidate, larger: Sequence[Candidate]) -> list[str]:
    spec = analysis.situation.spec
    budget, price, money = spec.budget_per_hour, candidate.cost_per_hour, spec.prices.currency
    if budget is None or price is None:
        return []
    if price > budget:
        return [f"budget: {budget:g} {money} per hour, but the plan costs {price:.4g}"]
    return _forbidden(
        f"budget of {budget:g} {money} per hour, the plan costs {price:.4g}",
        larger,
        candidate.plan,
        lambda c: c.cost_per_hour is not None and c.cost_per_hour > budget,
    )


def _total_budget(analysis: Analysis, candidate: Candidate, larger: Sequence[Candidate]) -> list[str]:
    s, chance, wanted = analysis.situation, candidate.in_budget, analysis.situation.deadline_chance
    if s.money_left is None or chance is None or candidate.end_cost is None:
        return []
    limit = f"{s.spec.budget_total:g} {s.spec.prices.currency}"
    ends = (
        f"total budget of {limit}, {s.money_left:.4g} left: the plan costs {candidate.end_cost:.4g} until "
        f"the end, with a {chance_words(chance)} chance to be enough"
    )
    if chance < wanted:
        return [f"{ends}; you want {chance_words(wanted)}"]
    dearer = [change_words(candidate.plan, c.plan) for c in larger if (c.in_budget or 0.0) < wanted]
    return [f"{ends}; below {chance_words(wanted)} with {' or '.join(dearer)}"] if dearer else []


def _deadline(analysis: Analysis, candidate: Candidate, smaller: Sequence[Candidate]) -> list[str]:
    left_s, chance, wanted = (s := analysis.situation).deadline_left_s, candidate.in_time, s.deadline_chance
    if left_s is None or chance is None or candidate.margin_s is None:
        return []
    ends = (
        f"deadline in {left_s / 60:,.0f} min: a {chance_words(chance)} chance to meet it, "
        f"{margin_words(candidate.margin_s)}"
    )
    if s.stop is not None:
        ends = f"{ends}, as {s.stop.words}"
    if chance < wanted:
        return [f"{ends}; you want {chance_words(wanted)}"]
    late = [change_words(candidate.plan, c.plan) for c in smaller if (c.in_time or 0.0) < wanted]
    return [f"{ends}; below {chance_words(wanted)} with {' or '.join(late)}"] if late else []

"""What to propose: a better plan, an experiment, or nothing.

- IMPROVE, when some plan is better than the present one even at the low end of its 90 % band (or
  much cheaper at the same speed): the one with the best resource efficiency (Eq. 11 of DLRover-RM), or
  the fastest where speed is the job's objective;
- EXPLORE, when a plan may be better but the fit is too uncertain to decide: the experiment of `perf.explore`;
- nothing, when neither: advice of too little value costs trust.

The low end counts because the cost of a change is certain and its gain is not.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.percents import chance_words, percent
from dlrover_nb.core.pareto.dominance import non_dominated
from dlrover_nb.core.pareto.picks import most_efficient
from dlrover_nb.core.perf.terms import axes_of
from dlrover_nb.core.planner.advising.advice import Advice, Limits, PlannerSettings
from dlrover_nb.core.planner.advising.experiments import experiment, way_back
from dlrover_nb.core.planner.finish_chance import ALIKE, RESCUE, chances, most_probable
from dlrover_nb.core.planner.plan_memory import memory_words
from dlrover_nb.core.planner.predictions.host import grows
from dlrover_nb.core.planner.predictions.quality import keeps_bound
from dlrover_nb.core.planner.protect import Frame
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.job.spec_choices import Objective
from dlrover_nb.core.structs.plan.deadline import margin_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dlrover_nb.core.pareto.space import PlanSpace
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

    Array = NDArray[np.float64]


AS_FAST = 0.97  # of the best measured speed: what a cheaper plan has to keep of it
LEAST_IN_BUDGET = (
    0.5  # chance of a plan that is proposed for a total budget, where none reaches the wanted one
)


def advise(
    analysis: Analysis,
    settings: PlannerSettings,
    *,
    rejected_plans: Mapping[ResourcePlan, float],
    may_explore: bool,
    limits: Limits | None = None,
) -> Advice | None:
    """Return what to propose now, or None.

    Parameters
    ----------
    barred
        Plans that were rejected or failed, with the throughput predicted then: they are not proposed
        again unless the prediction has changed materially.
    may_explore
        False once enough experiments have been proposed in a row.
    limits
        Of auto mode; None where a user decides.
    """
    now = analysis.current
    if now.finish_s is not None and now.finish_s < settings.min_left_s:
        return None
    advice = _advise(analysis, settings, rejected_plans, may_explore=may_explore, limits=limits)
    if advice is None:
        return smaller_request(analysis, settings, rejected_plans)
    less = memory_words(analysis.situation, advice.candidate.plan)
    return replace(advice, why=f"{advice.why} {less}") if less else advice


def smaller_request(
    analysis: Analysis, settings: PlannerSettings, rejected_plans: Mapping[ResourcePlan, float]
) -> Advice | None:
    """Return the present plan with less memory, where that saves enough; None where it does not.

    A deadline that is met must be met with the pause as well.
    """
    s, now, smaller = analysis.situation, analysis.current, analysis.smaller
    if smaller.plan == now.plan or smaller.plan in rejected_plans or not Frame.of(s).holds(smaller.plan):
        return None
    saving = 1 - smaller.cost / now.cost
    if saving < settings.min_saving or (smaller.chance or 1.0) < min(now.chance or 0.0, s.deadline_chance):
        return None
    why = f"{memory_words(s, smaller.plan)} That saves {percent(saving)} of the cost, at the same speed."
    return Advice(ProposalKind.IMPROVE, smaller, why)


def _advise(
    analysis: Analysis,
    settings: PlannerSettings,
    rejected_plans: Mapping[ResourcePlan, float],
    *,
    may_explore: bool,
    limits: Limits | None,
) -> Advice | None:
    """Return advice on nodes and cores; it comes with the memory that each node needs."""
    now = analysis.current
    allowed = free = _free(analysis, settings, rejected_plans)
    if limits is not None:
        allowed = free & _within(analysis, replace(limits, returns={}))
        free = free & _within(analysis, limits)
        settings = replace(settings, min_gain=min(settings.min_gain, limits.min_gain))
    best = _improvement(analysis, settings, free, allowed)
    if best is not None:
        why = _improve_why(best, now, analysis.cost_unit)
        return Advice(ProposalKind.IMPROVE, best, why + _in_time_words(best))
    returns = None if limits is None else limits.returns
    back = way_back(analysis, allowed & _meets(analysis), returns, settings.experiment_s)
    if back is not None:
        return Advice(ProposalKind.IMPROVE, back, _back_why(back, now))
    rescue = _rescue(analysis, free)
    is_one_plan = analysis.model.report_.n_plan < 2  # it tells almost nothing of others
    if not may_explore or (rescue is not None and not is_one_plan):
        return rescue
    return _exploration(analysis, settings, free & _harmless(analysis, settings)) or rescue


def probe(
    analysis: Analysis,
    settings: PlannerSettings,
    *,
    rejected_plans: Mapping[ResourcePlan, float],
    limits: Limits | None = None,
) -> Advice | None:
    """Return the experiment with the most information on better plans per cost, whatever else is advised.

    None where the possible gain would not pay for it.
    """
    free = _free(analysis, settings, rejected_plans)
    return _exploration(analysis, settings, free if limits is None else free & _within(analysis, limits))


def _free(
    analysis: Analysis, settings: PlannerSettings, rejected_plans: Mapping[ResourcePlan, float]
) -> NDArray[np.bool_]:
    """Return which plans of the space may be proposed: not the present one, not a barred one.

    Nor one that may cost more AUC than the job's bound.
    """
    axes, speed = analysis.space.axes, analysis.predictions.plan_samples_per_s
    free = (axes != axes_of([analysis.situation.plan])).any(axis=1)
    for plan, then in rejected_plans.items():
        is_better = speed / then - 1 > settings.material_change
        free = free & ((axes != axes_of([plan])).any(axis=1) | is_better)
    if is_limited_by_host(analysis):  # more nodes would wait for the same processors
        free = free & ~grows(axes, analysis.situation.plan)
    return np.asarray(free & keeps_bound(analysis.situation, axes[:, 0]))


def is_limited_by_host(analysis: Analysis) -> bool:
    """Whether other work on the job's hosts, and not its plan, decides its speed."""
    load = analysis.situation.host
    return load is not None and load.is_limiting


def _within(analysis: Analysis, limits: Limits) -> NDArray[np.bool_]:
    """Return which plans of the space auto mode may take."""
    space, now = analysis.space, analysis.current
    axes = space.axes
    w, p, worker_cpu, ps_cpu = axes.T
    cpu, memory_mib = w * worker_cpu + p * ps_cpu, _memory_mib(space)
    most_cpu, most_mib = limits.quota.cpu, limits.quota.memory_mib
    within = cpu <= min(limits.step * now.plan.total_cpu, inf if most_cpu is None else most_cpu) + 1e-9
    within = within & (memory_mib <= (inf if most_mib is None else most_mib))
    if limits.budget_per_hour is not None and now.cost_per_hour != 0:  # nothing costs anything: all within
        is_priced = now.cost_per_hour is not None  # then `cost` is money for every plan, else for none
        within = within & (analysis.cost <= limits.budget_per_hour) & is_priced
    if limits.within_total and analysis.most_until_end is not None and analysis.in_budget is not None:
        within = within & (analysis.end_cost <= analysis.most_until_end)
    rescues = _rescues(analysis)
    for plan, least in limits.returns.items():
        faster = analysis.predictions.surely_over(now.prediction) >= 1 + least
        cheaper = analysis.cost <= (1 - least) * analysis.now_cost
        within = within & ((axes != np.array(plan)).any(axis=1) | faster | cheaper | rescues)
    return np.asarray(within)


def _memory_mib(space: PlanSpace) -> Array:
    """Return the memory of each whole plan: shape (n_plans,)."""
    worker_mib, ps_mib = space.memory_mib
    return np.asarray(space.axes[:, 0] * worker_mib + space.axes[:, 1] * ps_mib)


def _fastest_measured(analysis: Analysis, allowed: NDArray[np.bool_]) -> float:
    """Return the throughput of the fastest plan that is measured and may be chosen, or of the present one."""
    speed = analysis.predictions.samples_per_s[allowed & analysis.measured]
    return float(max(speed.max(initial=0.0), analysis.current.prediction.samples_per_s))


def _improvement(
    analysis: Analysis, settings: PlannerSettings, free: NDArray[np.bool_], allowed: NDArray[np.bool_]
) -> Candidate | None:
    """Return the best plan that is certainly better; with one measured plan none is.

    With a deadline only the best that meet it count. Dominance is judged among all plans, so that a tighter
    deadline drops plans and prefers none that a wider one left aside.

    Where cost counts, speed is compared with the best that is measured among the `allowed`, and not with the
    present plan alone. A plan as fast as that, but for the 3 % that a saving may cost, is left for a cheaper
    one that is so too, or for one that is faster than any measured one. So by the same measurements speed
    rises until a plan is as fast, and from then on the cost falls. Compared with the present plan, steps of
    -3 % for a saving and +7 % at any price led through the same plans again and again.
    """
    if analysis.model.report_.n_plan < 2:
        return None
    now, p, meets = analysis.current, analysis.predictions, _meets(analysis)
    sure = p.surely_over(now.prediction)
    faster = sure >= 1 + settings.min_gain
    if analysis.situation.spec.objective is Objective.SPEED:
        return _fastest(analysis, free & faster & meets)
    top = _fastest_measured(analysis, allowed)
    if now.prediction.samples_per_s >= AS_FAST * top:
        faster = faster & (p.samples_per_s >= (1 + settings.min_gain) * top)
    as_fast = (p.samples_per_s >= AS_FAST * top) & (sure >= 0.9)
    cheaper = as_fast & (analysis.cost <= (1 - settings.min_saving) * analysis.now_cost)
    for chosen in (faster, cheaper):
        index = np.flatnonzero(chosen & free)
        index = index[non_dominated(analysis.cost[index], p.mean_low[index])]
        index = index[meets[index]]
        if chosen is cheaper and len(index):
            return analysis.candidate(analysis.space.plan(int(index[0])))
        best = most_efficient(analysis.cost[index], analysis.gain_samples_per_s[index], analysis.now_cost)
        if best is not None:
            return analysis.candidate(analysis.space.plan(int(index[best])))
    return None


def _meets(analysis: Analysis) -> NDArray[np.bool_]:
    """Return which plans reach the wanted chance to meet deadline and budget; all without either."""
    chance = analysis.chance
    wanted = analysis.situation.deadline_chance
    return np.ones(len(analysis.space), dtype=bool) if chance is None else np.asarray(chance >= wanted)


def _rescues(analysis: Analysis) -> NDArray[np.bool_]:
    """Return which plans make deadline or budget so much more probable that changing back is right."""
    chance, now = analysis.chance, analysis.current.chance
    if chance is None or now is None:
        return np.zeros(len(analysis.space), dtype=bool)
    return np.asarray(chance >= now + RESCUE)


def _harmless(analysis: Analysis, settings: PlannerSettings) -> NDArray[np.bool_]:
    """Return which plans, tried in vain and left, would cost no deadline or budget that is met now."""
    s, now = analysis.situation, analysis.current
    harmless = np.ones(len(analysis.space), dtype=bool)
    if now.chance is None or now.chance < s.deadline_chance:
        return harmless
    pauses_s, which = np.unique(analysis.transition_s, return_inverse=True)
    for due in (s.due, s.paid_for(now.cost_per_hour)):
        if due is not None:
            chance = [chances(now.prediction, settings.experiment_s + 2 * each, due) for each in pauses_s]
            harmless &= np.array(chance)[which] >= s.deadline_chance
    return harmless


def _rescue(analysis: Analysis, free: NDArray[np.bool_]) -> Advice | None:
    """Return the plan that deadline or budget need where the present one misses them; None where it does not.

    The cheapest of those that meet both, or where none does, the most probable one. It is the fastest where
    speed is the objective, and for a budget alone: each that meets it is paid for, and from a slower one
    advice would climb back step by step, each change for money. Of a budget alone it must be more probable
    than not: a change that only moves the end is the user's choice, which `BudgetOutlook` names.
    """
    s, now, chance = analysis.situation, analysis.current, analysis.chance
    index = np.flatnonzero(free)
    if chance is None or now.chance is None or now.chance >= s.deadline_chance or not len(index):
        return None
    if analysis.in_time is None and not len(index := index[chance[index] >= LEAST_IN_BUDGET]):
        return None
    meeting = index[chance[index] >= s.deadline_chance]
    if len(meeting):
        is_speed = s.spec.objective is Objective.SPEED or analysis.in_time is None
        order = -analysis.predictions.mean_low[meeting] if is_speed else analysis.cost[meeting]
        best = meeting[int(np.lexsort((-chance[meeting], order))[0])]
    else:
        best = index[most_probable(chance[index], analysis.finish_s[index])]
    rescue = analysis.candidate(analysis.space.plan(int(best)))
    is_better = chance[best] >= now.chance + ALIKE or analysis.finish_s[best] < (1 - ALIKE) * (
        now.finish_s or 0
    )
    if not len(meeting) and not is_better:
        return None
    return Advice(ProposalKind.IMPROVE, rescue, _rescue_why(rescue, now, s.deadline_chance, n=len(meeting)))


def _rescue_why(rescue: Candidate, now: Candidate, wanted: float, *, n: int) -> str:
    which = (
        f"It is the best of the {n} plan{'s' * (n != 1)} with at least {chance_words(wanted)}."
        if n
        else f"No plan reaches {chance_words(wanted)}; this one comes closest."
    )
    chance, before = chance_words(rescue.chance or 0.0), chance_words(now.chance or 0.0)
    if now.in_budget is not None and now.in_budget == now.chance:
        ends = f"{rescue.end_cost:,.4g} until the end, {now.end_cost:,.4g} now"
        return (
            f"This plan has a {chance} chance to end within the total budget ({ends}); the present one has "
            f"{before}. {which}"
        )
    margin = margin_words(rescue.margin_s or 0.0)
    meets = f"This plan has a {chance} chance to meet the deadline ({margin})"
    return f"{meets}; the present one has {before}. {which}"


def _in_time_words(candidate: Candidate) -> str:
    deadline = budget = ""
    if candidate.in_time is not None:
        deadline = f" It has a {chance_words(candidate.in_time)} chance to meet the deadline."
    if candidate.in_budget is not None:
        budget = f" It has a {chance_words(candidate.in_budget)} chance to end within the total budget."
    return deadline + budget


def _fastest(analysis: Analysis, sure: NDArray[np.bool_]) -> Candidate | None:
    """Return the fastest plan at the low end of its band, if the change pays for its pause."""
    low = np.where(sure & (analysis.gain_samples_per_s > 0), analysis.predictions.mean_low, 0.0)
    best = int(np.argmax(low)) if len(low) else 0
    return analysis.candidate(analysis.space.plan(best)) if len(low) and low[best] > 0 else None


def _exploration(analysis: Analysis, settings: PlannerSettings, free: NDArray[np.bool_]) -> Advice | None:
    """Return the best experiment, when a plausible gain exists and the plan decides the speed."""
    if is_limited_by_host(analysis):
        return None
    undecided = free & (
        analysis.predictions.possibly_over(analysis.current.prediction) >= 1 + settings.min_gain
    )
    trial = experiment(analysis, free, undecided, settings.experiment_s)
    return None if trial is None else Advice(ProposalKind.EXPLORE, *trial)


def _back_why(candidate: Candidate, now: Candidate) -> str:
    speed, before = now.prediction.samples_per_s, candidate.prediction.samples_per_s
    return (
        f"Back to the best plan measured so far: {before:,.0f} samples/s on average, against {speed:,.0f} "
        "now."
    )


def _improve_why(candidate: Candidate, now: Candidate, cost_unit: str) -> str:
    p, before = candidate.prediction, now.prediction
    added = candidate.cost - now.cost
    return (
        f"{candidate.reason} We expect {p.samples_per_s:,.0f} samples/s, {p.surely_over(before):.2g} to "
        f"{p.possibly_over(before):.2g} times as fast as now ({before.samples_per_s:,.0f}), for "
        f"{abs(added):.4g} {cost_unit} "
        f"{'less' if added < 0 else 'more'}."
    )

"""What would change the advice: the decision, repeated for situations that differ in one number.

The numbers are the uncertain inputs of advice: how fast the proposed plan and the present one are (as
uncertain as their bands), how long the transition takes, what a core costs beside memory, and how much is
left to train (which is known, and shrinks). The decision is the planner's own, passed in with its settings,
so a break-even always refers to the advice that the user sees. The fit is not repeated: a break-even says
what would be advised if a number were different, not which samples would lead to that number.
"""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import TYPE_CHECKING

from dlrover_nb.core import pricing
from dlrover_nb.core.pareto.break_even import Quantity, nearest_break_even
from dlrover_nb.core.planner.predictions.completion import Completion, scaled
from dlrover_nb.core.planner.predictions.transitions import transition_kind
from dlrover_nb.core.structs.decisions.decisions import BreakEven, ProposalKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dlrover_nb.core.planner.advising.advice import Advice
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.planner.predictions.completion import Row
    from dlrover_nb.core.planner.situation import Situation
    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

    Decide = Callable[[Analysis], Advice | None]

BAND_SD = 2 * 1.6448536269514722  # standard deviations in a 90 % band of logarithms
LEAST_SPREAD = 0.01  # of a throughput: no measurement is better known
PAUSE_SPREAD = log(2)  # half as long or twice as long: the spread of transitions of one kind
LEFT_SPREAD = log(2)
PRICE_SPREAD = {True: log(1.5), False: log(1.15)}  # of an assumed price and of one that the user gave


def break_even_of(analysis: Analysis, advice: Advice, decide: Decide) -> BreakEven | None:
    """Return the nearest change of one number at which another plan would be advised, or None.

    Parameters
    ----------
    decide
        Makes the advice, settings bound: ``lambda a: advise(a, settings, barred=barred, may_explore=True)``.

    Returns
    -------
    BreakEven or None
        None where nothing plausible would change the advice, or where it is not of `decide`'s making.
    """
    is_faster = advice.kind is ProposalKind.IMPROVE  # an experiment is chosen for its information
    speeds = {"the proposed plan": advice.candidate, "the present plan": analysis.current}
    return _flip(analysis, advice.candidate, advice.candidate, speeds if is_faster else {}, decide)


def break_even_of_staying(analysis: Analysis, rival: Candidate, decide: Decide) -> BreakEven | None:
    """Return the nearest change of one number at which anything would be advised, where nothing is; or None.

    Parameters
    ----------
    rival
        The best of the other plans: the first to be advised if it is faster than predicted.
    decide
        As of `break_even_of`; for the unchanged analysis it must advise nothing.
    """
    speeds = {rival.plan.short: rival, "the present plan": analysis.current}
    return _flip(analysis, analysis.current, rival, speeds, decide)


def _flip(
    analysis: Analysis,
    recommended: Candidate,
    moved_to: Candidate,
    speeds: Mapping[str, Candidate],
    decide: Decide,
) -> BreakEven | None:
    """Return the nearest break-even among the throughputs of `speeds` and the situation."""
    present = analysis.situation.plan

    def plan_of(supposed: Analysis) -> ResourcePlan:
        advice = decide(supposed)
        return present if advice is None else advice.candidate.plan

    if plan_of(analysis) != recommended.plan:
        return None
    quantities = [_throughput(n, analysis, c, plan_of) for n, c in speeds.items()]
    quantities += _of_situation(analysis, moved_to, plan_of)
    return nearest_break_even(quantities, recommended=recommended.plan, present=present)


def suppose(
    analysis: Analysis, *, situation: Situation | None = None, factors: Mapping[Row, float] | None = None
) -> Analysis:
    """Return the analysis under another situation or other throughputs, not fitted again.

    Parameters
    ----------
    factors
        Throughput of plans, given as (w, p, lambda_w, lambda_p), as a multiple of the prediction.
    """
    s, space = situation or analysis.situation, analysis.space
    completion = Completion(s, analysis.model, factors or {})
    return replace(
        analysis,
        situation=s,
        completion=completion,
        predictions=scaled(analysis.predictions, space.axes, factors or {}),
        cost=pricing.costs(space.axes, *space.memory_mib, s.spec.prices, space.gpus),
    )


def _throughput(
    whose: str, analysis: Analysis, candidate: Candidate, plan_of: Callable[[Analysis], ResourcePlan]
) -> Quantity:
    p, plan = candidate.prediction, candidate.plan
    row = (float(plan.worker.count), float(plan.ps.count), plan.worker.cpu, plan.ps.cpu)
    return Quantity(
        f"throughput of {whose}",
        p.samples_per_s,
        "samples/s",
        max(log(p.high / p.low) / BAND_SD, LEAST_SPREAD),
        lambda value: plan_of(suppose(analysis, factors={row: value / p.samples_per_s})),
        clauses=(f"{whose} reached less than", f"{whose} reached more than"),
    )


def _of_situation(
    analysis: Analysis, moved_to: Candidate, plan_of: Callable[[Analysis], ResourcePlan]
) -> list[Quantity]:
    """Return the other inputs of advice: samples left, the pause, and the price of a core."""
    s, quantities = analysis.situation, []

    def asked(change: Callable[[float], Situation]) -> Callable[[float], ResourcePlan]:
        return lambda value: plan_of(suppose(analysis, situation=change(value)))

    if s.n_sample_left > 0:
        left = asked(lambda value: replace(s, n_sample_left=round(value)))
        name = "number of samples left to train"
        clauses = ("the samples left to train were fewer than", "")
        quantities.append(
            Quantity(name, float(s.n_sample_left), "", LEFT_SPREAD, left, up=False, clauses=clauses)
        )
    pause_s = moved_to.transition_s
    if pause_s > 0:
        kind = transition_kind(s.plan, moved_to.plan, s.spec.migration, s.capacity)
        others = tuple(p for p in s.pauses if p[0] != kind)
        pause = asked(lambda value: replace(s, pauses=(*others, (kind, value))))
        clauses = ("switching took less than", "switching took longer than")
        quantities.append(
            Quantity("pause of the transition", pause_s, "s", PAUSE_SPREAD, pause, clauses=clauses)
        )
    prices = s.spec.prices
    if prices.cpu_hour and prices.gib_hour is not None:
        price = asked(lambda value: replace(s, spec=replace(s.spec, prices=replace(prices, cpu_hour=value))))
        unit, spread = f"{prices.currency} per hour", PRICE_SPREAD[prices.assumed]
        clauses = ("a core cost less than", "a core cost more than")
        quantities.append(Quantity("price of a core", prices.cpu_hour, unit, spread, price, clauses=clauses))
    return quantities

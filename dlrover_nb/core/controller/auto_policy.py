"""Whether auto mode may apply the open proposal now, or must leave it to the user.

Auto mode acts without supervision, so its conditions are stricter than a user's. It must not:

- break a pin, or spend more per hour than the budget; with a budget, a plan of unknown price is too dear;
- apply a plan that costs more until the end of the job than is left of its total budget;
- apply a plan that may cost more of the held-out AUC than the job's bound; with a bound, more workers of
  which that is unknown may cost too much (`planner.predictions.quality`);
- exceed its quota, where a cluster sets one: other jobs on the same machines use the rest better;
- change again before the last change has been measured (cool-down), or too often in an hour;
- oscillate: a plan that a user replaced is returned to only for a gain that grows with each replacement, or
  for the deadline. One that a proposal replaced needs some gain of the measured means, as it was left for a
  prediction that may have been wrong. Returning from a bad experiment is not oscillation: it needs no extra
  gain, and an experiment is never repeated;
- use a model whose recent predictions were wrong. Where `track_missed` or more of the last `track_last`
  predictions missed, the gate is closed, and the proposal stays open for the user. A prediction missed when
  the measured speed was outside its band and off by more than `small_error`, or far off although the plan was
  within the tried range. The gate opens again after correct outcomes (of the user's own decisions), or once
  the misses are older than `track_s`: by then the model has been fitted to them. Experiments are not counted,
  as they are made because the model is not sure. A plan that ran before is known by its windows: to refuse
  it would leave the job on the plan that missed.

With fewer than `track_first` scored predictions one step reaches at most `first_step` times the cores of now:
the model then rests on one plan. Rejected: no step at all (without a user there would never be a record) and
only plans within the measured range (with one measured plan there are none).

A plan that protects a node's memory is checked against budget and pins alone. It may exceed the quota,
because a killed node costs more. It is no prediction of throughput, so neither the gate nor hysteresis
applies to it, and waiting for a cool-down costs the node. The same holds for a plan that applies the user's
pins: it executes the user's decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.planner.advising.advice import Limits, axes_key
from dlrover_nb.core.planner.finish_chance import rescues_deadline
from dlrover_nb.core.planner.predictions.budget_forecast import most_until_end
from dlrover_nb.core.planner.predictions.quality import over_bound
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.plan.bounds import Quota

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.decisions.decisions import Outcome, Proposal
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.bounds import Pins
    from dlrover_nb.core.structs.plan.resources import Axes, ResourcePlan

HOUR_S = 3600.0
COOL_DOWN = "cool-down"
REPLACEABLE = frozenset(
    {"budget", "quality", "quota", "hysteresis", "first steps"}
)  # rules that time alone does not satisfy


@dataclass(frozen=True, slots=True)
class AutoSettings:
    """Thresholds of auto mode.

    Parameters
    ----------
    min_gain
        Gain at the low end of the band that is worth a change; less than in suggest mode, because a change
        takes none of a user's time, and the gain already accounts for its pause (Eq. 8).
    max_changes_per_hour
        Changes of its own within any hour.
    return_gain
        Sure gain required to return to a plan, per time that a user replaced it.
    replaced_gain
        Gain of the means required to return to a plan, per time that a proposed one replaced it.
    track_last, track_missed
        The gate is closed when `track_missed` of the last `track_last` predictions missed.
    track_s
        Age at which an outcome no longer counts.
    track_first, first_step
        With fewer than `track_first` scored predictions, no step beyond `first_step` times the present cores.
    small_error
        A measurement this near to the prediction is a hit, however narrow the band was.
    large_error
        Within the tried range, one farther off than this is a miss, however wide the band was.
    """

    min_gain: float = 0.03
    max_changes_per_hour: int = 20
    return_gain: float = 0.25
    replaced_gain: float = 0.01
    track_last: int = 3
    track_missed: int = 2
    track_s: float = HOUR_S
    track_first: int = 2
    first_step: float = 4.0
    small_error: float = 0.05
    large_error: float = 0.3

    def __post_init__(self) -> None:
        for name in ("min_gain", "return_gain", "replaced_gain", "small_error"):
            _check.at_least(name, getattr(self, name), 0)
        for name in ("max_changes_per_hour", "track_missed", "first_step"):
            _check.at_least(name, getattr(self, name), 1)
        _check.at_least("track_last", self.track_last, self.track_missed)
        _check.above_zero("track_s", self.track_s)
        _check.at_least("track_first", self.track_first, 0)
        _check.at_least("large_error", self.large_error, self.small_error)


@dataclass(frozen=True, slots=True)
class AutoContext:
    """The input of auto mode's decision.

    Parameters
    ----------
    plan
        What runs.
    calm_at_s
        When the cool-down after the last change is over.
    changes
        When auto mode itself decided, oldest first, the last `max_changes_per_hour` of them.
    left
        How often users replaced each plan by one of their own.
    replaced
        How often each plan was replaced by a proposed one.
    ran
        Plans that ran before.
    experiments
        Decisions that began an experiment.
    outcomes
        Of all applied plans, oldest first.
    quota
        What other jobs on the same machines leave to this one.
    money_left
        Of the total budget, within which a plan must end the job; None: no limit, or no known end.
    """

    at_s: float
    spec: JobSpec
    pins: Pins
    plan: ResourcePlan
    calm_at_s: float
    changes: Sequence[float]
    left: Mapping[Axes, int]
    outcomes: Sequence[Outcome]
    quota: Quota = field(default_factory=Quota)
    replaced: Mapping[Axes, int] = field(default_factory=dict)
    ran: Collection[Axes] = frozenset()
    experiments: Collection[str] = frozenset()
    money_left: float | None = None

    def return_gain(self, plan: Axes, settings: AutoSettings) -> float:
        """Return the gain that the return to a plan requires."""
        own = settings.replaced_gain * self.replaced.get(plan, 0)
        return settings.return_gain * self.left.get(plan, 0) + own


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why auto mode waits: the rule's name, and a message that does not change while it holds."""

    rule: str
    words: str


@dataclass(frozen=True, slots=True)
class Track:
    """Results of the last predictions."""

    n: int
    missed: int


def may_apply(proposal: Proposal, now: AutoContext, settings: AutoSettings) -> Refusal | None:
    """Return why auto mode must not apply a proposal at this moment; None when it may."""
    plan = proposal.candidate.plan
    if not now.pins.allows(plan):
        return Refusal("pins", f"the plan conflicts with the pins ({now.pins})")
    over = over_budget(proposal.candidate.cost_per_hour, now.spec)
    protects = proposal.kind is ProposalKind.PROTECT
    if not over and not protects:  # a job that loses nodes gets less for the rest
        currency = now.spec.prices.currency
        over = over_rest(proposal.candidate, proposal.baseline, now.money_left, currency)
    if over:
        return Refusal("budget", over)
    if protects or not now.pins.allows(now.plan):
        return None
    if not now.quota.allows(plan):
        return Refusal("quota", f"other jobs leave {now.quota}; the plan needs {plan.total_cpu:g} cores")
    if now.quota.ends(now.plan):
        return None
    return (
        _quality(proposal, now)
        or _pace(now, settings)
        or _hysteresis(proposal, now, settings)
        or _gate(proposal, now, settings)
    )


def over_budget(cost_per_hour: float | None, spec: JobSpec) -> str:
    """Say that a price is above the job's budget, or unknown where there is one; empty if it is within."""
    budget, currency = spec.budget_per_hour, spec.prices.currency
    if budget is None:
        return ""
    if cost_per_hour is None:
        return f"the plan's price is unknown, and the budget is {budget:g} {currency} per hour"
    if cost_per_hour > budget:
        return f"it costs {cost_per_hour:.4g} {currency} per hour, the budget is {budget:g}"
    return ""


def over_rest(candidate: Candidate, before: Candidate, money_left: float | None, currency: str) -> str:
    """Say that a plan costs more until the end than the total budget lets it; empty if it does not."""
    until_end, most = candidate.end_cost, most_until_end(money_left, before.end_cost)
    if until_end is None or most is None or until_end <= most:
        return ""
    return f"it costs {until_end:.4g} {currency} until the end; less than that is left of the total budget"


def limits(now: AutoContext, settings: AutoSettings) -> Limits:
    """Return auto mode's limits on advice, so that the search ends at plans that it may apply."""
    few = track(now.outcomes, now.at_s, settings).n < settings.track_first
    return Limits(
        budget_per_hour=now.spec.budget_per_hour,
        returns={plan: now.return_gain(plan, settings) for plan in {**now.left, **now.replaced}},
        step=settings.first_step if few else inf,
        quota=now.quota,
        min_gain=settings.min_gain,
        within_total=True,
    )


def track(outcomes: Sequence[Outcome], at_s: float, settings: AutoSettings) -> Track:
    """Count the recent predictions, and the misses among them."""
    recent = (
        o for o in reversed(outcomes) if o.predicted is not None and o.applied_at_s > at_s - settings.track_s
    )
    last = list(islice(recent, settings.track_last))
    return Track(len(last), sum(has_missed(o, settings) for o in last))


def has_missed(outcome: Outcome, settings: AutoSettings) -> bool:
    """Whether the prediction of a plan missed; False without a prediction."""
    if outcome.predicted is None or outcome.error is None:
        return False
    off = abs(outcome.error)
    is_surprise = not outcome.inside_band and off > settings.small_error
    return is_surprise or (off > settings.large_error and not outcome.predicted.extrapolates)


def gain(candidate: Candidate, now: Candidate) -> float:
    """Return the nearly certain gain: in throughput at the low end of the band, or in cost."""
    faster = candidate.prediction.surely_over(now.prediction) - 1
    return max(faster, 1 - candidate.cost / now.cost)


def _quality(proposal: Proposal, now: AutoContext) -> Refusal | None:
    worse = over_bound(proposal.candidate, proposal.baseline, now.spec)
    return Refusal("quality", worse) if worse else None


def _pace(now: AutoContext, settings: AutoSettings) -> Refusal | None:
    if now.at_s < now.calm_at_s:
        return Refusal(COOL_DOWN, "the last change is too recent to judge")
    most = settings.max_changes_per_hour
    if len(now.changes) >= most and now.at_s < now.changes[-most] + HOUR_S:
        return Refusal("pace", f"it made {most} changes in the last hour")
    return None


def _hysteresis(proposal: Proposal, now: AutoContext, settings: AutoSettings) -> Refusal | None:
    plan, to, baseline = axes_key(proposal.candidate.plan), proposal.candidate, proposal.baseline
    n_left, least = now.left.get(plan, 0), now.return_gain(plan, settings)
    if not least or rescues_deadline(to, baseline) or gain(to, baseline) >= least:
        return None
    faster = to.prediction.samples_per_s / baseline.prediction.samples_per_s - 1
    if not n_left and faster >= least:
        return None
    n_times = n_left + now.replaced.get(plan, 0)
    times = "before" if n_times == 1 else f"{n_times} times"
    return Refusal(
        "hysteresis",
        f"the job left this plan for a better one {times}; going back needs a gain of {percent(least)}",
    )


def _gate(proposal: Proposal, now: AutoContext, settings: AutoSettings) -> Refusal | None:
    record = track(now.outcomes, now.at_s, settings)
    judged = track([o for o in now.outcomes if o.decision not in now.experiments], now.at_s, settings)
    if judged.missed >= settings.track_missed and axes_key(proposal.candidate.plan) not in now.ran:
        return Refusal(
            "calibration", f"{judged.missed} of the last {judged.n} predictions were outside their band"
        )
    cpu, most = proposal.candidate.plan.total_cpu, settings.first_step * now.plan.total_cpu
    if record.n < settings.track_first and cpu > most + 1e-9:
        return Refusal(
            "first steps",
            f"until {settings.track_first} predictions are scored, a change may use at most {most:g} cores",
        )
    return None

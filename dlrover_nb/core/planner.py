"""From what was measured to what should run: pure composition of model, space, prices and memory.

`analyse` fits the model and lays out curves and the front. `advise` says what to propose:

- IMPROVE, when some plan is better than the present one even at the low end of its 90 % band (or
  much cheaper at the same speed): the one with the best resource efficiency (Eq. 11 of DLRover-RM);
- EXPLORE, when a plan may be better but the fit cannot tell: the experiment of `perf.explore`;
- nothing, when neither: advice that is not worth a click costs trust.

The low end counts because a change has a price that is certain and a gain that is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core import pricing
from dlrover_nb.core.pareto.exact import Evaluate, exact_front, non_dominated
from dlrover_nb.core.pareto.picks import best_value
from dlrover_nb.core.pareto.reasons import change_words, reason
from dlrover_nb.core.pareto.space import PlanSpace, enumerate_plans, fits, ladders, neighbours, plan_of
from dlrover_nb.core.perf.explore import Options, next_experiment
from dlrover_nb.core.perf.model import Predictions, ThroughputModel
from dlrover_nb.core.perf.terms import AXES, axes_of
from dlrover_nb.core.structs.decisions import Candidate, ParetoFront, Prediction, ProposalKind
from dlrover_nb.core.structs.resources import ResourcePlan, Role, ScalePlan, diff
from dlrover_nb.core.structs.snapshot import Curve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.resources import Capacity
    from dlrover_nb.core.structs.samples import ProfileSample

HORIZON_S = 3600.0  # over which a transition is paid off at the most (Eq. 8)
EXPERIMENT_S = 15.0  # that measuring a plan takes: settling and five windows
DEFAULT_PAUSE_S = {"workers": 0.5, "restart": 6.0}  # until transitions of this job have been seen


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
        Seconds that the job must have left for a change to make sense.
    material_change
        Relative change of a prediction that makes a rejected plan worth another look.
    """

    min_gain: float = 0.10
    min_saving: float = 0.15
    min_left_s: float = 20.0
    material_change: float = 0.2


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that planning looks at."""

    spec: JobSpec
    capacity: Capacity
    dense_bytes: int
    embedding_dim: int
    plan: ResourcePlan  # what runs
    samples: tuple[ProfileSample, ...]
    n_sample_left: int
    pauses: tuple[tuple[str, float], ...] = ()  # (kind, seconds) of this job's transitions
    memory_mib: tuple[tuple[Role, int], ...] = ()  # to give each node, where not as now


@dataclass(frozen=True, slots=True)
class Analysis:
    """What the samples say."""

    situation: Situation
    model: ThroughputModel
    space: PlanSpace
    predictions: Predictions
    cost: NDArray[np.float64]
    front: ParetoFront
    curves: tuple[Curve, ...]

    @property
    def current(self) -> Candidate:
        """The plan that runs."""
        return self.front.current

    def candidate(self, plan: ResourcePlan) -> Candidate:
        """Return everything about one plan."""
        return _Completion(self.situation, self.model).candidate(plan)

    def predict(self, plan: ResourcePlan) -> Prediction:
        """Return the prediction of one plan."""
        return self.model.predict_plan(plan, self.situation.spec.batch_size)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to put before the user."""

    kind: ProposalKind
    candidate: Candidate
    why: str


@dataclass(frozen=True, slots=True)
class _Completion:
    """Completes plans to candidates; the present plan's numbers are computed once."""

    situation: Situation
    model: ThroughputModel
    now: Prediction = field(init=False)

    def __post_init__(self) -> None:
        plan, batch = self.situation.plan, self.situation.spec.batch_size
        object.__setattr__(self, "now", self.model.predict_plan(plan, batch))

    def candidate(self, plan: ResourcePlan) -> Candidate:
        s, batch = self.situation, self.situation.spec.batch_size
        prediction = self.model.predict_plan(plan, batch)
        speed = prediction.samples_per_s
        scale = diff(s.plan, plan)
        pause_s = transition_s(scale, s.pauses)
        left_s = s.n_sample_left / speed
        cost = pricing.cost_per_hour(plan, s.spec.prices)
        breakdown = self.model.breakdown(plan, batch)
        return Candidate(
            plan=plan,
            prediction=prediction,
            cost_per_hour=cost,
            cost_per_million=pricing.cost_per_million(cost, speed),
            finish_s=left_s + pause_s,
            scale=scale,
            transition_s=pause_s,
            gain_samples_per_s=_gain(speed, self.now.samples_per_s, pause_s, left_s),
            breakdown=breakdown,
            reason=reason(
                (s.plan, self.model.breakdown(s.plan, batch)),
                (plan, breakdown),
                identified=self.identified,
            ),
        )

    @property
    def identified(self) -> frozenset[str]:
        return frozenset(c.term for c in self.model.report_.coefficients if c.identified)


def transition_kind(scale: ScalePlan) -> str:
    """Return ``workers`` where workers come or go while others train, ``restart`` where all pause."""
    joins = all(c.role is Role.WORKER and not c.replaces_nodes for c in scale.changes)
    return "workers" if joins else "restart"


def transition_s(scale: ScalePlan, pauses: tuple[tuple[str, float], ...]) -> float:
    """Return the seconds without training to expect: the median of this kind so far, or a default."""
    if not scale:
        return 0.0
    kind = transition_kind(scale)
    seen = [pause_s for seen_kind, pause_s in pauses if seen_kind == kind]
    return median(seen) if seen else DEFAULT_PAUSE_S[kind]


def _gain(speed: float, now: float, pause_s: float, left_s: float) -> float:
    """Return TG(A): throughput gained less the transition's loss, spread over the rest of the run (Eq. 8)."""
    horizon_s = max(min(left_s, HORIZON_S), 1.0)
    return speed - now - pause_s * now / horizon_s  # (eq. 8)


def analyse(situation: Situation) -> Analysis:
    """Fit the model to the situation's samples and lay out the front and the curves.

    Raises
    ------
    InvalidValueError
        When there is no sample.
    """
    spec = situation.spec
    model = ThroughputModel(
        dense_bytes=max(situation.dense_bytes, 1), embedding_dim=max(situation.embedding_dim, 1)
    ).fit(situation.samples)
    memory = dict(situation.memory_mib)
    space = enumerate_plans(
        spec.bounds,
        situation.capacity,
        worker_memory_mib=memory.get(Role.WORKER, situation.plan.worker.memory_mib),
        ps_memory_mib=memory.get(Role.PS, situation.plan.ps.memory_mib),
    )
    predictions = model.predict(space.axes, spec.batch_size)
    cost = pricing.costs_per_hour(space.axes, space.worker_memory_mib, space.ps_memory_mib, spec.prices)
    complete = _Completion(situation, model).candidate
    evaluate = Evaluate(
        objectives=lambda _: (cost, predictions.samples_per_s),
        candidate=complete,
        current=complete(situation.plan),
        currency=spec.prices.currency,
    )
    return Analysis(
        situation=situation,
        model=model,
        space=space,
        predictions=predictions,
        cost=cost,
        front=exact_front(space, evaluate),
        curves=tuple(_curve(situation, model, axis) for axis in range(len(AXES))),
    )


def _curve(situation: Situation, model: ThroughputModel, axis: int) -> Curve:
    """Lay a line through the plan space: one axis varies, all else as now."""
    spec = situation.spec
    here = axes_of([situation.plan])[0]
    values = np.unique(np.array([*ladders(spec.bounds)[axis], here[axis]]))
    rows = np.repeat(here[None, :], len(values), axis=0)
    rows[:, axis] = values
    held = fits(
        rows,
        situation.capacity,
        worker_memory_mib=situation.plan.worker.memory_mib,
        ps_memory_mib=situation.plan.ps.memory_mib,
    ) | (values == here[axis])
    predictions = model.predict(rows[held], spec.batch_size)
    seen = axes_of([s.plan for s in situation.samples])
    others = np.delete(seen == here, axis, axis=1).all(axis=1)
    return Curve(
        axis=AXES[axis],
        at=float(here[axis]),
        x=tuple(float(v) for v in values[held]),
        predictions=tuple(predictions[i] for i in range(int(held.sum()))),
        measured_x=tuple(float(v) for v in seen[others, axis]),
        measured_samples_per_s=tuple(
            s.samples_per_s for s, near in zip(situation.samples, others, strict=True) if near
        ),
    )


def advise(
    analysis: Analysis,
    settings: PlannerSettings,
    *,
    barred: Mapping[ResourcePlan, float],
    may_explore: bool,
) -> Advice | None:
    """Say what to propose now, or None.

    Parameters
    ----------
    barred
        Plans that were rejected or failed, with the throughput predicted then: they are not proposed
        again unless the prediction has changed materially.
    may_explore
        False once enough experiments have been proposed in a row.
    """
    now = analysis.current
    if now.finish_s is not None and now.finish_s < settings.min_left_s:
        return None
    free = _free(analysis, settings, barred)
    best = _improvement(analysis, settings, free)
    if best is not None:
        return Advice(ProposalKind.IMPROVE, best, _improve_why(best, now, analysis.front.currency))
    return _exploration(analysis, settings, free) if may_explore else None


def _free(
    analysis: Analysis, settings: PlannerSettings, barred: Mapping[ResourcePlan, float]
) -> NDArray[np.bool_]:
    """Return which plans of the space may be proposed: not the present one, not a barred one."""
    axes, speed = analysis.space.axes, analysis.predictions.samples_per_s
    free = (axes != axes_of([analysis.situation.plan])).any(axis=1)
    for plan, then in barred.items():
        changed = np.abs(speed / then - 1) > settings.material_change
        free = free & ((axes != axes_of([plan])).any(axis=1) | changed)
    return np.asarray(free)


def _improvement(analysis: Analysis, settings: PlannerSettings, free: NDArray[np.bool_]) -> Candidate | None:
    """Return the most efficient plan that is better for sure; with one plan measured nothing is."""
    if analysis.model.report_.n_plan < 2:
        return None
    now, p = analysis.current, analysis.predictions
    speed = now.prediction.samples_per_s
    faster = p.low >= (1 + settings.min_gain) * speed
    as_fast = (p.samples_per_s >= 0.97 * speed) & (p.low >= 0.9 * speed)
    cheaper = as_fast & (analysis.cost <= (1 - settings.min_saving) * now.cost_per_hour)
    for sure, value in ((faster, p.low), (cheaper, p.low)):
        index = np.flatnonzero(sure & free)
        index = index[non_dominated(analysis.cost[index], value[index])]
        candidates = [analysis.candidate(analysis.space.plan(int(i))) for i in index]
        if sure is cheaper and candidates:
            return candidates[0]
        best = best_value(candidates, now)
        if best is not None:
            return candidates[best]
    return None


def _exploration(analysis: Analysis, settings: PlannerSettings, free: NDArray[np.bool_]) -> Advice | None:
    """Return the best experiment one step away, when something plausible is at stake."""
    s, now, batch = analysis.situation, analysis.current, analysis.situation.spec.batch_size
    speed = now.prediction.samples_per_s
    undecided = free & (analysis.predictions.high >= (1 + settings.min_gain) * speed)
    trials = _open_trials(analysis, free)
    if not undecided.any() or not len(trials.axes):
        return None
    targets = Options(analysis.space.axes[undecided], analysis.cost[undecided])
    memory = analysis.space.worker_memory_mib, analysis.space.ps_memory_mib
    plans = [plan_of(row, *memory) for row in trials.axes]
    pauses = np.array([transition_s(diff(s.plan, plan), s.pauses) for plan in plans])
    found = next_experiment(
        analysis.model,
        batch,
        trials,
        targets=targets,
        now=(speed, now.cost_per_hour),
        effort=1 + pauses / EXPERIMENT_S,
    )
    if found is None:
        return None
    candidate = analysis.candidate(plans[found.index])
    return Advice(ProposalKind.EXPLORE, candidate, _explore_why(analysis, candidate, found.removes, s.plan))


def _open_trials(analysis: Analysis, free: NDArray[np.bool_]) -> Options:
    """Return the free plans of the space that are one step away and not measured yet."""
    near = neighbours(axes_of([analysis.situation.plan])[0], analysis.situation.spec.bounds)
    rows = {tuple(row) for row in near} - {tuple(row) for row in analysis.model.evidence_.axes}
    index = [i for i, row in enumerate(analysis.space.axes) if free[i] and tuple(row) in rows]
    return Options(analysis.space.axes[index], analysis.cost[index])


def _explore_why(analysis: Analysis, candidate: Candidate, removes: float, plan: ResourcePlan) -> str:
    change = change_words(plan, candidate.plan)
    p = candidate.prediction
    if analysis.model.report_.n_plan == 1:
        known = "only this plan's own iteration time is known"
    else:
        known = f"{analysis.model.report_.n_plan} plans are measured and do not settle which is better"
    return (
        f"To learn: {known}. With {change} the job would do between {p.low:,.0f} and {p.high:,.0f} "
        f"samples/s (now {analysis.current.prediction.samples_per_s:,.0f}); trying it removes about "
        f"{removes:.0%} of the uncertainty about better plans."
    )


def _improve_why(candidate: Candidate, now: Candidate, currency: str) -> str:
    p, speed = candidate.prediction, now.prediction.samples_per_s
    added = candidate.cost_per_hour - now.cost_per_hour
    return (
        f"{candidate.reason} {p.samples_per_s:,.0f} samples/s expected "
        f"(90 % band {p.low:,.0f} to {p.high:,.0f}), now {speed:,.0f}: "
        f"{p.samples_per_s / speed - 1:+.0%} for {added:+.4f} {currency} per hour."
    )

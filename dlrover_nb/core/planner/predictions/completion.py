"""From a plan to a candidate: everything that is shown about it, for many plans at once.

Predictions come in one call for all plans, because a front has hundreds and views wait for it. The values of
the present plan are computed once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dlrover_nb.core import pricing
from dlrover_nb.core.pareto.reasons import reason
from dlrover_nb.core.perf.terms import axes_of
from dlrover_nb.core.planner.finish_chance import chances
from dlrover_nb.core.planner.predictions.batch import batch_sizes
from dlrover_nb.core.planner.predictions.iteration_parts import parts, with_host
from dlrover_nb.core.planner.predictions.predict import predict_here
from dlrover_nb.core.planner.predictions.transitions import gains, transitions_s
from dlrover_nb.core.planner.situation import HOUR_S, Situation
from dlrover_nb.core.structs.decisions.candidates import Candidate, Prediction, TermShare
from dlrover_nb.core.structs.job.fixed_roles import fixed_per_hour
from dlrover_nb.core.structs.plan.resources import ResourcePlan, diff

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.perf.model import ThroughputModel
    from dlrover_nb.core.perf.predictions import Predictions

    Array = NDArray[np.float64]

Row = tuple[float, ...]  # w, p, lambda_w, lambda_p
CostT = TypeVar("CostT", float, "Array")


@dataclass(frozen=True, slots=True)
class Completion:
    """Completes plans to candidates.

    Parameters
    ----------
    factors
        Assumptions: throughput of some plans as a multiple of the prediction. Empty for none.
    """

    situation: Situation
    model: ThroughputModel
    factors: Mapping[Row, float] = field(default_factory=dict)
    now: Prediction = field(init=False)
    now_breakdown: tuple[TermShare, ...] = field(init=False)
    identified: frozenset[str] = field(init=False)
    _present: tuple[Array, float] = field(init=False)  # terms and T_iter of the present plan

    def __post_init__(self) -> None:
        now = axes_of([self.situation.plan])
        object.__setattr__(self, "now", self.predict(now)[0])
        seconds = self.model.term_seconds(now, batch_sizes(self.situation.spec, now))[0]
        object.__setattr__(self, "_present", (seconds, float(self._iter_s(now, [self.now])[0])))
        object.__setattr__(self, "now_breakdown", self._breakdowns(now, [self.now])[0])
        identified = frozenset(c.term for c in self.model.report_.coefficients if c.identified)
        object.__setattr__(self, "identified", identified)

    def predict(self, axes: Array) -> Predictions:
        """Predict plans given as rows."""
        return scaled(predict_here(self.model, self.situation, axes), axes, self.factors)

    def candidates(self, plans: Sequence[ResourcePlan]) -> tuple[Candidate, ...]:
        """Return everything about each plan."""
        return self.reasoned(self.bare(plans, self.predict(axes_of(plans)))) if plans else ()

    def bare(self, plans: Sequence[ResourcePlan], predictions: Predictions) -> tuple[Candidate, ...]:
        """Return plans whose throughput is predicted already, without breakdowns and reasons."""
        s, speed = self.situation, predictions.samples_per_s
        memory_mib = np.array([(plan.worker.memory_mib, plan.ps.memory_mib) for plan in plans]).reshape(-1, 2)
        pause_s = transitions_s(axes_of(plans), (memory_mib[:, 0], memory_mib[:, 1]), s)
        gain = gains(speed, self.now.samples_per_s, pause_s, s.n_sample_left / speed)
        rows = zip(plans, pause_s.tolist(), gain.tolist(), strict=True)
        return tuple(
            bare_candidate(s, plan, predictions[i], pause, gained)
            for i, (plan, pause, gained) in enumerate(rows)
        )

    def reasoned(self, bare: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Return candidates with their breakdowns and reasons."""
        if not bare:
            return ()
        axes = axes_of([candidate.plan for candidate in bare])
        breakdowns = self._breakdowns(axes, [candidate.prediction for candidate in bare])
        return tuple(self._reasoned(*row) for row in zip(bare, breakdowns, strict=True))

    def _breakdowns(
        self, axes: Array, predictions: Sequence[Prediction]
    ) -> tuple[tuple[TermShare, ...], ...]:
        """Return the parts of an iteration of each plan; what other work on the host takes comes last."""
        seconds = self.model.term_seconds(axes, batch_sizes(self.situation.spec, axes))
        own = parts(self.model.terms_, seconds, self._iter_s(axes, predictions), self._present)
        load = self.situation.host
        if load is None or not load.is_felt:
            return own
        return tuple(with_host(terms, p.host) for terms, p in zip(own, predictions, strict=True))

    def _iter_s(self, axes: Array, predictions: Sequence[Prediction]) -> Array:
        """Return T_iter of plans on a host without other load: shape (n_plans,)."""
        speed = np.array([p.samples_per_s / p.host for p in predictions])
        return np.asarray(axes[:, 0] * batch_sizes(self.situation.spec, axes) / speed)  # (eq. 1)

    def _reasoned(self, bare: Candidate, breakdown: tuple[TermShare, ...]) -> Candidate:
        plan, s = bare.plan, self.situation
        why = reason((s.plan, self.now_breakdown), (plan, breakdown), identified=self.identified)
        return replace(bare, breakdown=breakdown, reason=why)


def bare_candidate(
    situation: Situation, plan: ResourcePlan, prediction: Prediction, pause_s: float, gain: float
) -> Candidate:
    """Return a plan as a candidate without what is slow to compute: its breakdown and its reason."""
    cost = pricing.cost_per_hour(plan, situation.spec.prices)
    finish_s, due = situation.n_sample_left / prediction.samples_per_s + pause_s, situation.due
    paid = situation.paid_for(cost)
    return Candidate(
        plan=plan,
        prediction=prediction,
        cost_per_hour=cost,
        cost_per_million=pricing.cost_per_million(cost, prediction.samples_per_s),
        finish_s=finish_s,
        scale=diff(situation.plan, plan),
        transition_s=pause_s,
        gain_samples_per_s=gain,
        breakdown=(),
        reason="",
        in_time=None if due is None else float(chances(prediction, pause_s, due)),
        margin_s=None if situation.deadline_left_s is None else situation.deadline_left_s - finish_s,
        in_budget=None if paid is None else float(chances(prediction, pause_s, paid)),
        end_cost=None if paid is None or cost is None else end_cost(situation, cost, finish_s),
    )


def end_cost(situation: Situation, cost_per_hour: CostT, finish_s: CostT) -> CostT:
    """Return the money until the end of the job, its fixed nodes included."""
    return (cost_per_hour + fixed_per_hour(situation.spec)) * finish_s / HOUR_S


def scaled(predictions: Predictions, axes: Array, factors: Mapping[Row, float]) -> Predictions:
    """Return predictions with the throughput of some rows multiplied, bands included."""
    if not factors:
        return predictions
    factor = np.ones(len(axes))
    for row, times in factors.items():
        factor[(axes == np.array(row)).all(axis=1)] = times
    return predictions.times(factor)

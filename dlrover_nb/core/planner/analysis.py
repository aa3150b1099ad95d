"""Fit the model to the measurements, and compute the front and the curves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.pareto.bin_packing import fits
from dlrover_nb.core.pareto.dominance import non_dominated, non_dominated_of_three
from dlrover_nb.core.pareto.picks import Wishes, named_picks, thinned
from dlrover_nb.core.pareto.space import PlanGrid, PlanSpace, ladders, nothing_left
from dlrover_nb.core.perf.model import ThroughputModel
from dlrover_nb.core.perf.terms import AXES, axes_of
from dlrover_nb.core.planner.availability.feasibility import reachable
from dlrover_nb.core.planner.finish_chance import RESCUE, chances, most_probable
from dlrover_nb.core.planner.plan_memory import sizes
from dlrover_nb.core.planner.predictions.batch import batch_sizes, exchange, mini_batch
from dlrover_nb.core.planner.predictions.budget_forecast import (
    BudgetForecast,
    budget_forecast,
    most_until_end,
)
from dlrover_nb.core.planner.predictions.completion import Completion, end_cost
from dlrover_nb.core.planner.predictions.quality import quality_changes
from dlrover_nb.core.planner.predictions.transitions import gains, transitions_s
from dlrover_nb.core.planner.shortlist import Rough, grid_of, plans_to_weigh
from dlrover_nb.core.structs.decisions.candidates import ParetoFront, cost_unit, is_worth_telling
from dlrover_nb.core.structs.plan.deadline import DeadlineOutlook
from dlrover_nb.core.structs.views.fit import Curve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.perf.predictions import Predictions
    from dlrover_nb.core.planner.situation import Situation
    from dlrover_nb.core.structs.decisions.candidates import Candidate, Prediction
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

    Array = NDArray[np.float64]


_UNREACHABLE = (
    "new parameter servers must fit beside the current ones, because this job keeps nothing outside its "
    "pods; "
    "set checkpoint_url, or allow smaller ones"
)


MOST_WITH_AUC = 40  # plans of the front with AUC as a third axis, which has many more


@dataclass(frozen=True)  # no slots: what is computed on demand is kept in the instance
class Analysis:
    """Results of a fit to the samples; the front and the curves are computed when they are first read.

    Parameters
    ----------
    grid
        All plans that the job may be given.
    space, predictions, cost
        The plans that advice compares (all of a small grid, the best of a large one: `planner.shortlist`)
        with their bands and `Candidate.cost`: rows and columns of equal length.
    n_plan
        How many plans were evaluated for the front.
    completion
        Makes plans candidates.
    """

    situation: Situation
    model: ThroughputModel
    grid: PlanGrid
    space: PlanSpace
    predictions: Predictions
    cost: Array
    n_plan: int
    completion: Completion

    @cached_property
    def current(self) -> Candidate:
        """The plan that runs."""
        return self.completion.present

    @cached_property
    def smaller(self) -> Candidate:
        """The plan that runs with the memory that its nodes need, where that is less; else `current`."""
        now = self.situation.plan
        plan = sizes(self.situation).of(now)
        is_less = plan.total_memory_mib < now.total_memory_mib
        return self.candidate(plan) if is_less else self.current

    @property
    def now_cost(self) -> float:
        """The cost against which other plans count: they have the smaller memory, as the present one may."""
        return min(self.current.cost, self.smaller.cost)

    @property
    def cost_unit(self) -> str:
        """Unit of `cost`."""
        return cost_unit(self.current, self.situation.spec.prices.currency)

    @cached_property
    def front(self) -> ParetoFront:
        """All plans that no other dominates, with named picks."""
        best = non_dominated(self.cost, self.predictions.samples_per_s)
        plans = [self.space.plan(int(i)) for i in best]
        candidates = self.completion.bare(plans, self.predictions.at(best))
        spec = self.situation.spec
        wishes = Wishes(spec.budget_per_hour, self.situation.deadline_chance)
        thin, picks = thinned(candidates, named_picks(candidates, self.current, wishes))
        shown = self.completion.reasoned(thin)
        currency = spec.prices.currency
        return ParetoFront(
            shown, self.current, picks, self.n_plan, currency, self.why_empty, self._front_with_auc
        )

    @property
    def _front_with_auc(self) -> tuple[Candidate, ...]:
        """The plans that no other beats in cost, throughput and expected AUC; none where it is not known."""
        workers = self.space.axes[:, 0].astype(int)
        changes = quality_changes(self.situation, workers.tolist())
        if not any(map(is_worth_telling, changes.values())) or None in changes.values():
            return ()
        loss = {n: -change.auc for n, change in changes.items() if change is not None}
        losses = np.array([loss[n] for n in workers.tolist()])
        best = non_dominated_of_three(self.cost, self.predictions.samples_per_s, losses)
        best = best[np.argsort(self.cost[best], kind="stable")]
        plans = [self.space.plan(int(i)) for i in best]
        thin, _ = thinned(self.completion.bare(plans, self.predictions.at(best)), (), MOST_WITH_AUC)
        return thin

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """Predicted throughput along each axis through the present plan."""
        return tuple(_curve(self.completion, axis) for axis in range(len(AXES)))

    def candidate(self, plan: ResourcePlan) -> Candidate:
        """Return everything about one plan."""
        return self.candidates([plan])[0]

    def candidates(self, plans: Sequence[ResourcePlan]) -> tuple[Candidate, ...]:
        """Return everything about each of many plans."""
        return self.completion.candidates(plans)

    @property
    def why_empty(self) -> str:
        """Which constraint leaves no allowed plan, in words; empty where there are plans."""
        return "" if len(self.space) else nothing_left(self.grid) or _UNREACHABLE

    @property
    def gain_samples_per_s(self) -> Array:
        """TG of each plan of the space (Eq. 8): shape (n_plans,)."""
        speed = self.predictions.samples_per_s
        left_s = self.situation.n_sample_left / speed
        return gains(speed, self.completion.now.samples_per_s, self.transition_s, left_s)

    @cached_property
    def transition_s(self) -> Array:
        """Seconds without training until each plan of the space runs: shape (n_plans,)."""
        return transitions_s(self.space.axes, self.space.memory_mib, self.situation)

    @cached_property
    def finish_s(self) -> Array:
        """Predicted seconds to the end of the job of each plan of the space: shape (n_plans,)."""
        return np.asarray(self.situation.n_sample_left / self.predictions.samples_per_s + self.transition_s)

    @cached_property
    def measured(self) -> NDArray[np.bool_]:
        """Of which plans of the space there are measurements: shape (n_plans,)."""
        batch = batch_sizes(self.situation.spec, self.space.axes)
        return np.asarray(self.model.evidence_.index_of(self.space.axes, batch) >= 0)

    @cached_property
    def in_time(self) -> Array | None:
        """Probability of each plan of the space to finish by the deadline; None without one."""
        due = self.situation.due
        if due is None:
            return None
        return chances(self.predictions, self.transition_s, due)

    @cached_property
    def in_budget(self) -> Array | None:
        """Probability of each plan that the rest of the total budget is enough; None without a limit."""
        paid = self.situation.paid_for(self.cost)
        return None if paid is None else chances(self.predictions, self.transition_s, paid)

    @cached_property
    def chance(self) -> Array | None:
        """Probability of each plan to finish by the deadline and within the budget; None without either."""
        if self.in_time is None or self.in_budget is None:
            return self.in_budget if self.in_time is None else self.in_time
        return np.minimum(self.in_time, self.in_budget)

    @property
    def end_cost(self) -> Array:
        """Money until the end of the job with each plan, where `in_budget` is known: shape (n_plans,)."""
        return end_cost(self.situation, self.cost, self.finish_s)

    @property
    def most_until_end(self) -> float | None:
        """The money that a plan may take until the end; None: no limit, or no known end."""
        return most_until_end(self.situation.money_left, self.current.end_cost)

    @cached_property
    def budget(self) -> BudgetForecast | None:
        """What the rest of the total budget does; None without a limit, or a known end."""
        if self.in_budget is None:
            return None
        s, now = self.situation, self.current
        return budget_forecast(
            s, now, self.in_budget, self.end_cost, lambda row: self.candidate(self.space.plan(row))
        )

    @cached_property
    def deadline(self) -> DeadlineOutlook | None:
        """What can be promised of the deadline; None without one."""
        s = self.situation
        if s.deadline_left_s is None:  # before all else: for most jobs the rest is not shown
            return None
        now, chance = self.current, self.in_time
        if now.in_time is None or now.finish_s is None:
            return None
        best, earliest_s = now, now.finish_s
        if chance is not None and len(chance):
            other = self.candidate(self.space.plan(self._best_in_time(chance)))
            if now.in_time < s.deadline_chance and (other.in_time or 0.0) > now.in_time:
                best = other
            earliest_s = min(earliest_s, float(self.finish_s.min()))
        budget = self._least_budget
        return DeadlineOutlook(
            left_s=s.deadline_left_s,
            wanted=s.deadline_chance,
            in_time=now.in_time,
            finish_s=now.finish_s,
            best_plan=best.plan,
            best_in_time=best.in_time or 0.0,
            best_finish_s=best.finish_s or 0.0,
            earliest_s=earliest_s,
            least_budget=None if budget is None else float(self.cost[budget]),
            least_budget_in_time=None if budget is None or chance is None else float(chance[budget]),
        )

    def _best_in_time(self, chance: Array) -> int:
        """Return the cheapest plan in time, or the most probable one; within the budget where possible."""
        affordable = np.flatnonzero(self._is_affordable & self._is_paid_for)
        index = affordable if len(affordable) else np.arange(len(chance))
        return self._cheapest_in_time(chance, index)

    def _cheapest_in_time(self, chance: Array, index: NDArray[np.intp]) -> int:
        meeting = index[chance[index] >= self.situation.deadline_chance]
        if len(meeting):
            return int(meeting[int(np.lexsort((-chance[meeting], self.cost[meeting]))[0])])
        return int(index[most_probable(chance[index], self.finish_s[index])])

    @property
    def _is_affordable(self) -> NDArray[np.bool_]:
        """Which plans the budget allows; all where there is none, or no price."""
        budget = self.situation.spec.budget_per_hour
        if budget is None or self.current.cost_per_hour is None:
            return np.ones(len(self.space), dtype=bool)
        return np.asarray(self.cost <= budget)

    @property
    def _is_paid_for(self) -> NDArray[np.bool_]:
        """Which plans the rest of the total budget is enough for; all where there is no limit."""
        if self.in_budget is None:
            return np.ones(len(self.space), dtype=bool)
        return np.asarray(self.in_budget >= self.situation.deadline_chance)

    @property
    def _least_budget(self) -> int | None:
        """The cheapest plan in time, or the most probable one, if the budget forbids all as good."""
        chance = self.in_time
        if chance is None or not len(chance) or self._is_affordable.all():
            return None
        best = self._cheapest_in_time(chance, np.arange(len(chance)))
        within = float(chance[self._is_affordable].max(initial=0.0))
        is_better = (
            chance[best] >= min(within + RESCUE, self.situation.deadline_chance) and chance[best] > within
        )
        return None if self._is_affordable[best] or not is_better else best

    def predict(self, plan: ResourcePlan) -> Prediction:
        """Return the prediction of one plan."""
        return self.completion.predict(axes_of([plan]))[0]


def fitted(situation: Situation) -> ThroughputModel:
    """Fit the resource-performance model to a situation's samples.

    Raises
    ------
    InvalidValueError
        When there is neither a sample nor a prior.
    """
    dense_bytes, embedding_dim = max(situation.dense_bytes, 1), max(situation.embedding_dim, 1)
    model = ThroughputModel(
        dense_bytes=dense_bytes,
        embedding_dim=embedding_dim,
        prior=situation.prior,
        exchange=exchange(situation.spec),
        mini_batch=mini_batch(situation.spec),
    )
    return model.fit(situation.samples)


def analyse(
    situation: Situation, *, model: ThroughputModel | None = None, completion: Completion | None = None
) -> Analysis:
    """Fit the model to the situation's samples and predict the shortlisted plans.

    Where no plan is allowed at all the front is empty (`Analysis.why_empty`): the job goes
    on with the plan that it has.

    Parameters
    ----------
    model
        A fitted model; None fits one.
    completion
        Of this situation by this model; None makes one.

    Raises
    ------
    InvalidValueError
        When there is no sample.
    """
    fit = model or fitted(situation)
    rough = Rough(grid_of(situation), fit, situation)
    space, n_plan = plans_to_weigh(rough, rng=np.random.default_rng(0))  # a replay gives the same result
    if situation.beside is not None:
        space = reachable(space, situation.capacity, situation.beside)
    completion = completion or Completion(situation, fit)
    predictions = completion.predict(space.axes)
    cost = rough.cost(space.axes)
    return Analysis(
        situation=situation,
        model=fit,
        grid=rough.grid,
        space=space,
        predictions=predictions,
        cost=cost,
        n_plan=n_plan,
        completion=completion,
    )


def _curve(completion: Completion, axis: int) -> Curve:
    """Predict along a line through the plan space: one axis varies, all else as now.

    As a what-if predicts these plans, but without other load on the host, as the measured ones beside it.
    """
    situation = completion.situation
    spec = situation.spec
    here = axes_of([situation.plan])[0]
    values = np.unique(np.array([*ladders(spec.bounds)[axis], here[axis]]))
    rows = np.repeat(here[None, :], len(values), axis=0)
    rows[:, axis] = values
    feasible = fits(
        rows,
        situation.capacity,
        worker_memory_mib=situation.plan.worker.memory_mib,
        ps_memory_mib=situation.plan.ps.memory_mib,
        gpus=situation.plan.gpus,
    ) | (values == here[axis])
    predictions = completion.predict(rows[feasible]).without_host
    measured = axes_of([s.plan for s in situation.samples])
    others = np.delete(measured == here, axis, axis=1).all(axis=1)
    return Curve(
        axis=AXES[axis],
        at=float(here[axis]),
        x=tuple(float(v) for v in values[feasible]),
        predictions=tuple(predictions[i] for i in range(int(feasible.sum()))),
        measured_x=tuple(float(v) for v in measured[others, axis]),
        measured_samples_per_s=tuple(
            s.samples_per_s for s, near in zip(situation.samples, others, strict=True) if near
        ),
    )

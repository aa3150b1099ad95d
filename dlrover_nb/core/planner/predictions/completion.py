"""From a plan to a candidate: everything that is shown about it, for many plans at once.

Predictions come in one call for all plans, because a front has hundreds and views wait for it. The values of
the present plan are computed once.

Parts of an iteration: the equations say in which ratio each term changes from plan to plan; how long the
present plan's iteration takes is measured. So the terms of all plans are stretched by one factor, that of the
present plan: a term that a change cannot touch, such as computing gradients (Eq. 2 of DLRover-RM) where
workers and their cores stay, takes as long before as after. What is predicted or measured beyond that is a
part of its own, `rest`, "not explained by the plan"; it is negative where an iteration is shorter than its
terms.

Rejected: to stretch the terms of each plan to its own iteration. That gave "1 instead of 2 cores per PS
shorten the exchange of parameters by 59 %", where other plans were simply faster than the equations say.

A prediction stays within what physics and the host allow. The most that a change can bring: a part of an
iteration that it does not touch does not become shorter. Workers report which part of an iteration they
compute and which they wait for PS. By Eqs. 2-5 of DLRover-RM computing depends on the batch and the cores of
a worker alone, and the waits on workers and PS. So at most all waits go away by more PS: the speed grows by
at most 1 / (1 - their share), whatever a fit to few plans says (one promised +154 % for one more PS where
waits were 8 % of an iteration). The rest, such as waits for peers and data, can only shrink with fewer
workers.

And nodes that are added bring at most what is in proportion to them, over every plan that was measured and
the present one: by Eqs. 2-6 no part of an iteration shrinks by more than its share of what was added. Each
form of the model keeps to that, but neither the band around it (by one measured plan, 8 workers were said to
bring up to 9.5 times as much) nor the mean that is corrected near measured plans. What is measured stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from dlrover_nb.core import pricing
from dlrover_nb.core.pareto.reasons import reason
from dlrover_nb.core.perf.terms import axes_of, slowest_rows
from dlrover_nb.core.planner.finish_chance import chances
from dlrover_nb.core.planner.predictions.batch import batch_sizes, mini_batch
from dlrover_nb.core.planner.predictions.host import host_factors
from dlrover_nb.core.planner.predictions.quality import quality_changes
from dlrover_nb.core.planner.predictions.transitions import gains, transitions_s
from dlrover_nb.core.planner.situation import HOUR_S, Situation
from dlrover_nb.core.structs.decisions.candidates import HOST, REST, Candidate, Prediction, TermShare
from dlrover_nb.core.structs.job.fixed_roles import fixed_per_hour
from dlrover_nb.core.structs.plan.resources import ResourcePlan, diff

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.perf.evidence import Evidence
    from dlrover_nb.core.perf.model import ThroughputModel
    from dlrover_nb.core.perf.predictions import Predictions
    from dlrover_nb.core.planner.situation import Situation

    Array = NDArray[np.float64]
    Parts = tuple[TermShare, ...]

Row = tuple[float, ...]  # w, p, lambda_w, lambda_p
CostT = TypeVar("CostT", float, "Array")


SLACK = 0.03  # of an iteration: shares are means over windows that differ


def predict_here(model: ThroughputModel, situation: Situation, axes: Array) -> Predictions:
    """Predict plans given as rows (w, p, lambda_w, lambda_p) for the job's hosts as they are now.

    A plan that was measured is known by its windows; any other is at most as much faster than the present one
    as the parts of an iteration allow that it shortens, and than each measured one as what it adds allows.
    """
    now, batch = axes_of([situation.plan]), batch_sizes(situation.spec, axes)
    now_batch, evidence, load = batch_sizes(situation.spec, now), model.evidence_, situation.host
    row, rows = int(evidence.index_of(now, now_batch)[0]), evidence.index_of(axes, batch)
    steps, measured = _steps(situation, axes, batch), _steps(situation, evidence.axes, evidence.batch_size)
    speeds = evidence.axes[:, 0] * evidence.batch_size / np.exp(evidence.log_iter)  # (eq. 1)
    most = most_by_addition(steps, measured, speeds)
    if row >= 0:  # then the model predicts just that
        speed = float(speeds[row])
        over = most_over_now(axes, batch, now[0], float(now_batch[0]), evidence.shares[row])
        most = np.minimum(most, speed * over)
    else:
        here = _steps(situation, now, now_batch)
        least = most_by_addition(here, measured, speeds)
        speed = float(model.predict(now, now_batch).at_most(least).samples_per_s[0])
        most = np.minimum(most, most_by_addition(steps, here, np.array([speed])))
    most[rows >= 0] = np.inf
    predictions = model.predict(axes, batch).at_most(most)
    if load is None or not load.is_felt:
        return predictions
    n_core, over_now = situation.capacity.total_cpu, predictions.samples_per_s / speed
    cores = measured_cores(evidence, axes, rows)
    wanted = np.where(np.isnan(cores), load.wanted_cores * over_now, cores)
    return predictions.on_host(host_factors(axes, over_now, wanted, load, n_core))


class Steps(NamedTuple):
    """What the workers of plans do in one iteration.

    Parameters
    ----------
    axes, batch_size
        ndarrays of shape (n_plans, 4) and (n_plans,): the plans and m of Eq. 1.
    slowest
        Rows that the slowest worker computes: more than m where whole mini-batches are shared.
    """

    axes: Array
    batch_size: Array
    slowest: Array


def _steps(situation: Situation, axes: Array, batch_size: Array) -> Steps:
    whole = mini_batch(situation.spec)
    slowest = batch_size if whole is None else slowest_rows(axes[:, 0], batch_size, whole)
    return Steps(axes, batch_size, slowest)


def most_by_addition(plans: Steps, measured: Steps, samples_per_s: Array) -> Array:
    """Return the most that plans reach by what they add to measured ones: shape (n_plans,); inf: nothing.

    Parameters
    ----------
    samples_per_s
        Speed of each measured plan.

    Notes
    -----
    T_iter is a sum, so it shrinks by no more than that of Eqs. 2-6 which shrinks most.
    """
    w, p, worker_cpu, ps_cpu = (plans.axes[:, None, i] / measured.axes[None, :, i] for i in range(4))
    batch = plans.batch_size[:, None] / measured.batch_size[None, :]
    computing = plans.slowest[:, None] / measured.slowest[None, :] / worker_cpu  # (eq. 2)
    parts = (computing, w / (p * ps_cpu), w / p, batch / p, np.ones_like(w))  # (eqs. 2-6)
    most = samples_per_s * w * batch / np.minimum.reduce(parts)
    return np.asarray(np.where((w >= 1) & (p >= 1), most, np.inf).min(axis=1, initial=np.inf))


def measured_cores(evidence: Evidence, axes: Array, rows: NDArray[np.intp]) -> Array:
    """Return the cores that plans use on an idle host, by their windows: shape (n_plans,), NaN: not known.

    Parameters
    ----------
    rows
        Of each plan in `evidence`; -1: it was not measured.
    """
    if not len(evidence):
        return np.full(len(axes), np.nan)
    cores = axes[:, 0] * evidence.cpu_s[rows] / np.exp(evidence.log_iter[rows])
    return np.where(rows >= 0, cores, np.nan)


def most_over_now(axes: Array, batch_size: Array, now: Array, now_batch: float, shares: Array) -> Array:
    """Return the most that each plan's speed may be over the present one's: shape (n_plans,).

    Parameters
    ----------
    axes, batch_size
        ndarrays of shape (n_plans, 4) and (n_plans,): the plans and m of Eq. 1.
    now, now_batch
        The present plan as a row of `axes`, and its m.
    shares
        Parts of an iteration of the present plan that workers compute and wait for PS; NaN: not known, and
        nothing is bounded.
    """
    if np.isnan(shares).any():
        return np.full(len(axes), np.inf)
    compute, wait = shares
    w, p, worker_cpu, ps_cpu = axes.T
    fewer = w < now[0]
    computing = compute * np.minimum((batch_size / now_batch) * (now[2] / worker_cpu), 1.0)  # (eq. 2)
    same_ps = (p == now[1]) & (ps_cpu == now[3]) & ~fewer & (batch_size >= now_batch)
    waiting = np.where(same_ps, wait, 0.0)  # (eqs. 3-5)
    rest = np.where(fewer, 0.0, max(1 - compute - wait, 0.0))
    least = np.maximum(computing + waiting + rest - SLACK, SLACK)
    return np.asarray(w * batch_size / (now[0] * now_batch) / least)


def parts(terms: Sequence[str], seconds: Array, iter_s: Array, now: tuple[Array, float]) -> tuple[Parts, ...]:
    """Return the terms of the iteration of each plan, and the rest, whose sum is the plan's T_iter.

    Parameters
    ----------
    seconds
        ndarray of shape (n_plans, n_term): the terms by the equations (`ThroughputModel.term_seconds`).
    iter_s
        ndarray of shape (n_plans,): T_iter as predicted or measured.
    now
        The same of the present plan: shape (n_term,), and a number.
    """
    now_seconds, now_iter_s = now
    total_s = float(now_seconds.sum())
    own = seconds * (now_iter_s / total_s if total_s > 0 else 0.0)
    rows = np.column_stack((own, iter_s - own.sum(axis=1)))
    return tuple(
        tuple(map(TermShare, (*terms, REST), row.tolist(), (row / whole_s).tolist()))
        for row, whole_s in zip(rows, iter_s.tolist(), strict=True)
    )


def with_host(own: Parts, host: float) -> Parts:
    """Return the parts of an iteration on a host that gives this part of its speed; other work comes last."""
    total_s = sum(part.seconds for part in own) / host
    shares = (TermShare(part.term, part.seconds, part.seconds / total_s) for part in own)
    return (*shares, TermShare(HOST, (1 - host) * total_s, 1 - host))


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
    _here: Predictions = field(init=False)  # of the present plan alone
    _present: tuple[Array, float] = field(init=False)  # terms and T_iter of the present plan

    def __post_init__(self) -> None:
        now = axes_of([self.situation.plan])
        object.__setattr__(self, "_here", self.predict(now))
        object.__setattr__(self, "now", self._here[0])
        seconds = self.model.term_seconds(now, batch_sizes(self.situation.spec, now))[0]
        object.__setattr__(self, "_present", (seconds, float(self._iter_s(now, [self.now])[0])))
        object.__setattr__(self, "now_breakdown", self._breakdowns(now, [self.now])[0])
        identified = frozenset(c.term for c in self.model.report_.coefficients if c.identified)
        object.__setattr__(self, "identified", identified)

    def predict(self, axes: Array) -> Predictions:
        """Predict plans given as rows."""
        return scaled(predict_here(self.model, self.situation, axes), axes, self.factors)

    @property
    def present(self) -> Candidate:
        """The plan that runs, as a candidate."""
        return self.reasoned(self.bare([self.situation.plan], self._here))[0]

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
        quality = quality_changes(s, [plan.worker.count for plan in plans])
        return tuple(
            replace(
                bare_candidate(s, plan, predictions[i], pause, gained), quality=quality[plan.worker.count]
            )
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
        why = reason(
            (s.plan, self.now_breakdown),
            (plan, breakdown),
            identified=self.identified,
            gain=bare.prediction.samples_per_s / self.now.samples_per_s - 1,
        )
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

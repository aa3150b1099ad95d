"""What a policy is asked of one job of a lab, and what auto mode makes of its answer.

The policy, the analysis that it reads and the gate of auto mode are those of the product
(`planner.policies`, `planner.analysis`, `controller.auto_policy`): a lab with its own copies would compare
copies. What is left out is the rest of the controller: proposals that stay open, memory, and a user.

An analysis is computed as far as a policy reads it, and its bands are drawn from fewer coefficient sets than
a job's. Published policies decide by measurements alone, so for them no model is fitted at all
(`MeasuredAnalysis`); their plans then have no prediction that the gate could judge.

A policy is asked only at moments that can change its answer: once a plan has a steady window, and then ever
more rarely while nothing happens (`LabWorld.ask_s`). A job's controller asks each time that it has fitted
anew; of a month of a thousand jobs that would be some million fits.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dlrover_nb.core.bottleneck import JobUse, NodeUse, PlanUse
from dlrover_nb.core.controller.auto_policy import AutoContext, AutoSettings, limits, may_apply
from dlrover_nb.core.controller.plans.bound_policy import BoundPolicy
from dlrover_nb.core.perf.model import ThroughputModel
from dlrover_nb.core.planner.advising.advice import PlannerSettings, axes_key
from dlrover_nb.core.planner.analysis import Analysis, analyse
from dlrover_nb.core.planner.policies.policy import PolicyContext
from dlrover_nb.core.planner.predictions.batch import exchange, mini_batch
from dlrover_nb.core.planner.predictions.completion import Completion, bare_candidate
from dlrover_nb.core.planner.predictions.transitions import transition_s
from dlrover_nb.core.planner.situation import Situation
from dlrover_nb.core.structs.decisions.candidates import Prediction
from dlrover_nb.core.structs.decisions.decisions import Outcome, Proposal, ProposalKind
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import ProfileSample
from dlrover_nb.core.structs.views.past_jobs import TransitionKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.lab.lab_file import LabWorld, OwnPolicy
    from dlrover_nb.core.lab.workload import LabJob
    from dlrover_nb.core.planner.advising.advice import Advice
    from dlrover_nb.core.structs.decisions.candidates import Candidate
    from dlrover_nb.core.structs.plan.bounds import Quota
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import Axes, ResourcePlan

N_WINDOW = 5  # steady windows behind one measurement
N_DRAW = 40  # coefficient sets behind a band
N_SAMPLE = 40  # newest measurements that count
PLANNER = PlannerSettings(experiment_s=180.0)
AUTO = AutoSettings()


@dataclass(frozen=True, slots=True)
class Moment:
    """What a job is at the moment when its policy is asked.

    Parameters
    ----------
    samples_per_s
        As measured in the last windows.
    capacity
        Its own machines, and what is free.
    quota
        What other jobs leave to it.
    """

    at_s: float
    plan: ResourcePlan
    samples_per_s: float
    n_sample_left: int
    capacity: Capacity
    quota: Quota
    deadline_left_s: float | None = None


class LazyAnalysis(Analysis):
    """An analysis whose fields are computed when they are first read: the fit, then all plans.

    Parameters
    ----------
    situation
        As of `analyse`.
    """

    def __init__(self, situation: Situation) -> None:
        object.__setattr__(self, "situation", situation)

    def __getattr__(self, name: str) -> object:
        """Compute a field that is not there yet, and what is computed with it."""
        match name:
            case "model":
                values: dict[str, object] = {"model": _fitted(self.situation)}
            case "completion":
                values = {"completion": Completion(self.situation, self.model)}
            case "grid" | "space" | "predictions" | "cost" | "n_plan":
                whole = analyse(self.situation, model=self.model, completion=self.completion)
                values = {n: getattr(whole, n) for n in ("grid", "space", "predictions", "cost", "n_plan")}
            case _:
                raise AttributeError(name)
        for field, value in values.items():
            object.__setattr__(self, field, value)
        return values[name]


class MeasuredAnalysis(Analysis):
    """An analysis for policies that read no model: what ran is as fast as measured, and no more is known.

    Parameters
    ----------
    situation
        With at least one sample of the plan that runs.
    """

    def __init__(self, situation: Situation) -> None:
        object.__setattr__(self, "situation", situation)
        speeds: dict[Axes, list[float]] = {}
        for sample in situation.samples:
            speeds.setdefault(axes_key(sample.plan), []).append(sample.samples_per_s)
        means = {plan: sum(each) / len(each) for plan, each in speeds.items()}
        object.__setattr__(self, "speeds", means)

    speeds: dict[Axes, float]

    @cached_property
    def current(self) -> Candidate:
        """The plan that runs."""
        return self.candidate(self.situation.plan)

    def candidates(self, plans: Sequence[ResourcePlan]) -> tuple[Candidate, ...]:
        """Return plans without reasons: at their measured speed; one that never ran, at the present one."""
        s = self.situation
        here = self.speeds[axes_key(s.plan)]
        speeds = [self.speeds.get(axes_key(plan)) for plan in plans]
        predictions = [_as_measured(here if v is None else v, is_new=v is None) for v in speeds]
        return tuple(
            bare_candidate(s, plan, prediction, transition_s(plan, s), 0.0)
            for plan, prediction in zip(plans, predictions, strict=True)
        )


def _as_measured(samples_per_s: float, *, is_new: bool) -> Prediction:
    v = samples_per_s
    return Prediction(v, v, v, is_new, v, v)


def _fitted(situation: Situation) -> ThroughputModel:
    return ThroughputModel(
        dense_bytes=max(situation.dense_bytes, 1),
        embedding_dim=max(situation.embedding_dim, 1),
        n_draw=N_DRAW,
        prior=situation.prior,
        exchange=exchange(situation.spec),
        mini_batch=mini_batch(situation.spec),
    ).fit(situation.samples)


class Adviser:
    """Asks the policy of one job, and remembers what its plans did.

    Parameters
    ----------
    job
        Of which the truth is used for what nodes report alone: shares of a step, and busy cores.
    """

    def __init__(self, job: LabJob, policy: OwnPolicy, world: LabWorld) -> None:
        self._job, self._policy, self._world = job, policy, world
        self._samples: list[ProfileSample] = []
        self._uses: list[PlanUse] = []
        self._outcomes: list[Outcome] = []
        self._replaced: Counter[Axes] = Counter()
        self._ran: set[Axes] = set()
        self._experiments: set[str] = set()
        self._changes: list[float] = []
        self._applied: tuple[Advice, float] | None = None  # of the plan that runs, until it is measured
        self._pauses = (
            (TransitionKind.WORKERS, world.join_s),
            (TransitionKind.MOVES, world.seamless_s),
            (TransitionKind.RESTARTS, world.restart_s),
        )

    def advice(self, now: Moment) -> Advice | None:
        """Return what auto mode would apply now; None: the job stays as it is."""
        self._measure(now)
        kind = LazyAnalysis if self._policy.reads_model else MeasuredAnalysis
        analysis: Analysis = kind(self._situation(now))
        context = self._auto(now)
        policy_context = PolicyContext(limits=limits(context, AUTO), use=self._use(now))
        advice = BoundPolicy(self._policy.decide, PLANNER, policy_context)(analysis)
        if advice is None or advice.candidate.plan == now.plan:
            return None
        proposal = self._proposal(advice, analysis, now.at_s)
        return None if may_apply(proposal, context, AUTO) is not None else advice

    def applied(self, advice: Advice, before: ResourcePlan, at_s: float) -> None:
        """Record that a plan is on its way instead of another."""
        self._changes.append(at_s)
        self._applied = advice, at_s
        name = f"d{len(self._changes)}"
        if advice.kind is ProposalKind.EXPLORE:
            self._experiments.add(name)
        else:
            self._replaced[axes_key(before)] += 1

    def _measure(self, now: Moment) -> None:
        job = self._job
        batch = job.spec.batch_of(now.plan.worker.count)
        split = job.truth.split(now.plan, batch)
        sample = ProfileSample(
            at_s=now.at_s,
            window_s=self._world.ask_s / 2,
            plan=now.plan,
            batch_size=batch,
            samples_per_s=now.samples_per_s,
            compute_share=split.compute_s / split.total_s if split.compute_s else None,
            wait_share=(split.lookup_s + split.update_s) / split.total_s if split.compute_s else None,
            n_window=N_WINDOW,
            log_scatter=self._world.noise,
        )
        self._samples = [*self._samples[1 - N_SAMPLE :], sample]
        self._ran.add(axes_key(now.plan))
        if self._applied is not None:
            advice, at_s = self._applied
            self._applied = None
            predicted = advice.candidate.prediction if self._policy.reads_model else None
            self._outcomes.append(_outcome(now, f"d{len(self._changes)}", predicted, at_s))

    def _situation(self, now: Moment) -> Situation:
        job = self._job
        return Situation(
            spec=job.spec,
            capacity=now.capacity,
            dense_bytes=job.dense_bytes,
            embedding_dim=job.embedding_dim,
            plan=now.plan,
            samples=tuple(self._samples),
            n_sample_left=now.n_sample_left,
            pauses=self._pauses,
            deadline_left_s=now.deadline_left_s,
        )

    def _auto(self, now: Moment) -> AutoContext:
        return AutoContext(
            at_s=now.at_s,
            spec=self._job.spec,
            pins=Pins(),
            plan=now.plan,
            calm_at_s=now.at_s,
            changes=self._changes,
            left={},
            replaced=self._replaced,
            ran=self._ran,
            experiments=self._experiments,
            outcomes=self._outcomes,
            quota=now.quota,
        )

    def _use(self, now: Moment) -> JobUse:
        """Return the busy cores of all nodes; steady, as a policy is asked after steady windows alone."""
        job, plan = self._job, now.plan
        batch = job.spec.batch_of(plan.worker.count)
        share = now.samples_per_s / job.truth.speed(plan, batch)
        busy = dict(zip((Role.WORKER, Role.PS), job.truth.used_cores(plan, batch), strict=True))
        nodes = tuple(
            NodeUse(f"{role}-{i}", role, of.cpu, (min(busy[role] * share, of.cpu),) * N_WINDOW)
            for role, of in ((Role.WORKER, plan.worker), (Role.PS, plan.ps))
            for i in range(of.count)
        )
        use = JobUse(plan, nodes, tuple(self._uses))
        if not self._uses or axes_key(self._uses[-1].plan) != axes_key(plan):
            self._uses.append(PlanUse(plan, use.cores()))
        else:
            use = JobUse(plan, nodes, tuple(self._uses[:-1]))
        return use

    def _proposal(self, advice: Advice, analysis: Analysis, at_s: float) -> Proposal:
        return Proposal(
            id="p1",
            job=self._job.name,
            kind=advice.kind,
            candidate=advice.candidate,
            baseline=analysis.current,
            why=advice.why,
            created_at_s=at_s,
        )


def _outcome(now: Moment, decision: str, predicted: Prediction | None, at_s: float) -> Outcome:
    return Outcome(
        decision=decision,
        plan=now.plan,
        predicted=predicted,
        measured_samples_per_s=now.samples_per_s,
        before_samples_per_s=None,
        n_sample=N_WINDOW,
        applied_at_s=at_s,
        pause_s=0.0,
    )


def next_wait_s(wait_s: float, world: LabWorld) -> float:
    """Return how long the policy is not asked, after it changed nothing."""
    return min(wait_s * world.ask_growth, world.ask_longest_s)


def noisy(samples_per_s: float, world: LabWorld, draw: float) -> float:
    """Return a speed as `N_WINDOW` windows measure it; `draw` is standard normal."""
    return samples_per_s * math.exp(world.noise * draw / math.sqrt(N_WINDOW))

"""Which plan is proposed next: the planner's own policy and published ones, by name.

A policy is a function of an analysis, the planner's settings and a context. It returns advice or None, keeps
nothing between calls and starts nothing. Results of earlier plans are in the samples of the analysis. The
controller calls it after every new analysis, and keeps the final decision: pins, bounds, capacity and the
memory that nodes need apply whatever a policy returns, and in auto mode budget, quota, cool-down, hysteresis
and the track record of the predictions decide whether advice is applied. Rejected: policies as objects with
state, which would decide differently after a restart of the master.

Advice with `Advice.batches` changes no plan: it gives slow workers smaller batches. Auto mode orders that at
once (`Mitigate`); where a user decides it is left out, as a batch size is not worth a confirmation.

- ``throughput-model``: the planner of DLRover-RM with its model (`planner.policies.stages.auto_scale`), the
  default.
- ``elastic-scheduling``: one more worker while the last one paid (Or et al., MLSys 2020).
- ``optimus``: one node more or less where that reduces the job's time most (EuroSys 2018).
- ``nearchus``: more cores, workers or PS as long as nodes use more cores by that; without a model.
- ``qore``: grows a job that would miss its deadline, shrinks one with slack (Qore-DL).
- ``fixed-plan``: the plan stays as the user sets it; nodes still get the memory that they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.baselines import JobState, elastic_scheduling, optimus, static
from dlrover_nb.core.pareto.reasons import change_words
from dlrover_nb.core.planner.advising.advice import Advice, PlannerSettings, was_rejected
from dlrover_nb.core.planner.policies.nearchus import NAME, raise_use
from dlrover_nb.core.planner.policies.qore import meet_deadline
from dlrover_nb.core.planner.policies.stages import auto_scale, keep_pins
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.job.job import DEFAULT_POLICY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.baselines import Policy as BaselinePolicy
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.planner.policies.policy import Policy, PolicyContext


def throughput_model(analysis: Analysis, settings: PlannerSettings, context: PolicyContext) -> Advice | None:
    """Advise by the model's predictions; see `auto_scale`."""
    return auto_scale(
        analysis,
        settings,
        rejected_plans=context.rejected_plans,
        may_explore=context.may_explore,
        limits=context.limits,
    )


def nearchus(analysis: Analysis, settings: PlannerSettings, context: PolicyContext) -> Advice | None:
    """Advise by the cores and links that nodes use; see `raise_use`."""
    return raise_use(
        analysis,
        settings,
        context.use,
        rejected_plans=context.rejected_plans,
        may_explore=context.may_explore,
        limits=context.limits,
    )


def qore(analysis: Analysis, settings: PlannerSettings, context: PolicyContext) -> Advice | None:
    """Advise by the deadline alone; see `meet_deadline`."""
    return meet_deadline(analysis, settings, rejected_plans=context.rejected_plans, limits=context.limits)


def by_baseline(name: str, decide: BaselinePolicy) -> Policy:
    """Return a policy that proposes the next plan of a published one.

    A plan that breaks a pin, or was rejected, is left out: the job stays as it is until the policy, whose
    only input is the measurements, returns another one.
    """

    def policy(analysis: Analysis, settings: PlannerSettings, context: PolicyContext) -> Advice | None:
        s, now = analysis.situation, analysis.current
        if not s.pins.allows(s.plan):
            return keep_pins(analysis, context.rejected_plans)
        if now.finish_s is not None and now.finish_s < settings.min_left_s:
            return None
        state = JobState(
            s.plan,
            s.samples,
            s.n_sample_left,
            s.spec.bounds,
            s.capacity,
            s.spec.batch_size,
            global_batch=s.spec.shared_batch,
        )
        plan = decide(state)
        if plan is None or was_rejected(plan, s.plan, context.rejected_plans) or not s.pins.allows(plan):
            return None
        why = f"By {name}: {change_words(s.plan, plan)}."
        return Advice(ProposalKind.IMPROVE, analysis.candidate(plan), why)

    return policy


POLICIES: Mapping[str, Policy] = {
    DEFAULT_POLICY: throughput_model,
    "elastic-scheduling": by_baseline("elastic-scheduling", elastic_scheduling),
    "optimus": by_baseline("optimus", optimus),
    NAME: nearchus,
    "qore": qore,
    "fixed-plan": by_baseline("fixed-plan", static),
}

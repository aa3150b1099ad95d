"""A policy: propose one more worker while the bounds allow it and the model predicts a gain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.planner import Advice
from dlrover_nb.core.structs.decisions.decisions import ProposalKind

if TYPE_CHECKING:
    from dlrover_nb.core.planner import Analysis, PlannerSettings, PolicyContext


def one_more_worker(analysis: Analysis, settings: PlannerSettings, context: PolicyContext) -> Advice | None:
    """Return advice for one more worker; None where that is not allowed or not predicted to be faster."""
    now = analysis.current
    count = now.plan.worker.count + 1
    plan = replace(now.plan, worker=replace(now.plan.worker, count=count))
    if count > analysis.situation.spec.bounds.max_workers or plan in context.rejected_plans:
        return None
    candidate = analysis.candidate(plan)
    gain = candidate.prediction.samples_per_s / now.prediction.samples_per_s - 1
    if gain < settings.min_gain:
        return None
    return Advice(ProposalKind.IMPROVE, candidate, f"One more worker is predicted to bring {gain:.0%}.")

"""A policy with the settings and constraints of one moment: what a job's advice is asked of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.planner.advising.quality_words import quality_words
from dlrover_nb.core.planner.policies.stages import give_way
from dlrover_nb.core.planner.predictions.quality import over_bound

if TYPE_CHECKING:
    from dlrover_nb.core.planner.advising.advice import Advice, PlannerSettings
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.planner.policies.policy import Policy, PolicyContext


@dataclass(frozen=True, slots=True)
class BoundPolicy:
    """A policy with the settings and constraints of one moment; a record, so that a snapshot can hold it."""

    policy: Policy
    settings: PlannerSettings
    context: PolicyContext

    def __call__(self, analysis: Analysis) -> Advice | None:
        """Advise on the present analysis, or on a hypothetical one; room for others is made first.

        No policy's plan is advised that may cost more AUC than the job's bound, unless it applies the pins.
        What a plan costs of it is said whatever the policy.
        """
        now, limits = analysis.situation, self.context.limits
        if limits is not None and limits.quota.ends(now.plan) and now.pins.allows(now.plan):
            return give_way(analysis, limits.quota, self.context.rejected_plans)
        advice = self.policy(analysis, self.settings, self.context)
        if advice is None or not now.pins.allows(now.plan):
            return advice
        if over_bound(advice.candidate, analysis.current, now.spec):
            return None
        return replace(advice, why=advice.why + quality_words(advice.candidate, now.spec))

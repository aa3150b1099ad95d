"""The signature of all policies, and the constraints that they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlrover_nb.core.planner.advising.advice import Advice, Limits, PlannerSettings

if TYPE_CHECKING:
    from dlrover_nb.core.bottleneck import JobUse
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """The constraints on a policy at one moment.

    Parameters
    ----------
    rejected_plans
        Plans that were rejected or failed, with the throughput predicted then: not to be proposed again
        unless their prediction has changed by `PlannerSettings.material_change`.
    may_explore
        False once enough experiments have been proposed in a row.
    limits
        Of auto mode; None where a user decides.
    worker_samples_per_s
        Speed of each worker in its last report.
    use
        What the nodes use of their cores and links, and what they used of earlier plans; None: unknown.
    """

    rejected_plans: Mapping[ResourcePlan, float] = field(default_factory=dict)
    may_explore: bool = True
    limits: Limits | None = None
    worker_samples_per_s: Mapping[str, float] = field(default_factory=dict)
    use: JobUse | None = None


Policy = Callable[["Analysis", PlannerSettings, PolicyContext], Advice | None]

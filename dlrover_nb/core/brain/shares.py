"""What jobs get of a cluster: a plan and a quota for each, with the reason; however they were chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.bounds import Quota

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dlrover_nb.core.structs.plan.offers import JobOffer
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


@dataclass(frozen=True, slots=True)
class Share:
    """What one job gets.

    Parameters
    ----------
    plan
        The plan that it is meant to have.
    quota
        What it may plan with.
    why
        Why it did not get the plan that is worth most to it, and who got what instead; empty: it did.
    """

    plan: ResourcePlan
    quota: Quota
    why: str = ""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What every job gets.

    Parameters
    ----------
    shares
        By job.
    objective, bound
        Sum of RE * WG of the choice, and what no choice can exceed.
    is_kept
        Whether it is the choice of the last round.
    note
        What is wrong with the cluster as a whole; empty: nothing.
    """

    shares: Mapping[str, Share]
    objective: float = 0.0
    bound: float = 0.0
    is_kept: bool = False
    note: str = ""


def unchanged(offers: Sequence[JobOffer], *, why: str = "", note: str = "") -> ClusterPlan:
    """Return that every job keeps the plan that runs, and may plan with no more."""
    return ClusterPlan({o.job: Share(o.plan, quota_of(o.plan, 0.0, 0), why) for o in offers}, note=note)


def quota_of(plan: ResourcePlan, spare_cpu: float = 0.0, spare_mib: int = 0) -> Quota:
    """Return a quota of what a plan needs, and of a part of the rest."""
    return Quota(round(plan.total_cpu + spare_cpu, 2), int(plan.total_memory_mib + spare_mib))

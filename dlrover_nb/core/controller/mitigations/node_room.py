"""How large single nodes may be: within the machines, the quota, pins, and what auto mode may spend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.capacity import fits, plan_needs
from dlrover_nb.core.structs.plan.resources import CPU_STEP, Role, total_need

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.planner.advising.advice import Limits
    from dlrover_nb.core.structs.decisions.actions import SetSize
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.bounds import Pins
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import Need, ResourcePlan


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What limits the size of a node beside the others of its job.

    Parameters
    ----------
    plan, sizes
        What runs, and the nodes that do not have their role's size.
    spec, pins, capacity
        The job, what is fixed in its plans, and the machines.
    limits
        Of auto mode; None where a user decides.
    """

    plan: ResourcePlan
    sizes: Mapping[str, SetSize]
    spec: JobSpec
    pins: Pins
    capacity: Capacity
    limits: Limits | None = None

    def over_quota(self, size: SetSize) -> str:
        """Return what of the job's quota a size would exceed, in words; empty: nothing."""
        cpu, memory_mib, _ = self._totals(size)
        bounds = self.spec.bounds
        if bounds.quota_cpu is not None and cpu > bounds.quota_cpu + CPU_STEP / 2:
            return f"{cpu:g} of {bounds.quota_cpu:g} cores"
        if bounds.quota_memory_mib is not None and memory_mib > bounds.quota_memory_mib:
            return f"{memory_mib} of {bounds.quota_memory_mib} MiB"
        return ""

    def allows(self, size: SetSize) -> bool:
        """Whether a size that no user ordered may be proposed."""
        pinned = self.pins.worker_cpu if size.role is Role.WORKER else self.pins.ps_cpu
        is_within = pinned is None and not self.over_quota(size) and self._within_limits(size)
        return is_within and fits(self.capacity, self._needs(size))

    def _within_limits(self, size: SetSize) -> bool:
        if self.limits is None:
            return True
        cpu, memory_mib, gpu = self._totals(size)
        quota, budget = self.limits.quota, self.limits.budget_per_hour
        if quota.cpu is not None and cpu > quota.cpu + CPU_STEP / 2:
            return False
        if quota.memory_mib is not None and memory_mib > quota.memory_mib:
            return False
        price = self.spec.prices.per_hour(cpu, memory_mib, gpu)
        return budget is None or (price is not None and price <= budget)

    def _totals(self, size: SetSize) -> Need:
        needs = self._needs(size)
        return total_need(needs)

    def _needs(self, size: SetSize) -> list[Need]:
        sizes = {**self.sizes, size.node: size}
        return plan_needs(self.plan, [(each.role, (each.cpu, each.memory_mib)) for each in sizes.values()])

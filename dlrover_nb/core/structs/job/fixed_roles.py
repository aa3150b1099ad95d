"""What the fixed roles of an external job leave of machines, quota and budget for workers and PS.

Planners size workers and PS alone, and read the job's limits in many places. So the fixed nodes are taken off
these limits once, before the job and its capacity reach the controller.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import CapacityError, InvalidValueError
from dlrover_nb.core.structs.plan.capacity import (
    Capacity,
    check_fits,
    check_has_gpus,
    fits,
    machines,
    without,
)
from dlrover_nb.core.structs.plan.resources import total_need

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import Need


def fixed_needs(spec: JobSpec) -> list[Need]:
    """Return what each node of a fixed role needs."""
    roles = () if spec.foreign is None else spec.foreign.roles
    return [each.plan.need for each in roles for _ in range(each.count)]


def fixed_per_hour(spec: JobSpec) -> float:
    """Return what the fixed nodes cost in an hour; 0 where a price is unknown: no budget counts them then."""
    return spec.prices.per_hour(*total_need(fixed_needs(spec))) or 0.0


def capacity_left(spec: JobSpec, capacity: Capacity) -> Capacity:
    """Return the machines without the room of fixed nodes: nothing where these do not fit."""
    needs = fixed_needs(spec)
    return (without(capacity, needs) or Capacity(())) if needs else capacity


def check_job_fits(spec: JobSpec, capacity: Capacity) -> None:
    """Refuse a job whose first plan and fixed nodes do not all fit, or whose budget cannot count the latter.

    Raises
    ------
    CapacityError
        When they do not fit.
    InvalidValueError
        When a budget is to hold for GPUs of fixed nodes without a price.
    """
    needs = fixed_needs(spec)
    n_gpu = total_need(needs).gpu
    if spec.budget_per_hour is not None and n_gpu and spec.prices.gpu_hour is None:
        raise InvalidValueError(
            f"budget_per_hour needs prices.gpu_hour, as the nodes of external.roles have {n_gpu} "
            f"GPU{'s' * (n_gpu != 1)}, got {spec.budget_per_hour:g} with an unknown price; give the price, "
            "or leave budget_per_hour out"
        )
    if not fits(capacity, needs):
        whole = total_need(needs)
        check_has_gpus(capacity, whole.gpu)
        raise CapacityError(
            f"the nodes of external.roles must fit on the machines ({machines(capacity)}), got {len(needs)} "
            f"with {whole.words} in all; ask for fewer or smaller ones"
        )
    check_fits(spec.plan, capacity_left(spec, capacity))


def limits_left(spec: JobSpec) -> JobSpec:
    """Return the job with the quota and the budget that its fixed nodes leave to workers and PS.

    Raises
    ------
    InvalidValueError
        When they leave nothing.
    """
    needs = fixed_needs(spec)
    if not needs:
        return spec
    cpu, memory_mib, _ = total_need(needs)
    bounds = spec.bounds
    quota_cpu = _left("bounds.quota_cpu", bounds.quota_cpu, cpu)
    quota_mib = _left("bounds.quota_memory_mib", bounds.quota_memory_mib, memory_mib)
    within = replace(
        bounds, quota_cpu=quota_cpu, quota_memory_mib=None if quota_mib is None else int(quota_mib)
    )
    budget = _left("budget_per_hour", spec.budget_per_hour, fixed_per_hour(spec))
    return replace(spec, bounds=within, budget_per_hour=budget)


def _left(name: str, limit: float | None, used: float) -> float | None:
    if limit is not None and used >= limit:
        raise InvalidValueError(
            f"{name} must leave something for workers and ps, got {limit:g}, of which the nodes of "
            f"external.roles take {used:.4g}; raise it, or give these nodes less"
        )
    return None if limit is None else limit - used

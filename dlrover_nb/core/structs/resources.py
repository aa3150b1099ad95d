"""What a job runs on: roles, plans, and the difference between two plans.

A plan says how many nodes of each role run and what each may use. It is homogeneous per role, as in
DLRover-RM's plan space (w, p, lambda_w, lambda_p); a single node's exception belongs to a mitigation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import CapacityError, StaleDecisionError
from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CPU_STEP = 0.01  # cores; finer differences mean nothing to any scheduler
# Beyond any cluster, and small enough that placing so many nodes in thought costs neither memory nor time.
MOST_NODES = 100_000
MOST_CPU = 10_000
MOST_MEMORY_MIB = 1 << 30
GIB_PER_CORE = 8  # of memory that weigh as much as a core: about the ratio of their list prices


class Role(StrEnum):
    """Kind of node of a parameter-server job."""

    WORKER = "worker"
    PS = "ps"


@dataclass(frozen=True, slots=True)
class RolePlan:
    """How many nodes of one role, and what each of them may use.

    Parameters
    ----------
    count
        Number of nodes, 1 to 100,000.
    cpu
        Cores per node, > 0 to 10,000, rounded to 1/100.
    memory_mib
        Memory per node in MiB, 64 to 2**30.
    """

    count: int
    cpu: float
    memory_mib: int

    def __post_init__(self) -> None:
        _check.at_least("node count", self.count, 1, hint="a job needs at least 1 worker and 1 PS")
        _check.above_zero("cpu per node", self.cpu)
        _check.at_least("memory_mib per node", self.memory_mib, 64)
        _check.at_most("node count", self.count, MOST_NODES)
        _check.at_most("cpu per node", self.cpu, MOST_CPU)
        _check.at_most("memory_mib per node", self.memory_mib, MOST_MEMORY_MIB)
        object.__setattr__(self, "cpu", round(max(self.cpu, CPU_STEP), 2))

    @property
    def total_cpu(self) -> float:
        """Cores of all nodes of the role."""
        return self.count * self.cpu

    @property
    def total_memory_mib(self) -> int:
        """MiB of all nodes of the role."""
        return self.count * self.memory_mib

    def __str__(self) -> str:
        return f"{self.count} x {self.cpu:g} cpu, {self.memory_mib} MiB"


@dataclass(frozen=True, slots=True)
class ResourcePlan:
    """What should run: one `RolePlan` for the workers, one for the parameter servers."""

    worker: RolePlan
    ps: RolePlan

    @property
    def total_cpu(self) -> float:
        """Cores of the whole job."""
        return round(self.worker.total_cpu + self.ps.total_cpu, 2)

    @property
    def total_memory_mib(self) -> int:
        """MiB of the whole job."""
        return self.worker.total_memory_mib + self.ps.total_memory_mib

    @property
    def effort(self) -> float:
        """Cores, with 8 GiB of memory as one: the size of a plan where money does not tell it."""
        return self.total_cpu + self.total_memory_mib / 1024 / GIB_PER_CORE

    def role(self, role: Role) -> RolePlan:
        """Return the part of one role."""
        return self.worker if role is Role.WORKER else self.ps

    def __str__(self) -> str:
        return f"workers {self.worker}; ps {self.ps}"

    @property
    def short(self) -> str:
        """Plan without memory, for labels: ``2w x 0.5 + 1p x 0.25``."""
        return f"{self.worker.count}w x {self.worker.cpu:g} + {self.ps.count}p x {self.ps.cpu:g}"


@dataclass(frozen=True, slots=True)
class RoleChange:
    """Change of one role: from `before` to `after`."""

    role: Role
    before: RolePlan
    after: RolePlan

    @property
    def added(self) -> int:
        """Nodes gained (negative: lost)."""
        return self.after.count - self.before.count

    @property
    def replaces_nodes(self) -> bool:
        """Whether every node must be replaced, because what each may use changes."""
        return (self.before.cpu, self.before.memory_mib) != (self.after.cpu, self.after.memory_mib)

    def __str__(self) -> str:
        return f"{self.role}: {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """How to get from one plan to another: the roles that change. Empty when nothing does."""

    changes: tuple[RoleChange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        return "; ".join(map(str, self.changes)) or "no change"

    @property
    def inverse(self) -> ScalePlan:
        """The way back."""
        return ScalePlan(tuple(RoleChange(c.role, c.after, c.before) for c in self.changes))


def diff(current: ResourcePlan, target: ResourcePlan) -> ScalePlan:
    """Return the change that turns `current` into `target`; `apply_scale` is its inverse."""
    pairs = ((role, current.role(role), target.role(role)) for role in Role)
    return ScalePlan(tuple(RoleChange(role, a, b) for role, a, b in pairs if a != b))


def apply_scale(current: ResourcePlan, scale: ScalePlan) -> ResourcePlan:
    """Return the plan after `scale`.

    Raises
    ------
    StaleDecisionError
        When `current` is not the plan that the change was computed for.
    """
    plan = current
    for change in scale.changes:
        if plan.role(change.role) != change.before:
            raise StaleDecisionError(
                f"the change expects {change.role} {change.before}, "
                f"but the job runs {plan.role(change.role)}; "
                "look at the current plan and decide again"
            )
        plan = (
            replace(plan, worker=change.after)
            if change.role is Role.WORKER
            else replace(plan, ps=change.after)
        )
    return plan


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What one machine offers to jobs, and how many such machines there are."""

    cpu: float
    memory_mib: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a job may use at the most: machine shapes, largest first.

    A job's nodes must each fit on a machine, and all of them together on all machines (first-fit,
    decreasing: the test that the plan space makes).
    """

    shapes: tuple[NodeShape, ...]

    @property
    def total_cpu(self) -> float:
        """Cores of all machines."""
        return sum(s.cpu * s.count for s in self.shapes)

    @property
    def total_memory_mib(self) -> int:
        """MiB of all machines."""
        return sum(s.memory_mib * s.count for s in self.shapes)


Need = tuple[float, int]  # cores and MiB of one node


def in_steps(cpu: float) -> int:
    """Return whole CPU steps in `cpu`: as integers, sums of hundredths are exact."""
    return int(cpu / CPU_STEP + 1e-6)


def plan_needs(plan: ResourcePlan) -> list[Need]:
    """Return what each node of a plan needs."""
    roles = [plan.role(role) for role in Role]
    return [(role.cpu, role.memory_mib) for role in roles for _ in range(role.count)]


def fits(capacity: Capacity, needs: Iterable[Need]) -> bool:
    """Whether nodes with these needs all find a place: first fit, largest first.

    Size is the larger share of all cores and of all memory. First fit is no optimal packing; it errs on
    the safe side: what it places can be placed.
    """
    free = [[in_steps(s.cpu), s.memory_mib] for s in capacity.shapes for _ in range(s.count)]
    total_cpu, total_mib = (max(sum(column), 1) for column in zip(*free, strict=True)) if free else (1, 1)
    nodes = [(in_steps(cpu), memory_mib) for cpu, memory_mib in needs]
    for cpu, memory_mib in sorted(nodes, key=lambda n: max(n[0] / total_cpu, n[1] / total_mib), reverse=True):
        machine = next((m for m in free if cpu <= m[0] and memory_mib <= m[1]), None)
        if machine is None:
            return False
        machine[0] -= cpu
        machine[1] -= memory_mib
    return True


def n_more(capacity: Capacity, present: Sequence[Need], need: Need, *, at_most: int) -> int:
    """Return how many more nodes of one kind, up to `at_most`, fit beside those present."""
    if at_most <= 0 or fits(capacity, [*present, *[need] * at_most]):
        return max(0, at_most)
    n, too_many = 0, at_most
    while too_many - n > 1:
        middle = (n + too_many) // 2
        n, too_many = (middle, too_many) if fits(capacity, [*present, *[need] * middle]) else (n, middle)
    return n


def check_fits(plan: ResourcePlan, capacity: Capacity) -> None:
    """Refuse a plan whose nodes do not all find a place.

    Raises
    ------
    CapacityError
        It says what was asked, what there is, and how many workers of this size would fit.
    """
    if fits(capacity, plan_needs(plan)):
        return
    machines = ", ".join(f"{s.count} x {s.cpu:g} cores and {s.memory_mib} MiB" for s in capacity.shapes)
    raise CapacityError(
        f"the plan must fit on the machines ({machines or 'none'}), got {plan.short} = "
        f"{plan.total_cpu:g} cores and {plan.total_memory_mib} MiB; {_possible(plan, capacity)}"
    )


def _possible(plan: ResourcePlan, capacity: Capacity) -> str:
    """Say of a plan without room how much of it would fit."""
    worker, ps = ((role.cpu, role.memory_mib) for role in (plan.worker, plan.ps))
    for name, (cpu, mib) in (("worker", worker), ("PS", ps)):
        if not fits(capacity, [(cpu, mib)]):
            return f"no machine holds one {name} of {cpu:g} cores and {mib} MiB; ask for what one machine has"
    most = n_more(capacity, [], ps, at_most=plan.ps.count)
    if most < plan.ps.count:
        return f"only {most} PS of this size fit, without any worker; ask for fewer or smaller ones"
    most = n_more(capacity, [ps] * plan.ps.count, worker, at_most=plan.worker.count - 1)
    if most:
        return f"beside these PS, {most} worker{'s' * (most != 1)} of this size would fit"
    return "not even 1 worker of this size fits beside these PS; give each node less"


@dataclass(frozen=True, slots=True)
class PlanBounds:
    """The plans that a job may be given.

    Parameters
    ----------
    max_workers, max_ps
        Largest counts, 1 to 100,000.
    worker_cpus, ps_cpus
        Allowed cores per node, ascending, not empty.
    quota_cpu, quota_memory_mib
        The most that the whole job may use, whatever the machines hold; None means no quota.
    """

    max_workers: int = 4
    max_ps: int = 2
    worker_cpus: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    ps_cpus: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    quota_cpu: float | None = None
    quota_memory_mib: int | None = None

    def __post_init__(self) -> None:
        for name in ("quota_cpu", "quota_memory_mib"):
            if getattr(self, name) is not None:
                _check.above_zero(name, getattr(self, name))
        _check.at_least("max_workers", self.max_workers, 1)
        _check.at_least("max_ps", self.max_ps, 1)
        _check.at_most("max_workers", self.max_workers, MOST_NODES)
        _check.at_most("max_ps", self.max_ps, MOST_NODES)
        for name in ("worker_cpus", "ps_cpus"):
            values = tuple(sorted({round(float(v), 2) for v in getattr(self, name)}))
            _check.at_least(f"number of {name}", len(values), 1)
            _check.above_zero(f"least of {name}", values[0])
            object.__setattr__(self, name, values)


@dataclass(frozen=True, slots=True)
class Pins:
    """Parts of every plan that the user has fixed; None leaves a part to the search.

    The search treats a pin as a constraint: no candidate, proposal or automatic change departs from it.
    """

    workers: int | None = None
    ps: int | None = None
    worker_cpu: float | None = None
    ps_cpu: float | None = None
    worker_memory_mib: int | None = None
    ps_memory_mib: int | None = None

    def __post_init__(self) -> None:
        for name in ("workers", "ps"):
            if getattr(self, name) is not None:
                _check.at_least(f"pinned {name}", getattr(self, name), 1)
        for name in ("worker_cpu", "ps_cpu"):
            if getattr(self, name) is not None:
                _check.above_zero(f"pinned {name}", getattr(self, name))
                object.__setattr__(self, name, round(max(getattr(self, name), CPU_STEP), 2))
        for name in ("worker_memory_mib", "ps_memory_mib"):
            if getattr(self, name) is not None:
                _check.at_least(f"pinned {name}", getattr(self, name), 64)

    def __bool__(self) -> bool:
        return any(getattr(self, name) is not None for name in self.__slots__)

    def __str__(self) -> str:
        fixed = ((name, getattr(self, name)) for name in self.__slots__)
        return ", ".join(f"{name} = {value:g}" for name, value in fixed if value is not None) or "nothing"

    def allows(self, plan: ResourcePlan) -> bool:
        """Whether a plan keeps to every pin."""
        return self.applied(plan) == plan

    def applied(self, plan: ResourcePlan) -> ResourcePlan:
        """Return the plan with each pinned part set to its pin."""
        worker = _pinned(plan.worker, (self.workers, self.worker_cpu, self.worker_memory_mib))
        return ResourcePlan(worker, _pinned(plan.ps, (self.ps, self.ps_cpu, self.ps_memory_mib)))


def _pinned(role: RolePlan, pins: tuple[int | None, float | None, int | None]) -> RolePlan:
    own = (role.count, role.cpu, role.memory_mib)
    count, cpu, memory_mib = (mine if pin is None else pin for pin, mine in zip(pins, own, strict=True))
    return RolePlan(int(count), cpu, int(memory_mib))


@dataclass(frozen=True, slots=True)
class Quota:
    """The most that a whole plan may use of a cluster that others use too; None: as much as it finds."""

    cpu: float | None = None
    memory_mib: int | None = None

    def __post_init__(self) -> None:
        for name in ("cpu", "memory_mib"):
            if getattr(self, name) is not None:
                _check.above_zero(f"quota of {name}", getattr(self, name))

    def __str__(self) -> str:
        cpu = "" if self.cpu is None else f"{self.cpu:g} cores"
        memory = "" if self.memory_mib is None else f"{self.memory_mib} MiB"
        return " and ".join(part for part in (cpu, memory) if part) or "no quota"

    def allows(self, plan: ResourcePlan) -> bool:
        """Whether a plan keeps to it."""
        cpu_fits = self.cpu is None or plan.total_cpu <= self.cpu + CPU_STEP / 2
        return cpu_fits and (self.memory_mib is None or plan.total_memory_mib <= self.memory_mib)


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Money per resource and hour; None is a price that nobody knows.

    The default is a rounded list price of general-purpose virtual machines; it is an assumption,
    shown as such, until the user gives the prices that they pay. With an unknown price no money is shown
    for any plan: a sum with a part left out would be a wrong number.
    """

    currency: str = "USD"
    cpu_hour: float | None = 0.034
    gib_hour: float | None = 0.0045
    assumed: bool = True

    def __post_init__(self) -> None:
        for name in ("cpu_hour", "gib_hour"):
            if getattr(self, name) is not None:
                _check.at_least(f"{name} price", getattr(self, name), 0)

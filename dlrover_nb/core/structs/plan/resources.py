"""Roles, plans, and the difference between two plans.

A plan says how many nodes of each role run and what each may use. It is homogeneous per role, as in
DLRover-RM's plan space (w, p, lambda_w, lambda_p); an exception for a single node belongs to a mitigation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from dlrover_nb.core.structs import _check

CPU_STEP = 0.01  # cores; schedulers ignore finer differences
# Beyond any cluster, and small enough to compute a placement of so many nodes.
MOST_NODES = 100_000
MOST_CPU = 10_000
MOST_MEMORY_MIB = 1 << 30
MEMORY_STEP_MIB = 64  # sizes that a plan is given are whole steps
GIB_PER_CORE = 8  # of memory that weigh as much as a core: about the ratio of their list prices


Axes = tuple[int, int, float, float]  # of a plan: counts of workers and of PS, cores of each

ROLE_NAME = re.compile(r"[a-z][a-z0-9]{0,19}")  # without hyphens: names of nodes are ROLE-NUMBER


class Role(StrEnum):
    """Kind of node.

    Its members are the two roles that a plan sizes. An external job may have others (`structs.external`):
    ``Role("evaluator")`` is a value like them, which no loop over `Role` meets, so that planners never do.
    """

    WORKER = "worker"
    PS = "ps"

    @classmethod
    def _missing_(cls, value: object) -> Role | None:
        """Return the role of another name, always the same object; None where that is no name of a role."""
        if not isinstance(value, str) or ROLE_NAME.fullmatch(value) is None:
            return None
        made = str.__new__(cls, value)
        made._name_, made._value_ = value.upper(), value
        return cls._value2member_map_.setdefault(value, made)  # type: ignore[return-value]  # a map of any enum


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
class PsShare:
    """MiB that parameter servers need: each for itself, and all together, however many they are.

    `least_mib` is the least that each may be given where it needs clearly less than now; 0: never less.
    """

    own_mib: int = 0
    shared_mib: int = 0
    least_mib: int = 0


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
    def axes(self) -> Axes:
        """What determines the speed of a plan: all but its memory."""
        return self.worker.count, self.ps.count, self.worker.cpu, self.ps.cpu

    @property
    def effort(self) -> float:
        """Cores, with 8 GiB of memory as one: the size of a plan where prices are unknown."""
        return self.total_cpu + self.total_memory_mib / 1024 / GIB_PER_CORE

    def role(self, role: Role) -> RolePlan:
        """Return the part of a role that plans size."""
        assert role in {Role.WORKER, Role.PS}, role
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


def diff(current: ResourcePlan, target: ResourcePlan) -> ScalePlan:
    """Return the change that turns `current` into `target`."""
    pairs = ((role, current.role(role), target.role(role)) for role in Role)
    return ScalePlan(tuple(RoleChange(role, a, b) for role, a, b in pairs if a != b))

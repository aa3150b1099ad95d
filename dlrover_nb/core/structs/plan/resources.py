"""Roles, plans, and the difference between two plans.

A plan says how many nodes of each role run and what each may use. It is homogeneous per role, as in
DLRover-RM's plan space (w, p, lambda_w, lambda_p); an exception for a single node belongs to a mitigation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CPU_STEP = 0.01  # cores; schedulers ignore finer differences
# Beyond any cluster, and small enough to compute a placement of so many nodes.
MOST_NODES = 100_000
MOST_CPU = 10_000
MOST_MEMORY_MIB = 1 << 30
MOST_GPU = 1024  # of one node
MEMORY_STEP_MIB = 64  # sizes that a plan is given are whole steps
GIB_PER_CORE = 8  # of memory that weigh as much as a core: about the ratio of their list prices
CORES_PER_GPU = 10  # that weigh as much as a GPU, likewise: of a small one


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


Size = tuple[float, int]  # cores and MiB of one node: what plans vary, and what a node gets in place


class Need(NamedTuple):
    """What one node holds of a machine."""

    cpu: float
    memory_mib: int
    gpu: int = 0

    @property
    def words(self) -> str:
        """It for people: ``4 cores and 8192 MiB``."""
        return amount_words(*self)


def amount_words(cpu: float, memory_mib: float, gpu: float = 0) -> str:
    """Return cores, MiB and, where there are any, GPUs for people."""
    parts = [f"{cpu:g} cores", f"{memory_mib:.0f} MiB"]
    if gpu:
        parts = [", ".join(parts), f"{gpu:g} GPU{'s' * (gpu != 1)}"]
    return " and ".join(parts)


def with_gpus(sizes: Sequence[Size], gpus: Sequence[int]) -> list[Need]:
    """Return what nodes of these sizes hold, with the GPUs of each; none where these are not given."""
    return [Need(*size, gpu) for size, gpu in zip(sizes, gpus or [0] * len(sizes), strict=True)]


def sizes_and_gpus(needs: Sequence[Need]) -> tuple[tuple[Size, ...], tuple[int, ...]]:
    """Return the sizes of nodes and, where one has some, the GPUs of each: what `with_gpus` joins."""
    gpus = tuple(need.gpu for need in needs)
    return tuple(need[:2] for need in needs), gpus if any(gpus) else ()


def total_need(needs: Iterable[Need]) -> Need:
    """Return the sum of what nodes hold."""
    every = tuple(needs)
    cpu, memory_mib, gpu = (sum(column) for column in zip(*every, strict=True)) if every else (0.0, 0, 0)
    return Need(round(cpu, 2), int(memory_mib), int(gpu))


@dataclass(frozen=True, slots=True)
class RolePlan:
    """How many nodes of one role, and what each of them may use.

    Plans vary counts, cores and memory. The GPUs of a node are the job's, the same in each of its plans: a
    program computes on those that it was written for, and a second one would idle.

    Parameters
    ----------
    count
        Number of nodes, 1 to 100,000.
    cpu
        Cores per node, > 0 to 10,000, rounded to 1/100.
    memory_mib
        Memory per node in MiB, 64 to 2**30.
    gpu
        GPUs per node, 0 to 1,024: whole ones, for the node alone.
    """

    count: int
    cpu: float
    memory_mib: int
    gpu: int = 0

    def __post_init__(self) -> None:
        _check.at_least("node count", self.count, 1, hint="a job needs at least 1 worker and 1 PS")
        _check.above_zero("cpu per node", self.cpu)
        _check.at_least("memory_mib per node", self.memory_mib, 64)
        _check.at_most("node count", self.count, MOST_NODES)
        _check.at_most("cpu per node", self.cpu, MOST_CPU)
        _check.at_most("memory_mib per node", self.memory_mib, MOST_MEMORY_MIB)
        _check.at_least("gpu per node", self.gpu, 0)
        _check.at_most("gpu per node", self.gpu, MOST_GPU)
        object.__setattr__(self, "cpu", round(max(self.cpu, CPU_STEP), 2))

    @property
    def need(self) -> Need:
        """What each node holds of a machine."""
        return Need(self.cpu, self.memory_mib, self.gpu)

    @property
    def total_cpu(self) -> float:
        """Cores of all nodes of the role."""
        return self.count * self.cpu

    @property
    def total_memory_mib(self) -> int:
        """MiB of all nodes of the role."""
        return self.count * self.memory_mib

    @property
    def total_gpu(self) -> int:
        """GPUs of all nodes of the role."""
        return self.count * self.gpu

    def __str__(self) -> str:
        gpu = f", {self.gpu} gpu" if self.gpu else ""
        return f"{self.count} x {self.cpu:g} cpu, {self.memory_mib} MiB{gpu}"


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
    def total_gpu(self) -> int:
        """GPUs of the whole job."""
        return self.worker.total_gpu + self.ps.total_gpu

    @property
    def gpus(self) -> tuple[int, int]:
        """GPUs of each worker and of each PS."""
        return self.worker.gpu, self.ps.gpu

    def with_gpus(self, gpus: tuple[int, int]) -> ResourcePlan:
        """Return it with these GPUs of each worker and of each PS."""
        if self.gpus == gpus:
            return self
        return ResourcePlan(replace(self.worker, gpu=gpus[0]), replace(self.ps, gpu=gpus[1]))

    @property
    def effort(self) -> float:
        """Cores, 8 GiB of memory as one, a GPU as ten: the size of a plan where prices are unknown."""
        return self.total_cpu + self.total_memory_mib / 1024 / GIB_PER_CORE + self.total_gpu * CORES_PER_GPU

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

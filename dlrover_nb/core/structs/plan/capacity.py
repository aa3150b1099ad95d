"""What machines offer, and whether the nodes of a plan fit on them.

`fits` is the definition: first fit, decreasing, node by node. The plan space (`pareto.bin_packing`) and the
simulator place groups of nodes and give the same answers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import CapacityError
from dlrover_nb.core.structs.plan.resources import CPU_STEP, ResourcePlan, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class NodeShape:
    """Cores and memory of one machine, and the number of such machines."""

    cpu: float
    memory_mib: int
    count: int = 1


Need = tuple[float, int]  # cores and MiB of one node


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """The sizes that a rule of the cluster lets one node have, whatever machines hold.

    Parameters
    ----------
    least_cpu, least_memory_mib, most_cpu, most_memory_mib
        None: not limited, as far as is known.
    why
        The rule, in the cluster's words.
    """

    least_cpu: float | None = None
    least_memory_mib: int | None = None
    most_cpu: float | None = None
    most_memory_mib: int | None = None
    why: str = ""

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) is not None for field in fields(self) if field.name != "why")

    def allow(self, need: Need) -> bool:
        """Whether a node may have these cores and MiB."""
        return not self.broken(need)

    def broken(self, need: Need) -> tuple[str, ...]:
        """Return which of ``cpu`` and ``memory_mib`` are out of the limits."""
        limits = {
            "cpu": (self.least_cpu, need[0], self.most_cpu),
            "memory_mib": (self.least_memory_mib, need[1], self.most_memory_mib),
        }
        return tuple(
            name
            for name, (least, value, most) in limits.items()
            if (least is not None and value < least - 1e-9) or (most is not None and value > most + 1e-9)
        )

    def narrowed(self, other: NodeLimits) -> NodeLimits:
        """Return limits that hold both; the words are those of `other`."""
        both = {
            name: [v for v in (getattr(self, name), getattr(other, name)) if v is not None]
            for name in ("least_cpu", "least_memory_mib", "most_cpu", "most_memory_mib")
        }
        return NodeLimits(
            **{n: (max(v) if n.startswith("least") else min(v)) if v else None for n, v in both.items()},
            why=other.why or self.why,
        )

    @property
    def words(self) -> str:
        """The limits, and the rule."""
        named = (
            ("at least", self.least_cpu, "cores"),
            ("at least", self.least_memory_mib, "MiB"),
            ("at most", self.most_cpu, "cores"),
            ("at most", self.most_memory_mib, "MiB"),
        )
        sizes = " and ".join(f"{how} {value:g} {unit}" for how, value, unit in named if value is not None)
        return f"the cluster lets one node have {sizes}" + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True, slots=True)
class Capacity:
    """The most that a job may use: machine shapes, largest first.

    A job's nodes must each fit on a machine, and all of them together on all machines (first-fit,
    decreasing: the test that the plan space makes). `note` says what else than machines limits them.
    `node_limits` are those that it refused nodes by; None: it refused none.
    """

    shapes: tuple[NodeShape, ...]
    note: str = ""
    node_limits: NodeLimits | None = None

    @property
    def total_cpu(self) -> float:
        """Cores of all machines."""
        return sum(s.cpu * s.count for s in self.shapes)

    @property
    def total_memory_mib(self) -> int:
        """MiB of all machines."""
        return sum(s.memory_mib * s.count for s in self.shapes)

    @property
    def most_memory_mib(self) -> int:
        """MiB that one node can have: of the largest machine, within the limits."""
        limit = None if self.node_limits is None else self.node_limits.most_memory_mib
        most = max((shape.memory_mib for shape in self.shapes), default=0)
        return most if limit is None else min(most, limit)


def in_steps(cpu: float) -> int:
    """Return whole CPU steps in `cpu`: as integers, sums of hundredths are exact."""
    return int(cpu / CPU_STEP + 1e-6)


def plan_needs(plan: ResourcePlan, own: Iterable[tuple[Role, Need]] = ()) -> list[Need]:
    """Return what each node of a plan needs.

    Parameters
    ----------
    own
        Role and need of each node that does not have the size of its role.
    """
    needs, excepted = list[Need](), list(own)
    for role in Role:
        plan_of, others = plan.role(role), [need for of, need in excepted if of is role]
        needs += [*others, *[(plan_of.cpu, plan_of.memory_mib)] * (plan_of.count - len(others))]
    return needs


def change_needs(now: ResourcePlan, plan: ResourcePlan) -> list[Need]:
    """Return what nodes hold while new PS start beside those that serve; nothing where no PS is new.

    Surplus workers have left by then; workers of another size are replaced after it.
    """
    keeps_ps = (now.ps.cpu, now.ps.memory_mib) == (plan.ps.cpu, plan.ps.memory_mib)
    n_new = plan.ps.count - (min(now.ps.count, plan.ps.count) if keeps_ps else 0)
    if n_new == 0:
        return []
    worker, then = now.worker, plan.worker
    keeps_workers = (worker.cpu, worker.memory_mib) == (then.cpu, then.memory_mib)
    n_worker = min(worker.count, then.count) if keeps_workers else worker.count
    return [
        *[(worker.cpu, worker.memory_mib)] * n_worker,
        *[(now.ps.cpu, now.ps.memory_mib)] * now.ps.count,
        *[(plan.ps.cpu, plan.ps.memory_mib)] * n_new,
    ]


def holds(capacity: Capacity, plan: ResourcePlan) -> bool:
    """Whether a plan's nodes all fit, and the cluster lets each have its size."""
    limits = capacity.node_limits
    sizes = ((role.cpu, role.memory_mib) for role in (plan.worker, plan.ps))
    return (limits is None or all(map(limits.allow, sizes))) and fits(capacity, plan_needs(plan))


def fits(capacity: Capacity, needs: Iterable[Need]) -> bool:
    """Whether nodes with these needs all fit: first fit, largest first.

    Size is the larger share of all cores and of all memory. First fit is no optimal packing; it errs on
    the safe side: a placement that it finds exists. Nodes that run are among them, so limits of their
    sizes, which may be younger than they are, do not count here but in `holds`.
    """
    return _placed(capacity, needs) is not None


def without(capacity: Capacity, needs: Iterable[Need]) -> Capacity | None:
    """Return what nodes with these needs leave of the machines, placed as by `fits`; None if they do not."""
    free = _placed(capacity, needs)
    if free is None:
        return None
    shapes = (
        NodeShape(round(cpu * CPU_STEP, 2), memory_mib, len(list(alike)))
        for (cpu, memory_mib), alike in groupby(sorted(map(tuple, free), reverse=True))
    )
    return replace(capacity, shapes=tuple(shapes))


def _placed(capacity: Capacity, needs: Iterable[Need]) -> list[list[int]] | None:
    """Return the CPU steps and MiB of each machine that a placement leaves; None where there is none."""
    free = [[in_steps(s.cpu), s.memory_mib] for s in capacity.shapes for _ in range(s.count)]
    total_cpu, total_mib = (max(sum(column), 1) for column in zip(*free, strict=True)) if free else (1, 1)
    runs = [((in_steps(cpu), mib), len(list(run))) for (cpu, mib), run in groupby(needs)]
    for (cpu, mib), n_node in sorted(
        runs, key=lambda run: max(run[0][0] / total_cpu, run[0][1] / total_mib), reverse=True
    ):
        left = n_node  # a thousand nodes are a few runs of the same size: each fills machine after machine
        for machine in free:
            n = min(machine[0] // cpu if cpu else left, machine[1] // mib if mib else left, left)
            machine[0] -= n * cpu
            machine[1] -= n * mib
            left -= n
        if left:
            return None
    return free


def machines(capacity: Capacity) -> str:
    """Return the machines in words."""
    shapes = (f"{s.count} x {s.cpu:g} cores and {s.memory_mib} MiB" for s in capacity.shapes)
    limits = capacity.node_limits.words if capacity.node_limits else ""
    return "; ".join(filter(None, (", ".join(shapes) or "none", capacity.note, limits)))


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
    """Refuse a plan whose nodes do not all fit.

    Raises
    ------
    CapacityError
        With the requested plan, the machines, and how many workers of this size would fit.
    """
    if holds(capacity, plan):
        return
    raise CapacityError(
        f"the plan must fit on the machines ({machines(capacity)}), got {plan.short} = "
        f"{plan.total_cpu:g} cores and {plan.total_memory_mib} MiB; {_possible(plan, capacity)}"
    )


def _possible(plan: ResourcePlan, capacity: Capacity) -> str:
    """Return how much of a plan that does not fit would fit."""
    worker, ps = ((role.cpu, role.memory_mib) for role in (plan.worker, plan.ps))
    for name, (cpu, mib) in (("worker", worker), ("PS", ps)):
        if capacity.node_limits is not None and not capacity.node_limits.allow((cpu, mib)):
            return (
                f"the cluster has refused nodes as one {name} of {cpu:g} cores and {mib} MiB; choose a size "
                "within its limits"
            )
        if not fits(capacity, [(cpu, mib)]):
            return (
                f"no machine holds one {name} of {cpu:g} cores and {mib} MiB; "
                "choose a size that fits one machine"
            )
    most = n_more(capacity, [], ps, at_most=plan.ps.count)
    if most < plan.ps.count:
        return f"only {most} PS of this size fit, without any worker; ask for fewer or smaller ones"
    most = n_more(capacity, [ps] * plan.ps.count, worker, at_most=plan.worker.count - 1)
    if most:
        return f"beside these PS, {most} worker{'s' * (most != 1)} of this size would fit"
    return "not even 1 worker of this size fits beside these PS; choose smaller nodes"

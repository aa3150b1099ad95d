"""What machines offer, and whether the nodes of a plan fit on them.

`fits` is the definition: first fit, decreasing, node by node. The plan space (`pareto.bin_packing`) and the
simulator place groups of nodes and give the same answers.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import CapacityError
from dlrover_nb.core.structs.plan.resources import CPU_STEP, Need, ResourcePlan, Role, Size, amount_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@dataclass(frozen=True, slots=True)
class NodeShape:
    """Cores, memory and GPUs of one machine, and the number of such machines."""

    cpu: float
    memory_mib: int
    count: int = 1
    gpu: int = 0


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

    def allow(self, need: Size) -> bool:
        """Whether a node may have these cores and MiB."""
        return not self.broken(need)

    def broken(self, need: Size) -> tuple[str, ...]:
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
    def total_gpu(self) -> int:
        """GPUs of all machines."""
        return sum(s.gpu * s.count for s in self.shapes)

    @property
    def most_memory_mib(self) -> int:
        """MiB that one node can have: of the largest machine, within the limits."""
        limit = None if self.node_limits is None else self.node_limits.most_memory_mib
        most = max((shape.memory_mib for shape in self.shapes), default=0)
        return most if limit is None else min(most, limit)


def in_steps(cpu: float) -> int:
    """Return whole CPU steps in `cpu`: as integers, sums of hundredths are exact."""
    return int(cpu / CPU_STEP + 1e-6)


def plan_needs(plan: ResourcePlan, own: Iterable[tuple[Role, Size]] = ()) -> list[Need]:
    """Return what each node of a plan needs.

    Parameters
    ----------
    own
        Role and size of each node that does not have the size of its role.
    """
    needs, excepted = list[Need](), list(own)
    for role in Role:
        plan_of = plan.role(role)
        others = [Need(*size, plan_of.gpu) for of, size in excepted if of is role]
        needs += [*others, *[plan_of.need] * (plan_of.count - len(others))]
    return needs


def change_needs(now: ResourcePlan, plan: ResourcePlan) -> list[Need]:
    """Return what nodes hold while new PS start beside those that serve; nothing where no PS is new.

    Surplus workers have left by then; workers of another size are replaced after it.
    """
    keeps_ps = now.ps.need == plan.ps.need
    n_new = plan.ps.count - (min(now.ps.count, plan.ps.count) if keeps_ps else 0)
    if n_new == 0:
        return []
    worker, then = now.worker, plan.worker
    n_worker = min(worker.count, then.count) if worker.need == then.need else worker.count
    return [*[worker.need] * n_worker, *[now.ps.need] * now.ps.count, *[plan.ps.need] * n_new]


def holds(capacity: Capacity, plan: ResourcePlan) -> bool:
    """Whether a plan's nodes all fit, and the cluster lets each have its size."""
    limits = capacity.node_limits
    sizes = (role.need[:2] for role in (plan.worker, plan.ps))
    return (limits is None or all(map(limits.allow, sizes))) and fits(capacity, plan_needs(plan))


def fits(capacity: Capacity, needs: Iterable[Need]) -> bool:
    """Whether nodes with these needs all fit: first fit, largest first.

    Nodes with GPUs come first, as few machines have some. Size is the larger share of all cores and of all
    memory. First fit is no optimal packing; it errs on the safe side: a placement that it finds exists. Nodes
    that run are among them, so limits of their sizes, which may be younger than they are, do not count here
    but in `holds`.
    """
    return _placed(capacity, needs) is not None


def without(capacity: Capacity, needs: Iterable[Need]) -> Capacity | None:
    """Return what nodes with these needs leave of the machines, placed as by `fits`; None if they do not."""
    free = _placed(capacity, needs)
    if free is None:
        return None
    shapes = (
        NodeShape(round(cpu * CPU_STEP, 2), memory_mib, len(list(alike)), gpu)
        for (cpu, memory_mib, gpu), alike in groupby(sorted(map(tuple, free), reverse=True))
    )
    return replace(capacity, shapes=tuple(shapes))


def _placed(capacity: Capacity, needs: Iterable[Need]) -> list[list[int]] | None:
    """Return the CPU steps, MiB and GPUs that a placement leaves of each machine; None: there is none."""
    free = [[in_steps(s.cpu), s.memory_mib, s.gpu] for s in capacity.shapes for _ in range(s.count)]
    size = _size(free)
    runs = [(_in_steps(Need(*need)), len(list(run))) for need, run in groupby(needs)]
    for node, n_node in sorted(runs, key=lambda run: size(run[0]), reverse=True):
        if _fill(free, node, n_node) < n_node:
            return None
    return free


def _in_steps(need: Need) -> tuple[int, int, int]:
    return in_steps(need.cpu), need.memory_mib, need.gpu


def _size(free: list[list[int]]) -> Callable[[tuple[int, int, int]], tuple[bool, float]]:
    """Return by what nodes are sorted: those with GPUs, then the larger share of all cores and memory."""
    total_cpu, total_mib = max(sum(m[0] for m in free), 1), max(sum(m[1] for m in free), 1)
    return lambda node: (node[2] > 0, max(node[0] / total_cpu, node[1] / total_mib))


def _fill(free: list[list[int]], node: tuple[int, int, int], n_node: int) -> int:
    """Place alike nodes on machine after machine; return how many of them found room."""
    left = n_node  # a thousand nodes are a few runs of the same size
    cpu, memory_mib, gpu = node
    for machine in free:
        n = left
        if cpu:
            n = min(n, machine[0] // cpu)
        if memory_mib:
            n = min(n, machine[1] // memory_mib)
        if gpu:
            n = min(n, machine[2] // gpu)
        machine[0] -= n * cpu
        machine[1] -= n * memory_mib
        machine[2] -= n * gpu
        left -= n
        if not left:
            break
    return n_node - left


def machines(capacity: Capacity) -> str:
    """Return the machines in words."""
    shapes = (f"{s.count} x {amount_words(s.cpu, s.memory_mib, s.gpu)}" for s in capacity.shapes)
    limits = capacity.node_limits.words if capacity.node_limits else ""
    return "; ".join(filter(None, (", ".join(shapes) or "none", capacity.note, limits)))


def n_more(capacity: Capacity, present: Sequence[Need], need: Need, *, at_most: int) -> int:
    """Return how many more nodes of one kind, up to `at_most`, fit beside those present."""
    return n_more_of_each(capacity, present, [(need, at_most)])[0]


def n_more_of_each(
    capacity: Capacity, present: Sequence[Need], kinds: Sequence[tuple[Need, int]]
) -> list[int]:
    """Return `n_more` of each of several kinds, each alone beside those present, up to its number.

    Those present are placed once for all kinds.
    """
    free = _placed(capacity, present) if any(at_most > 0 for _, at_most in kinds) else None
    if free is None:
        return [0] * len(kinds)
    size = _size([[in_steps(s.cpu) * s.count, s.memory_mib * s.count, 0] for s in capacity.shapes])
    least = min((size(_in_steps(Need(*each))) for each in dict.fromkeys(present)), default=(True, inf))
    rooms = list[int]()
    for need, at_most in kinds:
        own = _in_steps(Need(*need))
        if at_most <= 0:
            rooms.append(0)
        elif size(own) <= least:  # they are placed after all that are present: these lie as without them
            rooms.append(_fill([machine.copy() for machine in free], own, at_most))
        else:
            rooms.append(_most_that_fit(capacity, present, need, at_most))
    return rooms


def _most_that_fit(capacity: Capacity, present: Sequence[Need], need: Need, at_most: int) -> int:
    """Return how many more nodes fit where each number of them is another placement of all."""
    if fits(capacity, [*present, *[need] * at_most]):
        return at_most
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
    check_has_gpus(capacity, plan.total_gpu)
    amount = amount_words(plan.total_cpu, plan.total_memory_mib, plan.total_gpu)
    raise CapacityError(
        f"the plan must fit on the machines ({machines(capacity)}), got {plan.short} = "
        f"{amount}; {_possible(plan, capacity)}"
    )


def check_has_gpus(capacity: Capacity, n_gpu: int) -> None:
    """Refuse GPUs on machines that have none, which no smaller number of nodes would mend.

    Raises
    ------
    CapacityError
        Where some are wanted, and no machine is known to have any.
    """
    if n_gpu and not capacity.total_gpu:
        raise CapacityError(
            f"the cluster has no GPUs, and the job asks for {n_gpu}; set gpu of its roles to 0, or submit it "
            "to a cluster whose machines have some"
        )


def _possible(plan: ResourcePlan, capacity: Capacity) -> str:
    """Return how much of a plan that does not fit would fit."""
    worker, ps = plan.worker.need, plan.ps.need
    for name, need in (("worker", worker), ("PS", ps)):
        if capacity.node_limits is not None and not capacity.node_limits.allow(need[:2]):
            return (
                f"the cluster has refused nodes as one {name} of {need.words}; choose a size within its "
                "limits"
            )
        if not fits(capacity, [need]):
            return f"no machine holds one {name} of {need.words}; choose a size that fits one machine"
    most = n_more(capacity, [], ps, at_most=plan.ps.count)
    if most < plan.ps.count:
        return f"only {most} PS of this size fit, without any worker; ask for fewer or smaller ones"
    most = n_more(capacity, [ps] * plan.ps.count, worker, at_most=plan.worker.count - 1)
    if most:
        return f"beside these PS, {most} worker{'s' * (most != 1)} of this size would fit"
    return "not even 1 worker of this size fits beside these PS; choose smaller nodes"

"""Where nodes would stand if they were placed on the machines now, largest first: an estimate.

A job does not tell on which machine its nodes run, and not all clusters know. Placing them anew gives the
sums exactly, and per machine what a scheduler that packs would have done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.capacity import in_steps
from dlrover_nb.core.structs.plan.resources import CPU_STEP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.plan.capacity import Capacity, Need


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine and what stands on it: (job, cores, MiB) for each node, largest first."""

    cpu: float
    memory_mib: int
    nodes: tuple[tuple[str, float, int], ...] = ()

    @property
    def used_cpu(self) -> float:
        """Cores that nodes hold."""
        return round(sum(cpu for _, cpu, _ in self.nodes), 2)

    @property
    def used_memory_mib(self) -> int:
        """MiB that nodes hold."""
        return sum(mib for _, _, mib in self.nodes)

    @property
    def free_cpu(self) -> float:
        """Cores that are left."""
        return round(self.cpu - self.used_cpu, 2)

    @property
    def free_memory_mib(self) -> int:
        """MiB that are left."""
        return self.memory_mib - self.used_memory_mib


def machines_of(capacity: Capacity, needs: Iterable[tuple[str, Need]]) -> tuple[Machine, ...]:
    """Return the machines with the nodes of jobs on them, the largest first.

    A node that no machine has room for (they are placed otherwise in truth) is spread over several: so no
    more is said to be free than is in sum.
    """
    free = [[in_steps(s.cpu), s.memory_mib] for s in capacity.shapes for _ in range(s.count)]
    nodes: list[list[tuple[str, int, int]]] = [[] for _ in free]
    wanted = ((job, in_steps(cpu), mib) for job, (cpu, mib) in needs)
    for job, cpu, mib in sorted(wanted, key=lambda each: each[1:], reverse=True):
        at = next((i for i, m in enumerate(free) if cpu <= m[0] and mib <= m[1]), None)
        for i, (cpu_part, mib_part) in [(at, (cpu, mib))] if at is not None else _spread(free, cpu, mib):
            free[i][0], free[i][1] = free[i][0] - cpu_part, free[i][1] - mib_part
            nodes[i].append((job, cpu_part, mib_part))
    shapes = [(s.cpu, s.memory_mib) for s in capacity.shapes for _ in range(s.count)]
    return tuple(
        Machine(cpu, mib, tuple((job, steps * CPU_STEP, own) for job, steps, own in on))
        for (cpu, mib), on in zip(shapes, nodes, strict=True)
    )


def _spread(free: list[list[int]], cpu: int, mib: int) -> list[tuple[int, tuple[int, int]]]:
    """Return the parts of a node on the machines that have most left."""
    parts = []
    for i in sorted(range(len(free)), key=lambda i: free[i], reverse=True):
        part = min(free[i][0], cpu), min(free[i][1], mib)
        if any(part):
            parts.append((i, part))
            cpu, mib = cpu - part[0], mib - part[1]
    return parts

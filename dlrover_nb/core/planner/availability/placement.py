"""Where nodes would stand if they were placed on the machines now, largest first: an estimate.

A job does not tell on which machine its nodes run, and not all clusters know. Placing them anew gives the
sums exactly, and per machine what a scheduler that packs would have done.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import le, sub
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.capacity import in_steps
from dlrover_nb.core.structs.plan.resources import CPU_STEP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import Need


Steps = tuple[int, int, int]  # CPU steps, MiB and GPUs


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine and what stands on it: (job, cores, MiB) for each node, largest first."""

    cpu: float
    memory_mib: int
    nodes: tuple[tuple[str, float, int], ...] = ()
    free_gpu: int = 0

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
    free = [[in_steps(s.cpu), s.memory_mib, s.gpu] for s in capacity.shapes for _ in range(s.count)]
    nodes: list[list[tuple[str, int, int]]] = [[] for _ in free]
    wanted = ((job, (in_steps(need.cpu), need.memory_mib, need.gpu)) for job, need in needs)
    for job, node in sorted(wanted, key=lambda each: (each[1][2] > 0, each[1]), reverse=True):
        at = next((i for i, m in enumerate(free) if all(map(le, node, m))), None)
        for i, part in [(at, node)] if at is not None else _spread(free, node):
            free[i] = list(map(sub, free[i], part))
            nodes[i].append((job, *part[:2]))
    shapes = [(s.cpu, s.memory_mib) for s in capacity.shapes for _ in range(s.count)]
    return tuple(
        Machine(cpu, mib, tuple((job, steps * CPU_STEP, own) for job, steps, own in on), left[2])
        for (cpu, mib), on, left in zip(shapes, nodes, free, strict=True)
    )


def _spread(free: list[list[int]], node: Steps) -> list[tuple[int, Steps]]:
    """Return the parts of a node on the machines that have most left."""
    parts, left = [], list(node)
    for i in sorted(range(len(free)), key=lambda i: free[i], reverse=True):
        cpu, mib, gpu = map(min, free[i], left)
        if cpu or mib or gpu:
            parts.append((i, (cpu, mib, gpu)))
            left = [left[0] - cpu, left[1] - mib, left[2] - gpu]
    return parts

"""Load of a simulated cluster, from its world: the places of nodes, and what their newest reports used.

Nothing runs there but our jobs, so others hold nothing, and what nodes report is all that is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.cluster.cluster_load import Amount, ClusterLoad, MachineLoad, by_job, total
from dlrover_nb.core.structs.plan.resources import CPU_STEP

if TYPE_CHECKING:
    from dlrover_nb.core.simulator.cluster import Place
    from dlrover_nb.core.simulator.world import SimulatedWorld
    from dlrover_nb.core.structs.views.snapshot import NodeView

_Placed = tuple[str, "Place", "NodeView"]


def simulated_load(world: SimulatedWorld) -> ClusterLoad:
    """Return the load of all machines at this moment of the world."""
    on: dict[int, list[_Placed]] = {}
    for job in world.jobs:
        for place, view in job.placed:
            on.setdefault(place.machine, []).append((job.job.spec.name, place, view))
    return ClusterLoad(
        tuple(
            _machine(f"machine-{number}", Amount(cpu, float(mib)), on.get(number - 1, []))
            for number, (cpu, mib) in enumerate(world.cluster.machines, 1)
        )
    )


def _machine(name: str, has: Amount, placed: list[_Placed]) -> MachineLoad:
    allocated = by_job((job, Amount(at.cpu_steps * CPU_STEP, float(at.memory_mib))) for job, at, _ in placed)
    used = total(Amount(v.last.cpu_cores, v.last.memory_mib) for _, _, v in placed if v.last is not None)
    return MachineLoad(name, has, allocated, used=used)

"""Load of this machine: what running nodes of local jobs hold, and what all its processes use.

No scheduler divides this machine, so others hold nothing here; what they use is in `used`.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.local.backend import running_nodes
from dlrover_nb.core.host_use import host_use
from dlrover_nb.core.structs.cluster.cluster_load import Amount, ClusterLoad, MachineLoad, by_job

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.structs.plan.capacity import Capacity


def local_load(capacity: Capacity, jobs: Path) -> ClusterLoad:
    """Return the load of this machine.

    Parameters
    ----------
    capacity
        What it offers to jobs.
    jobs
        The folder of run folders.
    """
    has = Amount(capacity.total_cpu, float(capacity.total_memory_mib))
    job_loads = by_job((c.spec.name, Amount(c.cpu, float(c.memory_mib))) for c in running_nodes(jobs))
    name = socket.gethostname()
    return ClusterLoad((MachineLoad(name, has, job_loads, used=host_use()),), place=f"local {name}")

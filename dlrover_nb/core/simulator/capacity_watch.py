"""What a job is told of the room that there is: its own and what is free, when it changed materially."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.simulator.cluster import SimCluster
    from dlrover_nb.core.simulator.sim_nodes import SimNode
    from dlrover_nb.core.structs.capacity import Capacity
    from dlrover_nb.core.structs.job import JobSpec


class CapacityWatch:
    """Looks at the cluster for one job, from time to time.

    Parameters
    ----------
    spec
        Of the job: no room is told beyond what the largest of its plans has nodes for.
    every_s
        Time between two looks.
    change
        Relative change of the cores in reach that is news.

    Attributes
    ----------
    known
        What the job was told last.
    """

    def __init__(self, cluster: SimCluster, spec: JobSpec, *, every_s: float, change: float) -> None:
        self._cluster, self._every_s, self._change = cluster, every_s, change
        most = spec.bounds.max_workers + spec.bounds.max_ps
        self._n_node = max(most, spec.plan.worker.count + spec.plan.ps.count)
        self._checked_s, self._seen = -math.inf, -1
        self.known = cluster.capacity

    def check(self, nodes: Iterable[SimNode], at_s: float, *, must: bool = False) -> Capacity | None:
        """Return the room if it is news, else None; `must`: do not wait for the next look."""
        if self._cluster.n_change == self._seen:
            return None
        if not must and at_s < self._checked_s + self._every_s:
            return None
        is_first = self._seen < 0
        self._checked_s, self._seen = at_s, self._cluster.n_change
        room = self._cluster.room_for((n.place for n in nodes if n.place is not None), self._n_node)
        cores = self.known.total_cpu
        if not is_first and abs(room.total_cpu - cores) <= self._change * cores:
            return None
        self.known = room
        return room

"""Material changes of the capacity in reach of a simulated job: its own nodes and what is free."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.default_bounds import completed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.simulator.cluster import SimCluster
    from dlrover_nb.core.simulator.description import WorldSettings
    from dlrover_nb.core.simulator.one_job.sim_nodes import SimNode
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity


class CapacityWatch:
    """Periodic check of the cluster for one job.

    Parameters
    ----------
    spec
        Of the job: capacity beyond the nodes of its largest plan is not reported.
    settings
        Interval of checks, and the relative change of cores in reach that is reported.

    Attributes
    ----------
    known
        The capacity that was reported last.
    """

    def __init__(self, cluster: SimCluster, spec: JobSpec, settings: WorldSettings) -> None:
        self._cluster, self._settings = cluster, settings
        most = sum(completed(spec.bounds, cluster.capacity, spec.plan).counts)
        self._n_node = max(most, spec.plan.worker.count + spec.plan.ps.count)
        self._checked_s, self._seen = -math.inf, -1
        self.known = cluster.capacity

    def check(self, nodes: Iterable[SimNode], at_s: float, *, must: bool = False) -> Capacity | None:
        """Return the capacity if it changed materially, else None; `must` ignores the interval."""
        if self._cluster.n_change == self._seen:
            return None
        if not must and at_s < self._checked_s + self._settings.room_every_s:
            return None
        is_first = self._seen < 0
        self._checked_s, self._seen = at_s, self._cluster.n_change
        room = self._cluster.room_for((n.place for n in nodes if n.place is not None), self._n_node)
        cores = self.known.total_cpu
        if not is_first and abs(room.total_cpu - cores) <= self._settings.room_change * cores:
            return None
        self.known = room
        return room

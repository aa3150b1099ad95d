"""What `Cluster.load` returns: the load of a cluster now, and its recent past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.widgets.clusters.cluster_load import load_view
from dlrover_nb.widgets.rows.columns import through
from dlrover_nb.widgets.rows.tables import Columns, Tables, fields, one

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.history.stores.load_series import LoadPoint
    from dlrover_nb.core.structs.cluster.cluster_load import Amount, ClusterLoad, MachineLoad
    from dlrover_nb.widgets.blocks import View

_AMOUNTS: dict[str, Callable[[MachineLoad], object]] = fields(  # None: could not be read or measured
    "cpu=has.cpu jobs_cpu=by_jobs.cpu others_cpu=others.cpu idle_cpu=idle.cpu used_cpu=used.cpu "
    "memory_mib=has.memory_mib jobs_memory_mib=by_jobs.memory_mib others_memory_mib=others.memory_mib "
    "idle_memory_mib=idle.memory_mib used_memory_mib=used.memory_mib"
)
_LOAD: Columns[LoadView] = Columns(
    {**fields("cluster=description"), **through("load", _AMOUNTS), **fields("notes=load.notes")}
)
_MACHINES: Columns[MachineLoad] = Columns({**fields("machine=name"), **_AMOUNTS})
_HOLDERS: Columns[tuple[str, str, Amount]] = Columns(
    fields("machine=0 job=1 cpu=2.cpu memory_mib=2.memory_mib")
)
_POINTS: Columns[LoadPoint] = Columns(
    fields(
        "at_s n_sample cpu=has.cpu jobs_cpu=by_jobs.cpu idle_cpu=idle.cpu used_cpu=used.cpu "
        "memory_mib=has.memory_mib jobs_memory_mib=by_jobs.memory_mib idle_memory_mib=idle.memory_mib "
        "used_memory_mib=used.memory_mib"
    )
)


@dataclass(frozen=True, slots=True, repr=False)
class LoadView(Shown):
    """The load of a cluster now, and points of all machines together, oldest first."""

    description: str
    load: ClusterLoad
    points: tuple[LoadPoint, ...] = ()

    def view(self) -> View:
        """Return the content."""
        return load_view(self.description, self.load, self.points)

    def tables(self) -> Tables:
        """Return it as data: all machines together (the head), each of them, and the recent past."""
        machines = self.load.machines
        tables = {
            "machines": _MACHINES.table(machines),
            "jobs": _HOLDERS.table((m.name, job, amount) for m in machines for job, amount in m.jobs),
            "series": _POINTS.table(self.points),
        }
        return Tables(one(_LOAD, self), tables, "machines")

"""Columns of the machines and the load of a cluster; null is what could not be read or measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.widgets.rows.tables import Columns

if TYPE_CHECKING:
    from dlrover_nb.core.history.load_series import LoadPoint
    from dlrover_nb.core.structs.cluster.cluster_load import Amount, ClusterLoad, MachineLoad
    from dlrover_nb.core.structs.plan.capacity import NodeShape


def _cpu(amount: Amount | None) -> float | None:
    return None if amount is None else amount.cpu


def _mib(amount: Amount | None) -> float | None:
    return None if amount is None else amount.memory_mib


MACHINES: Columns[NodeShape] = Columns(
    {"machines": lambda m: m.count, "cpu": lambda m: m.cpu, "memory_mib": lambda m: m.memory_mib}
)
LOAD: Columns[tuple[str, ClusterLoad]] = Columns(
    {
        "cluster": lambda k: k[0],
        "cpu": lambda k: _cpu(k[1].has),
        "jobs_cpu": lambda k: k[1].by_jobs.cpu,
        "others_cpu": lambda k: _cpu(k[1].others),
        "idle_cpu": lambda k: _cpu(k[1].idle),
        "used_cpu": lambda k: _cpu(k[1].used),
        "memory_mib": lambda k: _mib(k[1].has),
        "jobs_memory_mib": lambda k: k[1].by_jobs.memory_mib,
        "others_memory_mib": lambda k: _mib(k[1].others),
        "idle_memory_mib": lambda k: _mib(k[1].idle),
        "used_memory_mib": lambda k: _mib(k[1].used),
        "notes": lambda k: k[1].notes,
    }
)
MACHINE_LOADS: Columns[MachineLoad] = Columns(
    {
        "machine": lambda m: m.name,
        "cpu": lambda m: _cpu(m.has),
        "jobs_cpu": lambda m: m.by_jobs.cpu,
        "others_cpu": lambda m: _cpu(m.others),
        "idle_cpu": lambda m: _cpu(m.idle),
        "used_cpu": lambda m: _cpu(m.used),
        "memory_mib": lambda m: _mib(m.has),
        "jobs_memory_mib": lambda m: m.by_jobs.memory_mib,
        "others_memory_mib": lambda m: _mib(m.others),
        "idle_memory_mib": lambda m: _mib(m.idle),
        "used_memory_mib": lambda m: _mib(m.used),
    }
)
HOLDERS: Columns[tuple[str, str, Amount]] = Columns(
    {
        "machine": lambda h: h[0],
        "job": lambda h: h[1],
        "cpu": lambda h: h[2].cpu,
        "memory_mib": lambda h: h[2].memory_mib,
    }
)
LOAD_POINTS: Columns[LoadPoint] = Columns(
    {
        "at_s": lambda p: p.at_s,
        "n_sample": lambda p: p.n_sample,
        "cpu": lambda p: _cpu(p.has),
        "jobs_cpu": lambda p: _cpu(p.by_jobs),
        "idle_cpu": lambda p: _cpu(p.idle),
        "used_cpu": lambda p: _cpu(p.used),
        "memory_mib": lambda p: _mib(p.has),
        "jobs_memory_mib": lambda p: _mib(p.by_jobs),
        "idle_memory_mib": lambda p: _mib(p.idle),
        "used_memory_mib": lambda p: _mib(p.used),
    }
)

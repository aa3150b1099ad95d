"""The load of a cluster as a view: its machines, who holds them, and the recent past."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Facts, Paragraph, Table, Tone, View
from dlrover_nb.widgets.charts import cluster_load as charts
from dlrover_nb.widgets.svg.sparkline import sparkline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.history.stores.load_series import LoadPoint
    from dlrover_nb.core.structs.cluster.cluster_load import Amount, ClusterLoad, MachineLoad
    from dlrover_nb.widgets.blocks import Block

MACHINES = (
    "machine",
    "cores",
    "held by jobs",
    "by others",
    "idle",
    "used",
    "memory",
    "held by jobs",
    "by others",
    "idle",
    "used",
    "jobs",
)
NO_SERIES = "No samples are kept yet; each of these calls writes one:"


def load_view(title: str, load: ClusterLoad, points: Sequence[LoadPoint]) -> View:
    """Return the load now, and the points of all machines together, oldest first."""
    blocks: list[Block] = [Facts(totals(load)), machines_table(load)]
    if load.jobs:
        rows = tuple((job, units.cores(a.cpu), units.memory(a.memory_mib)) for job, a in load.jobs)
        blocks.append(Table("Jobs", ("job", "cores", "memory"), rows))
    blocks += [Paragraph(f"{note[:1].upper()}{note[1:]}.", Tone.HINT) for note in load.notes]
    return View(title, (*blocks, *_recent(load, points)))


def totals(load: ClusterLoad) -> tuple[tuple[str, str], ...]:
    """Return the sums over all machines, in words."""
    over = load.over
    rows = (
        ("has", load.has),
        ("held by jobs", load.by_jobs),
        ("held by others", load.others),
        ("idle", load.idle),
        ("used", load.used),
    )
    words = tuple((name, _words(amount)) for name, amount in rows)
    is_over = over is not None and (over.cpu > 0 or over.memory_mib > 0)
    return (*words, ("held beyond that", _words(over))) if is_over else words


def machines_table(load: ClusterLoad) -> Table:
    """Return a row of each machine."""
    return Table("Machines", MACHINES, tuple(map(_row, load.machines)))


def _row(machine: MachineLoad) -> tuple[str, ...]:
    parts = (machine.has, machine.by_jobs, machine.others, machine.idle, machine.used)
    return (
        machine.name,
        *(units.cores(part.cpu if part else None) for part in parts),
        *(units.memory(part.memory_mib if part else None) for part in parts),
        ", ".join(job for job, _ in machine.jobs) or units.MISSING,
    )


def _words(amount: Amount | None) -> str:
    if amount is None:
        return "not known"
    return f"{units.cores(amount.cpu)} cores, {units.memory(amount.memory_mib)}"


def _recent(load: ClusterLoad, points: Sequence[LoadPoint]) -> tuple[Block, ...]:
    if not load.place:
        return ()
    if not points:
        return (Paragraph(NO_SERIES, Tone.HINT, ("%dlrover show --machines --record",)),)
    lines = [
        (label, f"{bars} up to {units.cores(max(part.cores))} cores")
        for label, _, _, of in charts.PARTS[1:]
        if (bars := sparkline((part := charts.curve(points, of)).cores))
    ]
    return (*((Facts(tuple(lines)),) if lines else ()), charts.static(points))

"""What a connection displays: the cluster, its capacity, and the rights of the connected user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs.cluster.cluster_access import NOTHING
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Facts, Paragraph, Table, Tone, Verbatim, View
from dlrover_nb.widgets.rows.tables import Columns, Tables, fields, one

if TYPE_CHECKING:
    from dlrover_nb.core.structs.cluster.cluster_access import Allowed, ClusterAccess
    from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
    from dlrover_nb.widgets.blocks import Block

_CLUSTER: Columns[ConnectionView] = Columns(
    fields(
        "cluster=description total_cpu=room.total_cpu total_memory_mib=room.total_memory_mib message "
        "ask=standing.ask"
    )
)
_MACHINES: Columns[NodeShape] = Columns(fields("machines=count cpu memory_mib gpu"))
_RIGHTS: Columns[Allowed] = Columns(
    {
        **fields("what right"),
        "allowed": lambda r: not r.missing,
        **fields("missing"),
        "needed": lambda r: not r.optional,
    }
)


@dataclass(frozen=True, slots=True, repr=False)
class ConnectionView(Shown):
    """A cluster, its capacity, and the rights of the connected user."""

    description: str
    capacity: Capacity | DlroverError  # why nothing is known of it
    standing: ClusterAccess = NOTHING

    @property
    def room(self) -> Capacity | None:
        """The capacity; None: it is not known."""
        return None if isinstance(self.capacity, DlroverError) else self.capacity

    @property
    def message(self) -> str:
        """Why the capacity is not known; empty: it is."""
        return str(self.capacity) if isinstance(self.capacity, DlroverError) else ""

    def view(self) -> View:
        """Return the content."""
        facts, rights, room = self.standing.facts, _allowed_blocks(self.standing), self.room
        if room is None:
            return View(self.description, (Facts(facts), Paragraph(self.message, Tone.WARNING), *rights))
        cores, memory = f"{room.total_cpu:g} cores", units.memory(room.total_memory_mib)
        gpus = f", {room.total_gpu} GPU{'s' * (room.total_gpu != 1)}" if room.total_gpu else ""
        total = Facts((*facts, ("in all", f"{cores}, {memory}{gpus}")))
        n_column = 4 if room.total_gpu else 3
        rows = ((f"{s.count}", f"{s.cpu:g}", units.memory(s.memory_mib), f"{s.gpu}") for s in room.shapes)
        head = ("machines", "cores each", "memory each", "GPUs each")
        machines = Table("Machines", head[:n_column], tuple(row[:n_column] for row in rows))
        return View(self.description, (total, machines, *rights))

    def tables(self) -> Tables:
        """Return it as data: its machines, and the user's rights there."""
        tables = {
            "machines": _MACHINES.table(self.room.shapes if self.room is not None else ()),
            "rights": _RIGHTS.table(self.standing.allowed),
        }
        return Tables(one(_CLUSTER, self), tables)


def _allowed_blocks(access: ClusterAccess) -> tuple[Block, ...]:
    """Return the rights, and those to request; nothing where the cluster has no access control."""
    if not access.allowed:
        return ()
    rows = tuple((each.what, each.right, _verdict(each)) for each in access.allowed)
    table = Table("What you may do here", ("to", "rights to", "allowed"), rows)
    if not access.ask:
        return (table,)
    ask = "Jobs need more rights than you have here. Give this to your cluster's administrator."
    return (table, Paragraph(ask, Tone.WARNING), Verbatim(access.ask))


def _verdict(each: Allowed) -> str:
    if not each.missing:
        return "yes"
    return f"no: {', '.join(each.missing)}" + " (not needed)" * each.optional

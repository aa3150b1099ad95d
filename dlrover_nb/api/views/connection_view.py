"""What a connection displays: the cluster, its capacity, and the rights of the connected user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs.cluster.cluster_access import NOTHING
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Facts, Paragraph, Table, Tone, Verbatim, View
from dlrover_nb.widgets.rows import results

if TYPE_CHECKING:
    from dlrover_nb.core.structs.cluster.cluster_access import Allowed, ClusterAccess
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.widgets.blocks import Block
    from dlrover_nb.widgets.rows.tables import Tables


@dataclass(frozen=True, slots=True, repr=False)
class ConnectionView(Shown):
    """A cluster, its capacity, and the rights of the connected user."""

    description: str
    capacity: Capacity | DlroverError  # why nothing is known of it
    standing: ClusterAccess = NOTHING

    def view(self) -> View:
        """Return the content."""
        facts, rights = self.standing.facts, _allowed_blocks(self.standing)
        if isinstance(self.capacity, DlroverError):
            return View(
                self.description, (Facts(facts), Paragraph(str(self.capacity), Tone.WARNING), *rights)
            )
        c = self.capacity
        total = Facts((*facts, ("in all", f"{c.total_cpu:g} cores, {units.memory(c.total_memory_mib)}")))
        rows = tuple((f"{s.count}", f"{s.cpu:g}", units.memory(s.memory_mib)) for s in c.shapes)
        machines = Table("Machines", ("machines", "cores each", "memory each"), rows)
        return View(self.description, (total, machines, *rights))

    def tables(self) -> Tables:
        """Return it as data."""
        if isinstance(self.capacity, DlroverError):
            return results.cluster(self.description, None, str(self.capacity), self.standing)
        return results.cluster(self.description, self.capacity, "", self.standing)


def _allowed_blocks(access: ClusterAccess) -> tuple[Block, ...]:
    """Return the rights, and those to request; nothing where the cluster has no access control."""
    if not access.allowed:
        return ()
    rows = tuple((each.what, each.right, _verdict(each)) for each in access.allowed)
    table = Table("What you may do here", ("to", "rights to", "allowed"), rows)
    if not access.ask:
        return (table,)
    ask = "Jobs need more rights than you have here; give this to the administrator of the cluster."
    return (table, Paragraph(ask, Tone.WARNING), Verbatim(access.ask))


def _verdict(each: Allowed) -> str:
    if not each.missing:
        return "yes"
    return f"no: {', '.join(each.missing)}" + " (not needed)" * each.optional

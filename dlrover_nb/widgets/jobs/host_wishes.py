"""The preferred hosts of a job's nodes, the hosts they got, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.views.snapshot import NodeView

NOTE = "Wishes, not demands: where a host has filled up, the cluster places the node by its own rule."
_HEAD = ("node", "wished on", "stands on", "because")


def host_blocks(nodes: Iterable[NodeView]) -> tuple[Block, ...]:
    """Return a table of the nodes with a preferred host; nothing where there are none."""
    rows = tuple(
        (node.id, node.wish.host, node.wish.got or units.MISSING, node.wish.why)
        for node in nodes
        if node.wish is not None
    )
    return (Table("Hosts", _HEAD, rows, NOTE),) if rows else ()

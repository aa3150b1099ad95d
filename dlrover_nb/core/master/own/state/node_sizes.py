"""Nodes that do not have the size of their role: the controller counts by what each may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.master.own.state.roster import size_of
from dlrover_nb.core.master.shared.orders import Emit
from dlrover_nb.core.structs.decisions.actions import SetSize
from dlrover_nb.core.structs.views.events import NodeSizesSet

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.state.state import JobState


def present(state: JobState) -> tuple[SetSize, ...]:
    """Return the sizes of the nodes that have another one than their role by now."""
    return tuple(
        SetSize(node.id, node.role, node.cpu, node.memory_mib)
        for node in state.roster.nodes
        if node.size == (node.cpu, node.memory_mib)
        and node.resizing is None
        and node.size != size_of(state.target.role(node.role))
    )


def emit(state: JobState, at_s: float) -> None:
    """Emit the sizes when they have changed.

    A restarted master emits them once in any case: its predecessor may have ended before it could.
    """
    sizes = present(state)
    if sizes != state.node_sizes_emitted and not state.is_ended:
        state.node_sizes_emitted = sizes
        state.orders.append(Emit(NodeSizesSet(at_s, sizes)))

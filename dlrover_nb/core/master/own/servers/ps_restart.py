"""Who keeps the parameters while the PS restart, in pods whose files go with them.

Workers, and PS that stay or are up for the next group, keep copies in memory. If one dies before
the new PS have read it, that costs what the loss of a PS does; where none has the memory, the plan
fails: it would lose all trained parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.master.own.checkpoints import peer_copies
from dlrover_nb.core.master.own.state.resizing import awaited
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState, RestorableCheckpoint

NOTHING_KEPT = (
    "new parameter servers would have to load what these save, which is lost with their pods; "
    "set checkpoint_url, let peers keep copies (peer_copies: auto), or choose a plan that fits beside the "
    "present one"
)


def is_possible(state: JobState) -> bool:
    """Whether anything can outlast the present PS."""
    return state.keeps_checkpoints or peer_copies.are_made(state)


def fitting(state: JobState) -> list[Node]:
    """Return the PS that are as the target says, or about to be: those that are up first."""
    want, coming = state.target.ps, awaited(state, Role.PS)
    nodes = [node for node in state.roster.ps if node.has_shape(want) or node in coming]
    return sorted(nodes, key=lambda node: not node.is_up)


def holders(state: JobState) -> tuple[str, ...] | None:
    """Return the nodes that keep the parts, as they are there before and after; None: files do."""
    if state.keeps_checkpoints:
        return None
    target = state.target
    staying = [node for node in state.roster.workers if not node.is_draining]
    workers = [node for node in staying if node.has_shape(target.worker)][: target.worker.count]
    return tuple(node.id for node in (*fitting(state)[: target.ps.count], *workers))


def has_copies(state: JobState, checkpoint: RestorableCheckpoint) -> bool:
    """Whether a checkpoint without files is kept, though others may be needed to outlast another target."""
    return not state.keeps_checkpoints and peer_copies.is_whole(checkpoint, peer_copies.living(state))


def is_kept(state: JobState, checkpoint: RestorableCheckpoint) -> bool:
    """Whether others can read a checkpoint without the present PS."""
    names = holders(state)
    return checkpoint.is_on_disk if names is None else peer_copies.is_whole(checkpoint, names)

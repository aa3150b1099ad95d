"""Messages of nodes, each handed to the module that handles it."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.master.own.checkpoints import checkpoint_coordinator, copy_coordinator
from dlrover_nb.core.master.own.nodes import fencing, liveness, oom_recovery, shard_requests
from dlrover_nb.core.master.own.servers import migration_coordinator, ps_group
from dlrover_nb.core.master.own.state import resizing
from dlrover_nb.core.structs.training.resize_messages import Resized
from dlrover_nb.core.structs.wire.copy_messages import CopyKept, Cut
from dlrover_nb.core.structs.wire.messages import (
    Alive,
    BatchSkipped,
    Copied,
    Forgotten,
    Hello,
    Left,
    Loaded,
    Moved,
    NodeFailed,
    Paused,
    Report,
    Saved,
    ShardAsked,
    ShardFinished,
    StreamEnded,
)
from dlrover_nb.core.structs.wire.mitigation_messages import ShardReturned

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.structs.wire.messages import FromNode


def handle_message(  # noqa: C901, PLR0912 - one flat branch per message
    state: JobState, node: Node, message: FromNode, at_s: float, arrays: Sequence[NDArray[np.generic]]
) -> None:
    """Handle one message of a living node."""
    match message:
        case Hello():
            shard_requests.hear_again(state, node, message, at_s)
            liveness.on_hello(state, node, message, at_s)
        case (Alive() | Report() | ShardAsked() | ShardFinished() | BatchSkipped() | StreamEnded()
              | ShardReturned() | Paused()):  # fmt: skip
            shard_requests.handle_message(state, node, message, at_s, arrays)
        case Cut():
            checkpoint_coordinator.on_cut(state, node, message, at_s)
        case Copied():
            checkpoint_coordinator.on_copied(state, node, message, at_s)
        case CopyKept():
            copy_coordinator.on_copy_kept(state, node, message)
        case Saved():
            checkpoint_coordinator.on_saved(state, node, message, at_s)
        case Moved():
            migration_coordinator.on_moved(state, node, message, at_s)
        case Forgotten():
            fencing.on_forgotten(state, node, message.worker)
        case Loaded():
            ps_group.on_loaded(state, node, message, at_s)
        case Resized():
            resizing.on_resized(state, node, message, at_s)
        case Left():
            shard_requests.on_left(state, node, message, at_s)
        case NodeFailed():
            oom_recovery.node_failed(state, node, message, at_s)
        case _ as never:
            assert_never(never)

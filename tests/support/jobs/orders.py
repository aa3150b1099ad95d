"""Orders of actions against stragglers, as the requests that people make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.commands.node_actions import Mitigate
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
    SetSize,
)

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.actions import Action


def ordered(action: Action, *, why: str = "") -> Mitigate:
    """Return the request that orders an action."""
    match action:
        case KillRestart():
            return Mitigate(restart=action.node, why=why)
        case MoveBuckets():
            return Mitigate(move=action.ps, why=why)
        case AdjustBatches():
            return Mitigate(batches=dict(action.sizes), accumulate=dict(action.accumulate) or None, why=why)
        case BackupWorkers():
            return Mitigate(backup=action.n, why=why)
        case AdjustRates():
            return Mitigate(rates=dict(action.factors), why=why)
        case SetSize():
            return Mitigate(cores={action.node: action.cpu}, memory={action.node: action.memory_mib}, why=why)

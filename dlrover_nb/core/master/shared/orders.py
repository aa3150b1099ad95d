"""Orders of the job master to its driver, and events for the controller.

`JobMaster` does no input or output: every method returns a tuple of these, and the driver executes them in
order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlrover_nb.core.sharding.manifest import Manifest
    from dlrover_nb.core.structs.plan.resources import Role
    from dlrover_nb.core.structs.views.events import Event
    from dlrover_nb.core.structs.wire.messages import ToNode


@dataclass(frozen=True, slots=True)
class StartNode:
    """Start a node through the backend, if possible not where the nodes to `avoid` stand.

    `gently` where others train meanwhile that its start must not slow down.
    """

    node: str
    role: Role
    cpu: float
    memory_mib: int
    avoid: tuple[str, ...] = ()
    gently: bool = False


@dataclass(frozen=True, slots=True)
class StopNode:
    """Kill a node."""

    node: str


@dataclass(frozen=True, slots=True)
class ResizeNode:
    """Change what a running node may use, through the backend."""

    node: str
    cpu: float
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a node."""

    node: str
    message: ToNode


@dataclass(frozen=True, slots=True)
class PrepareCheckpoint:
    """Create the folder of a checkpoint and check that it has space for about `n_byte`.

    Complete checkpoints of `spare`, oldest first, may be deleted where that makes enough space.
    """

    number: int
    n_byte: int
    spare: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Write the manifest of a checkpoint whose parts are all written."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class DropCheckpoint:
    """Delete a checkpoint that is no longer needed."""

    number: int


@dataclass(frozen=True, slots=True)
class SweepCheckpoints:
    """Delete the folders of all checkpoints up to `last` but `numbers`: no state names them."""

    numbers: tuple[int, ...]
    last: int


@dataclass(frozen=True, slots=True)
class Emit:
    """Pass an event to the controller."""

    event: Event


CheckpointAction = PrepareCheckpoint | WriteManifest | DropCheckpoint | SweepCheckpoints
Action = StartNode | StopNode | ResizeNode | Send | CheckpointAction
Order = Action | Emit

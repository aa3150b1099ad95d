"""What the master of a foreign job tells its surroundings to do."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.runtime.orders import Emit, StartNode, StopNode


@dataclass(frozen=True, slots=True)
class Gather:
    """Let a node's program run with these variables, anew if they are others than before.

    Parameters
    ----------
    node
        Its id.
    text
        Shell text that sets them; empty: end the program, and wait for others.
    """

    node: str
    text: str


ExternalAction = StartNode | StopNode | Gather
ExternalOrder = ExternalAction | Emit

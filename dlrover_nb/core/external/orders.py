"""The orders of the master of an external job."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.runtime.orders import Emit, StartNode, StopNode


@dataclass(frozen=True, slots=True)
class SendEnvironment:
    """Run a node's program with these variables; restart it if they changed.

    Parameters
    ----------
    node
        Its id.
    text
        Shell text that sets them; empty: end the program, and wait for new ones.
    """

    node: str
    text: str


ExternalAction = StartNode | StopNode | SendEnvironment
ExternalOrder = ExternalAction | Emit

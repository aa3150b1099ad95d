"""The orders of the master of an external job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.master.shared.orders import Emit, ResizeNode, StartNode, StopNode, WriteManifest

if TYPE_CHECKING:
    from dlrover_nb.core.structs.wire.services import ServiceAnswer


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


@dataclass(frozen=True, slots=True)
class SendAnswer:
    """Answer a call of a program.

    Parameters
    ----------
    ticket
        Number of the call.
    answer
        The answer.
    """

    ticket: int
    answer: ServiceAnswer


ExternalAction = StartNode | StopNode | ResizeNode | WriteManifest | SendEnvironment | SendAnswer
ExternalOrder = ExternalAction | Emit

"""What a cluster must do for a job: start, stop and watch nodes. Life cycle only.

A backend never talks to a node about training: nodes say Hello to the job master themselves and take
their orders over the wire. So it needs no answer from a node, its calls return at once, and everything
that it learns comes out of one non-blocking `poll`. The master's loop is the only caller; a backend
needs no lock.

A wide interface (restart, scale, wait until ready) was rejected: these are decisions, and they stand
once, in `core.runtime.master`, instead of once per kind of cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dlrover_nb.core.structs.capacity import Capacity
    from dlrover_nb.core.structs.external import Written
    from dlrover_nb.core.structs.messages import NodeConfig


@dataclass(frozen=True, slots=True)
class NodeExited:
    """A node that was started is gone, whatever the cause.

    Parameters
    ----------
    node
        Its id, as in its `NodeConfig`.
    why
        For people: exit code or signal, and the last words of its log where there are any.
    retryable
        False when a new node would fail in the same way (its image or program is missing, the cluster
        can never hold it): the job fails with `why` instead of starting another.
    was_killed
        Whether somebody ended it by force, as the kernel does with a process that takes too much memory.
    out_of_memory
        Whether that is known to be why.
    succeeded
        Whether it ended by itself with exit code 0, which only programs of others do before they are told.
    """

    node: str
    why: str
    retryable: bool = True
    was_killed: bool = False
    out_of_memory: bool = False
    succeeded: bool = False


class Backend(Protocol):
    """Starts, stops and watches the nodes of one job; held to `tests/core/backends/conformance.py`."""

    def capacity(self) -> Capacity:
        """Return what the job may use at the most."""
        ...

    def room(self) -> Capacity:
        """Return what the job holds now and what nobody does: what a plan may take at this moment."""
        ...

    def listen(self) -> str:
        """Return the prefix of endpoints for master and nodes: ``ipc``, or ``tcp://ADDRESS`` across hosts."""
        ...

    def start_node(self, config: NodeConfig) -> None:
        """Ask for a node that runs `core.runtime.node` with `config`; return at once.

        Whatever goes wrong, now or later, is told by `poll`, except a backend that is closed.

        Raises
        ------
        BackendError
            When the cluster cannot be reached at all.
        InvalidValueError
            When a node of this id was started before: ids are never used twice.
        """
        ...

    def adopt(self, nodes: Collection[str]) -> None:
        """Take over the nodes that a master before this one started; end all others that it left.

        Those that are gone are told by `poll`. A backend whose nodes never outlive their master tells all.
        """
        ...

    def stop_node(self, node: str) -> None:
        """End a node by force; no error when it is gone already or was never known."""
        ...

    def poll(self) -> tuple[NodeExited, ...]:
        """Return the nodes that ended since the last call, each once, those of `stop_node` too."""
        ...

    def meet(self, endpoint: str) -> None:
        """Let nodes that were started find the master at `endpoint`; return at once.

        For a master that came back under another address. A backend whose masters keep theirs does nothing.
        """
        ...

    def waiting(self) -> Mapping[str, str]:
        """Return the started nodes that cannot begin yet, and why, in the cluster's words.

        An empty reason: others hold the room that they need.
        """
        ...

    def close(self) -> None:
        """End all that this backend started and give back what it holds; a second call does nothing."""
        ...


class ExternalBackend(Backend, Protocol):
    """What runs programs of others, beyond what every backend does."""

    def addresses(self) -> Mapping[str, str]:
        """Return where the nodes are reached whose programs may begin."""
        ...

    def gather(self, node: str, text: str) -> None:
        """Have a node's program run with these variables; return at once."""
        ...

    def follow(self, since_ns: Mapping[str, int]) -> None:
        """Begin to read what programs write; of the nodes named, what came after that time alone."""
        ...

    def written(self) -> tuple[Written, ...]:
        """Return the lines that were written since the last call, each once, those of a node in order."""
        ...

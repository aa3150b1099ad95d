"""Interface of a cluster for a job: start, stop and observe nodes. Life cycle only.

A backend exchanges no messages with nodes: nodes send Hello to the job master themselves and get their orders
over the wire. So its calls return at once, and one non-blocking `poll` reports all that it observes. The
master's loop is the only caller; a backend needs no lock.

A wide interface (restart, scale, wait until ready) was rejected: these are decisions, and they are made once,
in `core.master.own.master`, instead of once per kind of cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dlrover_nb.core.structs.plan.capacity import NodeLimits  # noqa: TC001 - decoded by its annotations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.structs.cluster.host_wish import HostWish
    from dlrover_nb.core.structs.cluster.queue_quota import QueueQuota
    from dlrover_nb.core.structs.job.external import Written
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import Need, Size
    from dlrover_nb.core.structs.wire.node_config import NodeConfig


@dataclass(frozen=True, slots=True)
class NodeExited:
    """A node that was started is gone, whatever the cause.

    Parameters
    ----------
    node
        Its id, as in its `NodeConfig`.
    why
        For people: exit code or signal, and the error in its last lines, if there is one.
    retryable
        False when a new node would fail in the same way (its image or program is missing, the cluster
        can never hold it): the job fails with `why` instead of starting another.
    was_killed
        Whether it was ended by force, as by the kernel when a process takes too much memory.
    out_of_memory
        Whether that is the known cause.
    failed
        Whether its program ended by itself with an error: an exception, an exit code other than 0, or a fatal
        signal of its own. Not when something else ended it: a kill, an eviction, a machine that is gone.
    succeeded
        Whether it ended by itself with exit code 0, which only external programs do unrequested.
    refused
        The cluster did not let it be made, and nothing of it ever ran: the limits of a node's size that say
        why, empty where it is for another reason; None: it was not refused. A plan that ran before goes on.
    """

    node: str
    why: str
    retryable: bool = True
    was_killed: bool = False
    out_of_memory: bool = False
    failed: bool = False
    succeeded: bool = False
    refused: NodeLimits | None = None

    @property
    def by_its_work(self) -> bool:
        """Whether its own work may have ended it: a crash, a kill, memory. That is evidence against rows.

        An eviction, a preemption, a lost machine, a stop or a start that failed says nothing of what it did.
        """
        return self.failed or self.was_killed or self.out_of_memory


@dataclass(frozen=True, slots=True)
class NodeAllotted:
    """What became of a request for other cores and memory of a running node.

    Parameters
    ----------
    node, need
        As requested.
    why
        Why it cannot be had in place; empty: the node may use it now.
    """

    node: str
    need: Size
    why: str = ""


class Backend(Protocol):
    """Starts, stops and watches the nodes of one job; held to `tests/support/conformance/backend.py`."""

    def capacity(self) -> Capacity:
        """Return the job's maximum capacity."""
        ...

    def room(self) -> Capacity:
        """Return the job's present resources plus free ones: what a plan may take now."""
        ...

    def listen(self) -> str:
        """Return the prefix of endpoints for master and nodes: ``ipc``, or ``tcp://ADDRESS`` across hosts."""
        ...

    def start_node(self, config: NodeConfig) -> None:
        """Request a node that runs `core.runtime.node` with `config`; return at once.

        Every failure, now or later, is reported by `poll`, except that of a closed backend.

        Raises
        ------
        BackendError
            When the cluster cannot be reached at all.
        InvalidValueError
            When a node of this id was started before: ids are never used twice.
        """
        ...

    def adopt(self, nodes: Mapping[str, Need]) -> None:
        """Adopt the nodes that an earlier master started, with what each holds; end all others that it left.

        `poll` reports those that are gone. A backend whose nodes never outlive their master reports all.
        """
        ...

    def stop_node(self, node: str) -> None:
        """End a node by force; no error when it is gone already or was never known."""
        ...

    def poll(self) -> tuple[NodeExited, ...]:
        """Return the nodes that ended since the last call, each once, those of `stop_node` too."""
        ...

    def set_master_endpoint(self, endpoint: str) -> None:
        """Set the master's endpoint for started nodes; return at once.

        For a master restarted at another address. A backend whose masters keep theirs does nothing.
        """
        ...

    def waiting(self) -> Mapping[str, str]:
        """Return the started nodes that cannot begin yet, and why, in the cluster's words.

        An empty reason: others hold the resources that they need.
        """
        ...

    def denied(self) -> str:
        """Return which right the job lacks to be changed or mended now, and what to do; empty: none."""
        ...

    def close(self) -> None:
        """End all that this backend started and release its resources; a second call does nothing."""
        ...


@runtime_checkable
class ResizingBackend(Backend, Protocol):
    """A backend that may be able to change what a running node may use; the nodes of others are replaced."""

    def resizes_in_place(self) -> bool | None:
        """Return at once whether it can; None: that is not known yet."""
        ...

    def resize_node(self, node: str, need: Size) -> None:
        """Request other cores and memory for a running node; return at once.

        The last request for a node counts. `allotted` reports what became of it, unless the node ends before.
        """
        ...

    def allotted(self) -> tuple[NodeAllotted, ...]:
        """Return what became of requests since the last call, each once."""
        ...


@runtime_checkable
class PlacingBackend(Backend, Protocol):
    """A backend that wishes for hosts, by the load of all; elsewhere the cluster alone places nodes."""

    def host_wishes(self) -> Mapping[str, HostWish]:
        """Return the wishes of present nodes that have one, by their names; return at once."""
        ...


@runtime_checkable
class QueuedBackend(Backend, Protocol):
    """A backend whose cluster may keep a queue with quotas of its own."""

    def queue(self) -> QueueQuota | None:
        """Return what the job's queue admits, as last read; None: it has none. Return at once."""
        ...


class ExternalBackend(Backend, Protocol):
    """A backend of external programs: methods beyond those of every backend."""

    def addresses(self) -> Mapping[str, str]:
        """Return the addresses of the nodes whose programs may begin."""
        ...

    def send_environment(self, node: str, text: str) -> None:
        """Run a node's program with these variables; return at once."""
        ...

    def follow_logs(self, since_ns: Mapping[str, int]) -> None:
        """Begin to read programs' logs; for the nodes named, only lines after that time."""
        ...

    def written(self) -> tuple[Written, ...]:
        """Return the lines that were written since the last call, each once, those of a node in order."""
        ...

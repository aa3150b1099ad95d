"""The nodes that the job master knows: those it asked for and that have not gone.

Names grow for ever (``worker-0``, ``worker-1``, …) and are never used twice, so that a late word of a
dead node cannot be taken for one of its successor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.resources import Role, RolePlan
from dlrover_nb.core.structs.snapshot import NodePhase, NodeView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.capacity import Need
    from dlrover_nb.core.structs.messages import Hello
    from dlrover_nb.core.structs.samples import NodeSample


@dataclass(slots=True)
class Node:
    """One node; mutable, and never handed out: others see its `view`.

    `is_training` holds from the order to train until the word that it stands still, so it says of whom
    to wait in a pause.
    """

    id: str
    role: Role
    cpu: float
    memory_mib: int
    since_s: float
    last_message_s: float
    is_up: bool = False
    is_adopted: bool = False  # of a master before this one: it has not said Hello to this one yet
    is_training: bool = False
    is_draining: bool = False
    has_worked: bool = False  # a worker: batches of it were acknowledged
    asked_s: float = 0.0  # since when it has had room to start in
    waits_for: str = ""  # what its start waits for; empty: nothing
    endpoint: str = ""
    pid: int | None = None
    cpu_enforced: bool = False
    memory_enforced: bool = False
    must_drop: bool = False  # its shard went back with the parameters
    granted_at_s: float = float("-inf")
    loaded_epoch: int = 0
    n_from_memory: int = 0  # parts of a checkpoint that it did not need files for
    last: NodeSample | None = None
    n_dropped: int = 0  # messages that it did not understand
    rows_per_s: float = 0.0  # while it trains; 0: not known

    def has_shape(self, plan: RolePlan) -> bool:
        """Whether it may use what the plan says, no more and no less."""
        return (self.cpu, self.memory_mib) == (plan.cpu, plan.memory_mib)

    @property
    def need(self) -> Need:
        """Cores and MiB that it takes."""
        return self.cpu, self.memory_mib

    @property
    def phase(self) -> NodePhase:
        """Where it is in its life."""
        if not self.is_up:
            return NodePhase.PENDING
        if self.is_draining:
            return NodePhase.DRAINING
        if self.role is Role.WORKER and not self.is_training:
            return NodePhase.PAUSED
        return NodePhase.READY

    @property
    def view(self) -> NodeView:
        """A frozen picture."""
        return NodeView(
            self.id,
            self.role,
            self.phase,
            self.cpu,
            self.memory_mib,
            self.cpu_enforced,
            self.since_s,
            self.pid,
            self.last,
            self.memory_enforced,
            self.waits_for,
        )


class Roster:
    """All living nodes, oldest first."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._n_named = dict.fromkeys(Role, 0)

    def add(self, role: Role, plan: RolePlan, at_s: float) -> Node:
        """Make a node with a new name."""
        name = f"{role}-{self._n_named[role]}"
        self._n_named[role] += 1
        self._nodes[name] = Node(
            name, role, plan.cpu, plan.memory_mib, since_s=at_s, last_message_s=at_s, asked_s=at_s
        )
        return self._nodes[name]

    def adopt(self, nodes: Iterable[Node], n_named: Iterable[tuple[Role, int]]) -> None:
        """Take over the nodes of a master before this one, and go on with its names."""
        self._nodes = {node.id: node for node in nodes}
        self._n_named.update(n_named)

    def remove(self, node: str) -> None:
        """Forget a node."""
        del self._nodes[node]

    def get(self, node: str) -> Node | None:
        """Return a node; None when it is not, or no longer, known."""
        return self._nodes.get(node)

    def register(self, node: Node, hello: Hello, at_s: float) -> None:
        """Note what a node says of itself when it is up."""
        node.is_up, node.is_adopted, node.since_s, node.waits_for = True, False, at_s, ""
        node.endpoint, node.pid = hello.endpoint, hello.pid
        node.cpu_enforced, node.memory_enforced = hello.cpu_enforced, hello.memory_enforced

    @property
    def n_named(self) -> tuple[tuple[Role, int], ...]:
        """How many names were given to nodes of each role."""
        return tuple(self._n_named.items())

    @property
    def is_complete(self) -> bool:
        """Whether all that live have said Hello to this master, or are known not to be up."""
        return not any(node.is_adopted for node in self._nodes.values())

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All."""
        return tuple(self._nodes.values())

    @property
    def workers(self) -> tuple[Node, ...]:
        """All workers."""
        return tuple(n for n in self._nodes.values() if n.role is Role.WORKER)

    @property
    def ps(self) -> tuple[Node, ...]:
        """All parameter servers."""
        return tuple(n for n in self._nodes.values() if n.role is Role.PS)

    @property
    def needs(self) -> list[Need]:
        """What all nodes take."""
        return [node.need for node in self._nodes.values()]

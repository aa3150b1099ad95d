"""The roster: the nodes that the job master has ordered and that have not ended.

Names are numbered (``worker-0``, ``worker-1``, …) and never reused, so that a late message of a dead node is
not taken for one of its successor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.capacity import fits, plan_needs
from dlrover_nb.core.structs.plan.resources import Need, Role, RolePlan
from dlrover_nb.core.structs.views.snapshot import NodePhase, NodeView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import ResourcePlan, Size
    from dlrover_nb.core.structs.training.bucket_loads import BucketLoad
    from dlrover_nb.core.structs.training.samples import NodeSample
    from dlrover_nb.core.structs.wire.messages import Hello


@dataclass(slots=True)
class Node:
    """One node; mutable and private to the master: clients get its `view`.

    `is_training` holds from the Train order until the Paused message, so it says which workers a pause waits
    for.
    """

    id: str
    role: Role
    cpu: float
    memory_mib: int
    since_s: float
    last_message_s: float
    is_up: bool = False
    is_adopted: bool = False  # of an earlier master; no Hello to this one yet
    is_training: bool = False
    is_draining: bool = False
    is_leaving: bool = False  # its cluster ends it soon
    is_replaced: bool = False  # another node is to take its place, as it is slow
    has_worked: bool = False  # a worker: batches of it were acknowledged
    asked_s: float = 0.0  # since when it has had capacity to start
    waits_for: str = ""  # what its start waits for; empty: nothing
    lacks_room: bool = False  # it has waited for free capacity for some time
    endpoint: str = ""
    copies: str = ""  # endpoint at which it sends copies of checkpoints
    host: str = ""
    machine: str = ""  # what is lost at once
    pid: int | None = None
    cpu_enforced: bool = False
    memory_enforced: bool = False
    progressed_s: float = 0.0  # when its main thread was last seen to work
    starved_s: float = 0.0  # since then, that it could run and got no processor
    waited_s: float = 0.0  # since its last message, that its host gave it no processor
    busy_told_s: float = float("-inf")  # when it was said that its host is too busy
    late_s: float = 0.0  # that a heartbeat of it last waited for a processor, where that was long
    late_at_s: float = float("-inf")
    n_step: int = -1  # of its last heartbeat
    doing: str = ""  # long work that it announced; empty: none
    must_drop: bool = False  # its shard was returned by a rollback
    granted_at_s: float = float("-inf")
    loaded_epoch: int = 0
    n_from_memory: int = 0  # parts of a checkpoint that it read from memory
    n_from_peers: int = 0  # and from the copies of peers
    late_parts: set[int] = field(default_factory=set)  # that it still writes, of checkpoints given up
    last: NodeSample | None = None
    n_dropped: int = 0  # messages that it could not decode
    gpu: int = 0  # that it holds
    size: Size | None = None  # what it is to use instead of its role's plan; None: it is no exception
    resizing: Size | None = None  # what it is to use in place of its shape; None: it has its shape
    resize_asked_s: float | None = None  # when this master asked for that
    returned: int | None = None  # a shard that it gave back to others
    rows_per_s: float = 0.0  # training speed; 0: not known
    load: BucketLoad | None = None  # of a PS: its last one, of whatever group

    def has_shape(self, plan: RolePlan) -> bool:
        """Whether its CPU and memory are what a plan lets it use, and about to stay; none while it goes."""
        is_staying = self.resizing is None and not self.is_going
        return is_staying and (self.cpu, self.memory_mib) == self.size_in(plan)

    def size_in(self, plan: RolePlan) -> Size:
        """Return the cores and MiB that it is to use under a plan: its own where it is an exception."""
        return self.size or size_of(plan)

    def keep_size(self, plan: RolePlan) -> None:
        """Let it keep what it uses, as an exception where that is not what the plan says."""
        own = self.cpu, self.memory_mib
        self.size = None if own == size_of(plan) else own

    @property
    def is_going(self) -> bool:
        """Whether another node is to take its place, whatever its shape."""
        return self.is_leaving or self.is_replaced

    @property
    def need(self) -> Need:
        """What it holds of a machine; while it is resized, the larger of both sizes."""
        cpu, memory_mib = self.resizing or (0.0, 0)
        return Need(max(self.cpu, cpu), max(self.memory_mib, memory_mib), self.gpu)

    def need_with(self, size: Size) -> Need:
        """Return what it would hold with another size."""
        return Need(*size, self.gpu)

    @property
    def phase(self) -> NodePhase:
        """Phase of the node."""
        if not self.is_up:
            return NodePhase.PENDING
        if self.is_draining or self.is_going:
            return NodePhase.DRAINING
        if self.role is Role.WORKER and not self.is_training:
            return NodePhase.PAUSED
        return NodePhase.READY

    @property
    def view(self) -> NodeView:
        """A frozen record for clients."""
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
        """Add a node with a new name."""
        name = f"{role}-{self._n_named[role]}"
        self._n_named[role] += 1
        self._nodes[name] = Node(
            name,
            role,
            plan.cpu,
            plan.memory_mib,
            since_s=at_s,
            last_message_s=at_s,
            asked_s=at_s,
            gpu=plan.gpu,
        )
        return self._nodes[name]

    def adopt(self, nodes: Iterable[Node], n_named: Iterable[tuple[Role, int]]) -> None:
        """Take over the nodes and the numbering of an earlier master."""
        self._nodes = {node.id: node for node in nodes}
        self._n_named.update(n_named)

    def remove(self, node: str) -> None:
        """Remove a node."""
        del self._nodes[node]

    def get(self, node: str) -> Node | None:
        """Return a node; None when it is not in the roster."""
        return self._nodes.get(node)

    def register(self, node: Node, hello: Hello, at_s: float) -> None:
        """Record the Hello of a node: it is up."""
        node.is_up, node.is_adopted, node.since_s, node.waits_for = True, False, at_s, ""
        node.lacks_room = False
        node.endpoint, node.pid, node.copies = hello.endpoint, hello.pid, hello.copies
        node.host, node.machine = hello.host, hello.machine or hello.host
        node.cpu_enforced, node.memory_enforced = hello.cpu_enforced, hello.memory_enforced

    @property
    def n_named(self) -> tuple[tuple[Role, int], ...]:
        """How many nodes of each role have been named."""
        return tuple(self._n_named.items())

    @property
    def is_complete(self) -> bool:
        """Whether all living nodes have said Hello to this master, or are known not to be up."""
        return not any(node.is_adopted for node in self._nodes.values())

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
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
        """What all nodes hold."""
        return [node.need for node in self._nodes.values()]

    def drop_sizes(self, before: ResourcePlan, after: ResourcePlan | None, capacity: Capacity) -> None:
        """End exceptions from a plan that the next one ends: it gives the role another size, or lacks room.

        Parameters
        ----------
        before, after
            The plans; None: one that did not come about, after which no exception may be in the way.
        capacity
            Of the job.
        """
        excepted = () if after is None else self._excepted(before, after)
        own = [(node.role, node.size) for node in excepted if node.size is not None]
        if after is not None and not fits(capacity, plan_needs(after, own)):
            excepted = ()
        for node in self.nodes:
            node.size = node.size if node in excepted else None

    def _excepted(self, before: ResourcePlan, after: ResourcePlan) -> tuple[Node, ...]:
        """Return the exceptions among the nodes of roles whose size both plans have."""
        return tuple(
            node
            for node in self.nodes
            if node.size is not None and size_of(before.role(node.role)) == size_of(after.role(node.role))
        )

    def staying_needs(self, want: RolePlan) -> list[Need]:
        """Return what workers need, without those that drain or exceed a plan: they leave by themselves."""
        staying = [worker for worker in self.workers if not worker.is_draining]
        fitting = [worker.need for worker in staying if worker.has_shape(want)]
        return [*fitting[: want.count], *[w.need for w in staying if not w.has_shape(want)]]


def size_of(plan: RolePlan) -> Size:
    """Return the cores and MiB of each node of a role."""
    return plan.cpu, plan.memory_mib

"""The nodes of an external job: present, desired and surplus ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.master.external.job.external_record import ExternalNodeRecord
from dlrover_nb.core.structs.job.external import CHIEF
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import NodePhase, NodeView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.job.external import ExternalSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan, Size
    from dlrover_nb.core.structs.training.samples import NodeSample


@dataclass(slots=True)
class ExternalNode:
    """One node; mutable and private: callers get its frozen view."""

    id: str
    role: Role
    cpu: float
    memory_mib: int
    since_s: float
    asked_s: float  # since when it has had room to start
    address: str = ""  # empty: its pod does not run yet
    is_finished: bool = False  # its program ended well
    has_worked: bool = False
    waits_for: str = ""
    last: NodeSample | None = None
    coming: Size | None = None  # the size that it gets in place; None: it keeps its own
    asked_size_s: float | None = None  # when the cluster was asked for that
    refused_size: Size | None = None  # which it cannot get in place
    has_made_room: bool = False  # whether another node ended because this one waits
    told: str = ""  # the variables of its program

    def has_shape(self, plan: RolePlan) -> bool:
        """Whether its resources are exactly those of the plan."""
        return (self.cpu, self.memory_mib) == (plan.cpu, plan.memory_mib)

    def fits(self, plan: RolePlan) -> bool:
        """Whether it has the plan's resources, or gets them in place."""
        return self.has_shape(plan) or self.coming == (plan.cpu, plan.memory_mib)

    def view(self, *, is_member: bool) -> NodeView:
        """Return a frozen view; a running pod without a running program is paused."""
        if not self.address:
            phase = NodePhase.PENDING
        elif self.is_finished:
            phase = NodePhase.GONE
        else:
            phase = NodePhase.READY if is_member else NodePhase.PAUSED
        return NodeView(
            self.id,
            self.role,
            phase,
            self.cpu,
            self.memory_mib,
            cpu_enforced=True,
            since_s=self.since_s,
            last=self.last,
            memory_enforced=True,
            waits_for=self.waits_for,
        )


def is_worker(node: str) -> bool:
    """Whether a name is that of a worker: names begin with their role."""
    return node.startswith(f"{Role.WORKER}-")


def trains(node: str) -> bool:
    """Whether a name is that of a worker, or of the chief, which is the first of those that train."""
    return is_worker(node) or node.startswith(f"{CHIEF}-")


def plan_of(spec: ExternalSpec, plan: ResourcePlan, role: Role) -> RolePlan:
    """Return what should run of a role: by the plan, or always."""
    fixed = spec.fixed(role)
    return plan.role(role) if fixed is None else fixed.plan


class ExternalNodes:
    """All live nodes, oldest first; numbers in names grow and are never reused."""

    def __init__(self, spec: ExternalSpec) -> None:
        self._spec = spec
        self._nodes: dict[str, ExternalNode] = {}
        self._n_named = dict.fromkeys(spec.every, 0)

    def add(self, role: Role, plan: RolePlan, at_s: float) -> ExternalNode:
        """Create a node with a new name."""
        name = f"{role}-{self._n_named[role]}"
        self._n_named[role] += 1
        node = ExternalNode(name, role, plan.cpu, plan.memory_mib, at_s, at_s)
        self._nodes[name] = node
        return node

    def follow(self, node: ExternalNode) -> None:
        """Adopt a node that was named elsewhere."""
        self._nodes[node.id] = node

    def get(self, node: str) -> ExternalNode | None:
        """Return a node; None when it is unknown, or no longer known."""
        return self._nodes.get(node)

    def was_named(self, node: str) -> bool:
        """Whether a name was ever given to a node, which may be gone."""
        role, _, number = node.rpartition("-")
        return number.isdecimal() and any(role == r and int(number) < n for r, n in self._n_named.items())

    def remove(self, node: str) -> None:
        """Remove a node."""
        del self._nodes[node]

    @property
    def nodes(self) -> tuple[ExternalNode, ...]:
        """All."""
        return tuple(self._nodes.values())

    @property
    def n_named(self) -> tuple[tuple[Role, int], ...]:
        """How many names were given to nodes of each role."""
        return tuple(self._n_named.items())

    def n_missing(self, role: Role, plan: RolePlan) -> int:
        """Return the number of nodes of a role to start."""
        return max(0, plan.count - len(self._fitting(role, plan)))

    def wanted(self, plan: ResourcePlan) -> tuple[ExternalNode, ...] | None:
        """Return the nodes that should run: of each role the oldest running; None while some are missing.

        Only roles of the world count: no node waits for the others.
        """
        nodes: list[ExternalNode] = []
        for role in self._spec.world:
            of_role = plan_of(self._spec, plan, role)
            up = [node for node in self._fitting(role, of_role) if node.address][: of_role.count]
            if len(up) < of_role.count:
                return None
            nodes.extend(up)
        return tuple(nodes)

    def misfits(self, plan: ResourcePlan) -> tuple[ExternalNode, ...]:
        """Return the nodes whose resources differ from the plan's."""
        return tuple(node for node in self.nodes if not node.fits(plan_of(self._spec, plan, node.role)))

    def of(self, role: Role) -> tuple[ExternalNode, ...]:
        """Return the nodes of a role."""
        return tuple(node for node in self.nodes if node.role is role)

    def beside(self, role: Role) -> tuple[ExternalNode, ...] | None:
        """Return the nodes of a role beside the world; None while some have no address."""
        nodes, fixed = self.of(role), self._spec.fixed(role)
        assert fixed is not None
        return nodes if sum(bool(node.address) for node in nodes) == fixed.count else None

    def _fitting(self, role: Role, plan: RolePlan) -> list[ExternalNode]:
        return [node for node in self.of(role) if node.fits(plan)]

    # across the loss of a master

    def records(self) -> tuple[ExternalNodeRecord, ...]:
        """Return the lasting state of all nodes."""
        return tuple(
            ExternalNodeRecord(
                n.id,
                n.role,
                n.cpu,
                n.memory_mib,
                n.since_s,
                n.address,
                is_finished=n.is_finished,
                has_worked=n.has_worked,
                told="" if n.role in self._spec.world else n.told,
            )
            for n in self.nodes
        )

    def adopt(
        self, records: Iterable[ExternalNodeRecord], n_named: Iterable[tuple[Role, int]], at_s: float
    ) -> None:
        """Adopt the nodes of an earlier master, and continue its numbering."""
        self._nodes = {
            r.id: ExternalNode(
                r.id,
                r.role,
                r.cpu,
                r.memory_mib,
                r.since_s,
                at_s,
                r.address,
                is_finished=r.is_finished,
                has_worked=r.has_worked,
                told=r.told,
            )
            for r in records
        }
        self._n_named.update(n_named)

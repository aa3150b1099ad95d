"""The nodes of one simulated job: which are wanted, which are up, which train.

A new plan keeps nodes of the right size, the oldest and most advanced first. All else follows from three
flags of a node: placed, up, active.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.resources import Need, ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.views.snapshot import ROOM, NodePhase, NodeView

if TYPE_CHECKING:
    from dlrover_nb.core.simulator.cluster import Place, SimCluster
    from dlrover_nb.core.structs.training.samples import NodeSample


@dataclass(slots=True, eq=False)
class SimNode:
    """One node.

    Attributes
    ----------
    place
        Its machine; None while it waits for capacity.
    is_up, is_active
        Started; training.
    is_wanted
        Part of the target.
    slot
        Index among its role's parts: slot 0 of the PS holds the most.
    factor
        Speed over its normal speed.
    n_trained, reported_s
        Samples since its last report, and when that was.
    """

    id: str
    role: Role
    cpu: float
    memory_mib: int
    since_s: float
    slot: int = 0
    place: Place | None = None
    is_up: bool = False
    is_active: bool = False
    is_wanted: bool = True
    is_gone: bool = False
    factor: float = 1.0
    n_trained: float = 0.0
    reported_s: float = 0.0
    last: NodeSample | None = None

    def activate(self, at_s: float) -> None:
        """Activate it; its reports start now."""
        if not self.is_active:
            self.is_active, self.reported_s = True, at_s

    @property
    def view(self) -> NodeView:
        """A frozen record for clients."""
        phase = NodePhase.READY if self.is_active else NodePhase.PAUSED if self.is_up else NodePhase.PENDING
        if self.is_active and not self.is_wanted:
            phase = NodePhase.DRAINING
        return NodeView(
            self.id,
            self.role,
            phase,
            self.cpu,
            self.memory_mib,
            cpu_enforced=True,
            memory_enforced=True,
            since_s=self.since_s,
            last=self.last,
            waits_for=ROOM if self.place is None else "",
        )


class SimNodes:
    """All living nodes of a job, oldest first."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._n = dict.fromkeys(Role, 0)
        self.nodes: list[SimNode] = []

    def set_target(self, plan: ResourcePlan, at_s: float) -> None:
        """Set the wanted nodes of a plan: keep those of the right size, add the missing ones."""
        for role in Role:
            self._aim(role, plan.role(role), at_s)

    def _aim(self, role: Role, wanted: RolePlan, at_s: float) -> None:
        own = [n for n in self.nodes if n.role is role]
        fitting = [n for n in own if (n.cpu, n.memory_mib) == (wanted.cpu, wanted.memory_mib)]
        fitting.sort(key=lambda n: (not n.is_active, not n.is_up, n.place is None))  # stable: then by age
        remaining = set(map(id, fitting[: wanted.count]))
        for node in own:
            node.is_wanted = id(node) in remaining
        for slot, node in enumerate(n for n in own if n.is_wanted):
            node.slot = slot
        for _ in range(wanted.count - len(remaining)):
            self.ask(role, wanted, at_s)

    def ask(self, role: Role, wanted: RolePlan, at_s: float) -> SimNode:
        """Add a node that has no place yet."""
        self._n[role] += 1
        name = f"{self._job}-{role}-{self._n[role]}"
        slots = {n.slot for n in self.nodes if n.role is role and n.is_wanted}
        slot = next(i for i in range(len(slots) + 1) if i not in slots)
        node = SimNode(name, role, wanted.cpu, wanted.memory_mib, at_s, slot)
        self.nodes.append(node)
        return node

    def place_nodes(self, cluster: SimCluster) -> list[SimNode]:
        """Place all nodes that wait, or none; return those that were placed."""
        waiting = self.unplaced
        places = cluster.place(self.waiting_needs) if waiting else None
        if places is None:
            return []
        for node, place in zip(waiting, places, strict=True):
            node.place = place
        return waiting

    def activate(self, at_s: float) -> None:
        """Let every node train that is up."""
        for node in self.nodes:
            if node.is_up:
                node.activate(at_s)

    def deactivate(self) -> None:
        """Let no node train."""
        for node in self.nodes:
            node.is_active = False

    def remove(self, node: SimNode) -> None:
        """Remove a node."""
        node.is_gone, node.is_active, node.is_up = True, False, False
        self.nodes.remove(node)

    @property
    def needs(self) -> list[Need]:
        """What each node that is up holds."""
        return [Need(n.cpu, n.memory_mib) for n in self.nodes if n.is_up]

    @property
    def unplaced(self) -> list[SimNode]:
        """Nodes that wait for capacity."""
        return [n for n in self.nodes if n.place is None]

    @property
    def lack(self) -> str:
        """What nodes wait for, in words; empty: for nothing."""
        return "waiting for room; other jobs hold the rest" if self.unplaced else ""

    @property
    def waiting_needs(self) -> list[Need]:
        """What each node that waits for capacity needs."""
        return [Need(n.cpu, n.memory_mib) for n in self.unplaced]

    @property
    def unwanted(self) -> list[SimNode]:
        """Nodes outside the target."""
        return [n for n in self.nodes if not n.is_wanted]

    def active(self, role: Role) -> list[SimNode]:
        """Active nodes of a role."""
        return [n for n in self.nodes if n.is_active and n.role is role]

    @property
    def all_up(self) -> bool:
        """Whether every wanted node has started."""
        return all(n.is_up for n in self.nodes if n.is_wanted)

    @property
    def in_place(self) -> bool:
        """Whether exactly the wanted nodes are active."""
        return all(n.is_active and n.is_wanted for n in self.nodes)

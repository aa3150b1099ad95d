"""What an elastic job changes of its state when its nodes come and go, and whom programs are told to meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.master.external.changes import elastic_worlds
from dlrover_nb.core.master.external.job.node_set import plan_of
from dlrover_nb.core.master.external.job.reported_state import ReportedState
from dlrover_nb.core.master.external.launch.rendezvous import Member, environment
from dlrover_nb.core.master.external.orders import SendEnvironment
from dlrover_nb.core.structs.job.external import Framework
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import BatchSizesSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.master.external.job.node_set import ExternalNode
    from dlrover_nb.core.structs.plan.resources import RolePlan


class ElasticState(ReportedState):
    """See `ExternalState`."""

    _late_since_s: float | None = None  # since when processes wait for others
    _has_told_late = False

    def _plan_of(self, role: Role) -> RolePlan:
        return plan_of(self._external, self.target, role)

    def _is_beside(self, node: ExternalNode) -> bool:
        return node.role not in self._external.world

    def settle_world(self, at_s: float) -> None:
        """Make the next world of an elastic job, if it can be made, and end the nodes that are not in it."""
        if elastic_worlds.advance(self, at_s):
            self._met_at_s, self._n_rendezvous = at_s, self.worlds.now.number
            self._heard, self._before = set(), set()
            self._drop_shares(at_s)
        self._tell_late(at_s)
        self._members = elastic_worlds.members(self)
        wanted = elastic_worlds.wanted(self)
        for node in self._node_set.nodes:
            is_surplus = node.role is Role.WORKER and bool(node.address) and node.id not in wanted
            if is_surplus and self.worlds.now.number and node.id not in self._members:
                self._stop_node(node)

    def _tell_late(self, at_s: float) -> None:
        """Name the nodes that all others wait for, once, and say when that is over."""
        late = () if self._stop is not None or self.is_over else elastic_worlds.late(self)
        if not late:
            if self._has_told_late:
                self._note("no process waits for another one any more", at_s)
            self._late_since_s, self._has_told_late = None, False
            return
        if self._late_since_s is None:
            self._late_since_s = at_s
        if at_s > self._late_since_s + elastic_worlds.LATE_S and not self._has_told_late:
            self._has_told_late = True
            words = f"training waits for {', '.join(late)}, whose processes do not join the others"
            self._note(f"{words}: they are stopped, or cannot reach the master", at_s)

    def _drop_shares(self, at_s: float) -> None:
        """Drop parts of a global batch that were set for other workers: they would not sum to it."""
        is_of_others = {node for node, _ in self.batch_sizes} != set(self.worlds.now.members)
        if self.batch_sizes and is_of_others and self._spec.global_batch is not None:
            self.batch_sizes = self.batch_times = ()
            self.emit(BatchSizesSet(at_s, ()))

    def _send_environments(self) -> None:
        """Order the variables of the last rendezvous for all of its members."""
        if self._external.framework is Framework.DDP:
            self._orders += elastic_worlds.environments(self, self._node_set.nodes)
            return
        members = [node for name in self._members if (node := self._node_set.get(name)) is not None]
        if len(members) < len(self._members):
            return
        texts = self._texts(members, self._n_rendezvous)
        for node in members:
            node.told = texts[node.id]
            if not node.is_finished:
                self._orders.append(SendEnvironment(node.id, node.told))

    def _texts(self, members: Sequence[ExternalNode], number: int) -> dict[str, str]:
        """Return the variables of members by node, for the rendezvous of this number."""
        named, rendezvous_id = [Member(n.id, n.role, n.address) for n in members], f"{self.name}-{number}"
        return {
            each.node: environment(self._external, named, each.node, rendezvous_id=rendezvous_id)
            for each in named
        }

    def _new_texts(self, members: Sequence[ExternalNode], number: int) -> set[str]:
        """Return the members whose programs begin, or restart, with that rendezvous."""
        texts = self._texts(members, number)
        return {node.id for node in members if node.told != texts[node.id]}

    def _send_own_environment(self, node: ExternalNode) -> None:
        """Order the variables of a node of an elastic job, which do not depend on others."""
        if self._external.framework is Framework.DDP:
            self._orders += elastic_worlds.environments(self, [node])

"""What an elastic job changes of its state when its nodes come and go; other jobs have rendezvous."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.external import elastic
from dlrover_nb.core.external.node_set import plan_of
from dlrover_nb.core.external.state import ExternalState
from dlrover_nb.core.structs.external import Framework
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.external.node_set import ExternalNode
    from dlrover_nb.core.structs.resources import RolePlan


class ElasticState(ExternalState):
    """See `ExternalState`."""

    def _plan_of(self, role: Role) -> RolePlan:
        return plan_of(self._external, self.target, role)

    def _is_beside(self, node: ExternalNode) -> bool:
        return node.role not in self._external.world

    def settle_world(self, at_s: float) -> None:
        """Make the next world of an elastic job, if it can be made, and end the nodes that are not in it."""
        if elastic.advance(self, at_s):
            self._met_at_s, self._n_rendezvous = at_s, self.worlds.now.number
            self._heard, self._before = set(), set()
        self._members = elastic.members(self)
        wanted = elastic.wanted(self)
        for node in self._node_set.nodes:
            is_surplus = node.role is Role.WORKER and bool(node.address) and node.id not in wanted
            if is_surplus and self.worlds.now.number and node.id not in self._members:
                self._stop_node(node)

    def _send_own_environment(self, node: ExternalNode) -> None:
        """Order the variables of a node of an elastic job, which do not depend on others."""
        if self._external.framework is Framework.DDP:
            self._orders += elastic.environments(self, [node])

"""How nodes get the cores and memory of another plan: in place, or by successors.

Where the cluster resizes nodes in place (Kubernetes with ``pods/resize``), those of a role that stay are
asked for one after the other. Their programs go on, and keep the variables, the number of threads among them,
that they were started with. A node whose change is refused, or not done in time, gets a successor.

Successors of programs that meet in a rendezvous (TensorFlow, torch) start beside the old ones, and all
programs restart once, when all of them are up: to replace one by one would restart all of them each time.
Those of an elastic job come one at a time: an old process is in the world until the new one has asked for it.
Where there is no room for both, an old one ends first, but never the last one: it has the parameters.

Level-triggered: what is next follows from the nodes. A restarted master asks again for a node that was under
way; to ask twice changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.master.external.job.node_set import plan_of
from dlrover_nb.core.master.shared.orders import ResizeNode
from dlrover_nb.core.structs.job.external import Framework
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.master.external.job.node_set import ExternalNode
    from dlrover_nb.core.master.external.job.state import ExternalState
    from dlrover_nb.core.structs.plan.resources import RolePlan, Size

RESIZE_LIMIT_S = 120.0  # for the cluster to resize a node in place


def advance(state: ExternalState, at_s: float) -> list[ResizeNode]:
    """Return the orders by which nodes get the shape of the target in place, one at a time."""
    orders = []
    for node in state.node_set.nodes:
        if node.coming is not None and node.coming != _need(state.target.role(node.role)):
            orders += _give_up(node)
        if node.asked_size_s is not None and at_s > node.asked_size_s + RESIZE_LIMIT_S:
            orders += _refuse(state, node, f"it was not done within {RESIZE_LIMIT_S:g} s", at_s)
    if not state.resizes_in_place:
        return orders
    for role in Role:
        for node in _staying(state, role):
            need = _need(state.target.role(role))
            if need not in {(node.cpu, node.memory_mib), node.refused_size}:
                node.coming = need
    nodes = [node for node in state.node_set.nodes if node.coming is not None]
    if nodes and all(node.asked_size_s is None for node in nodes):
        first = nodes[0]
        first.asked_size_s = at_s
        assert first.coming is not None
        orders.append(ResizeNode(first.id, *first.coming))
    return orders


def allotted(state: ExternalState, node: str, need: Size, why: str, at_s: float) -> list[ResizeNode]:
    """Note what became of a request; return the orders that take it back where it was refused."""
    resized = state.node_set.get(node)
    if resized is None or resized.coming != need:
        return []  # it ended, or another plan came
    if why:
        return _refuse(state, resized, why, at_s)
    (resized.cpu, resized.memory_mib), resized.coming, resized.asked_size_s = need, None, None
    return []


def n_to_start(state: ExternalState, role: Role) -> int:
    """Return how many nodes of a role to start now."""
    plan = plan_of(state.external, state.target, role)
    n_missing = state.node_set.n_missing(role, plan)
    old = [n for n in _up(state, role) if not n.fits(plan)]
    if not old:
        return n_missing
    n_gap = max(n_missing - len(old), 0)
    if state.resizes_in_place is None:  # a cluster that does not say so could start no other node either
        return n_gap
    if state.external.framework is not Framework.DDP or role is Role.PS:
        return n_missing
    members = state.worlds.now.members
    is_one_coming = any(n.fits(plan) and n.id not in members for n in state.node_set.of(role))
    return n_gap or min(n_missing, int(not is_one_coming))


def in_the_way(state: ExternalState) -> tuple[ExternalNode, ...]:
    """Return the nodes of another shape that end now, as their successors need the room."""
    if state.waits_since_s is None or state.resizes_in_place is None:
        return ()
    old = state.node_set.misfits(state.target)
    if state.external.framework is not Framework.DDP:
        return old
    waiting = [n for n in state.node_set.nodes if n.waits_for and not n.has_made_room]
    ending = [n for n in old if n.role is Role.WORKER and n.address]
    if not waiting or not ending or len(_up(state, Role.WORKER)) == 1:
        return ()
    waiting[0].has_made_room = True
    return (ending[-1],)


def _staying(state: ExternalState, role: Role) -> list[ExternalNode]:
    return _up(state, role)[: state.target.role(role).count]


def _up(state: ExternalState, role: Role) -> list[ExternalNode]:
    return [n for n in state.node_set.of(role) if n.address and not n.is_finished]


def _need(plan: RolePlan) -> Size:
    return plan.cpu, plan.memory_mib


def _give_up(node: ExternalNode) -> list[ResizeNode]:
    """Take back what was asked for a node."""
    was_asked = node.asked_size_s is not None
    node.coming = node.asked_size_s = None
    return [ResizeNode(node.id, node.cpu, node.memory_mib)] if was_asked else []


def _refuse(state: ExternalState, node: ExternalNode, why: str, at_s: float) -> list[ResizeNode]:
    node.refused_size = node.coming
    state.tell(f"{node.id} cannot be resized in place: {why}; it is replaced", at_s)
    return _give_up(node)

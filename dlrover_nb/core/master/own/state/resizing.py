"""Nodes that get other cores and memory in place: one after the other, PS first, without a pause.

Where a plan changes what the nodes of a role may use, and all present nodes of the role stay, each of them is
asked for in three steps: the backend changes what the node may use (`ResizeNode`), the node applies it
(`Resize`), and answers (`Resized`). Only then does the node have the new shape. A node whose change is
refused, or not done in time, goes back to its old shape and is replaced by the rules of `ps_group` and
`worker_set`, which leave nodes alone while these are awaited here. So every change of plan ends as before.

Level-triggered: which node is next follows from the shapes in the roster. A restarted master asks again for
a node that was under way; to ask twice changes nothing. As long as it is not known whether the backend
resizes nodes, none is replaced for its size: a cluster that does not answer could start no other either.

A single node that is to be an exception from the plan (`SetSize`) gets its size the same way, outside of any
change of plan; where that fails, it keeps the size that it has.

All nodes at once was rejected: where a change fails, one node at a time has to be replaced, and a PS that
shrinks too far takes at most its own part with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.master.own.state.state_records import size_failed
from dlrover_nb.core.master.shared.orders import ResizeNode
from dlrover_nb.core.structs.plan.capacity import fits
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.resize_messages import Resize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.structs.plan.resources import Size
    from dlrover_nb.core.structs.training.resize_messages import Resized


def awaited(state: JobState, role: Role) -> tuple[Node, ...]:
    """Return the nodes of a role that get the shape of the target in place; none where that is not tried."""
    if state.resizes_in_place is False:
        return ()
    want = state.target.role(role)
    if state.change is None:
        names = {each.node for each in state.mitigations if each.in_place}
        nodes = [node for node in _staying(state, role, ()) if node.id in names]
    else:
        nodes = _staying(state, role, state.change.to_replace)
    if len(nodes) > want.count:
        return ()
    return tuple(node for node in nodes if (node.is_up or node.is_adopted) and not node.has_shape(want))


def _staying(state: JobState, role: Role, replaced: Sequence[str]) -> list[Node]:
    servers = state.roster.ps if state.group is None else state.group_nodes
    nodes = servers if role is Role.PS else state.roster.workers
    return [n for n in nodes if not (n.is_draining or n.is_going or n.id in replaced)]


def advance(state: JobState, at_s: float) -> None:
    """Ask for the next node, once the one before is done or given up."""
    is_ending = state.is_evaluating or state.train.finished or state.stop_reason
    if state.stage not in {Stage.SERVING, Stage.ASSEMBLING} or is_ending or not state.roster.is_complete:
        return
    if not state.resizes_in_place:
        return
    nodes = [*awaited(state, Role.PS), *awaited(state, Role.WORKER)]
    if any(_is_asked_for(state, node) for node in nodes):
        return
    if (node := next((n for n in nodes if _fits(state, n)), None)) is not None:
        _ask(state, node, at_s)
    for each in nodes if node is None else ():
        _replace(state, each, "no machine has room for it beside the others", at_s)


def _need(state: JobState, node: Node) -> Size:
    return node.size_in(state.target.role(node.role))


def _is_asked_for(state: JobState, node: Node) -> bool:
    """Whether this master has asked for exactly what the target says."""
    return node.resize_asked_s is not None and node.resizing == _need(state, node)


def _fits(state: JobState, node: Node) -> bool:
    """Whether the roster fits with the node of the new shape; one that shrinks always does."""
    need = _need(state, node)
    if need[0] <= node.cpu and need[1] <= node.memory_mib:
        return True
    others = [each.need for each in state.roster.nodes if each is not node]
    return fits(state.capacity, [node.need_with(need), *others])


def _ask(state: JobState, node: Node, at_s: float) -> None:
    cpu, memory_mib = node.resizing = _need(state, node)
    node.resize_asked_s = state.last_step_s = at_s
    if memory_mib < node.memory_mib:  # it frees what it can, before the limit comes down
        state.send(node, Resize(cpu, memory_mib, is_ahead=True))
    state.orders.append(ResizeNode(node.id, cpu, memory_mib))
    state.message = f"{node.id} gets {cpu:g} cores and {memory_mib} MiB in place"


def on_allotted(state: JobState, node: str, need: Size, why: str, at_s: float) -> None:
    """Let the node apply what the backend gave it; or replace the node: the backend did not, for a reason."""
    member = state.roster.get(node)
    if member is None or member.resizing != need:
        return  # it ended, or another plan came
    if why:
        _replace(state, member, why, at_s)
    else:
        state.last_step_s = at_s
        state.send(member, Resize(*need))


def on_resized(state: JobState, node: Node, answer: Resized, at_s: float) -> None:
    """Record what the node may use from now on; a limit that is enforced no longer is no success."""
    enforced = answer.cpu_enforced, answer.memory_enforced
    has_lost = (node.cpu_enforced and not enforced[0]) or (node.memory_enforced and not enforced[1])
    need = answer.cpu, answer.memory_mib
    if need == (node.cpu, node.memory_mib) and node.resizing is None:
        node.cpu_enforced, node.memory_enforced = enforced  # it went back
    if node.resizing != need:
        return
    if has_lost:
        _replace(state, node, "its new limits are not enforced", at_s)
        return
    node.cpu, node.memory_mib = need
    node.cpu_enforced, node.memory_enforced = enforced
    node.resizing = node.resize_asked_s = None
    state.last_step_s = at_s
    _update_group(state)


def _update_group(state: JobState) -> None:
    """Give the group the shape of its members, when all of them have that of the target."""
    group, want = state.group, state.target.ps
    if group is not None and all(node.has_shape(want) for node in state.group_nodes):
        state.group = replace(group, shape=replace(want, count=len(group.nodes)))


def check_time(state: JobState, limit_s: float, at_s: float) -> None:
    """Give up changes of nodes that take too long."""
    for node in state.roster.nodes:
        if node.resize_asked_s is not None and at_s > node.resize_asked_s + limit_s:
            _replace(state, node, f"it did not get its new size within {limit_s:g} s", at_s)


def _replace(state: JobState, node: Node, why: str, at_s: float) -> None:
    """Let a node be replaced: it goes back to its shape meanwhile, which frees what was reserved for it.

    One that was to be an exception from the plan keeps its shape and stays: the action has failed.
    """
    if node.resizing is not None:
        state.orders.append(ResizeNode(node.id, node.cpu, node.memory_mib))
        state.send(node, Resize(node.cpu, node.memory_mib))
    node.resizing = node.resize_asked_s = None
    state.last_step_s = at_s  # its successor has as long to start as any other
    if state.change is None:
        node.keep_size(state.target.role(node.role))
        state.mitigations = size_failed(state.mitigations, node.id, why)
        return
    state.change.to_replace = (*state.change.to_replace, node.id)
    state.note(f"{node.id} cannot be resized in place: {why}; it is replaced", at_s)

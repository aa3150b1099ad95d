"""Live migration of parameters from one PS group to the next, coordinated by the job master.

The PS that are to join start beside those that serve. Then every PS that gives up buckets copies them to
their next owners while workers train (`MoveOut`, reported by `Moved`). When little is left, all workers
pause, each PS sends the rest (`MoveEnd`), and the next group serves when every member has reported that its
part is complete (`Loaded`). Only then are surplus PS stopped. No disk is used, no shard is dropped.

Until the pause ends in SWITCHING nothing has changed: if a joining PS dies, if a newer decision, a stop or
the last row comes, or if the move makes no progress, the move is cancelled (`MoveCancel`) and the serving PS
are complete. During SWITCHING the death of a member of either group leaves no complete set of parameters:
then parameters and queue roll back to the last checkpoint, as with any loss of a PS.

A checkpoint during a move would hold rows twice, with different values. So none begins during a move, and a
move waits for a checkpoint that is being written before it switches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.master.own.servers.bucket_owners import assign_buckets, carried_over, next_members
from dlrover_nb.core.master.own.state.state import Move, PsGroup, Stage
from dlrover_nb.core.structs.wire.messages import MoveCancel, MoveEnd, MoveOut, MoveTarget

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.structs.plan.resources import RolePlan
    from dlrover_nb.core.structs.wire.messages import Moved

_GB = 1e9


def start_migration(state: JobState, remaining: Sequence[str], new: Sequence[str], at_s: float) -> None:
    """Start the migration to the `remaining` PS and the `new` ones."""
    group = state.group
    assert group is not None
    members = next_members(group.nodes, remaining, new)
    owner = assign_buckets(carried_over(group.bucket_owner, group.nodes, members), len(members))
    state.move = Move(PsGroup(state.n_group + 1, members, state.target.ps, owner), at_s)
    _move_out(state, group, state.move)


def start_rebalance(state: JobState, owner: tuple[int, ...], at_s: float) -> None:
    """Start the migration to the same PS with other `owner`s of the buckets."""
    group = state.group
    assert group is not None
    state.move = Move(replace(group, ps_epoch=state.n_group + 1, bucket_owner=owner), at_s, is_rebalance=True)
    _move_out(state, group, state.move)


def _move_out(state: JobState, group: PsGroup, move: Move) -> None:
    """Order the members of the present group to send the buckets that others get."""
    state.n_group, members = move.group.ps_epoch, move.group.nodes
    for node in _nodes(state, group.nodes):
        node.is_draining = node.id not in members
        targets = _targets(state, group, move.group, node.id)
        if targets:
            move.sources.add(node.id)
            state.send(node, MoveOut(state.n_group, targets))


def _targets(state: JobState, old: PsGroup, new: PsGroup, source: str) -> tuple[MoveTarget, ...]:
    """Return the buckets that `source` has to send, by target PS."""
    buckets: dict[str, list[int]] = {}
    for bucket, (was, will) in enumerate(zip(old.bucket_owner, new.bucket_owner, strict=True)):
        if old.nodes[was] == source != new.nodes[will]:
            buckets.setdefault(new.nodes[will], []).append(bucket)
    return tuple(MoveTarget(node.endpoint, tuple(buckets[node.id])) for node in _nodes(state, tuple(buckets)))


def cancel_migration(state: JobState) -> None:
    """Cancel a move before SWITCHING; the serving PS are unchanged."""
    if state.move is None:
        return
    move = state.move.group
    state.move = None
    names = {*move.nodes, *(state.group.nodes if state.group else ())}
    for node in _nodes(state, sorted(names)):
        node.is_draining = False
        state.send(node, MoveCancel(move.ps_epoch))


def leads_to(state: JobState, shape: RolePlan) -> bool:
    """Whether a move, if there is one, leads to another group, of this shape, that no PS leaves."""
    if state.move is None:
        return True
    if state.move.is_rebalance:
        return False
    members = _nodes(state, state.move.group.nodes)
    return state.move.group.shape == shape and not any(node.is_going for node in members)


def on_moved(state: JobState, node: Node, moved: Moved, at_s: float) -> None:
    """Record the progress of a PS."""
    move = state.move
    if move is None or moved.move != move.group.ps_epoch or state.stage is Stage.SWITCHING:
        return
    before = move.reports.get(node.id)
    if before is None or moved.n_byte_sent > before.n_byte_sent:
        state.last_step_s = at_s
    move.reports[node.id] = moved
    state.message = _progress(state, move)


def _progress(state: JobState, move: Move) -> str:
    n_sent = sum(each.n_byte_sent for each in move.reports.values())
    n_left = sum(each.n_byte_left for each in move.reports.values())
    old = state.group.nodes if state.group else ()
    there = and_list([name for name in move.group.nodes if name not in old] or move.group.nodes)
    share = n_sent / max(1, n_sent + n_left)
    return f"moving {(n_sent + n_left) / _GB:.2g} GB to {there}: {percent(share)}"


def is_ready(state: JobState) -> bool:
    """Whether so little is left that workers may pause for the rest."""
    move = state.move
    if move is None or state.writing:
        return False
    return all(name in move.reports and move.reports[name].is_ready for name in move.sources)


def switch(state: JobState, at_s: float) -> None:
    """Order the rest to be sent, once all workers have paused."""
    move, group = state.move, state.group
    assert move is not None
    assert group is not None
    for node in _nodes(state, dict.fromkeys((*group.nodes, *move.group.nodes))):
        state.send(node, _end(state, group, move.group, node))
    state.enter(Stage.SWITCHING, at_s)


def _end(state: JobState, old: PsGroup, new: PsGroup, node: Node) -> MoveEnd:
    index = new.nodes.index(node.id) if node.id in new.nodes else -1
    endpoints = tuple(member.endpoint for member in _nodes(state, new.nodes))
    sources = tuple(name for name in old.nodes if name != node.id)
    return MoveEnd(new.ps_epoch, index, endpoints, new.bucket_owner, sources, state.train.n_step)


def resend_outcome(state: JobState, node: Node) -> None:
    """Send the outcome of a move again to a PS that survived the loss of a master, or connected again.

    A move of which it has said nothing begins anew: its order to send may be lost.
    """
    move, group = state.move, state.group
    if state.stage is Stage.SWITCHING and move is not None and group is not None:
        if node.id in group.nodes or node.id in move.group.nodes:
            state.send(node, _end(state, group, move.group, node))
    elif move is None:
        node.is_draining = False
        state.send(node, MoveCancel(state.n_group))
    elif node.id in move.sources and node.id not in move.reports and not move.is_rebalance:
        cancel_migration(state)


def end_switching(state: JobState, at_s: float) -> None:
    """Let the next group serve when all its members are complete."""
    move, group = state.move, state.group
    assert move is not None
    assert group is not None
    if any(node.loaded_epoch != move.group.ps_epoch for node in _nodes(state, move.group.nodes)):
        return
    for node in _nodes(state, group.nodes):
        if node.id not in move.group.nodes:
            state.stop_node(node, at_s)
    state.group, state.bucket_owner, state.move = move.group, move.group.bucket_owner, None
    state.enter(Stage.SERVING, at_s)
    if move.is_rebalance:
        state.note("the buckets have reached their new owners", at_s)


def not_switched(state: JobState) -> tuple[Node, ...]:
    """Return the PS that a switch waits for."""
    if state.move is None:
        return ()
    epoch = state.move.group.ps_epoch
    return tuple(n for n in _nodes(state, state.move.group.nodes) if n.loaded_epoch != epoch)


def _nodes(state: JobState, names: Iterable[str]) -> tuple[Node, ...]:
    nodes = [state.roster.get(name) for name in names]
    return tuple(node for node in nodes if node is not None)

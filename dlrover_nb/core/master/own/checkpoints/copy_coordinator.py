"""Copies of checkpoints with peers, coordinated by the job master while training goes on.

A level-triggered reconciler: it compares the copies of the newest checkpoint in memory with what there should
be, and orders what is missing. So a peer that dies, a copy that fails, a restarted master and a lost message
need no code of their own. A part that no node can keep is reported once; it costs nothing else.

A checkpoint that gets no files (pods without storage) is complete with its last copy. Until then the one
before stays with the peers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.master.own.checkpoints import checkpoint_coordinator
from dlrover_nb.core.master.own.checkpoints.peer_copies import (
    are_made,
    holder_of,
    is_whole,
    keepers,
    last_whole,
    living,
    place_of,
)
from dlrover_nb.core.master.own.state.state import CopyRound, Stage
from dlrover_nb.core.structs.wire.copy_messages import KeepCopy

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState, RestorableCheckpoint
    from dlrover_nb.core.structs.wire.copy_messages import CopyKept

COPY_LIMIT_S = 300.0  # for one checkpoint
_WITHOUT_COPIES = frozenset({Stage.ASSEMBLING, Stage.LOADING, Stage.ENDED})


def advance(state: JobState, at_s: float) -> None:
    """Order the copies that are missing, and end the round when nothing more comes."""
    checkpoint = _newest_in_memory(state)
    if checkpoint is None or state.stage in _WITHOUT_COPIES:
        return
    if are_made(state):
        _order(state, checkpoint, _round_of(state, checkpoint.number, at_s), at_s)
    made = state.copying
    if made is None or made.number != checkpoint.number or not made.pending:
        _end(state, checkpoint, at_s)


def on_copy_kept(state: JobState, node: Node, message: CopyKept) -> None:
    """Record that a node keeps a copy, or why it keeps none (any more)."""
    checkpoint = next((each for each in state.checkpoints if each.number == message.checkpoint), None)
    if checkpoint is None or message.owner not in checkpoint.nodes:
        return
    index = checkpoint.nodes.index(message.owner)
    made = state.copying
    if made is not None and made.number == checkpoint.number:
        if made.pending.get(index) == node.id:
            del made.pending[index]
        if message.error:
            made.failed[index, node.id] = message.error
    peers = list(checkpoint.peers or (None,) * len(checkpoint.nodes))
    before = peers[index]
    if message.copy is not None or (before is not None and before.holder == node.id):
        peers[index] = message.copy
        at = state.checkpoints.index(checkpoint)
        state.checkpoints[at] = replace(checkpoint, peers=tuple(peers))


def on_connected_again(state: JobState, node: Node) -> None:
    """Let a copy be ordered again that a node was told to keep: the order or its answer may be lost."""
    if (made := state.copying) is not None:
        made.pending = {index: name for index, name in made.pending.items() if name != node.id}


def _newest_in_memory(state: JobState) -> RestorableCheckpoint | None:
    """Return the newest checkpoint, if each PS has its part in memory."""
    newest = state.checkpoints[-1] if state.checkpoints else None
    return newest if newest is not None and newest.nodes and None not in newest.memory else None


def _round_of(state: JobState, number: int, at_s: float) -> CopyRound:
    if state.copying is None or state.copying.number != number:
        why = "" if state.copying is None else state.copying.why
        state.copying = CopyRound(number, at_s, why=why)
    return state.copying


def _order(state: JobState, checkpoint: RestorableCheckpoint, made: CopyRound, at_s: float) -> None:
    """Order a copy of each part that has none and waits for none."""
    nodes = keepers(state)
    names = {node.id: node for node in nodes}
    for index, name in tuple(made.pending.items()):
        if name not in names or at_s > made.since_s + COPY_LIMIT_S:
            made.failed[index, name] = (
                f"it did not store it within {COPY_LIMIT_S:g} s" if name in names else "it ended"
            )
            del made.pending[index]
    n_copies = Counter(made.pending.values())
    n_copies.update(peer.holder for peer in checkpoint.peers if peer is not None)
    may_keep = _may_keep(state, checkpoint.number)
    for index, owner in enumerate(checkpoint.nodes):
        if _has_copy(state, checkpoint, index) or index in made.pending or owner not in names:
            continue
        places = [
            place_of(n)
            for n in nodes
            if n.id == owner or ((index, n.id) not in made.failed and (may_keep is None or n.id in may_keep))
        ]
        holder = holder_of(owner, places, n_copies)
        if holder is not None:
            made.pending[index] = holder
            n_copies[holder] += 1
            memory = checkpoint.memory[index]
            assert memory is not None
            whole = last_whole(state)
            state.send(names[holder], KeepCopy(owner, names[owner].copies, memory, whole))


def _may_keep(state: JobState, number: int) -> tuple[str, ...] | None:
    """Return the nodes that may keep copies of a checkpoint; None: all."""
    writing = state.writing.get(number)
    return None if writing is None else writing.holders


def _has_copy(state: JobState, checkpoint: RestorableCheckpoint, index: int) -> bool:
    peer = checkpoint.peers[index] if checkpoint.peers else None
    return peer is not None and state.roster.get(peer.holder) is not None


def _end(state: JobState, checkpoint: RestorableCheckpoint, at_s: float) -> None:
    """Complete a checkpoint that gets no files, or give it up; tell of parts without a copy once."""
    writing = state.writing.get(checkpoint.number)
    is_in_memory = writing is not None and writing.is_in_memory
    if is_whole(checkpoint, living(state)):
        if state.copying is not None:
            state.copying.why = ""
        if is_in_memory:
            checkpoint_coordinator.on_kept(state, checkpoint, at_s)
        return
    why = _why(state, checkpoint)
    if is_in_memory:
        checkpoint_coordinator.on_failed(state, checkpoint.number, why, at_s)
    elif state.copying is not None and state.copying.number == checkpoint.number and state.copying.why != why:
        state.note(f"checkpoint {checkpoint.number} is on one host only: {why}", at_s)
    if state.copying is not None:
        state.copying.why = why


def _why(state: JobState, checkpoint: RestorableCheckpoint) -> str:
    """Return why parts have no copy: the reason of each node that keeps none."""
    made = state.copying
    failed = {} if made is None or made.number != checkpoint.number else made.failed
    missing = [i for i in range(len(checkpoint.nodes)) if not _has_copy(state, checkpoint, i)]
    reasons = [f"{name}: {why}" for (index, name), why in sorted(failed.items()) if index in missing]
    names = and_list(checkpoint.nodes[index] for index in missing)
    return f"no peer has a copy of the part of {names}" + (f" ({'; '.join(reasons)})" if reasons else "")

"""Copies of checkpoints with peers, coordinated by the job master while training goes on.

A level-triggered reconciler: it compares the copies of the newest checkpoint in memory with what there should
be, and orders what is missing. So a peer that dies, a copy that fails, a restarted master and a lost message
need no code of their own. A part that nobody can keep is told once; it costs nothing else.

A checkpoint that gets no files (pods without storage) is complete with its last copy. Until then the one
before stays with the peers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

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
    kept = _newest_in_memory(state)
    if kept is None or state.stage in _WITHOUT_COPIES:
        return
    if are_made(state):
        _order(state, kept, _round_of(state, kept.number, at_s), at_s)
    made = state.copying
    if made is None or made.number != kept.number or not made.pending:
        _end(state, kept, at_s)


def on_copy_kept(state: JobState, node: Node, message: CopyKept) -> None:
    """Record that a node keeps a copy, or why it keeps none (any more)."""
    kept = next((each for each in state.checkpoints if each.number == message.checkpoint), None)
    if kept is None or message.owner not in kept.nodes:
        return
    index = kept.nodes.index(message.owner)
    made = state.copying
    if made is not None and made.number == kept.number:
        if made.pending.get(index) == node.id:
            del made.pending[index]
        if message.error:
            made.failed[index, node.id] = message.error
    peers = list(kept.peers or (None,) * len(kept.nodes))
    before = peers[index]
    if message.copy is not None or (before is not None and before.holder == node.id):
        peers[index] = message.copy
        at = state.checkpoints.index(kept)
        state.checkpoints[at] = replace(kept, peers=tuple(peers))


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
        told = "" if state.copying is None else state.copying.told
        state.copying = CopyRound(number, at_s, told=told)
    return state.copying


def _order(state: JobState, kept: RestorableCheckpoint, made: CopyRound, at_s: float) -> None:
    """Order a copy of each part that has none and waits for none."""
    nodes = keepers(state)
    names = {node.id: node for node in nodes}
    for index, name in tuple(made.pending.items()):
        if name not in names or at_s > made.since_s + COPY_LIMIT_S:
            made.failed[index, name] = (
                f"it did not keep it within {COPY_LIMIT_S:g} s" if name in names else "it ended"
            )
            del made.pending[index]
    held = Counter(made.pending.values())
    held.update(peer.holder for peer in kept.peers if peer is not None)
    may_keep = _may_keep(state, kept.number)
    for index, owner in enumerate(kept.nodes):
        if _has_copy(state, kept, index) or index in made.pending or owner not in names:
            continue
        places = [
            place_of(n)
            for n in nodes
            if n.id == owner or ((index, n.id) not in made.failed and (may_keep is None or n.id in may_keep))
        ]
        holder = holder_of(owner, places, held)
        if holder is not None:
            made.pending[index] = holder
            held[holder] += 1
            memory = kept.memory[index]
            assert memory is not None
            whole = last_whole(state)
            state.send(names[holder], KeepCopy(owner, names[owner].copies, memory, whole))


def _may_keep(state: JobState, number: int) -> tuple[str, ...] | None:
    """Return the nodes that may keep copies of a checkpoint; None: all."""
    writing = state.writing.get(number)
    return None if writing is None else writing.holders


def _has_copy(state: JobState, kept: RestorableCheckpoint, index: int) -> bool:
    peer = kept.peers[index] if kept.peers else None
    return peer is not None and state.roster.get(peer.holder) is not None


def _end(state: JobState, kept: RestorableCheckpoint, at_s: float) -> None:
    """Complete a checkpoint that gets no files, or give it up; tell of parts without a copy once."""
    writing = state.writing.get(kept.number)
    is_in_memory = writing is not None and writing.is_in_memory
    if is_whole(kept, living(state)):
        if state.copying is not None:
            state.copying.told = ""
        if is_in_memory:
            checkpoint_coordinator.on_kept(state, kept, at_s)
        return
    why = _why(state, kept)
    if is_in_memory:
        checkpoint_coordinator.on_failed(state, kept.number, why, at_s)
    elif state.copying is not None and state.copying.number == kept.number and state.copying.told != why:
        state.note(f"checkpoint {kept.number} is on one host only: {why}", at_s)
    if state.copying is not None:
        state.copying.told = why


def _why(state: JobState, kept: RestorableCheckpoint) -> str:
    """Return why parts have no copy: the reasons of all nodes that were asked."""
    made = state.copying
    failed = {} if made is None or made.number != kept.number else made.failed
    missing = [i for i in range(len(kept.nodes)) if not _has_copy(state, kept, i)]
    asked = [f"{name}: {why}" for (index, name), why in sorted(failed.items()) if index in missing]
    names = ", ".join(kept.nodes[index] for index in missing)
    return f"no peer keeps the part of {names}" + (f" ({'; '.join(asked)})" if asked else "")

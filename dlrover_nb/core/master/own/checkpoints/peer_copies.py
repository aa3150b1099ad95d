"""Who keeps a copy of whose part, and which checkpoint can be restored: decisions, without any effect.

The memory of a PS is lost with its host, and in a pod with the pod. So another node keeps a copy of each
part, if possible one on another machine. PS come before workers, as they are given memory for it; the one PS
of a job has a worker as its peer.

Sending a copy to all nodes was rejected, as were codes over several parts: one lost host is what happens, and
two at once cost the last file, or the beginning where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.checkpoints import CopySource, PartSource, PeerCopies
from dlrover_nb.core.structs.wire.pod_contract import memory_outlives_node

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Mapping, Sequence

    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState, RestorableCheckpoint
    from dlrover_nb.core.structs.training.checkpoints import MemoryPart, PeerCopy


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is: its host, whose memory its processes share, and the machine under that."""

    node: str
    host: str
    machine: str
    is_ps: bool = True


def holder_of(owner: str, places: Sequence[Place], n_held: Mapping[str, int]) -> str | None:
    """Return which node keeps the copy of a PS; None: there is no other one.

    One on another machine is better than one on another host of the same, and that than any. Among these a PS
    is better than a worker, and one that keeps few copies than one that keeps many; else it is the next after
    the owner, so that PS alike keep one copy each.

    Parameters
    ----------
    owner
        A PS of `places`.
    places
        All nodes that may keep copies, in an order that stays.
    n_held
        How many copies of the checkpoint nodes keep already.
    """
    at = next(i for i, place in enumerate(places) if place.node == owner)
    own = places[at]

    def rank(other: Place) -> tuple[bool, bool, bool, int, int]:
        turn = (places.index(other) - at) % len(places)
        is_near = other.machine == own.machine, other.host == own.host
        return (*is_near, not other.is_ps, n_held.get(other.node, 0), turn)

    others = [place for place in places if place.node != owner]
    return min(others, key=rank).node if others else None


def are_wanted(setting: PeerCopies, machines: Collection[str], *, has_files: bool) -> bool:
    """Whether copies are kept: `has_files` tells whether checkpoints are in files that outlive nodes."""
    match setting:
        case PeerCopies.NEVER:
            return False
        case PeerCopies.ALWAYS:
            return True
        case PeerCopies.AUTO:
            return not has_files or len(set(machines)) > 1
        case _ as never:
            assert_never(never)


def is_restorable(
    checkpoint: RestorableCheckpoint, living: Container[str], *, has_files: bool, memory_stays: bool
) -> bool:
    """Whether each part of a checkpoint can be read somewhere.

    Parameters
    ----------
    checkpoint
        The checkpoint.
    living
        Nodes that have not ended.
    has_files
        Whether files outlive the nodes that wrote them.
    memory_stays
        Whether the memory of a PS that ended may still be on its host.
    """
    if checkpoint.is_origin or (checkpoint.is_on_disk and has_files):
        return True
    nodes = checkpoint.nodes or ("",) * len(checkpoint.memory)
    peers = checkpoint.peers or (None,) * len(checkpoint.memory)
    return all(
        (memory is not None and (memory_stays or node in living))
        or (peer is not None and peer.holder in living)
        for node, memory, peer in zip(nodes, checkpoint.memory, peers, strict=True)
    )


def is_whole(checkpoint: RestorableCheckpoint, living: Container[str]) -> bool:
    """Whether living peers keep a copy of each part."""
    return bool(checkpoint.peers) and all(
        peer is not None and peer.holder in living for peer in checkpoint.peers
    )


# the same of the state of a job


def living(state: JobState) -> frozenset[str]:
    """Return the names of all nodes that have not ended."""
    return frozenset(node.id for node in state.roster.nodes)


def keepers(state: JobState) -> tuple[Node, ...]:
    """Return the nodes that are up, send and keep copies, and are about to stay."""
    nodes = (*state.roster.ps, *state.roster.workers)
    return tuple(n for n in nodes if n.is_up and n.copies and not n.is_draining and not n.is_going)


def place_of(node: Node) -> Place:
    """Return where a node is."""
    return Place(node.id, node.host, node.machine, node.role is Role.PS)


def are_made(state: JobState) -> bool:
    """Whether peers keep copies of this job's checkpoints, and there are such peers."""
    nodes = keepers(state)
    machines = {node.machine for node in nodes}
    setting, has_files = state.spec.peer_copies, state.keeps_checkpoints
    return len(nodes) > 1 and are_wanted(setting, machines, has_files=has_files)


def last_whole(state: JobState) -> int:
    """Return the number of the last checkpoint that peers keep as a whole; -1: none."""
    names = living(state)
    return max((each.number for each in state.checkpoints if is_whole(each, names)), default=-1)


def newest_restorable(state: JobState) -> RestorableCheckpoint | None:
    """Return the newest checkpoint that can be restored now; None: the beginning."""
    names, memory_stays = living(state), memory_outlives_node(state.folder)
    for checkpoint in reversed(state.checkpoints):
        if is_restorable(checkpoint, names, has_files=state.keeps_checkpoints, memory_stays=memory_stays):
            return checkpoint
    return None


def sources(state: JobState, checkpoint: RestorableCheckpoint | None) -> tuple[PartSource, ...]:
    """Return where the parts of a checkpoint can be read now; nothing for the beginning."""
    if checkpoint is None:
        return ()
    nodes = checkpoint.nodes or ("",) * len(checkpoint.memory)
    peers = checkpoint.peers or (None,) * len(checkpoint.memory)
    places = zip(checkpoint.manifest.files, nodes, checkpoint.memory, peers, strict=True)
    return tuple(
        PartSource(*file, memory, tuple(_copies(state, node, memory, peer)))
        for file, node, memory, peer in places
    )


def _copies(
    state: JobState, owner: str, memory: MemoryPart | None, peer: PeerCopy | None
) -> list[CopySource]:
    copies = []
    if memory is not None and (node := state.roster.get(owner)) is not None and node.copies:
        copies.append(CopySource(node.copies, memory, is_peer=False))
    if peer is not None and (node := state.roster.get(peer.holder)) is not None and node.copies:
        copies.append(CopySource(node.copies, peer.memory, peer.sha256))
    return copies

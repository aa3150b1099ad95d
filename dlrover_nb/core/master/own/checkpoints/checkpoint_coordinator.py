"""Checkpoints, coordinated by the job master: cut while training is paused, copied and written afterwards.

While all workers are paused its folder is prepared, and only then every PS fixes the content of its part
(`Cut`); the parts and the data queue of that moment belong together. Then training goes on, and each PS
copies its part into memory (`Copied`) and writes its copy to the disk (`Saved`). When all parts are written,
the manifest completes them. A PS that dies before all are copied costs this checkpoint, and the one before is
restored; afterwards it costs nothing, as its copy outlives it.

A checkpoint that cannot be written (the disk is full, read-only or gone) costs nothing else: its folder is
dropped, once more for each part that is written after that, and the next attempt comes later each time, up to
10 minutes. While a PS still writes a part of one that was given up (the disk hangs) none begins: its copy
would wait for that part, and training for the copy. Folders that no state names, for example as the disk
refused to drop them, are swept after each complete checkpoint and when a master resumes. Where the disk has
no room for another checkpoint the oldest one makes room, never the last.

A group is restored from the newest readable checkpoint: from memory, even if it was never written; else from
its files; else from the one before; else from the beginning. Training waits for the disk in three cases only:
the last checkpoint of a job that is to stop (SAVING), the final one of a job that has trained all rows (which
is evaluated meanwhile), and one that other PS are to read (`Migration.RESTART`). Where files go with their
pods, it waits for copies in the memory of nodes that outlast the change instead.

One checkpoint is written at a time, as PS have two buffers and one of them holds the restorable copy; only a
job that is to stop does not wait for the previous one. Writing directly from the parameters with
copy-on-write pages (fork) was rejected: it needs as much memory in the end, and every first change of a page
then costs a page fault during training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.master.own.checkpoints import peer_copies
from dlrover_nb.core.master.own.state.state import RestorableCheckpoint, Stage, Writing
from dlrover_nb.core.master.shared.orders import (
    DropCheckpoint,
    PrepareCheckpoint,
    SweepCheckpoints,
    WriteManifest,
)
from dlrover_nb.core.sharding.manifest import Manifest
from dlrover_nb.core.structs.training.checkpoint_places import checkpoint_root, part_url
from dlrover_nb.core.structs.wire.messages import Save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.structs.training.checkpoints import MemoryPart
    from dlrover_nb.core.structs.wire.copy_messages import Cut
    from dlrover_nb.core.structs.wire.messages import Copied, Saved

N_CHECKPOINT_KEPT = 2  # on the disk
FIRST_CHECKPOINT_BYTES = 1 << 20  # assumed while no earlier checkpoint gives the size
PREPARE_LIMIT_S = 10.0  # for its folder, in a pause
LONGEST_WAIT_S = 600.0  # from a checkpoint that failed to the next attempt: each one pauses training
_MOST_DOUBLINGS = 30  # of the wait: beyond any limit, within the range of a float


def is_due(state: JobState, at_s: float) -> bool:
    """Whether a periodic checkpoint is due and the previous one is written."""
    every_s = state.spec.checkpoint_every_s
    wait_s = retry_wait_s(every_s, state.n_checkpoint_failed)
    is_kept = state.keeps_checkpoints or peer_copies.are_made(state)
    is_time = every_s > 0 and is_kept and at_s >= state.last_checkpoint_s + wait_s
    is_copying = state.copying is not None and bool(state.copying.pending)
    is_busy = bool(state.writing) or is_copying or any(node.late_parts for node in state.roster.ps)
    return is_time and not is_busy and state.move is None and not state.is_evaluating


def retry_wait_s(every_s: float, n_failed: int) -> float:
    """Return the seconds between two checkpoints of which the last `n_failed` failed: doubled by each."""
    longest_s = max(every_s, LONGEST_WAIT_S)
    return min(longest_s, every_s * 2.0 ** min(n_failed, _MOST_DOUBLINGS))


def final_is_due(state: JobState) -> bool:
    """Whether all rows are trained and the final checkpoint has not been started."""
    is_under_way = any(writing.is_final for writing in state.writing.values())
    return state.train.finished and not state.is_settled and not is_under_way


def start_checkpoint(
    state: JobState, at_s: float, *, is_awaited: bool, holders: tuple[str, ...] | None = None
) -> None:
    """Order the folder of a checkpoint; all workers are paused. With `holders` these keep it, without files.

    A stop or a change of plan makes progress by a checkpoint that it awaits. A periodic one must not count:
    a change that is stuck would never be given up.
    """
    group = state.group
    assert group is not None
    state.n_checkpoint += 1
    number = state.n_checkpoint
    ledger, is_final = state.train.checkpoint(), state.train.finished
    writing = Writing(number, at_s, group, ledger, is_final=is_final, is_awaited=is_awaited)
    state.writing[number] = writing
    state.enter(Stage.COPYING, at_s)
    if holders is not None or not (state.keeps_checkpoints or is_final or is_awaited):
        writing.is_in_memory, writing.holders = True, holders
        _order_copies(state, writing)
        return
    on_disk = tuple(
        checkpoint.number
        for checkpoint in state.checkpoints
        if checkpoint.is_on_disk and not checkpoint.is_origin
    )
    state.orders.append(PrepareCheckpoint(number, _expected_bytes(state), on_disk[:-1]))


def on_prepared(state: JobState, number: int, dropped: Sequence[int]) -> None:
    """Order every PS to copy its part; checkpoints that were `dropped` made room for it."""
    state.checkpoints = [checkpoint for checkpoint in state.checkpoints if checkpoint.number not in dropped]
    writing = state.writing.get(number)
    if writing is None:  # it was given up meanwhile
        state.orders.append(DropCheckpoint(number))
        return
    _order_copies(state, writing)


def _order_copies(state: JobState, writing: Writing) -> None:
    """Order every PS to copy its part, and to write it unless it stays in memory."""
    writing.is_ordered = True
    root = checkpoint_root(state.spec.checkpoint_url, state.folder)
    for index, node in enumerate(writing.group.nodes):
        member = state.roster.get(node)
        assert member is not None
        url = "" if writing.is_in_memory else part_url(root, writing.number, index)
        is_awaited = writing.is_awaited or writing.is_final
        whole = peer_copies.last_whole(state)
        state.send(member, Save(writing.number, url, whole, is_awaited, state.train.n_step))


def is_cut(state: JobState) -> bool:
    """Whether all parts of the current checkpoint may change again, or it was given up."""
    writing = state.writing.get(state.n_checkpoint)
    return writing is None or writing.is_cut


def is_written(state: JobState) -> bool:
    """Whether the current checkpoint is on the disk, or it was given up."""
    return state.n_checkpoint not in state.writing


def on_cut(state: JobState, node: Node, cut: Cut, at_s: float) -> None:
    """Note that a PS has fixed the content of its part; training goes on when all have."""
    writing = state.writing.get(cut.checkpoint)
    if writing is not None and node.id in writing.group.nodes:
        writing.cut.add(node.id)
        _step(state, writing, at_s)


def on_copied(state: JobState, node: Node, copied: Copied, at_s: float) -> None:
    """Note that a PS has copied its part; all parts together can be restored from then on."""
    writing = state.writing.get(copied.checkpoint)
    if writing is None or node.id not in writing.group.nodes or node.id in writing.copied:
        return
    writing.copied[node.id] = copied
    _step(state, writing, at_s)
    if writing.is_copied and None not in _memory(writing):
        nodes = writing.group.nodes
        _keep(state, RestorableCheckpoint(_manifest(writing, at_s), _memory(writing), nodes=nodes))


def on_saved(state: JobState, node: Node, saved: Saved, at_s: float) -> None:
    """Note that a PS has written its part; order the manifest after the last one.

    A late part of a checkpoint that was dropped has made its folder anew.
    """
    _take_part(state, node, saved, at_s)
    node.late_parts.discard(saved.checkpoint)


def _take_part(state: JobState, node: Node, saved: Saved, at_s: float) -> None:
    writing = state.writing.get(saved.checkpoint)
    if writing is None:
        if saved.checkpoint not in _numbers_on_disk(state):
            state.orders.append(DropCheckpoint(saved.checkpoint))
        return
    if node.id not in writing.group.nodes or writing.manifest is not None:
        return
    if saved.error:
        on_failed(state, saved.checkpoint, f"{node.id}: {saved.error}", at_s)
        return
    writing.saved[node.id] = saved
    _step(state, writing, at_s)
    if writing.is_copied and all(name in writing.saved for name in writing.group.nodes):
        writing.manifest = _manifest(writing, at_s)
        state.orders.append(WriteManifest(writing.manifest))


def _step(state: JobState, writing: Writing, at_s: float) -> None:
    if writing.is_awaited or state.stop_reason:
        state.last_step_s = at_s


def on_written(state: JobState, number: int, at_s: float) -> None:
    """Record that a checkpoint is complete on the disk, and delete the folders that no state names."""
    writing = state.writing.get(number)
    if writing is None or writing.manifest is None:
        return
    del state.writing[number]
    state.is_settled = state.is_settled or writing.is_final
    before = next((each for each in state.checkpoints if each.number == number), None)
    peers = () if before is None else before.peers
    memory, nodes = _memory(writing), writing.group.nodes
    _keep(state, RestorableCheckpoint(writing.manifest, memory, is_on_disk=True, nodes=nodes, peers=peers))
    sweep(state)
    _note_recovered(state, f"checkpoint {number} was written", at_s)


def on_kept(state: JobState, checkpoint: RestorableCheckpoint, at_s: float) -> None:
    """Record that a checkpoint without files is complete: peers keep all of its parts."""
    if state.writing.pop(checkpoint.number, None) is not None:
        _keep(state, checkpoint)
        _note_recovered(state, f"checkpoint {checkpoint.number} is kept by peers", at_s)


def _note_recovered(state: JobState, text: str, at_s: float) -> None:
    if state.n_checkpoint_failed:
        n_failed, state.n_checkpoint_failed = state.n_checkpoint_failed, 0
        state.note(f"{text}, after {n_failed} that failed", at_s)


def sweep(state: JobState) -> None:
    """Order the end of all folders of this job's checkpoints but those that it keeps or writes."""
    numbers = _numbers_on_disk(state) | state.writing.keys()
    state.orders.append(SweepCheckpoints(tuple(sorted(numbers)), state.n_checkpoint))


def on_failed(state: JobState, number: int, why: str, at_s: float) -> None:
    """Drop a checkpoint that could not be written; the PS still hold all parameters."""
    writing = state.writing.pop(number, None)
    if writing is None:
        return
    state.is_settled = state.is_settled or writing.is_final
    state.n_checkpoint_failed += 1
    if not writing.is_in_memory:
        state.orders.append(DropCheckpoint(number))
    for node in _unfinished(state, writing):
        node.late_parts.add(number)
    verb = "kept" if writing.is_in_memory else "written"
    text = f"checkpoint {number} could not be {verb}: {why}"
    if writing.is_final:
        state.not_saved = text
    state.note(text, at_s)
    if state.stop_reason:
        state.stop_reason += f"; {text}"


def on_connected_again(state: JobState, node: Node, at_s: float) -> None:
    """Give up what a PS was asked to write: the order or its answer may be lost, and training waits for it.

    The final one is begun anew. To order the same again was rejected: the PS may have begun, and what it
    writes next adds to what it wrote.
    """
    for writing in tuple(state.writing.values()):
        answers = writing.copied if writing.is_in_memory else writing.saved
        if not writing.is_ordered or node.id not in writing.group.nodes or node.id in answers:
            continue
        if not writing.is_final:
            on_failed(state, writing.number, f"the connection of {node.id} broke meanwhile", at_s)
            continue
        del state.writing[writing.number]
        if not writing.is_in_memory:
            state.orders.append(DropCheckpoint(writing.number))
        state.note(f"checkpoint {writing.number} starts again: the connection of {node.id} broke", at_s)
    node.late_parts.clear()  # what it has not answered by now may never come


def check_time(state: JobState, disk_limit_s: float, at_s: float) -> None:
    """Give up checkpoints that are not written within the limit, or have no folder soon: training waits."""
    for writing in tuple(state.writing.values()):
        if writing.is_in_memory and writing.is_copied:
            continue  # see `copy_coordinator`
        limit_s = disk_limit_s if writing.is_ordered else PREPARE_LIMIT_S
        if at_s > writing.since_s + limit_s:
            names = and_list(node.id for node in _unfinished(state, writing))
            why = f"{names} did not finish it within {limit_s:g} s; the next one has to wait for that"
            if not writing.is_ordered:
                why = f"its place did not answer within {limit_s:g} s"
            on_failed(state, writing.number, why, at_s)


def roll_back(state: JobState) -> None:
    """Make the newest restorable checkpoint the source of the next group; what is newer is lost."""
    for number in state.writing:
        state.orders.append(DropCheckpoint(number))
    state.writing.clear()
    state.not_saved = ""  # a final checkpoint comes again
    state.copying = None
    state.source = peer_copies.newest_restorable(state)
    newest = -1 if state.source is None else state.source.number
    for lost in [each for each in state.checkpoints if each.number > newest]:
        discard(state, lost)
    state.train.restore(state.source.manifest.ledger if state.source else None)
    if state.stopped_early:  # it was decided after that checkpoint
        state.train.close()
    is_kept = state.source is not None and state.source.is_on_disk
    state.is_settled = state.train.finished and is_kept


def discard(state: JobState, checkpoint: RestorableCheckpoint) -> None:
    """Drop a checkpoint that cannot be read, and what is newer."""
    state.checkpoints = [other for other in state.checkpoints if other.number < checkpoint.number]
    state.orders.append(DropCheckpoint(checkpoint.number))


def counted_from_s(state: JobState, at_s: float) -> float:
    """Return since when the next checkpoint is waited for, after a group has loaded its source.

    It is due at once where parts of the source are with one node only, and in no file.
    """
    source, names = state.source, peer_copies.living(state)
    if source is None or not source.peers or (source.is_on_disk and state.keeps_checkpoints):
        return at_s
    if set(source.nodes) <= names and peer_copies.is_whole(source, names):
        return at_s
    return at_s - state.spec.checkpoint_every_s


def source_name(state: JobState) -> str:
    """Return the source of the next group as text."""
    if state.source is None:
        return "the beginning"
    if state.source.is_origin:
        return "the checkpoint that the job began from"
    return f"checkpoint {state.source.number}" + ("" if state.source.is_on_disk else " in memory")


def loaded(state: JobState) -> str:
    """Return from where the group loaded its source as text; each of its PS reads all parts."""
    assert state.source is not None
    members = state.group_nodes
    n_read = len(members) * len(state.source.memory)
    n_from_memory = sum(node.n_from_memory for node in members)
    n_from_peers = sum(node.n_from_peers for node in members)
    n_from_files = n_read - n_from_memory - n_from_peers
    counts = {"memory": n_from_memory, "copies of peers": n_from_peers, "files": n_from_files}
    places = [place for place, n in counts.items() if n] or ["files"]
    where = and_list(places)
    if len(places) > 1:
        where += f" ({counts[places[-1]]} of {n_read} parts)"
    return f"{source_name(state)} was loaded from {where}" + (_came_back(state) if n_from_peers else "")


def _came_back(state: JobState) -> str:
    """Return as text whose parts came from which peer: those of PS that ended."""
    assert state.source is not None
    pairs = zip(state.source.nodes, state.source.peers, strict=False)
    names = peer_copies.living(state)
    gone = [(node, peer.holder) for node, peer in pairs if peer is not None and node not in names]
    return "".join(f"; {holder} kept the copy of {node}" for node, holder in gone)


def _unfinished(state: JobState, writing: Writing) -> list[Node]:
    """Return the PS that were ordered to write a part and have not told how that ended."""
    is_awaited = writing.is_ordered and not writing.is_in_memory
    names = writing.group.nodes if is_awaited else ()
    nodes = [state.roster.get(name) for name in names if name not in writing.saved]
    return [node for node in nodes if node is not None]


def _expected_bytes(state: JobState) -> int:
    """Return the size of the newest checkpoint, on the disk or in memory."""
    for checkpoint in reversed(state.checkpoints):
        in_memory = sum(part.n_byte for part in checkpoint.memory if part is not None)
        if n_byte := checkpoint.manifest.n_byte if checkpoint.is_on_disk else in_memory:
            return n_byte
    return FIRST_CHECKPOINT_BYTES


def _numbers_on_disk(state: JobState) -> set[int]:
    """Return the numbers of all checkpoints that are kept on the disk."""
    return {checkpoint.number for checkpoint in state.checkpoints if checkpoint.is_on_disk}


def _memory(writing: Writing) -> tuple[MemoryPart | None, ...]:
    return tuple(writing.copied[node].memory for node in writing.group.nodes)


def _manifest(writing: Writing, at_s: float) -> Manifest:
    parts = [writing.saved.get(node) for node in writing.group.nodes]
    return Manifest(
        number=writing.number,
        at_s=at_s,
        ps_epoch=writing.group.ps_epoch,
        bucket_owner=writing.group.bucket_owner,
        files=tuple((part.file, part.sha256) if part else ("", "") for part in parts),
        n_row=sum(part.n_row for part in parts if part),
        n_byte=sum(part.n_byte for part in parts if part),
        ledger=writing.ledger,
    )


def _keep(state: JobState, checkpoint: RestorableCheckpoint) -> None:
    """Keep the newest two on the disk, and one in memory while nothing newer is restorable.

    The last one that peers keep as a whole stays as well: the loss of a host leaves no newer one in memory.

    The one that the job began from stays known: it takes no room, and is better than to begin anew.
    """
    others = [other for other in state.checkpoints if other.number != checkpoint.number]
    ordered = sorted([*others, checkpoint], key=lambda each: each.number)
    on_disk = [each for each in ordered if each.is_on_disk and not each.is_origin]
    for old in on_disk[:-N_CHECKPOINT_KEPT]:
        state.orders.append(DropCheckpoint(old.number))
    names = peer_copies.living(state)
    whole = [each.number for each in ordered if peer_copies.is_whole(each, names)]
    in_memory = {ordered[-1].number, *whole[-1:], *state.writing}
    state.checkpoints = [
        each
        for each in ordered
        if each.is_origin
        or each in on_disk[-N_CHECKPOINT_KEPT:]
        or (not each.is_on_disk and each.number in in_memory)
    ]

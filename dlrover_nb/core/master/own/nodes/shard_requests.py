"""Messages of workers about shards: requests, progress, and finished shards.

This module decides the next grant only; the ledger keeps the account.

Slower workers get pieces of shards, so that none finishes long after the others. A worker at half the usual
speed gets half a shard, one at a quarter or less a quarter: 256, 128 and 64 batches. Powers of two, and not
exact shares: speeds are noisy, and pieces then end at few positions.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

import numpy as np

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.own.nodes import liveness
from dlrover_nb.core.master.own.rows import evaluation, skipped_batches, training_loss
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.master.shared.orders import Emit
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import MOST_HELD, Purpose
from dlrover_nb.core.structs.views.events import NodeReported, ProgressMade
from dlrover_nb.core.structs.wire.messages import (
    Alive,
    BatchSkipped,
    Forget,
    Granted,
    NoShard,
    Paused,
    Report,
    ShardAsked,
    ShardFinished,
    StepOpened,
    StreamEnded,
)
from dlrover_nb.core.structs.wire.mitigation_messages import ShardReturned

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.sharding.ledger import ShardLedger
    from dlrover_nb.core.structs.training.shards import Lease, ShardProgress
    from dlrover_nb.core.structs.wire.messages import Hello, Left

    Arrays = Sequence[NDArray[np.generic]]

PROGRESS_EVERY_S = 1.0
WAIT_S = 0.3  # interval of requests of a worker without a shard
IN_FLIGHT_S = 5.0  # longest time until a grant arrives


SMALLEST_SHARE = 4  # the slowest get this fraction of a shard


def usual_speed(speeds: Iterable[float]) -> float:
    """Return the median of the known speeds (above 0); 0 without any."""
    positive = [speed for speed in speeds if speed > 0]
    return statistics.median(positive) if positive else 0.0


def piece_batches(speed: float, usual: float, shard_batches: int) -> int | None:
    """Return how many batches of a shard a worker gets; None for all of it.

    Parameters
    ----------
    speed, usual
        Rows per second of this worker and of the median one; 0 when not known.
    shard_batches
        M, batches of a full shard.
    """
    if speed <= 0 or usual <= 0 or speed >= usual:
        return None
    n_part = 2 ** round(math.log2(usual / speed))
    return None if n_part == 1 else max(1, shard_batches // min(n_part, SMALLEST_SHARE))


def handle_message(
    state: JobState,
    node: Node,
    message: Alive
    | Report
    | ShardAsked
    | ShardFinished
    | BatchSkipped
    | StreamEnded
    | ShardReturned
    | Paused,
    at_s: float,
    arrays: Arrays,
) -> None:
    """Handle one message of a worker (a report or heartbeat may come from a PS)."""
    match message:
        case Alive():
            pass  # `liveness` has recorded it
        case Report():
            _on_report(state, node, message, at_s)
        case ShardAsked():
            _note_released(state, node, message.released, at_s)
            _on_asked(state, node, message.holding, at_s)
        case ShardFinished(lease=lease):
            _on_finished(state, node, lease, at_s, arrays)
        case BatchSkipped():
            skipped_batches.on_skipped(state, node, message, at_s)
        case StreamEnded():
            _on_stream_ended(state, node, message, at_s)
        case ShardReturned():
            _on_returned(state, node, message)
        case Paused():
            _on_paused(state, node, message, at_s)
        case _ as never:
            assert_never(never)


def emit_progress(state: JobState, at_s: float) -> None:
    """Emit how many samples are done, when that has changed, once a second."""
    emitted_at_s, n_emitted = state.progress_emitted
    n_done = state.train.counts().n_sample_done
    if n_done != n_emitted and at_s >= emitted_at_s + PROGRESS_EVERY_S:
        state.progress_emitted = at_s, n_done
        state.orders.append(Emit(ProgressMade(at_s, n_done)))


def is_calm(state: JobState, node: Node) -> bool:
    """Whether a shard message of `node` needs no reconciliation before the next tick.

    Nearly all messages are of this kind, and reconciling visits every node: with a thousand workers it would
    be the bottleneck.
    """
    is_steady = state.stage is Stage.SERVING and state.steady_since_s is not None and state.change is None
    is_there = state.roster.get(node.id) is node
    is_steady = is_steady and not state.waits_for_step
    return is_steady and is_there and not any(each.finished for each in evaluation.ledgers(state))


def update_speeds(state: JobState) -> None:
    """Update the speed of the median worker: slower ones get smaller pieces of shards."""
    state.usual_rows_per_s = usual_speed(node.rows_per_s for node in state.roster.workers)


def _on_report(state: JobState, node: Node, report: Report, at_s: float) -> None:
    node.last = sample = replace(report.sample, at_s=at_s)  # the node's own clock may be hours off
    if sample.n_iter * sample.iter_s > 0 and node.role is Role.WORKER:
        node.rows_per_s = sample.n_sample / (sample.n_iter * sample.iter_s)
    node.load = report.load or node.load
    state.n_dropped += max(0, report.n_dropped - node.n_dropped)
    node.n_dropped = report.n_dropped
    if report.lease is not None and report.n_row_done:
        node.has_worked |= _ledger(state, report.lease).progress(node.id, report.lease, report.n_row_done)
    training_loss.add(state, sample, at_s)
    for worker in report.members:
        if state.roster.get(worker) is None:
            state.send(node, Forget(worker))  # the first order was lost with its connection
    since_s = state.steady_since_s
    is_steady = since_s is not None and at_s - sample.window_s >= since_s
    plan = state.target if is_steady else None
    state.orders.append(Emit(NodeReported(at_s, sample, plan)))


def hear_again(state: JobState, node: Node, hello: Hello, at_s: float) -> None:
    """Note what a worker did, where the message that said so was lost with its connection or with a master.

    One that holds what it may not train any more has not heard that it is to drop its shards.
    """
    _note_released(state, node, hello.released, at_s)
    for each in hello.unfinished:
        if state.train.holds(node.id, each.lease):
            _note_skipped(state, node, each, at_s)
            if each.n_row_done:
                node.has_worked |= state.train.progress(node.id, each.lease, each.n_row_done)
        else:
            node.must_drop = True


def _note_released(state: JobState, node: Node, released: Sequence[ShardProgress], at_s: float) -> None:
    """Let go of the shards that a worker has let go, if that was not heard yet."""
    for each in released:
        if state.train.holds(node.id, each.lease):
            _note_skipped(state, node, each, at_s)
            is_let_go = state.train.let_go(node.id, each.lease, each.n_row_done)
            node.has_worked |= is_let_go and each.n_row_done > 0


def _note_skipped(state: JobState, node: Node, progress: ShardProgress, at_s: float) -> None:
    for batch in progress.skipped:
        skipped_batches.on_skipped(state, node, BatchSkipped(node.id, progress.lease, batch), at_s)


def _on_asked(state: JobState, node: Node, holding: Sequence[Lease], at_s: float) -> None:
    """Answer a request for another shard.

    If a recent grant is missing from `holding`, request and grant crossed, and another grant would be
    surplus. An older missing grant was lost, or a node that was stopped has not read it yet: it is sent again
    as it was, and a worker that has it by then ignores it. To give its shard to the queue was rejected: both
    who had the grant unread and who got the next one would train it.
    """
    if state.roster.get(node.id) is None:
        return
    granted = (*state.train.held(node.id), *state.evaluate.held(node.id))
    missing = [shard for shard in granted if shard.lease not in holding]
    if missing and at_s < node.granted_at_s + IN_FLIGHT_S:
        return
    for shard in missing:
        node.granted_at_s = at_s
        state.send(node, Granted(shard, state.train.n_step))
    if not missing:
        _grant(state, node, at_s)


def _grant(state: JobState, node: Node, at_s: float) -> None:
    may_work = state.stage is Stage.SERVING and node.is_training and not node.is_draining
    most = piece_batches(node.rows_per_s, state.usual_rows_per_s, state.spec.shard_batches)
    shard = None
    for ledger in evaluation.ledgers(state) if may_work and not _is_for_others(state, node) else ():
        if shard is None and _has_turn(state, node, ledger):
            shard = ledger.grant(node.id, most_batches=most)
    node.granted_at_s, n_step = at_s, state.train.n_step
    state.send(node, NoShard(WAIT_S, n_step) if shard is None else Granted(shard, n_step))


def open_step(state: JobState) -> None:
    """Tell the workers when another step is complete, so that they compute the next one."""
    n_step = state.train.n_step
    if n_step is None or n_step == state.n_step_announced or state.stage is not Stage.SERVING:
        return
    state.n_step_announced = n_step
    for node in state.roster.workers:
        if node.is_training:
            state.send(node, StepOpened(n_step))


def _is_for_others(state: JobState, node: Node) -> bool:
    """Whether the next shard is the one that a worker gave back, and others can train it."""
    if node.returned is None or state.train.queue.next_returned != node.returned:
        node.returned = None
        return False
    others = (each for each in state.roster.workers if each.is_training and not each.is_draining)
    return any(each.returned != node.returned for each in others)


def _has_turn(state: JobState, node: Node, ledger: ShardLedger) -> bool:
    """Whether a worker may hold one more shard: a second one, except among the last shards.

    The last evaluation shards of a round do not count as last: training shards follow.
    """
    n_held = len(state.leases(node))
    if n_held and ledger.n_step is not None:
        return _has_turn_in_step(node, ledger, ledger.n_step)
    if n_held == 0 or n_held >= MOST_HELD:
        return n_held == 0
    counts = ledger.counts()
    has_others = ledger is not evaluation.ledgers(state)[-1]
    return counts.is_open or has_others or counts.todo >= state.target.worker.count


def _has_turn_in_step(node: Node, ledger: ShardLedger, n_step: int) -> bool:
    """Whether a worker may hold one more unit of the open step, or its only one of a later step.

    So there is always one who can take what a worker leaves of the open step, on which all wait.
    """
    units = [shard.unit for shard in ledger.held(node.id) if shard.unit is not None]
    n_open = sum(unit.step == n_step for unit in units)
    return n_open < MOST_HELD if ledger.has_ungranted(n_step) else n_open == len(units)


def _on_finished(state: JobState, node: Node, lease: Lease, at_s: float, arrays: Arrays) -> None:
    """Complete a shard, and grant the next to a worker that holds none; any other requests it."""
    if lease.purpose is Purpose.EVALUATE:
        _keep_scores(state, node, lease, at_s, arrays)
    else:
        node.has_worked |= state.train.complete(node.id, lease)
    if state.roster.get(node.id) is node and not state.leases(node):
        _grant(state, node, at_s)


def _on_stream_ended(state: JobState, node: Node, ended: StreamEnded, at_s: float) -> None:
    """End the stream at its last row, once that is known.

    An empty shard says only that the end is not after it. When all shards before it are done the end is
    there; until then it may lie within one of those.
    """
    ledger, lease = state.train, ended.lease
    if not ledger.holds(node.id, lease):
        return
    start = ledger.split.rows(lease.shard)[0]
    ledger.give_back(node.id, lease)
    if ended.n_row or ledger.is_done_before(lease.shard):
        try:
            ledger.close_at(start + ended.n_row)
        except InvalidValueError as error:
            where = f"{node.id} read the end of the stream at row {start + ended.n_row}"
            state.end(JobPhase.FAILED, f"{where}, other workers elsewhere: {error}", at_s)
            return
        state.note(f"the stream ended after {start + ended.n_row} rows", at_s)
    state.send(node, NoShard(WAIT_S))


def on_left(state: JobState, node: Node, left: Left, at_s: float) -> None:
    """Remove a drained worker; of a shard that it left unfinished others train the remaining rows."""
    _note_released(state, node, left.released, at_s)
    if state.roster.get(node.id) is not node:
        return  # that has ended the job
    if left.lease is not None and left.n_row_done:
        node.has_worked |= _ledger(state, left.lease).progress(node.id, left.lease, left.n_row_done)
    state.stop_node(node, at_s)
    state.last_step_s = at_s


def _on_returned(state: JobState, node: Node, returned: ShardReturned) -> None:
    """Give the remaining rows of a shard to other workers, if there are any."""
    lease = returned.lease
    if state.train.let_go(node.id, lease, returned.n_row_done):
        node.returned = lease.shard


def _keep_scores(state: JobState, node: Node, lease: Lease, at_s: float, arrays: Arrays) -> None:
    """Add the scores of a whole shard; a worker that sends anything else is replaced."""
    ledger = state.evaluate
    if not ledger.holds(node.id, lease):
        ledger.complete(node.id, lease)  # refused, and counted as such
        return
    n_row, shapes = ledger.split.n_row(lease.shard), [array.shape for array in arrays]
    if shapes != [(n_row,)] * 2:
        why = f"it scored {shapes} rows in shard {lease.shard}, expected {n_row}"
        liveness.node_lost(state, node, why, at_s, by_its_work=True)
        return
    scores, labels = (np.array(array, np.float32) for array in arrays)
    evaluation.add_scores(state, lease.shard, scores, labels)
    node.has_worked |= ledger.complete(node.id, lease)


def _on_paused(state: JobState, node: Node, paused: Paused, at_s: float) -> None:
    _note_released(state, node, paused.released, at_s)
    if paused.lease is not None:
        is_held = _ledger(state, paused.lease).progress(node.id, paused.lease, paused.n_row_done)
        node.must_drop = node.must_drop or not is_held
    if state.stage is Stage.PAUSING and paused.number == state.n_pause:
        node.is_training = False
        if state.stop_reason:
            state.last_step_s = at_s


def _ledger(state: JobState, lease: Lease) -> ShardLedger:
    return state.evaluate if lease.purpose is Purpose.EVALUATE else state.train

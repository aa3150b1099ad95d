"""The persistent state of a job master, and the state in which a restarted master continues.

When a master is killed its nodes continue: workers train, parameter servers hold the parameters. So its
successor must take them over and not begin anew. Everything that others may know is persisted before it
leaves the master: names, epochs and targets in a `StateRecord`, granted shards in the changes of the ledgers.

Operations in progress are not continued. Each stage falls back to a safe one, in which lost messages are
requested again:

ASSEMBLING, LOADING   assemble again, from the same checkpoint: loading twice changes nothing
SERVING               continues
PAUSING ... SAVING    serve again; a checkpoint that is not on the disk yet stays restorable from memory
SWITCHING             continues: each PS gets the end of the move again, and reports its complete part again

Actions against stragglers go on: a node that is replaced stays so, and its successor is started anew if it
is gone. Buckets that moved within the group have moved or not, as above, which is emitted.

A node that was being resized is asked for again once it has said Hello (`resizing`).

A move before SWITCHING is cancelled; PS learn that in the answer to their Hello
(`migration_coordinator.resend_outcome`).

Every node is *adopted*: it counts as alive, but no pause begins and no parameter moves until it has said
Hello again or is known to be gone. The scores of an evaluation are held in memory only: an evaluation
starts over.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.deadline.loss_windows import LossWindows
from dlrover_nb.core.master.own.checkpoints import checkpoint_coordinator
from dlrover_nb.core.master.own.state import batch_sizes
from dlrover_nb.core.master.own.state.roster import Node
from dlrover_nb.core.master.own.state.state import (
    JobState,
    Move,
    PlanChange,
    PsGroup,
    RestorableCheckpoint,
    Stage,
)
from dlrover_nb.core.master.own.state.state_records import JOBS_OWN, Fence, OpenMitigation, RateRamp, failed
from dlrover_nb.core.master.shared.orders import DropCheckpoint
from dlrover_nb.core.master.shared.takeover import takeover_words
from dlrover_nb.core.structs.job.job import JobPhase  # noqa: TC001 - a record is decoded by its annotations
from dlrover_nb.core.structs.plan.queued_jobs import HELD
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role  # noqa: TC001 - as above
from dlrover_nb.core.structs.training.failures import CountedError  # noqa: TC001 - a record is decoded by its annotations
from dlrover_nb.core.structs.training.shards import SkippedBatch  # noqa: TC001 - as above
from dlrover_nb.core.structs.views.snapshot import Evaluation, EvaluationRound  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Iterable

CheckpointName = tuple[int, bool]  # number of a checkpoint, whether it is on the disk


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A living node, as `core.master.own.state.roster.Node`."""

    id: str
    role: Role
    cpu: float
    memory_mib: int
    since_s: float
    is_up: bool
    is_draining: bool
    has_worked: bool
    must_drop: bool
    endpoint: str
    pid: int | None
    cpu_enforced: bool
    memory_enforced: bool
    loaded_epoch: int
    is_leaving: bool = False
    is_replaced: bool = False
    resizing: tuple[float, int] | None = None
    size: tuple[float, int] | None = None
    copies: str = ""
    host: str = ""
    machine: str = ""


@dataclass(frozen=True, slots=True)
class StateRecord:
    """The persistent part of a `JobState` without its ledgers; checkpoints by name."""

    target: ResourcePlan
    applied: ResourcePlan | None
    change: PlanChange | None
    stage: Stage
    group: PsGroup | None
    n_group: int
    move: PsGroup | None
    bucket_owner: tuple[int, ...]
    source: CheckpointName | None
    checkpoints: tuple[CheckpointName, ...]
    writing: tuple[int, ...]
    n_checkpoint: int
    n_pause: int
    last_checkpoint_s: float
    is_settled: bool
    is_evaluating: bool
    is_stopping: str  # the reason of a stop; this name is in every write-ahead log
    phase: JobPhase
    message: str
    n_named: tuple[tuple[Role, int], ...]
    nodes: tuple[NodeRecord, ...]
    evaluation: Evaluation | None = None
    rounds: tuple[EvaluationRound, ...] = ()
    stopped_early: str = ""
    batch_sizes: dict[str, int] = field(default_factory=dict)
    batch_times: dict[str, int] = field(default_factory=dict)
    n_checkpoint_failed: int = 0
    not_saved: str = ""
    errors: tuple[CountedError, ...] = ()
    fences: tuple[Fence, ...] = ()
    skipped: tuple[SkippedBatch, ...] = ()
    n_skipped: int = 0
    skipped_in_pass: tuple[int, int] = (0, 0)
    backups: int = 0
    rates: dict[str, float] = field(default_factory=dict)
    ramp: RateRamp = JOBS_OWN
    mitigations: tuple[OpenMitigation, ...] = ()
    is_held: bool = False
    loss_points: tuple[tuple[int, float], ...] = ()


def name_of(checkpoint: RestorableCheckpoint) -> CheckpointName:
    """Return the name of a checkpoint: its number, and whether it is on the disk."""
    return checkpoint.number, checkpoint.is_on_disk


def latest_s(record: StateRecord) -> float:
    """Return the latest time that a record mentions; the journal may end earlier, on a full disk."""
    since_s = [node.since_s for node in record.nodes]
    if record.change is not None:
        since_s.append(record.change.since_s)
    return max([record.last_checkpoint_s, *since_s])


def record_of(state: JobState) -> StateRecord:
    """Return the persistent part of a state."""
    return StateRecord(
        target=state.target,
        applied=state.applied,
        change=None if state.change is None else replace(state.change),
        stage=state.stage,
        group=state.group,
        n_group=state.n_group,
        move=state.move.group if state.move else None,
        bucket_owner=state.bucket_owner,
        source=name_of(state.source) if state.source else None,
        checkpoints=tuple(map(name_of, state.checkpoints)),
        writing=tuple(state.writing),
        n_checkpoint=state.n_checkpoint,
        n_pause=state.n_pause,
        last_checkpoint_s=state.last_checkpoint_s,
        is_settled=state.is_settled,
        is_evaluating=state.is_evaluating,
        is_stopping=state.stop_reason,
        phase=state.phase,
        message=state.message,
        n_named=state.roster.n_named,
        nodes=tuple(_node_record(node) for node in state.roster.nodes),
        evaluation=state.evaluation,
        rounds=state.rounds,
        stopped_early=state.stopped_early,
        batch_sizes=dict(state.batch_sizes),
        batch_times=dict(state.batch_times),
        n_checkpoint_failed=state.n_checkpoint_failed,
        not_saved=state.not_saved,
        errors=state.errors,
        fences=state.fences,
        skipped=state.skipped,
        n_skipped=state.n_skipped,
        skipped_in_pass=state.skipped_in_pass,
        backups=state.backups,
        rates=dict(state.rates),
        ramp=state.ramp,
        mitigations=state.mitigations,
        is_held=state.is_held,
        loss_points=state.losses.points,
    )


def revive(
    state: JobState, record: StateRecord, checkpoints: Iterable[RestorableCheckpoint], at_s: float
) -> None:
    """Fill a new `state`, whose ledgers are set, from a record; see the module."""
    by_name = {name_of(each): each for each in checkpoints}
    state.target, state.applied, state.change = record.target, record.applied, record.change
    state.group, state.n_group, state.bucket_owner = record.group, record.n_group, record.bucket_owner
    state.source = None if record.source is None else by_name[record.source]
    state.checkpoints = [by_name[name] for name in record.checkpoints]
    state.n_checkpoint, state.n_pause = record.n_checkpoint, record.n_pause
    state.last_checkpoint_s, state.is_settled = record.last_checkpoint_s, record.is_settled
    state.n_checkpoint_failed, state.not_saved = record.n_checkpoint_failed, record.not_saved
    state.errors, state.fences = record.errors, record.fences
    state.skipped, state.n_skipped = record.skipped, record.n_skipped
    state.skipped_in_pass = record.skipped_in_pass
    state.is_evaluating, state.stop_reason = record.is_evaluating, record.is_stopping
    state.evaluation = record.evaluation
    state.rounds, state.stopped_early = record.rounds, record.stopped_early
    state.losses = LossWindows(record.loss_points)
    state.batch_sizes, state.n_coordinated = dict(record.batch_sizes), record.n_group
    state.batch_times = dict(record.batch_times)
    state.backups, state.rates, state.mitigations = record.backups, dict(record.rates), record.mitigations
    state.ramp = record.ramp
    state.phase, state.message, state.is_held = record.phase, record.message, record.is_held
    adopted = (_adopted(node, state.spec.gpu_of(node.role), at_s) for node in record.nodes)
    state.roster.adopt(adopted, record.n_named)
    state.sizes_emitted, state.node_sizes_emitted = batch_sizes.present(state), None
    state.stage, state.stage_since_s, state.last_step_s = record.stage, at_s, at_s
    _make_safe(state, record.move)
    if state.stage is not Stage.SWITCHING:
        state.mitigations = failed(state.mitigations, "the master restarted", of_moves=True)
    state.orders.extend(DropCheckpoint(number) for number in record.writing)
    checkpoint_coordinator.sweep(state)
    _begin_evaluation_anew(state)
    state.note(_welcome(state), at_s)


def _make_safe(state: JobState, move: PsGroup | None) -> None:
    match state.stage:
        case Stage.SWITCHING:
            assert move is not None
            state.move = Move(move, state.stage_since_s)
        case Stage.ASSEMBLING | Stage.SERVING | Stage.ENDED:
            pass
        case Stage.LOADING:
            state.stage, state.group = Stage.ASSEMBLING, None
        case Stage.PAUSING | Stage.COPYING | Stage.SAVING:
            state.stage = Stage.SERVING
        case _ as never:
            assert_never(never)


def _welcome(state: JobState) -> str:
    if state.is_ended:
        return state.message
    if state.is_held:
        return f"the master restarted; the job {HELD}"
    n_running = sum(node.is_adopted for node in state.roster.nodes)
    has_begun = any(n for _, n in state.roster.n_named)
    return takeover_words(n_running, len(state.roster.nodes) - n_running, has_begun=has_begun)


def _begin_evaluation_anew(state: JobState) -> None:
    if not state.is_evaluating:
        return
    state.evaluate.restore(None)
    for node in state.roster.workers:
        node.must_drop = True


def _node_record(node: Node) -> NodeRecord:
    return NodeRecord(
        id=node.id,
        role=node.role,
        cpu=node.cpu,
        memory_mib=node.memory_mib,
        since_s=node.since_s,
        is_up=node.is_up or node.is_adopted,
        is_draining=node.is_draining,
        has_worked=node.has_worked,
        must_drop=node.must_drop,
        endpoint=node.endpoint,
        pid=node.pid,
        cpu_enforced=node.cpu_enforced,
        memory_enforced=node.memory_enforced,
        loaded_epoch=node.loaded_epoch,
        is_leaving=node.is_leaving,
        is_replaced=node.is_replaced,
        resizing=node.resizing,
        size=node.size,
        copies=node.copies,
        host=node.host,
        machine=node.machine,
    )


def _adopted(record: NodeRecord, gpu: int, at_s: float) -> Node:
    """Return a node that must say Hello again; it counts as not training until it is ordered to."""
    return Node(
        id=record.id,
        role=record.role,
        cpu=record.cpu,
        memory_mib=record.memory_mib,
        since_s=record.since_s,
        last_message_s=at_s,
        asked_s=at_s,
        gpu=gpu,
        is_adopted=record.is_up,
        is_draining=record.is_draining,
        has_worked=record.has_worked,
        must_drop=record.must_drop,
        endpoint=record.endpoint,
        pid=record.pid,
        cpu_enforced=record.cpu_enforced,
        memory_enforced=record.memory_enforced,
        loaded_epoch=record.loaded_epoch,
        is_leaving=record.is_leaving,
        is_replaced=record.is_replaced,
        resizing=record.resizing,
        size=record.size,
        copies=record.copies,
        host=record.host,
        machine=record.machine,
    )

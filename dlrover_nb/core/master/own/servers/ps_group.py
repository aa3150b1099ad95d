"""The parameter servers of a job: changes of the group without losing a shard or a parameter.

A level-triggered reconciler: `advance` compares the actual state with the target and takes the next possible
step, whatever led to the state. So a target that changes meanwhile, a node that dies in a pause and a lost
message need no code of their own: the next call finds the difference again.

Everything that must change together with training (the PS group, the content of a checkpoint) changes between
PAUSING and SERVING. Each paused worker has reported its exact position, so parameters and data queue are
consistent, and workers keep their shards across the change. `checkpoint_coordinator` copies a checkpoint
there, `migration_coordinator` lets other PS take over. Where both groups of PS do not fit at once, or where
the job asks for it, the change goes through a checkpoint on the disk: the old PS stop, the new ones read it.
In pods without storage that outlives them, nodes that stay keep its parts in memory (`ps_restart`).

When a PS dies, its parameters since the last checkpoint are lost. Continuing with the remaining parts (as
some systems do) was rejected: then no count of trained samples is correct. Parameters and queue roll back
together, and the samples since the checkpoint are trained again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.basics.redaction import redact
from dlrover_nb.core.master.own.checkpoints import checkpoint_coordinator, leaving, peer_copies
from dlrover_nb.core.master.own.rows import evaluation
from dlrover_nb.core.master.own.servers import migration_coordinator, pauses, ps_restart
from dlrover_nb.core.master.own.servers.bucket_owners import assign_buckets
from dlrover_nb.core.master.own.servers.rebalancing import is_under_way, keeps_on
from dlrover_nb.core.master.own.state.batch_sizes import share_global_batch
from dlrover_nb.core.master.own.state.resizing import awaited
from dlrover_nb.core.master.own.state.state import PsGroup, Stage, UnfinishedPauses
from dlrover_nb.core.master.shared.orders import Emit
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Migration
from dlrover_nb.core.structs.plan.capacity import n_more
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import PlanFailed
from dlrover_nb.core.structs.wire.messages import Load, Train

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.structs.training.checkpoints import PartSource
    from dlrover_nb.core.structs.wire.messages import Hello, Loaded


def advance(state: JobState, at_s: float) -> None:
    """Take every step that is possible now."""
    before = None
    while before is not state.stage:
        before = state.stage
        _step(state, at_s)


def _step(state: JobState, at_s: float) -> None:
    match state.stage:
        case Stage.ASSEMBLING:
            _assemble(state, at_s)
        case Stage.LOADING:
            _end_loading(state, at_s)
        case Stage.SERVING:
            _serve(state, at_s)
        case Stage.PAUSING:
            _end_pause(state, at_s)
        case Stage.COPYING:
            _end_copying(state, at_s)
        case Stage.SAVING:
            _end_saving(state, at_s)
        case Stage.SWITCHING:
            migration_coordinator.end_switching(state, at_s)
        case Stage.ENDED:
            pass
        case _ as never:
            assert_never(never)


# ASSEMBLING


def _assemble(state: JobState, at_s: float) -> None:
    if state.stop_reason:
        state.end(JobPhase.STOPPED, state.stop_reason, at_s)
        return
    want = state.target.ps
    _stop_misfits(state, want.count, at_s)
    missing = want.count - len(state.roster.ps)
    state.start_nodes(Role.PS, _n_start(state, missing), at_s)
    members = state.roster.ps
    if len(members) == want.count and all(node.is_up and node.has_shape(want) for node in members):
        _load(state, members, at_s)


def _stop_misfits(state: JobState, keep: int, at_s: float) -> None:
    """Stop PS that are not as the target says, and those beyond `keep`: those that are not up first."""
    fitting = ps_restart.fitting(state)[:keep]
    for node in state.roster.ps:
        if node not in fitting:
            state.stop_node(node, at_s)


def _n_start(state: JobState, missing: int, *, without_surplus: bool = False) -> int:
    """Return how many of the missing PS fit now, or when the workers that leave anyway have left."""
    plan = state.target.ps
    if leaving.is_forced(state) and not _is_outgrown(state):
        return missing  # they replace PS that leave
    present = [node.need for node in state.roster.ps if not node.is_leaving]
    if without_surplus:
        present += state.roster.staying_needs(state.target.worker)
    else:
        present += [worker.need for worker in state.roster.workers]
    return n_more(state.capacity, present, plan.need, at_most=missing)


def _load(state: JobState, members: tuple[Node, ...], at_s: float) -> None:
    """Make `members` the group and order each to load its part."""
    state.n_group += 1
    state.bucket_owner = assign_buckets(state.bucket_owner, len(members))
    names, parts = tuple(node.id for node in members), peer_copies.sources(state, state.source)
    state.group = PsGroup(state.n_group, names, state.target.ps, state.bucket_owner)
    for node in members:
        _send_load(state, state.group, node, parts)
    state.enter(Stage.LOADING, at_s)


def _send_load(state: JobState, group: PsGroup, node: Node, parts: tuple[PartSource, ...]) -> None:
    index = group.nodes.index(node.id)
    state.send(node, Load(group.ps_epoch, index, len(group.nodes), group.bucket_owner, parts))


def repeat_load(state: JobState, node: Node, hello: Hello) -> None:
    """Order a PS again to load its part, as the order or its answer may be lost."""
    if state.stage is not Stage.LOADING or state.group is None or hello.ps_epoch < 0:
        return
    if node in not_loaded(state):
        _send_load(state, state.group, node, peer_copies.sources(state, state.source))


# LOADING


def _end_loading(state: JobState, at_s: float) -> None:
    if state.stop_reason:
        state.end(JobPhase.STOPPED, state.stop_reason, at_s)
    elif not not_loaded(state):
        state.enter(Stage.SERVING, at_s)
        state.last_checkpoint_s = checkpoint_coordinator.counted_from_s(state, at_s)
        if state.source is not None:
            state.note(checkpoint_coordinator.loaded(state), at_s)


def not_loaded(state: JobState) -> tuple[Node, ...]:
    """Return the PS that have not loaded their part yet."""
    assert state.group is not None
    return tuple(node for node in state.group_nodes if node.loaded_epoch != state.group.ps_epoch)


# SERVING


def _serve(state: JobState, at_s: float) -> None:
    _let_train(state)
    if not state.roster.is_complete:
        return  # the state of an adopted node is unknown until its Hello
    share_global_batch(state)
    is_wanted = _wanted(state, at_s) is not None
    state.waits_for_step = is_wanted and not pauses.may_begin(state)
    if is_wanted and not state.waits_for_step:
        pauses.begin(state, at_s)


def _wanted(state: JobState, at_s: float) -> Stage | None:
    """Return the stage that requires a pause; None: no pause is needed."""
    change = _prepare_change(state, at_s)
    if state.stop_reason or checkpoint_coordinator.final_is_due(state):
        return Stage.COPYING
    if change is None and checkpoint_coordinator.is_due(state, at_s):
        return Stage.COPYING
    return change


def _let_train(state: JobState) -> None:
    """Order every idle worker that is up to train with the current group."""
    group = state.group
    assert group is not None
    endpoints = tuple(node.endpoint for node in state.group_nodes)
    for node in state.roster.workers:
        if node.is_up and not node.is_training:
            if node.must_drop:  # includes later grants, which the worker cannot distinguish
                state.take_back(node.id)
            state.send(node, Train(group.ps_epoch, endpoints, group.bucket_owner, node.must_drop))
            node.is_training, node.must_drop = True, False


def repeat_order(state: JobState, worker: Node) -> None:
    """Order a worker again to pause or to train, as the order before may be lost; twice changes nothing."""
    if not worker.is_training or state.group is None:
        return
    if state.stage is Stage.PAUSING:
        pauses.order(state, worker)
    elif state.stage is Stage.SERVING:
        worker.is_training = False  # until `_let_train`, which follows


def _is_trained(state: JobState) -> bool:
    return state.train.finished and not state.is_evaluating


def changes_ps(state: JobState) -> bool:
    """Whether the target requires another PS group; not while PS are resized in place."""
    return _is_outgrown(state) or leaving.loses_members(state)


def _is_outgrown(state: JobState) -> bool:
    is_ending = state.is_evaluating or state.train.finished or state.stop_reason
    if state.group is None or is_ending or awaited(state, Role.PS):
        return False
    want = state.target.ps
    staying = (node for node in state.group_nodes if not node.is_going)
    return state.group.shape != want or not all(node.has_shape(want) for node in staying)


def _restarts(state: JobState) -> bool:
    """Whether the PS change by stop and restart: by the job's choice, or because both groups do not fit."""
    may_restart = _is_outgrown(state) or leaving.may_restart(state)
    return may_restart and (_lacks_room(state) or state.spec.migration is Migration.RESTART)


def _lacks_room(state: JobState) -> bool:
    """Whether the PS of the next group do not fit beside the current one, by capacity or by the cluster."""
    missing = _n_missing(state)
    is_full = missing > 0 and _n_start(state, missing, without_surplus=True) < missing
    return is_full or any(node.lacks_room for node in _standby(state))


def _prepare_change(state: JobState, at_s: float) -> Stage | None:
    """Start the PS of the next group beside the current one, and migrate parameters to them.

    Returns the stage that completes the change, once workers may pause for it.
    """
    is_led_to = changes_ps(state) and migration_coordinator.leads_to(state, state.target.ps)
    if not is_led_to and (changes_ps(state) or not is_under_way(state)):
        migration_coordinator.cancel_migration(state)
    _stop_standby(state, state.target.ps.count - len(_kept(state)) if changes_ps(state) else 0, at_s)
    if not changes_ps(state):
        return keeps_on(state, at_s)
    if _restarts(state) and not ps_restart.is_possible(state):
        state.fail_plan(ps_restart.NOTHING_KEPT, at_s)
        return None
    if _lacks_room(state):
        return Stage.COPYING if _restarts(state) else None
    missing = max(0, _n_missing(state))
    if _n_start(state, missing) == missing:  # else surplus workers leave first
        state.start_nodes(Role.PS, missing, at_s)
    standby = _standby(state)
    if _n_missing(state) or not all(node.is_up for node in standby):
        return None
    if _restarts(state):
        return Stage.COPYING
    if state.move is None:
        migration_coordinator.start_migration(state, _kept(state), [node.id for node in standby], at_s)
        leaving.note_move(state, at_s)
    return Stage.SWITCHING if migration_coordinator.is_ready(state) else None


def _kept(state: JobState) -> tuple[str, ...]:
    """Return the PS of this group and the next; a move decides, whatever shape others get meanwhile."""
    if state.move is not None and not state.move.is_rebalance:
        return tuple(node.id for node in state.group_nodes if node.id in state.move.group.nodes)
    want, coming = state.target.ps, awaited(state, Role.PS)
    staying = (node.id for node in state.group_nodes if node.has_shape(want) or node in coming)
    return tuple(staying)[: want.count]


def _n_missing(state: JobState) -> int:
    return state.target.ps.count - len(_kept(state)) - len(_standby(state))


def _standby(state: JobState) -> tuple[Node, ...]:
    assert state.group is not None
    return tuple(node for node in state.roster.ps if node.id not in state.group.nodes)


def _stop_standby(state: JobState, keep: int, at_s: float) -> None:
    fitting = [node for node in _standby(state) if node.has_shape(state.target.ps)]
    remaining = sorted(fitting, key=lambda node: not node.is_up)[:keep]
    for node in _standby(state):
        if node not in remaining:
            state.stop_node(node, at_s)


# PAUSING, COPYING and SAVING


def _end_pause(state: JobState, at_s: float) -> None:
    """Start the stage that the pause is for, once all workers have paused; resume if it is obsolete.

    A worker that was given up must be refused by then, or what is copied may change meanwhile.
    """
    if pauses.not_paused(state):
        pauses.check_time(state, at_s)
        return
    if state.fences:
        return
    state.unfinished_pauses = UnfinishedPauses()
    wanted = _wanted(state, at_s)
    if wanted is not None:
        state.train.reopen_step()
        state.n_step_paused = state.train.n_step
    match wanted:
        case Stage.COPYING:
            is_awaited, holders = bool(state.stop_reason) or _restarts(state), None
            if _restarts(state):
                leaving.note_restart(state, at_s)
                holders = ps_restart.holders(state)
            checkpoint_coordinator.start_checkpoint(state, at_s, is_awaited=is_awaited, holders=holders)
        case Stage.SWITCHING:
            migration_coordinator.switch(state, at_s)
        case _:
            state.enter(Stage.SERVING, at_s)


def _end_copying(state: JobState, at_s: float) -> None:
    """Resume training or start the evaluation while parts are copied; wait for the disk if required."""
    if not checkpoint_coordinator.is_cut(state):
        return
    state.last_checkpoint_s = at_s
    if _is_trained(state) and not state.stop_reason:
        _begin_evaluation(state, at_s)
    waits_for_disk = bool(state.stop_reason) or _restarts(state)
    state.enter(Stage.SAVING if waits_for_disk else Stage.SERVING, at_s)


def _end_saving(state: JobState, at_s: float) -> None:
    """End the stage that waits for the disk."""
    if not checkpoint_coordinator.is_written(state):
        return
    if state.stop_reason:
        state.end(JobPhase.STOPPED, state.stop_reason, at_s)
        return
    newest = state.checkpoints[-1] if state.checkpoints else None
    newest = newest if newest is not None and newest.number == state.n_checkpoint else None
    if _restarts(state) and newest is not None and ps_restart.is_kept(state, newest):
        state.source, state.group = newest, None
        state.made_room_s = at_s  # the old PS leave theirs to the new ones: no worker has to
        state.enter(Stage.ASSEMBLING, at_s)
        return
    has_failed = _restarts(state) and not (newest is not None and ps_restart.has_copies(state, newest))
    state.enter(Stage.SERVING, at_s)  # and from there again, where another target needs other holders
    if has_failed:
        state.fail_plan(state.message, at_s)


def _begin_evaluation(state: JobState, at_s: float) -> None:
    """Start the final evaluation; a change of plan in progress is given up as obsolete."""
    if state.spec.early_stopping is not None:
        evaluation.end_round(state)
    state.is_evaluating = True
    if state.change is not None and state.applied is not None:
        if not state.change.is_fallback:
            why = "all rows were trained before the plan was in place"
            state.orders.append(Emit(PlanFailed(at_s, state.target, why)))
        state.target = state.applied
    state.change = None


# loss of a PS


def ps_lost(state: JobState, node: str, at_s: float) -> None:
    """Roll back to the last checkpoint if `node` held parameters; it is not in the roster any more."""
    group, move = state.group, state.move
    is_of_next = move is not None and node in move.group.nodes
    if group is None or (node not in group.nodes and not (is_of_next and state.stage is Stage.SWITCHING)):
        if is_of_next:
            migration_coordinator.cancel_migration(state)
        return
    state.group = state.move = None  # the next Load ends the move on every PS
    if state.stage is not Stage.LOADING:  # while loading, the source is still complete
        _roll_back(state)
    for ps in state.roster.ps:
        ps.is_draining = False
    for worker in state.roster.workers:
        worker.is_training = False  # it waits for the lost PS until the next Train order
    state.enter(Stage.ASSEMBLING, at_s)


def on_loaded(state: JobState, node: Node, loaded: Loaded, at_s: float) -> None:
    """Record that a PS serves its part, or could not load it."""
    if loaded.error:
        load_failed(state, loaded.ps_epoch, f"{node.id}: {loaded.error}", at_s)
    else:
        node.loaded_epoch, state.last_step_s = loaded.ps_epoch, at_s
        node.n_from_memory, node.n_from_peers = loaded.n_from_memory, loaded.n_from_peers


def load_failed(state: JobState, ps_epoch: int, why: str, at_s: float) -> None:
    """Roll back past a damaged checkpoint: to the one before it, or to the beginning.

    Where that is the checkpoint that the job began from, it fails: it did not ask for untrained parameters.
    """
    damaged = state.source
    is_present = state.group is not None and ps_epoch == state.group.ps_epoch
    if state.stage is not Stage.LOADING or not is_present or damaged is None:
        return
    is_last = state.checkpoints[:1] in ([], [damaged])
    if damaged.is_origin or (is_last and state.spec.start_from is not None):
        start = state.spec.start_from
        source = redact(start.source) if start is not None else "its checkpoint"
        fault = f"the job cannot begin from {source}: {redact(why)}"
        state.end(JobPhase.FAILED, f"{fault}; give another checkpoint in start_from", at_s)
        return
    checkpoint_coordinator.discard(state, damaged)
    state.group = None
    _roll_back(state)
    state.enter(Stage.ASSEMBLING, at_s)
    state.last_step_s = at_s
    state.note(f"{why}; continuing from {checkpoint_coordinator.source_name(state)}", at_s)


def _roll_back(state: JobState) -> None:
    checkpoint_coordinator.roll_back(state)
    for worker in state.roster.workers:
        worker.must_drop = True
    if not state.train.finished:
        state.is_evaluating = False
        evaluation.drop_scores(state)

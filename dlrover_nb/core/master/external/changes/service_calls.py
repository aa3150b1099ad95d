"""Answers what programs ask of the master of an external job: one handler for each kind of call.

A kind is a record of `core.structs.wire.services`, a name in its `CALL_NAMES`, and a line in `HANDLERS`. A
handler may change the master's state and append orders to it; the driver makes both lasting before it sends
the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.master.external.changes import early_stop, elastic_worlds
from dlrover_nb.core.master.external.job.step_shares import is_balanced
from dlrover_nb.core.master.external.job.worlds import Request
from dlrover_nb.core.sharding.manifest import Manifest
from dlrover_nb.core.structs.job.external import Framework
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.views.snapshot import Evaluation
from dlrover_nb.core.structs.wire.services import (
    MODEL_CHECKPOINT,
    CallNoted,
    CallRefused,
    Evaluated,
    JobState,
    ModelKept,
    RowsNow,
    RowsRestored,
    RowsWanted,
    ServiceCall,
    ShardGranted,
    ShardLater,
    ShardsGivenBack,
    ShardsOver,
    ShardWanted,
    StateWanted,
    StepReached,
    WorldWanted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dlrover_nb.core.master.external.job.state import ExternalState
    from dlrover_nb.core.structs.wire.services import Caller, RowsTrained, ServiceAnswer

WAIT_S = 0.3  # interval of requests of a program without a shard
STRANGE_WAIT_S = (
    2.0  # the same, of one whose node is not known, or not yet: its pod is about to end or to begin
)


def answer(state: ExternalState, call: ServiceCall, at_s: float) -> ServiceAnswer:
    """Return the answer to a call, and change the state accordingly."""
    try:
        if state.serves(call.caller.node):
            state.account.hear(call.caller, at_s, protected=state.worlds.now.programs)
        return HANDLERS[type(call)](state, call)
    except DlroverError as error:
        return CallRefused(str(error))


def _on_shard(state: ExternalState, call: ShardWanted) -> ServiceAnswer:
    _train(state, call.caller, call.done)
    stale = state.account.stale(call.caller, call.done, call.holding)
    if state.should_stop:
        return ShardsOver("the job stops", stale)
    if not state.serves(call.caller.node):
        return ShardLater(STRANGE_WAIT_S, stale)
    shard = state.account.wanted(call.caller, call.holding, call.n_row)
    if shard is not None:
        lease, seed = shard.lease, state.seed
        place = lease.shard, lease.grant, shard.epoch, shard.start, shard.stop
        return ShardGranted(*place, shard.offset, shard.end, seed, stale)
    over = ShardsOver("all rows are trained", stale)
    return over if state.account.is_over else ShardLater(WAIT_S, stale)


def _on_state(state: ExternalState, call: StateWanted) -> ServiceAnswer:
    _train(state, call.caller, call.done)
    if call.asks_size:
        state.size_askers.add(call.caller.node)
    elastic_worlds.hear_speed(state, call.caller.node, call.n_row_busy, call.busy_s, call.batch_cost)
    part = elastic_worlds.share(state, call.caller.node)
    return JobState(
        should_stop=state.should_stop,
        is_changing=state.is_changing,
        batch_size=part.size,
        has_rows=state.account.has_rows and not state.should_stop,
        is_over=state.account.is_over or state.should_stop,
        memory=state.memory,
        stale=state.account.stale(call.caller, call.done, call.holding),
        n_accumulate=part.times,
        outdated_world=state.worlds.now.number if state.should_stop else state.outdated_world,
        evaluate_after=early_stop.due(state),
        measures=is_balanced(state.spec),
    )


def _on_given_back(state: ExternalState, call: ShardsGivenBack) -> ServiceAnswer:
    _train(state, call.caller, call.done)
    state.account.give_back(call.caller, call.leases)
    return CallNoted()


def _on_rows(state: ExternalState, call: RowsWanted) -> ServiceAnswer:
    _check_there(state, call.caller.node)
    _train(state, call.caller, call.done)
    return RowsNow(state.account.rows(), state.account.stale(call.caller, call.done, ()))


def _on_world(state: ExternalState, call: WorldWanted) -> ServiceAnswer:
    if state.external.framework is not Framework.DDP:
        raise InvalidValueError(
            f"only jobs of framework ddp have worlds, got a {state.external.framework} job; set "
            "external.framework: ddp"
        )
    node, request = call.caller.node, Request(call.caller.owner, call.seen, call.step, call.reached)
    if state.serves(node):
        state.worlds.ask(node, request)
    return elastic_worlds.answer(state, node, request)


def _on_reached(state: ExternalState, call: StepReached) -> ServiceAnswer:
    _check_there(state, call.caller.node)
    state.account.reach(call.reached)
    return CallNoted()


def _on_evaluated(state: ExternalState, call: Evaluated) -> ServiceAnswer:
    evaluation = Evaluation(call.auc, call.log_loss, call.n_sample)
    if not call.after:
        state.evaluation = evaluation
    elif (at_s := state.account.heard_s.get(call.caller.owner)) is not None:  # its node is one of the job's
        early_stop.add_round(state, call.after, evaluation, at_s)
    return CallNoted()


def _on_model(state: ExternalState, call: ModelKept) -> ServiceAnswer:
    if state.spec.sync is not Sync.ALLREDUCE or state.account.ledger is None:
        raise InvalidValueError(
            f"only jobs with sync allreduce keep a model of ours, got one of job {state.name}, which runs "
            "its own programs; save it by the program"
        )
    whole = ((call.url, call.sha256),)
    state.keep(
        Manifest(
            number=MODEL_CHECKPOINT,
            at_s=0.0,  # the driver's clock tells it
            ps_epoch=1,
            bucket_owner=(0,) * N_BUCKET,
            files=whole,
            n_row=call.n_row,
            n_byte=call.n_byte,
            ledger=state.account.ledger.checkpoint(),
        )
    )
    return CallNoted()


def _on_restored(state: ExternalState, call: RowsRestored) -> ServiceAnswer:
    _check_there(state, call.caller.node)
    state.account.restore(call.caller, call.rows, call.number, rendezvous=state.n_rendezvous)
    early_stop.restored(state)
    return CallNoted()


def _check_there(state: ExternalState, node: str) -> None:
    """Refuse what concerns parameters of a node that is gone: those of the others are the job's."""
    if state.has_gone(node):
        raise InvalidValueError(
            f"{node} is not a node of job {state.name} any more, and others train its rows; this process "
            "should have ended"
        )


def _train(state: ExternalState, caller: Caller, done: Iterable[RowsTrained]) -> None:
    if state.account.trained(caller, done):
        state.note_work(caller)


Handler: TypeAlias = "Callable[[ExternalState, Any], ServiceAnswer]"

HANDLERS: Mapping[type, Handler] = {
    ShardWanted: _on_shard,
    StateWanted: _on_state,
    ShardsGivenBack: _on_given_back,
    RowsWanted: _on_rows,
    RowsRestored: _on_restored,
    WorldWanted: _on_world,
    StepReached: _on_reached,
    Evaluated: _on_evaluated,
    ModelKept: _on_model,
}
assert HANDLERS.keys() == set(get_args(ServiceCall)), "each kind of call has a handler"

"""Decisions of a user about an external job whose programs use the master's services.

They concern what the master accounts for and tells: shards in quarantine, batch sizes, the end of the rows.
The programs of other jobs choose these themselves, so there every such decision is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.master.external.changes import early_stop
from dlrover_nb.core.structs.job.external import Framework
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import BatchChoice, FinishChoice, ShardAction, ShardChoice
from dlrover_nb.core.structs.views.snapshot import NodePhase

if TYPE_CHECKING:
    from dlrover_nb.core.master.external.job.state import ExternalState
    from dlrover_nb.core.sharding.ledger import ShardLedger
    from dlrover_nb.core.structs.decisions.actions import AdjustBatches, KillRestart, MitigationChoice
    from dlrover_nb.core.structs.training.shards import UserChoice


def apply_choice(state: ExternalState, choice: UserChoice) -> str:
    """Apply a decision; return it in words.

    Raises
    ------
    InvalidValueError
        When the programs use no services, or there is no such shard or worker.
    """
    why = f": {choice.why}" if choice.why else ""
    match choice:
        case BatchChoice():
            return _set_batch_sizes(state, choice) + why
        case ShardChoice():
            return _resolve(_ledger(state, choice), choice) + why
        case FinishChoice():
            _ledger(state, choice)
            early_stop.end(state, str(choice))
            return f"{choice}; the current shards are trained, then the programs end"
        case _ as never:
            assert_never(never)


def adjust_batches(state: ExternalState, action: AdjustBatches, choice: MitigationChoice) -> str:
    """Give workers other batch sizes against stragglers; return it in words.

    Raises
    ------
    InvalidValueError
        When programs do not ask for their batch size, or not all workers get one.
    StaleDecisionError
        When the job does not train with all nodes of its plan.
    """
    got, present = f"got: {choice.action.words}", _present(state, choice)
    if deaf := [node for node in present if node not in state.size_askers]:
        raise InvalidValueError(
            f"the programs of job {state.name} never asked for their batch size on {and_list(deaf)}, "
            f"{got}; let them use dlrover_nb.client.batch_size, or dlrover_nb.client.elastic"
        )
    sizes, times = dict(action.sizes), dict(action.accumulate)
    if sizes.keys() != set(present):
        raise InvalidValueError(
            f"expected a batch size of each of {', '.join(present)}, got those of {', '.join(sorted(sizes))}"
        )
    if state.external.framework is not Framework.DDP:  # only elastic programs accumulate
        sizes, times = dict(action.samples), {}
    state.batch_sizes = tuple(sorted(sizes.items()))
    state.batch_times = tuple((node, times.get(node, 1)) for node in sorted(sizes))
    return decided_words(choice)


def check_replaceable(state: ExternalState, action: KillRestart, choice: MitigationChoice) -> None:
    """Refuse to replace a node where that costs more than its slowness, or cannot be done.

    Raises
    ------
    InvalidValueError
        When it is no worker, is not there, or is the only one, which has the parameters of an elastic job.
    StaleDecisionError
        When the job does not train with all nodes of its plan.
    """
    got, present = f"got: {choice.action.words}", _present(state, choice)
    if not state.starts_nodes:
        raise InvalidValueError(
            f"the nodes of job {state.name} are started by its operator, {got}; delete the pod there"
        )
    if action.role is not Role.WORKER or action.node not in present:
        raise InvalidValueError(
            f"expected one of {', '.join(present)}, {got}; a parameter server of other programs has "
            "parameters that are in no other place"
        )
    if state.external.framework is Framework.DDP and len(state.worlds.now.members) < 2:
        raise InvalidValueError(
            f"{action.node} is the only process of job {state.name} and has its parameters, {got}; add one"
        )


def decided_words(choice: MitigationChoice) -> str:
    """Return a decision on an action in words."""
    return f"{choice.by} decided to {choice.action.words}" + (f": {choice.why}" if choice.why else "")


def refusal_of(state: ExternalState, choice: MitigationChoice) -> InvalidValueError:
    """Return the error of an action that programs of others cannot do."""
    return InvalidValueError(
        f"job {state.name} runs its own programs, got: {choice.action.words}; their batch sizes can be "
        "adjusted, and their workers restarted"
    )


def _present(state: ExternalState, choice: MitigationChoice) -> list[str]:
    """Return the workers that train, while all do."""
    if state.running is None or state.replaced is not None:
        raise StaleDecisionError(
            f"an action needs job {state.name} to train with all nodes of its plan, "
            f"got: {choice.action.words}; decide once it does"
        )
    return [node.id for node in state.nodes if node.role is Role.WORKER and node.phase is NodePhase.READY]


def _set_batch_sizes(state: ExternalState, choice: BatchChoice) -> str:
    if not state.has_callers:
        raise _refusal(state, choice)
    workers = [node.id for node in state.nodes if node.role is Role.WORKER]
    sizes = dict(choice.sizes)
    if not sizes or not set(sizes) <= set(workers):
        raise InvalidValueError(f"expected batch sizes of {and_list(workers) or 'no workers'}, got {sizes}")
    if min(sizes.values()) < 1:
        raise InvalidValueError(f"batch sizes must be >= 1, got {sizes}")
    state.batch_sizes = tuple(sorted({**dict(state.batch_sizes), **sizes}.items()))
    state.batch_times = tuple(each for each in state.batch_times if each[0] not in sizes)
    text = and_list(f"{worker} {size}" for worker, size in sorted(sizes.items()))
    return f"{choice.by} sets batch sizes: {text}"


def _resolve(ledger: ShardLedger, choice: ShardChoice) -> str:
    match choice.action:
        case ShardAction.RETRY:
            ledger.retry(choice.shard)
            verb = "tries again"
        case ShardAction.SKIP:
            ledger.skip(choice.shard)
            verb = "skips"
        case _ as never:
            assert_never(never)
    start, stop = ledger.split.rows(choice.shard)
    return f"{choice.by} {verb} shard {choice.shard} (rows {start} to {stop})"


def _ledger(state: ExternalState, choice: UserChoice) -> ShardLedger:
    if state.account.ledger is None:
        raise _refusal(state, choice)
    return state.account.ledger


def _refusal(state: ExternalState, choice: UserChoice) -> InvalidValueError:
    return InvalidValueError(
        f"job {state.name} runs its own programs, got a {type(choice).__name__}; those programs choose their "
        "shards and batch sizes, unless they use dlrover_nb.client"
    )

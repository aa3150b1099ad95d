"""Decisions of a user about an external job whose programs use the master's services.

They concern what the master accounts for and tells: shards in quarantine, batch sizes, the end of the rows.
The programs of other jobs choose these themselves, so there every such decision is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.resources import Role
from dlrover_nb.core.structs.shards import BatchChoice, FinishChoice, ShardAction, ShardChoice

if TYPE_CHECKING:
    from dlrover_nb.core.external.state import ExternalState
    from dlrover_nb.core.sharding.ledger import ShardLedger
    from dlrover_nb.core.structs.shards import QuarantinedShard, UserChoice


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
            _ledger(state, choice).close()
            return f"{choice}; the current shards are trained, then the programs end"
        case _ as never:
            assert_never(never)


def in_quarantine(job: str, shard: QuarantinedShard) -> str:
    """Return the message about a shard that was isolated."""
    command, number = f"%dlrover shards {job}", shard.shard
    return (
        f"{shard}: it is in quarantine, and the job cannot finish without it; repair the data and use "
        f"{command} --retry {number}, or go on without it: --skip {number}"
    )


def _set_batch_sizes(state: ExternalState, choice: BatchChoice) -> str:
    if not state.has_callers:
        raise _refusal(state, choice)
    known = [node.id for node in state.nodes if node.role is Role.WORKER]
    sizes = dict(choice.sizes)
    if not sizes or not set(sizes) <= set(known):
        raise InvalidValueError(f"expected sizes of {', '.join(known) or 'no workers'}, got {sizes}")
    if min(sizes.values()) < 1:
        raise InvalidValueError(f"batch sizes must be >= 1, got {sizes}")
    state.batch_sizes = tuple(sorted({**dict(state.batch_sizes), **sizes}.items()))
    text = ", ".join(f"{worker} {size}" for worker, size in sorted(sizes.items()))
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

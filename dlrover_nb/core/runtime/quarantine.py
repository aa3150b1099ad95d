"""Shards that repeatedly kill their workers: how the job continues without them and waits for a decision.

The ledger isolates such a shard. This module takes its losses off the restart budget, as their reason is
known, and reports the rows. A job does not succeed while a shard waits for a decision. Errors of programs are
counted all the same (`crash_loops`): rows that fail in shard after shard are no accident.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.shards import ShardAction

if TYPE_CHECKING:
    from dlrover_nb.core.runtime.state import JobState
    from dlrover_nb.core.sharding.ledger import ShardLedger
    from dlrover_nb.core.structs.shards import QuarantinedShard, ShardChoice


def isolated(state: JobState) -> tuple[QuarantinedShard, ...]:
    """Return all shards that wait for a decision."""
    return (*state.train.quarantined(), *state.evaluate.quarantined())


def describe_new(state: JobState, before: tuple[QuarantinedShard, ...]) -> str:
    """Return the message about a shard that was isolated since `before`; empty without one."""
    new = [shard for shard in isolated(state) if shard not in before]
    if not new:
        return ""
    return f"{new[0]}: it is in quarantine, and the job cannot finish without it; {_advice(state, new[0])}"


def update_blocked(state: JobState, at_s: float) -> None:
    """Report once when only isolated shards are left."""
    ledger = _present(state)
    counts = ledger.counts()
    is_blocked = counts.quarantined > 0 and counts.todo == counts.doing == 0 and not counts.is_open
    if is_blocked and not state.is_blocked and not state.is_ended:
        first = ledger.quarantined()[0]
        what = f"{counts.quarantined} of {counts.total} shards are all that is left, and wait for a decision"
        state.note(f"{what}: {first}; {_advice(state, first)}", at_s)
    state.is_blocked = is_blocked


def resolve(state: JobState, choice: ShardChoice, at_s: float) -> None:
    """Apply a decision of the user about an isolated shard.

    Raises
    ------
    InvalidValueError
        When it is not in quarantine.
    """
    waiting = [ledger for ledger in (state.train, state.evaluate) if _holds(ledger, choice.shard)]
    ledger = waiting[0] if waiting else _present(state)
    match choice.action:
        case ShardAction.RETRY:
            ledger.retry(choice.shard)
        case ShardAction.SKIP:
            ledger.skip(choice.shard)
    start, stop = ledger.split.rows(choice.shard)
    why = f": {choice.why}" if choice.why else ""
    verb = {ShardAction.RETRY: "tries again", ShardAction.SKIP: "skips"}[choice.action]
    state.note(f"{choice.by} {verb} shard {choice.shard} (rows {start} to {stop}){why}", at_s)


def _holds(ledger: ShardLedger, shard: int) -> bool:
    return any(each.shard == shard for each in ledger.quarantined())


def _present(state: JobState) -> ShardLedger:
    return state.evaluate if state.is_evaluating else state.train


def _advice(state: JobState, shard: QuarantinedShard) -> str:
    command = f"%dlrover shards {state.spec.name}"
    return (
        f"repair the data and use {command} --retry {shard.shard}, or go on without it: --skip {shard.shard}"
    )

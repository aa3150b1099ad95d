"""Shards that repeatedly kill their workers: how the job continues without them and waits for a decision.

The ledger isolates such a shard. This module takes its losses off the restart budget, as their reason is
known, and reports the rows. A job does not succeed while a shard waits for a decision. Errors of programs are
counted all the same (`crash_loops`): rows that fail in shard after shard are no accident.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.training.shards import ShardAction, in_quarantine, why_waits

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.sharding.ledger import ShardLedger
    from dlrover_nb.core.structs.training.shards import QuarantinedShard, ShardChoice


def isolated(state: JobState) -> tuple[QuarantinedShard, ...]:
    """Return all shards that wait for a decision."""
    return (*state.train.quarantined(), *state.evaluate.quarantined())


def describe_new(state: JobState, before: tuple[QuarantinedShard, ...]) -> str:
    """Return the message about a shard that was isolated since `before`; empty without one."""
    new = [shard for shard in isolated(state) if shard not in before]
    return in_quarantine(state.spec.name, new[0]) if new else ""


def why_blocked(state: JobState) -> str:
    """Return what the job waits for where only isolated shards are left; empty: others are."""
    ledger = _present(state)
    quarantined = ledger.quarantined()
    return why_waits(state.spec.name, ledger.counts(), quarantined) if quarantined else ""


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
    start, stop = ledger.split.block(choice.shard)
    why = f": {choice.why}" if choice.why else ""
    verb = {ShardAction.RETRY: "tries again", ShardAction.SKIP: "skips"}[choice.action]
    state.note(f"{choice.by} {verb} shard {choice.shard} (rows {start} to {stop}){why}", at_s)


def _holds(ledger: ShardLedger, shard: int) -> bool:
    return any(each.shard == shard for each in ledger.quarantined())


def _present(state: JobState) -> ShardLedger:
    return state.evaluate if state.is_evaluating else state.train

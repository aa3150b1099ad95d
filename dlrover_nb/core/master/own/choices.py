"""Decisions of a user about a running job beside its plan: shards in quarantine, batch sizes, its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.master.own.rows import quarantine
from dlrover_nb.core.master.own.state.batch_sizes import set_sizes
from dlrover_nb.core.structs.training.shards import BatchChoice, FinishChoice, ShardChoice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.structs.training.shards import UserChoice


def apply_choice(state: JobState, choice: UserChoice, at_s: float) -> None:
    """Apply a decision of the user.

    Raises
    ------
    InvalidValueError
        When there is no such shard in quarantine, no such worker, or a batch size is below 1.
    StaleDecisionError
        When the job is ending already.
    """
    match choice:
        case ShardChoice():
            quarantine.resolve(state, choice, at_s)
        case BatchChoice():
            _adjust(state, choice, at_s)
        case FinishChoice():
            _finish(state, choice, at_s)
        case _ as never:
            assert_never(never)


def _adjust(state: JobState, choice: BatchChoice, at_s: float) -> None:
    sizes = dict(choice.sizes)
    _check(state, sizes)
    text = ", ".join(f"{worker} {size}" for worker, size in sorted(sizes.items()))
    state.note(f"{choice.by} sets batch sizes: {text}" + (f": {choice.why}" if choice.why else ""), at_s)
    set_sizes(state, sizes)


def _finish(state: JobState, choice: FinishChoice, at_s: float) -> None:
    """Grant no more rows, as early stopping does; shards at hand are completed."""
    if state.is_ended or state.is_evaluating or state.stop_reason:
        raise StaleDecisionError(f"job {state.spec.name} must be training to be finished early; it is ending")
    state.stopped_early = str(choice)
    state.train.close()
    state.note(f"{choice}; the current shards are trained, then the model is evaluated", at_s)


def _check(state: JobState, sizes: Mapping[str, int]) -> None:
    workers = [worker.id for worker in state.roster.workers]
    if not sizes or not set(sizes) <= set(workers):
        raise InvalidValueError(f"expected sizes of {', '.join(workers) or 'no workers'}, got {dict(sizes)}")
    if min(sizes.values()) < 1:
        raise InvalidValueError(f"batch sizes must be >= 1, got {dict(sizes)}")

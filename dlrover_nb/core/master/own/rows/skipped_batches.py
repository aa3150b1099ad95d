"""Batches that workers could not train: counted per pass and reported with their rows; too many end the job.

A worker skips a batch whose loss or gradients cannot be used (`core.runtime.store.gradients`) and goes on:
one broken row must not end a night of training. Many are no accident: the data is damaged or the model
diverges, and going on would only hide that. The count begins anew with each pass, as a broken row comes again
in each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.job.job import JobPhase

if TYPE_CHECKING:
    from dlrover_nb.core.master.own.state.roster import Node
    from dlrover_nb.core.master.own.state.state import JobState
    from dlrover_nb.core.structs.training.shards import SkippedBatch
    from dlrover_nb.core.structs.wire.messages import BatchSkipped

N_KEPT = 20  # the newest, for reports
_N_TOLD = 3  # in the last message of a job


def on_skipped(state: JobState, node: Node, message: BatchSkipped, at_s: float) -> None:
    """Count and report a batch; too many end the job. Of a stale lease the rows are trained again."""
    skipped = message.batch
    if not state.train.holds(node.id, message.lease) or _is_known(state, skipped):
        return
    state.skipped = (*state.skipped, skipped)[-N_KEPT:]
    state.n_skipped += 1
    n_pass = 1 + state.train.split.epoch(skipped.shard)
    last_pass, n_before = state.skipped_in_pass
    state.skipped_in_pass = max(n_pass, last_pass), 1 + n_before * (n_pass <= last_pass)
    n_in_pass = state.skipped_in_pass[1]
    if n_in_pass > state.spec.max_skipped_batches:
        state.end(JobPhase.FAILED, _why_ended(state), at_s)
    elif n_in_pass & (n_in_pass - 1) == 0 or n_in_pass <= N_KEPT:  # many are told more and more rarely
        limit = state.spec.max_skipped_batches
        state.note(f"{node.id} skipped {skipped}; {n_in_pass} of at most {limit} in pass {n_pass}", at_s)


def told(state: JobState) -> str:
    """Return how many batches were skipped, with the rows of the last ones; empty: none was."""
    if not state.n_skipped:
        return ""
    last = "; ".join(map(str, state.skipped[-_N_TOLD:]))
    return f"{state.n_skipped} {'batches were' if state.n_skipped > 1 else 'batch was'} skipped: {last}"


def _is_known(state: JobState, skipped: SkippedBatch) -> bool:
    """Whether the batch was skipped before: after a rollback its rows are trained again."""
    return any(each.is_of_same_rows(skipped) for each in state.skipped)


def _why_ended(state: JobState) -> str:
    n_pass, n_skipped = state.skipped_in_pass
    return (
        f"pass {n_pass} has {n_skipped} batches that cannot be trained, more than max_skipped_batches, "
        f"{state.spec.max_skipped_batches}; {told(state)}; "
        "repair these rows or the model, or lower the learning rate"
    )

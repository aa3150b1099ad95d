"""Mini-batches of single workers: set by a user or by a policy, or shares of a global batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.master.shared.orders import Emit
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.views.events import BatchSizesSet
from dlrover_nb.core.structs.wire.messages import Adjust

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dlrover_nb.core.master.own.state.state import JobState


def set_sizes(state: JobState, sizes: Mapping[str, int]) -> None:
    """Order batch sizes of some workers; in synchronous training all change in the same round."""
    state.batch_sizes |= sizes
    order = Adjust(tuple(sorted(sizes.items())))
    state.coordinate(order)
    if state.spec.sync is Sync.ASP:
        for node in state.roster.workers:
            if node.id in sizes:
                state.send(node, order)


def present(state: JobState) -> tuple[tuple[str, int], ...]:
    """Return the mini-batches of living workers whose size is not the job's."""
    return tuple(sorted((name, n) for name, n in state.batch_sizes.items() if state.roster.get(name)))


def emit(state: JobState, at_s: float) -> None:
    """Emit the sizes of living workers, when they have changed."""
    sizes = present(state)
    if sizes != state.sizes_emitted and not state.is_ended:
        state.sizes_emitted = sizes
        state.orders.append(Emit(BatchSizesSet(at_s, sizes)))


def share_global_batch(state: JobState) -> None:
    """Give each worker its share of the job's global batch, once another set of workers trains.

    Sizes that a user chose since then hold as long as the workers do. Those of a worker that drains are
    still counted: it trains on, and its place is shared out when it has left.
    """
    workers = [node.id for node in state.roster.workers if node.is_training]
    if state.spec.global_batch is None or not workers or state.batch_sizes.keys() == set(workers):
        return
    state.batch_sizes = {}
    set_sizes(state, shares(state.spec.global_batch, workers))


def shares(total: int, workers: Sequence[str]) -> dict[str, int]:
    """Divide a global batch: sizes that differ by one at most and sum to it, but at least 1 for each."""
    each, rest = divmod(total, len(workers))
    return {worker: max(each + (i < rest), 1) for i, worker in enumerate(workers)}

"""Mini-batches of single workers: set by a user or by a policy, or shares of a global batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.shared.orders import Emit
from dlrover_nb.core.structs.views.events import BatchSizesSet
from dlrover_nb.core.structs.wire.messages import Adjust

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dlrover_nb.core.master.own.state.state import ByWorker, JobState


def check_may_differ(state: JobState) -> None:
    """Raise `InvalidValueError` where every step has the rows that the job says, whichever workers train."""
    if state.spec.deterministic:
        raise InvalidValueError(
            f"job {state.spec.name} is deterministic: its batches are fixed and none is left out; "
            "give slow nodes more cores, replace them, or submit the job without deterministic"
        )


def set_sizes(state: JobState, sizes: Mapping[str, int], accumulate: Mapping[str, int] | None = None) -> None:
    """Order batch sizes of some workers; in synchronous training all change in the same round.

    Parameters
    ----------
    sizes
        Rows of one update.
    accumulate
        As how many mini-batches some of them are computed; the others as one.
    """
    times = dict(accumulate or {})
    state.batch_sizes |= sizes
    state.batch_times = {name: n for name, n in state.batch_times.items() if name not in sizes} | times
    order = Adjust(tuple(sorted(sizes.items())), tuple(sorted(times.items())))
    state.coordinate(order)
    if not state.spec.sync.waits:
        for node in state.roster.workers:
            if node.id in sizes:
                state.send(node, order)


def present(state: JobState) -> tuple[ByWorker, ByWorker]:
    """Return the mini-batches of living workers whose size is not the job's, and those that accumulate."""
    living = sorted(name for name in state.batch_sizes if state.roster.get(name))
    times = tuple((name, state.batch_times[name]) for name in living if name in state.batch_times)
    by_name = dict(times)
    return tuple((name, state.batch_sizes[name] // by_name.get(name, 1)) for name in living), times


def emit(state: JobState, at_s: float) -> None:
    """Emit the sizes of living workers, when they have changed."""
    shares = present(state)
    if shares != state.sizes_emitted and not state.is_ended:
        state.sizes_emitted = shares
        state.orders.append(Emit(BatchSizesSet(at_s, *shares)))


def share_global_batch(state: JobState) -> None:
    """Give each worker its share of the job's global batch, once another set of workers trains.

    Sizes that a user chose since then hold as long as the workers do. Those of a worker that drains are
    still counted: it trains on, and its place is shared out when it has left.
    """
    workers = [node.id for node in state.roster.workers if node.is_training]
    total = state.spec.shared_batch
    if total is None or not workers or state.batch_sizes.keys() == set(workers):
        return
    state.batch_sizes, state.batch_times = {}, {}
    set_sizes(state, shares(total, workers))


def shares(total: int, workers: Sequence[str]) -> dict[str, int]:
    """Divide a global batch: sizes that differ by one at most and sum to it, but at least 1 for each."""
    each, rest = divmod(total, len(workers))
    return {worker: max(each + (i < rest), 1) for i, worker in enumerate(workers)}

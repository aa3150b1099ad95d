"""The shards that a worker holds: the current one, and the next one, which is read in the background.

Reading and encoding a shard takes as long as several iterations. A thread does it while the worker trains the
previous shard (pyarrow and numpy release the interpreter lock), and the worker requests a shard as soon as it
has taken half of the current one. So no iteration waits for data or for the master at the end of a shard. The
thread only reads: it has no access to sockets or parameters, and its errors are raised in the worker's own
thread when the shard is used.

What was done in the last shards is known for some time after they were let go, as the message that said so
may be lost with a connection. A master lets a worker hold at most `MOST_HELD`, so no more than those can be
news to it; as many again may be of grants that it took back meanwhile.

In deterministic training a shard is one unit of a step, and is taken only when all earlier steps are
complete. So a worker may hold one that waits for its step, beside those that it computes, and asks for
another whenever it has nothing to compute: what a lost worker leaves of the step is what all wait for.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING

from dlrover_nb.core.runtime.store.batches import ShardWork
from dlrover_nb.core.runtime.worker.trainer import TakenBatch
from dlrover_nb.core.structs.training.shards import MOST_HELD, Purpose, ShardProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dlrover_nb.core.data import Batch
    from dlrover_nb.core.runtime.exchange.push_pull import BatchShare
    from dlrover_nb.core.runtime.store.batches import BucketLayout
    from dlrover_nb.core.structs.training.shards import Lease, Shard


class ShardPrefetcher:
    """Shards of one worker, in the order of their grants.

    Parameters
    ----------
    read
        Gives the rows [start, stop) of the data; called in the prefetcher's own thread, one call at a time.
    seed
        Of the job.
    """

    def __init__(self, read: Callable[[int, int], Batch], *, seed: int) -> None:
        self._seed = seed
        self._wanted: SimpleQueue[tuple[Shard, Future[Batch]] | None] = SimpleQueue()
        # A daemon: a read that never ends must not block the end of the process.
        self._reader = threading.Thread(
            target=_read_all, args=(read, self._wanted), name="reader", daemon=True
        )
        self._reader.start()
        self._works: deque[ShardWork] = deque()
        self._coming: deque[tuple[Shard, Future[Batch]]] = deque()
        self.is_closing = False  # no new shard is begun
        self.n_step: int | None = None  # steps that are complete, in deterministic training
        self.ended: deque[tuple[Lease, int]] = deque()  # shards that a stream ended in, and their rows
        self._released: deque[ShardProgress] = deque(maxlen=2 * MOST_HELD)

    @property
    def leases(self) -> tuple[Lease, ...]:
        """All leases, oldest first."""
        read = (work.shard.lease for work in self._works)
        return (*read, *(shard.lease for shard, _ in self._coming))

    @property
    def unfinished(self) -> tuple[ShardProgress, ...]:
        """What is done of the training shards that it has."""
        read = tuple(work.progress for work in self._works if work.trains)
        return (*read, *untouched(shard for shard, _ in self._coming))

    @property
    def released(self) -> tuple[ShardProgress, ...]:
        """What was done of the last training shards that were let go, oldest first."""
        return tuple(self._released)

    @property
    def is_reading(self) -> bool:
        """Whether the next shard is granted but not read yet."""
        self._collect()
        return bool(self._coming) and (not self._works or self.waits_for_step)

    @property
    def waits_for_step(self) -> bool:
        """Whether all that it has read is of later steps than the open one."""
        return bool(self._works) and not any(map(self._is_due, self._works))

    @property
    def is_ready(self) -> bool:
        """Whether a batch is ready."""
        self._collect()
        return self._next_work() is not None

    @property
    def is_begun(self) -> bool:
        """Whether rows of a held shard are done."""
        return any(work.n_row_done > _first(work) for work in self._works)

    @property
    def is_short(self) -> bool:
        """Whether another shard should be requested."""
        if not self._works and not self._coming:
            return True
        if self._has_units:
            unread = (shard for shard, _ in self._coming)
            return not any(self._is_open(each) for each in unread) and self._next_work() is None
        if len(self._works) + len(self._coming) >= MOST_HELD or not self._works:
            return False
        work = self._works[0]
        return 2 * work.n_row_left <= work.shard.end

    @property
    def position(self) -> tuple[Lease | None, int]:
        """The oldest lease and how many rows of its shard are acknowledged (evaluation: all or none)."""
        if self._works:
            work = self._works[0]
            return work.shard.lease, work.n_row_done if work.trains else 0
        if self._coming:
            shard, _ = self._coming[0]
            return shard.lease, shard.offset
        return None, 0

    def add(self, shard: Shard) -> None:
        """Begin to read a shard; a repeated grant, of one that is here or was let go, changes nothing."""
        if shard.lease in self.leases or any(shard.lease == each.lease for each in self._released):
            return
        self._coming.append((shard, Future()))
        self._wanted.put(self._coming[-1])

    def take(self, share: BatchShare, layout: BucketLayout) -> TakenBatch | None:
        """Return the next batch; None when none is ready.

        Raises
        ------
        DlroverError
            When the rows could not be read.
        """
        self._collect()
        work = self._next_work()
        batch = work.take(share.n_row, layout) if work is not None else None
        return None if work is None or batch is None else TakenBatch(work, batch, share.most_at_once)

    def rewind(self) -> None:
        """Reset batches that were taken and not acknowledged."""
        for work in self._works:
            work.rewind()

    def done_work(self) -> ShardWork | None:
        """Return a shard that was granted with all rows done: its last holder died before its report."""
        return next((work for work in self._works if work.finished), None)

    def remove(self, work: ShardWork) -> None:
        """Remove a shard that is finished or given back."""
        self._works.remove(work)
        if work.trains:
            self._released.append(work.progress)

    def clear(self) -> None:
        """Remove all shards."""
        self._works.clear()
        self._released.clear()  # of grants that are void
        self.ended.clear()
        for _, future in self._coming:
            future.cancel()
        self._coming.clear()

    def close(self) -> None:
        """End the thread, after the read that is under way."""
        self.clear()
        self._wanted.put(None)

    def _collect(self) -> None:
        while self._coming and self._coming[0][1].done():
            shard, future = self._coming.popleft()
            batch = future.result()
            if len(batch) < shard.stop - shard.start:
                self.ended.append((shard.lease, len(batch)))
            else:
                self._works.append(ShardWork(shard, batch, seed=self._seed))

    def _next_work(self) -> ShardWork | None:
        """Return the first shard with rows to take; while closing, only one that is begun."""
        work = next((work for work in self._works if work.n_row_left and self._is_due(work)), None)
        if work is None or (self.is_closing and work.n_row_taken == _first(work)):
            return None
        return work

    @property
    def _has_units(self) -> bool:
        shards = (*(work.shard for work in self._works), *(shard for shard, _ in self._coming))
        return any(each.unit is not None for each in shards)

    def _is_open(self, shard: Shard) -> bool:
        """Whether a shard may be computed now: it is of the open step, or steps do not follow shards."""
        return shard.unit is None or shard.unit.step == self.n_step

    def _is_due(self, work: ShardWork) -> bool:
        return self._is_open(work.shard)


def _read_all(
    read: Callable[[int, int], Batch], wanted: SimpleQueue[tuple[Shard, Future[Batch]] | None]
) -> None:
    """Read one shard after the other; an error is raised where the result is used.

    Those of one block have the same rows, which are read once when they come after each other.
    """
    last: tuple[tuple[int, int], Batch] | None = None
    while (item := wanted.get()) is not None:
        shard, future = item
        if not future.set_running_or_notify_cancel():
            continue
        try:
            rows = shard.start, shard.stop
            if last is None or last[0] != rows:
                last = rows, read(*rows)
            future.set_result(last[1])
        except Exception as error:  # noqa: BLE001 - raised again where the result is taken
            future.set_exception(error)


def untouched(shards: Iterable[Shard]) -> tuple[ShardProgress, ...]:
    """Return what is done of training shards that were granted and not read."""
    training = (each for each in shards if each.lease.purpose is Purpose.TRAIN)
    return tuple(ShardProgress(each.lease, each.offset) for each in training)


def _first(work: ShardWork) -> int:
    return work.shard.offset if work.trains else 0

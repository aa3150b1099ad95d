"""Shards: which rows this process trains next, counted exactly over restarts and other numbers of processes.

Rows count as done when the program says so, or asks for the next shard. A program that is killed gives back
the rest: so every row is trained at least once, and twice only where it was done but not yet reported (about
a second), or not in the checkpoint that the program loads again (`checkpoint`).
"""

from __future__ import annotations

import random
import time
from collections import deque
from typing import TYPE_CHECKING

from .link import ServiceError
from .session import Lease, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

WAIT_S = 0.3
LOCAL_ROWS = 10_240  # of a shard outside of a job
MOST_DRAWN = 256  # shards that are drawn and not done: more means that `done` is never called


class Shard:
    """Rows to train.

    Attributes
    ----------
    epoch
        The pass over the data, from 0.
    start, stop
        Rows [start, stop) of the data, which hold all rows of the shard.
    rows
        The rows that are to be trained now, in their order.
    seed
        Of the job.
    """

    def __init__(
        self, epoch: int, bounds: tuple[int, int], rows: Sequence[int], lease: Lease | None = None
    ) -> None:
        self.epoch, self.rows = epoch, rows
        self.start, self.stop = bounds
        self._lease, self._n_done = lease, 0
        self.seed = 0

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Shard(epoch={self.epoch}, rows {self.start} to {self.stop}, {len(self)} to train)"

    @property
    def n_done(self) -> int:
        """How many of its rows are done."""
        return self._n_done

    @property
    def is_stale(self) -> bool:
        """Whether it was taken back from this process, so that others train its remaining rows."""
        return self._lease is not None and self._lease.is_stale

    def done(self, n_row: int | None = None) -> None:
        """Count `n_row` more rows as done, in their order; None: all that are left."""
        left = len(self) - self._n_done
        more = left if n_row is None else n_row
        if not 0 <= more <= left:
            raise ValueError(f"done() takes 0 to {left} rows of this shard, got {n_row}")
        self._n_done += more
        if self._lease is not None:
            self._lease.n_done += more

    def batches(self, size: int | Callable[[], int]) -> Iterator[Sequence[int]]:
        """Yield its rows in batches; each counts as done when the next is asked for, unless it does before.

        `size` is the number of rows, or a function that returns it anew for each batch.
        """
        while self._n_done < len(self) and not self.is_stale:
            n_row = size() if callable(size) else size
            if n_row < 1:
                raise ValueError(f"a batch has at least 1 row, got {n_row}")
            batch = self.rows[self._n_done : self._n_done + n_row]
            end = self._n_done + len(batch)
            yield batch
            self.done(max(0, end - self._n_done))

    @property
    def lease(self) -> Lease | None:
        """Its lease; None outside of a job."""
        return self._lease


class Source:
    """Where shards come from: the job's master, or the rows themselves outside of a job.

    Parameters
    ----------
    n_row
        Rows of one pass; in a job they may be left out, and are compared with the job's where given.
    shuffle
        Whether the rows of a shard are shuffled; it must be the same in all processes of a job.
    epochs, shard_rows
        Passes, and rows of a shard, outside of a job.
    """

    def __init__(
        self,
        n_row: int | None = None,
        *,
        shuffle: bool = False,
        epochs: int = 1,
        shard_rows: int = LOCAL_ROWS,
    ) -> None:
        self._n_row, self._shuffle = n_row, shuffle
        self._epochs, self._shard_rows = epochs, shard_rows
        self._local: Iterator[Shard] | None = None

    def draw(self, *, wait: bool) -> Shard | None:
        """Return the next shard; None: there is none, or with `wait=False` none now."""
        joined = session()
        if joined is None:
            if self._local is None:
                self._local = self._shards()
            return next(self._local, None)
        while True:
            name, answer, lease = joined.ask(self._n_row or 0)
            if lease is not None:
                return self._shard(answer, lease)
            if name == "over" or not wait:
                return None
            time.sleep(float(answer["wait_s"]))

    def give_back(self, shards: Sequence[Shard]) -> None:
        """Give back shards whose rows are not all done."""
        joined = session()
        leases = [shard.lease for shard in shards if shard.lease is not None]
        if joined is not None and leases:
            joined.give_back(leases)

    def _shard(self, answer: dict[str, int], lease: Lease) -> Shard:
        rows = self._ordered(answer["start"], answer["stop"], "{seed}-{shard}".format(**answer))
        bounds = answer["start"], answer["stop"]
        shard = Shard(answer["epoch"], bounds, rows[answer["offset"] : answer["until"]], lease)
        shard.seed = int(answer["seed"])
        return shard

    def _ordered(self, start: int, stop: int, seed: str) -> Sequence[int]:
        if not self._shuffle:
            return range(start, stop)
        rows = list(range(start, stop))
        random.Random(seed).shuffle(rows)  # noqa: S311 - the same order in every process, for no secret
        return rows

    def _shards(self) -> Iterator[Shard]:
        if self._n_row is None:
            raise ServiceError("outside of a job the number of rows is needed: shards(n_row)")
        size, number = self._shard_rows, 0
        for epoch in range(self._epochs):
            for start in range(0, self._n_row, size):
                bounds = start, min(start + size, self._n_row)
                yield Shard(epoch, bounds, self._ordered(*bounds, f"0-{number}"))
                number += 1


def shards(
    n_row: int | None = None,
    *,
    shuffle: bool = False,
    wait: bool = True,
    epochs: int = 1,
    shard_rows: int = LOCAL_ROWS,
) -> Iterator[Shard]:
    """Yield shards until all rows of the job are trained, or the job stops.

    All rows of a shard count as done when the next one is asked for. A loop that is left early gives back
    what is not done.

    Parameters
    ----------
    n_row
        Rows of one pass. A job knows its own, and refuses to begin where they differ; outside of a job all of
        them are yielded.
    shuffle
        Whether rows are shuffled within their shards; the same in all processes of a job.
    wait
        Whether to wait at the end for shards of other processes, which come back if these die. False for
        processes that train in step with each other: one that waits would keep the others from finishing.
    epochs, shard_rows
        Passes, and rows of a shard, outside of a job only: a job has its own.
    """
    source = Source(n_row, shuffle=shuffle, epochs=epochs, shard_rows=shard_rows)
    while True:
        shard = source.draw(wait=wait)
        if shard is None:
            return
        is_done = False
        try:
            yield shard
            is_done = True
        finally:
            if is_done:
                shard.done()
            else:
                source.give_back([shard])


class Feed:
    """Rows that are drawn ahead of the training, which says how many are done, in the order of drawing.

    For loaders that read ahead: only the training knows which of the rows they drew have been trained.

    Parameters
    ----------
    source
        Where shards come from.
    wait
        Whether to wait for shards of other processes while nothing that was drawn here is left to train.
    """

    def __init__(self, source: Source, *, wait: bool = True) -> None:
        self._source, self._wait = source, wait
        self._drawn: deque[Shard] = deque()

    def renew(self, source: Source) -> None:
        """Draw from another source: what the loader drew before and did not train is given back."""
        self._source.give_back(list(self._drawn))
        self._drawn.clear()
        self._source = source

    def draw(self) -> Iterator[Shard]:
        """Yield shards until there is none to grant now."""
        while True:
            if len(self._drawn) >= MOST_DRAWN:
                raise ServiceError(
                    f"{MOST_DRAWN} shards are drawn and none is done; call done(n_row) after each step"
                )
            shard = self._source.draw(wait=self._wait and not self._drawn)
            if shard is None:
                return
            self._drawn.append(shard)
            yield shard

    def done(self, n_row: int) -> None:
        """Count the next `n_row` drawn rows as done."""
        left = n_row
        while left > 0:
            if not self._drawn:
                raise ValueError(f"done({n_row}) counts {left} rows more than were drawn")
            shard = self._drawn[0]
            part = min(left, len(shard) - shard.n_done)
            shard.done(part)
            left -= part
            if shard.n_done == len(shard):
                self._drawn.popleft()


def passes() -> Iterator[int]:
    """Yield once outside of a job; in a job as long as rows are left, or other processes may give some back.

    For loaders, which end when there is nothing to grant *now*::

        for _ in passes():
            for batch in loader: ...
    """
    joined, n_pass = session(), 0
    if joined is None:
        yield 0
        return
    while True:
        if joined.n_open:
            raise ServiceError(
                f"{joined.n_open} rows were drawn and are not done; call done(n_row) after each step"
            )
        state = joined.state(fresh=True)
        if state["is_over"]:
            return
        if state["has_rows"]:
            yield n_pass
            n_pass += 1
        else:
            time.sleep(WAIT_S)

"""From a shard to batches that are ready to exchange: shuffled rows, distinct ids, grouped by PS.

The order of the rows within a shard follows from the job's seed and the shard's position, so that every
worker that trains the shard, also after it was taken back half done, cuts it into the same batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.data.encode import PADDING
from dlrover_nb.core.runtime.kernels import kernel
from dlrover_nb.core.structs.training.shards import MOST_NAMED, Purpose, Shard, ShardProgress, SkippedBatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.data import Batch


@dataclass(frozen=True, slots=True)
class BucketLayout:
    """Which PS owns which rows: `owner[b]` for each bucket b, of `n_ps`."""

    owner: NDArray[np.int64]
    n_ps: int


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """One batch, ready to exchange and to compute.

    Parameters
    ----------
    rows
        Distinct rows of the batch, int64 [u], grouped by PS.
    bounds
        PS i owns rows[bounds[i]:bounds[i+1]].
    inverse
        For each id of the batch, row by row, its place in `rows`: int64 [batch * n_slot]. That of the padding
        of sequences is behind the last one: it is not looked up.
    dense, labels
        Numbers float32 [batch, n_numeric] and labels float32 [batch].
    """

    rows: NDArray[np.int64]
    bounds: tuple[int, ...]
    inverse: NDArray[np.int64]
    dense: NDArray[np.float32]
    labels: NDArray[np.float32]


class ShardWork:
    """A shard, or a piece of one, that a worker holds.

    Positions count rows in the order of training, from the beginning of the shard: `n_row_taken` went into
    batches, `n_row_done` of them are finished, for training those whose gradients the PS acknowledged. So the
    size of the batches may change on the way. Scores of an evaluation shard gather in `scores`, batches that
    could not be trained in `skipped_batches`.

    Parameters
    ----------
    shard, data
        The shard and its rows.
    seed
        Of the job.
    """

    def __init__(self, shard: Shard, data: Batch, *, seed: int) -> None:
        self.shard, self._data = shard, data
        self.trains = shard.lease.purpose is Purpose.TRAIN
        # Scores of a partly evaluated shard are lost with its worker, so an evaluation starts over.
        self.n_row_taken = self.n_row_done = min(shard.offset, shard.end) if self.trains else 0
        self.scores: list[NDArray[np.float32]] = []
        self.skipped_batches: list[SkippedBatch] = []
        self._order = self._shuffled(seed) if self.trains else None

    @property
    def finished(self) -> bool:
        """Whether all rows are done."""
        return self.n_row_done >= self.shard.end

    @property
    def progress(self) -> ShardProgress:
        """What is done of it, for the master."""
        return ShardProgress(self.shard.lease, self.n_row_done, tuple(self.skipped_batches))

    @property
    def n_row_left(self) -> int:
        """Rows that are in no batch yet."""
        return self.shard.end - self.n_row_taken

    @property
    def labels(self) -> NDArray[np.float32]:
        """Labels of the shard's rows in their order in the data."""
        return self._data.labels

    def take(self, size: int, layout: BucketLayout) -> PreparedBatch | None:
        """Return the next batch, of at most `size` rows; None after the last one."""
        start, stop = self.n_row_taken, min(self.n_row_taken + size, self.shard.end)
        if start >= stop:
            return None
        self.n_row_taken = stop
        rows = slice(start, stop) if self._order is None else self._order[start:stop]
        return prepare_batch(self._data.ids[rows], self._data.dense[rows], self._data.labels[rows], layout)

    def skipped(self, why: str, is_broken: NDArray[np.bool_]) -> SkippedBatch:
        """Return the report of the next batch to be acknowledged, which could not be trained.

        Parameters
        ----------
        why
            It could not.
        is_broken
            Which of its rows the model gives no finite number.
        """
        assert self._order is not None
        rows = self.shard.start + self._order[self.n_row_done : self.n_row_done + len(is_broken)]
        at_fault = np.sort(rows[is_broken]).tolist()
        return SkippedBatch(
            self.shard.lease.shard,
            len(rows),
            int(rows.min()),
            int(rows.max()),
            why,
            len(at_fault),
            tuple(at_fault[:MOST_NAMED]),
        )

    def acknowledge(self, n_row: int) -> None:
        """Count the next `n_row` rows as done."""
        self.n_row_done += n_row

    def rewind(self) -> None:
        """Reset to the rows that are done; unfinished batches are taken again."""
        self.n_row_taken = self.n_row_done

    def _shuffled(self, seed: int) -> NDArray[np.int64]:
        key = (seed, self.shard.epoch, self.shard.start)
        return np.random.default_rng([abs(k) for k in key]).permutation(len(self._data))


def with_padding(inverse: NDArray[np.int64], is_id: NDArray[np.bool_], n_row: int) -> NDArray[np.int64]:
    """Return the places of ids among `n_row` rows, and that behind them where there is no id."""
    places = np.full(is_id.size, n_row)
    places[is_id.ravel()] = inverse.ravel()
    return places


def prepare_batch(
    ids: NDArray[np.int64], dense: NDArray[np.float32], labels: NDArray[np.float32], layout: BucketLayout
) -> PreparedBatch:
    """Find the distinct rows of a batch and group them by PS."""
    flat = ids.ravel()
    is_id = flat != PADDING
    has_padding = not is_id.all()
    rows, inverse = kernel().distinct(flat[is_id] if has_padding else flat)
    bounds = (0, len(rows))
    if layout.n_ps > 1:
        rows, inverse, counts = kernel().grouped(rows, inverse, layout.owner, layout.n_ps)
        bounds = (0, *np.cumsum(counts).tolist())
    if has_padding:
        inverse = with_padding(inverse, is_id, len(rows))
    return PreparedBatch(rows, bounds, inverse, dense, labels)

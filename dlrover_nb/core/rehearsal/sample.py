"""The rows of a rehearsal: whole shards of the job's training rows, spread over them, and its held-out rows.

Rows are read and encoded once, as the job's workers do it, and shared by all runs. Each seed gives them an
order of its own, by the rules of the job: shards in the order of grants, rows shuffled within each. So a
rehearsal of all rows with the job's seed trains exactly the batches of the job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.data import ShardReader
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.runtime.store import even_bucket_owner
from dlrover_nb.core.runtime.store.batches import BucketLayout, ShardWork, prepare_batch
from dlrover_nb.core.sharding.split import Split
from dlrover_nb.core.structs.training.shards import Lease, Purpose, Shard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dlrover_nb.core.data import Batch
    from dlrover_nb.core.runtime.store.batches import PreparedBatch
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec

MOST_HELD_OUT = 20_000  # rows that are scored: an AUC of them is known as well as of more, for a rehearsal
SCORED_AT_ONCE = 4096
OWN_SHARE = 0.1  # of the training rows are held out where the job holds out none
_ONE_PS = BucketLayout(np.array(even_bucket_owner(1), np.int64), 1)


@dataclass(frozen=True, slots=True)
class Sample:
    """Encoded rows, ready to train in the order of any seed.

    Parameters
    ----------
    spec
        The job.
    split, shards
        How its rows are cut into shards, and those of them that are in the sample with their rows.
    held_out
        Batches that are scored.
    holds_out_own
        Whether these are the job's own held-out rows, and no training rows of it.
    """

    spec: JobSpec
    features: FeatureSpec
    split: Split
    shards: dict[int, Batch]
    held_out: tuple[PreparedBatch, ...]
    holds_out_own: bool
    folder: Path | None = None

    @property
    def n_row(self) -> int:
        """Training rows of one pass."""
        return sum(map(len, self.shards.values()))

    @property
    def n_held_out(self) -> int:
        """Rows that are scored."""
        return sum(len(batch.labels) for batch in self.held_out)

    def n_batch(self, n_epoch: int, size: int) -> int:
        """Batches of so many rows in so many passes."""
        return n_epoch * sum(-(-len(rows) // size) for rows in self.shards.values())

    def batches(self, seed: int, n_epoch: int, size: int) -> Iterator[PreparedBatch]:
        """Yield the batches of `size` rows of so many passes, in the order of a seed."""
        split = replace(self.split, seed=seed, n_epoch=n_epoch)
        for epoch in range(n_epoch):
            for number in split.order(epoch).tolist():
                rows = self.shards.get(number % split.n_shard_per_epoch)
                if rows is not None:
                    shard = Shard(Lease(Purpose.TRAIN, number, 1), epoch, *split.rows(number))
                    work = ShardWork(shard, rows, seed=seed)
                    while (batch := work.take(size, _ONE_PS)) is not None:
                        yield batch


def read_sample(
    spec: JobSpec, features: FeatureSpec, n_row: int, *, folder: Path | None = None, n_shard_least: int = 8
) -> Sample:
    """Read the rows of a rehearsal.

    Parameters
    ----------
    n_row
        Training rows at most.
    folder
        The run folder, where a user's own code lies.
    n_shard_least
        Shards to take at least, from as many places of the data: those of the job are cut smaller for it.

    Raises
    ------
    InvalidValueError
        When the rows are a stream, which can be read only once, or no longer those of the features.
    """
    if features.is_stream:
        raise InvalidValueError(
            "a rehearsal reads its rows again for each run, got a stream; rehearse on a file of its rows"
        )
    reader = ShardReader(spec.data, features, folder=folder)
    n_train, first_eval, n_eval = _ranges(features)
    split = _split(spec, n_train, n_row, n_shard_least)
    n_shard = max(min(n_row // split.shard_size, split.n_shard), 1)
    numbers = sorted({i * split.n_shard // n_shard for i in range(n_shard)})
    shards = {number: reader.read(*split.rows(number)) for number in numbers}
    held_out = tuple(_held_out(reader, first_eval, n_eval))
    return Sample(spec, features, split, shards, held_out, bool(features.n_eval), folder)


def _ranges(features: FeatureSpec) -> tuple[int, int, int]:
    """Return how many rows are trained, the first that is held out, and how many are."""
    if features.n_eval:
        return features.n_train, features.n_train, features.n_eval
    n_own = max(int(OWN_SHARE * features.n_train), 1)
    return features.n_train - n_own, features.n_train - n_own, n_own


def _split(spec: JobSpec, n_train: int, n_row: int, n_shard_least: int) -> Split:
    """Return the job's split; with smaller shards where a part of its rows would be few of them."""
    n_batch = spec.shard_batches
    if n_row < n_train:
        n_batch = max(min(n_batch, n_row // (n_shard_least * spec.batch_size)), 1)
    return Split(n_train, spec.batch_size, n_batch, seed=spec.seed)


def _held_out(reader: ShardReader, first: int, n: int) -> Iterator[PreparedBatch]:
    """Yield held-out rows; of many, blocks at equal distances."""
    n_block = -(-n // SCORED_AT_ONCE)
    n_taken = min(n_block, -(-MOST_HELD_OUT // SCORED_AT_ONCE))
    for block in sorted({i * n_block // n_taken for i in range(n_taken)}):
        start = first + block * SCORED_AT_ONCE
        rows = reader.read(start, min(start + SCORED_AT_ONCE, first + n))
        yield prepare_batch(rows.ids, rows.dense, rows.labels, _ONE_PS)

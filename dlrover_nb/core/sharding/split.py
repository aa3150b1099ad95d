"""How rows become shards: arithmetic on index ranges, no state.

A pass over N rows is cut into ceil(N / (B*M)) shards of M batches of B rows (DLRover-RM 5.1); the last
shard is shorter. A shard is named by one number over all passes, so that accounting needs one array.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.shards import Purpose

ShardIds = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Split:
    """A cut of rows [first_row, first_row + n_sample) into shards, for `n_epoch` passes.

    Parameters
    ----------
    n_sample
        Rows of one pass; 0 makes an empty split, which is finished from the start.
    batch_size, shard_batches
        B and M of the count check DONE = ceil(N/(B*M)) per pass.
    seed
        Of the order in which shards are handed out, another one in each pass.
    """

    n_sample: int
    batch_size: int
    shard_batches: int
    n_epoch: int = 1
    seed: int = 0
    first_row: int = 0
    purpose: Purpose = Purpose.TRAIN

    def __post_init__(self) -> None:
        _check.at_least("n_sample", self.n_sample, 0)
        _check.at_least("batch_size", self.batch_size, 1)
        _check.at_least("shard_batches", self.shard_batches, 1)
        _check.at_least("n_epoch", self.n_epoch, 1)

    @property
    def shard_size(self) -> int:
        """Rows of a full shard, B*M."""
        return self.batch_size * self.shard_batches

    @property
    def n_shard_per_epoch(self) -> int:
        """Shards of one pass: ceil(N / (B*M))."""
        return -(-self.n_sample // self.shard_size)

    @property
    def n_shard(self) -> int:
        """Shards of all passes."""
        return self.n_shard_per_epoch * self.n_epoch

    def epoch(self, shard: int) -> int:
        """Return the pass that a shard belongs to, counted from 0."""
        return shard // self.n_shard_per_epoch

    def rows(self, shard: int) -> tuple[int, int]:
        """Return the first row of a shard and the row after its last."""
        start = (shard % self.n_shard_per_epoch) * self.shard_size
        stop = min(start + self.shard_size, self.n_sample)
        return self.first_row + start, self.first_row + stop

    def n_row(self, shard: int) -> int:
        """Return how many rows a shard has."""
        start, stop = self.rows(shard)
        return stop - start

    def n_rows(self) -> ShardIds:
        """Return the rows of every shard, in the order of their numbers."""
        n_row = np.full(self.n_shard, self.shard_size, np.int64)
        if self.n_shard:
            n_row[self.n_shard_per_epoch - 1 :: self.n_shard_per_epoch] = self.n_row(self.n_shard - 1)
        return n_row

    def order(self, epoch: int) -> ShardIds:
        """Return the shards of one pass in the order to hand them out: shuffled, the same for one seed."""
        shuffled = np.random.default_rng((self.seed, epoch)).permutation(self.n_shard_per_epoch)
        return shuffled + epoch * self.n_shard_per_epoch


@dataclass(frozen=True, slots=True)
class LedgerCheckpoint:
    """State of a ledger at one moment, small enough to lie beside the parameters.

    `done` holds one bit per shard; `begun` pairs a shard that is not done with its acknowledged rows.
    """

    split: Split
    done: bytes
    begun: tuple[tuple[int, int], ...]

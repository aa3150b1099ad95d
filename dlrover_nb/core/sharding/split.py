"""The split of rows into shards: arithmetic on index ranges, no state.

A pass over N rows is cut into ceil(N / (B*M)) shards of M batches of B rows (DLRover-RM 5.1); the last shard
is shorter. A shard is named by one number over all passes, so accounting needs one array.

A stream has one pass, granted in its order: shuffling its shards would require its end. `n_sample` is None
until the end is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dlrover_nb.core.errors import CheckpointError, InvalidValueError
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.training.shards import Purpose

ShardIds = NDArray[np.int32]

MAX_SHARDS = 2**31 - 1  # numbers of shards are int32 where there are many of them


@dataclass(frozen=True, slots=True)
class Split:
    """A cut of rows [first_row, first_row + n_sample) into shards, for `n_epoch` passes.

    Parameters
    ----------
    n_sample
        Rows of one pass; 0 makes an empty split, which is finished from the start; None a stream without
        an end.
    batch_size, shard_batches
        B and M of the count check DONE = ceil(N/(B*M)) per pass.
    seed
        Seed of the order of grants, which differs in each pass.
    is_stream
        Whether the rows are granted in their order; also after the stream has ended.
    step_shards
        How many shards, one after the other in the order of grants, are the units of one step of the
        optimizer (deterministic training); None: any gradients make a step.
    block_shards
        How many shards, after each other in the data, are one block: its rows are shuffled together, and its
        shards are granted after each other.
    """

    n_sample: int | None
    batch_size: int
    shard_batches: int
    n_epoch: int = 1
    seed: int = 0
    first_row: int = 0
    purpose: Purpose = Purpose.TRAIN
    is_stream: bool = False
    step_shards: int | None = None
    block_shards: int = 1

    def __post_init__(self) -> None:
        _check.at_least("batch_size", self.batch_size, 1)
        _check.at_least("shard_batches", self.shard_batches, 1)
        _check.at_least("n_epoch", self.n_epoch, 1)
        _check.at_least("block_shards", self.block_shards, 1)
        if self.step_shards is not None:
            _check.at_least("step_shards", self.step_shards, 1)
        if self.step_shards is not None and self.is_stream:
            raise InvalidValueError("deterministic training needs rows with an end, got a stream of rows")
        if self.n_sample is None and not self.is_stream:
            raise InvalidValueError("n_sample must be a number, got None; only a stream has no end")
        if self.is_stream and self.n_epoch > 1:
            raise InvalidValueError(
                f"n_epoch of a stream must be 1, got {self.n_epoch}; it can be read once only"
            )
        if self.n_sample is not None:
            _check.at_least("n_sample", self.n_sample, 0)
            if self.n_shard > MAX_SHARDS:
                raise InvalidValueError(
                    f"shards must be <= {MAX_SHARDS}, got {self.n_shard}; make them larger"
                )

    @property
    def is_open(self) -> bool:
        """Whether it is a stream whose end is not known yet."""
        return self.n_sample is None

    @property
    def shard_size(self) -> int:
        """Rows of a full shard, B*M."""
        return self.batch_size * self.shard_batches

    @property
    def n_shard_per_epoch(self) -> int:
        """Shards of one pass: ceil(N / (B*M)); of a stream without an end as many as can be numbered."""
        return MAX_SHARDS if self.n_sample is None else -(-self.n_sample // self.shard_size)

    @property
    def n_shard(self) -> int:
        """Shards of all passes."""
        return self.n_shard_per_epoch * self.n_epoch

    def place(self, shard: int) -> tuple[int, int, int]:
        """Return the pass that a shard belongs to, its first row, and the row after its last."""
        size, n_sample = self.batch_size * self.shard_batches, self.n_sample
        if n_sample is None:
            return 0, self.first_row + shard * size, self.first_row + (shard + 1) * size
        epoch, at = divmod(shard, -(-n_sample // size))
        start = at * size
        return epoch, self.first_row + start, self.first_row + min(start + size, n_sample)

    def epoch(self, shard: int) -> int:
        """Return the pass that a shard belongs to, counted from 0."""
        return self.place(shard)[0]

    def rows(self, shard: int) -> tuple[int, int]:
        """Return the first row of a shard and the row after its last."""
        return self.place(shard)[1:]

    def block(self, shard: int) -> tuple[int, int]:
        """Return the first row of the block of a shard and the row after its last."""
        start = self.rows(shard)[0] - self.n_row_before(shard)
        stop = start + self.block_shards * self.shard_size
        return start, stop if self.n_sample is None else min(stop, self.first_row + self.n_sample)

    def n_row_before(self, shard: int) -> int:
        """Return how many rows of its block, in the order in which they are trained, are before a shard."""
        if self.block_shards == 1:
            return 0
        return shard % self.n_shard_per_epoch % self.block_shards * self.shard_size

    def n_row(self, shard: int) -> int:
        """Return how many rows a shard has."""
        start, stop = self.rows(shard)
        return stop - start

    def n_row_of(self, shards: NDArray[np.intp]) -> int:
        """Return how many rows these shards have together."""
        if self.n_sample is None or not self.n_shard:
            return len(shards) * self.shard_size
        n_last = int(np.count_nonzero((shards + 1) % self.n_shard_per_epoch == 0))
        return (len(shards) - n_last) * self.shard_size + n_last * self.n_row(self.n_shard - 1)

    def n_row_in(self, n_known: int) -> int:
        """Return the rows of all passes, or of the first `n_known` shards of a stream without an end."""
        return n_known * self.shard_size if self.n_sample is None else self.n_sample * self.n_epoch

    def ended(self, row: int) -> Split:
        """Return the stream with its end before `row`."""
        return replace(self, n_sample=row - self.first_row)

    def merged(self, other: Split) -> Split:
        """Return the split that both describe; a stream may have its end in one of them only.

        Raises
        ------
        CheckpointError
            When they describe different ones.
        """
        for one, fuller in ((self, other), (other, self)):
            if one == fuller or (one.is_open and fuller.is_stream and one == replace(fuller, n_sample=None)):
                return fuller
        raise CheckpointError(
            f"expected the queue of {self}, got one of {other}; "
            "a job continues only with its original data, batch size and seed"
        )

    def order(self, epoch: int) -> ShardIds:
        """Return the shards of one pass in the order of grants: shuffled, a function of the seed.

        Not for a stream, whose order is that of its numbers.
        """
        n_shard, n = self.n_shard_per_epoch, self.block_shards
        blocks = np.arange(-(-n_shard // n), dtype=np.int32)
        np.random.default_rng((self.seed, epoch)).shuffle(blocks)
        within = np.tile(np.arange(n, dtype=np.int32), len(blocks))
        order: ShardIds = np.repeat(blocks, n) * np.int32(n) + within
        order = order[order < n_shard]
        order += epoch * self.n_shard_per_epoch
        return order


@dataclass(frozen=True, slots=True)
class LedgerCheckpoint:
    """The part of a ledger that belongs to the parameters of one moment.

    `done` holds one bit per shard; `begun` pairs a shard that is not done with its acknowledged rows.
    `skipped` are shards that the user skipped; `is_closed` says that no more shards are granted.
    """

    split: Split
    done: bytes
    begun: tuple[tuple[int, int], ...]
    skipped: tuple[int, ...] = ()
    is_closed: bool = False


@dataclass(frozen=True, slots=True)
class HeldShard:
    """A shard that is DOING: by whom, under which grant, until which of its rows."""

    shard: int
    owner: str
    grant: int
    until: int


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """The complete state of a ledger, with which a restarted job master keeps every lease.

    `epoch` and `place` are the position of the next grant; `deaths` names, per shard, the last holders
    that died without a row of it.
    """

    checkpoint: LedgerCheckpoint
    n_known: int
    held: tuple[HeldShard, ...]
    returned: tuple[int, ...]
    epoch: int
    place: int
    deaths: tuple[tuple[int, tuple[str, ...]], ...]
    n_grant: int
    n_refused: int
    n_returned: int

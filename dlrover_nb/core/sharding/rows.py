"""Counts of done rows: all of a DONE shard, the first ones of any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.sharding.states import DONE, state_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dlrover_nb.core.sharding.split import LedgerCheckpoint, Split


class RowsDone:
    """Acknowledged rows.

    Parameters
    ----------
    n_whole
        Rows of shards that are DONE.
    begun
        Pairs of an unfinished shard and its done rows.

    Attributes
    ----------
    begun
        The same, by shard.
    n_row
        Total of done rows.
    """

    def __init__(self, n_whole: int = 0, begun: Iterable[tuple[int, int]] = ()) -> None:
        self.begun = dict(begun)
        self.n_row = n_whole + sum(self.begun.values())

    def of(self, shard: int) -> int:
        """Return how many rows of a shard that is not DONE are done."""
        return self.begun.get(shard, 0)

    def acknowledge(self, shard: int, n_row: int) -> bool:
        """Count the first `n_row` rows of a shard; whether that is more than before."""
        n_new = n_row - self.begun.get(shard, 0)
        if n_new <= 0:
            return False
        self.begun[shard] = n_row
        self.n_row += n_new
        return True

    def complete(self, shard: int, n_row: int) -> None:
        """Count a shard of `n_row` rows that is DONE."""
        self.n_row += n_row - self.begun.pop(shard, 0)

    def reopen(self, n_row: int) -> None:
        """Count nothing of a shard of `n_row` rows any more, which was DONE."""
        self.n_row -= n_row

    def forget_from(self, first: int) -> None:
        """Drop the shards from `first` on, none of which is DONE."""
        for shard in [s for s in self.begun if s >= first]:
            self.n_row -= self.begun.pop(shard)


def still_begun(checkpoint: LedgerCheckpoint, split: Split, states: bytearray) -> Iterator[tuple[int, int]]:
    """Yield shards begun at a checkpoint and their rows, except one cut by the end of a stream."""
    for shard, n_row in checkpoint.begun:
        is_here = shard < split.n_shard and state_at(states, shard) != DONE
        if is_here and checkpoint.split.n_row(shard) == split.n_row(shard):
            yield shard, n_row

"""The order of grants: returned shards first, then the pass in its order, then the next pass."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.sharding.states import TODO

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.sharding.split import Split


class ShardQueue:
    """The order of TODO shards by number; their states are in the ledger.

    Parameters
    ----------
    split
        The shards.
    epoch, place
        Position of the next grant.
    returned
        Returned shards, which are granted first.
    """

    def __init__(self, split: Split, epoch: int = 0, place: int = 0, returned: Iterable[int] = ()) -> None:
        self._split = split
        self.epoch, self.place = epoch, place
        self.returned = deque(returned)
        self._order: Sequence[int] = self._order_of(epoch)

    @property
    def next_returned(self) -> int | None:
        """The returned shard that is granted next; None: none was returned."""
        return self.returned[0] if self.returned else None

    def pop(self, state: bytearray) -> int | None:
        """Remove and return the next shard that is TODO or new to `state`; None without one."""
        if self.returned:
            return self.returned.popleft()
        while True:
            while self.place < len(self._order):
                shard = self._order[self.place]
                self.place += 1
                if shard >= len(state) or state[shard] == TODO:
                    return shard
            if self.epoch + 1 >= self._split.n_epoch:
                return None
            self.epoch, self.place = self.epoch + 1, 0
            self._order = self._order_of(self.epoch)

    def _order_of(self, epoch: int) -> Sequence[int]:
        if self._split.is_stream:
            return range(self._split.n_shard)
        if epoch >= self._split.n_epoch:
            raise CheckpointError(f"expected a place in {self._split.n_epoch} passes, got pass {epoch}")
        return self._split.order(epoch).data  # yields plain ints without a list of them

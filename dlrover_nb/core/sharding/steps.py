"""Which shards make which step of the optimizer, in deterministic training.

The shards of all passes, in their seeded order, are numbered from 0; `step_shards` of them after each other
are the units of one step. The last step may have fewer. So the rows of each step follow from the data, the
seed and the job alone: any worker may compute any unit, and another number of workers changes nothing.

A step is complete when all its shards are done, or were skipped by a user. The ledger alone says so: it is
the one place where a step is committed. Parameter servers apply a step when they are told that it is
complete, and all of them hold all of its units then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.training.shards import Unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.sharding.split import ShardIds, Split

N_PASS = 2  # whose order is remembered: a step may have shards of two


class Steps:
    """Steps of one split, which has `step_shards`."""

    def __init__(self, split: Split) -> None:
        assert split.step_shards is not None
        self._split, self._size = split, split.step_shards
        self._orders: dict[int, tuple[ShardIds, ShardIds]] = {}  # by pass: its order, and each shard's place
        self._n_done = 0

    def unit(self, shard: int) -> Unit:
        """Return where the gradients of a shard are summed."""
        n_shard = self._split.n_shard_per_epoch
        epoch, at = divmod(shard, n_shard)
        number = epoch * n_shard + int(self._order(epoch)[1][at])
        return Unit(number // self._size, number)

    def unit_number(self, shard: int) -> int:
        """Return the place of a shard in the order of all."""
        return self.unit(shard).number

    def shards(self, step: int) -> tuple[int, ...]:
        """Return the shards of a step in the order of their numbers; none after the last step."""
        first = step * self._size
        return tuple(map(self._shard, range(first, min(first + self._size, self._split.n_shard))))

    def n_done(self, is_done: Callable[[int], bool]) -> int:
        """Return how many steps are complete; they only become more."""
        while (shards := self.shards(self._n_done)) and all(map(is_done, shards)):
            self._n_done += 1
        return self._n_done

    def _shard(self, number: int) -> int:
        epoch, place = divmod(number, self._split.n_shard_per_epoch)
        return int(self._order(epoch)[0][place])

    def _order(self, epoch: int) -> tuple[ShardIds, ShardIds]:
        if epoch not in self._orders:
            if len(self._orders) >= N_PASS:
                del self._orders[min(self._orders)]
            order = self._split.order(epoch)
            places = np.empty_like(order)
            places[order - epoch * self._split.n_shard_per_epoch] = np.arange(len(order), dtype=order.dtype)
            self._orders[epoch] = order, places
        return self._orders[epoch]

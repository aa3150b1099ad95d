"""The shard ledger: TODO -> DOING -> DONE, moved by the job master alone, counted exactly.

A shard is DONE only when its holder says that all its gradients have reached the PS. The holder's right
is a lease that names the grant, so that a report which comes after the shard was taken back is told from
one of the present holder: it is refused and counted, and never moves a shard. A shard that is taken back
keeps the rows that were acknowledged. So every row is trained at least once, and twice only where rows
were done but not yet acknowledged when their worker died.

State is three arrays over all shards of all passes (a byte and two int32 each, no objects), so that a
data set of 10^6 shards costs 9 MB and one grant or report 3 microseconds.
A queue of shard objects was rejected: it takes a hundred times the memory and its checkpoint is slow.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.sharding.split import LedgerCheckpoint
from dlrover_nb.core.structs.shards import Lease, Shard, ShardCounts

if TYPE_CHECKING:
    from dlrover_nb.core.sharding.split import ShardIds, Split

_TODO, _DOING, _DONE = np.uint8(0), np.uint8(1), np.uint8(2)


class ShardLedger:
    """Hands out the shards of one split and accounts for them; see the module for its guarantees.

    Parameters
    ----------
    split
        The shards.
    """

    def __init__(self, split: Split) -> None:
        self.split = split
        self._state = np.zeros(split.n_shard, np.uint8)
        self._n_row_done = np.zeros(split.n_shard, np.int32)  # acknowledged, of the shard at hand
        self._grants = np.zeros(split.n_shard, np.int32)
        self._holder: dict[int, str] = {}  # of DOING shards: at most a few per worker
        self._returned: deque[int] = deque()
        self._queue: ShardIds = np.empty(0, np.int64)
        self._next_in_queue = 0
        self._next_epoch = 0
        self._n_done = 0
        self._n_sample_done = 0
        self._n_refused = 0
        self._n_returned = 0

    @property
    def finished(self) -> bool:
        """Whether all shards are DONE."""
        return self._n_done == self.split.n_shard

    def counts(self) -> ShardCounts:
        """Return the exact accounting; acknowledged rows of unfinished shards count as samples done."""
        n_doing = len(self._holder)
        return ShardCounts(
            todo=self.split.n_shard - self._n_done - n_doing,
            doing=n_doing,
            done=self._n_done,
            n_sample_done=self._n_sample_done,
            n_sample_total=self.split.n_sample * self.split.n_epoch,
            refused=self._n_refused,
            returned=self._n_returned,
        )

    def grant(self, owner: str) -> Shard | None:
        """Hand a shard to `owner`: returned ones first, then the pass in its order, then the next pass.

        None says that nothing is to do now; shards that others hold may still come back.
        """
        shard = self._pop_todo()
        if shard is None:
            return None
        self._state[shard] = _DOING
        self._grants[shard] += 1
        self._holder[shard] = owner
        start, stop = self.split.rows(shard)
        lease = Lease(self.split.purpose, shard, int(self._grants[shard]))
        return Shard(lease, self.split.epoch(shard), start, stop, int(self._n_row_done[shard]))

    def holds(self, owner: str, lease: Lease) -> bool:
        """Whether `owner` holds that very grant now."""
        return (
            lease.purpose is self.split.purpose
            and self._holder.get(lease.shard) == owner
            and int(self._grants[lease.shard]) == lease.grant
        )

    def is_holder(self, owner: str) -> bool:
        """Whether `owner` holds any shard."""
        return owner in self._holder.values()

    def progress(self, owner: str, lease: Lease, n_row_done: int) -> bool:
        """Acknowledge the first `n_row_done` rows of a shard; False when the lease is stale.

        A number below what was acknowledged already (a late report) changes nothing.
        """
        if not self.holds(owner, lease):
            self._n_refused += 1
            return False
        n_row = min(n_row_done, self.split.n_row(lease.shard))
        self._acknowledge(lease.shard, max(n_row, int(self._n_row_done[lease.shard])))
        return True

    def complete(self, owner: str, lease: Lease) -> bool:
        """Move a shard to DONE; False, and counted as refused, when the lease is stale or it is done."""
        if not self.holds(owner, lease):
            self._n_refused += 1
            return False
        self._acknowledge(lease.shard, self.split.n_row(lease.shard))
        del self._holder[lease.shard]
        self._state[lease.shard] = _DONE
        self._n_done += 1
        return True

    def release(self, owner: str) -> int:
        """Take back all that `owner` holds, acknowledged rows kept; return how many shards."""
        shards = [shard for shard, holder in self._holder.items() if holder == owner]
        for shard in shards:
            del self._holder[shard]
            self._state[shard] = _TODO
            self._returned.append(shard)
        self._n_returned += len(shards)
        return len(shards)

    def checkpoint(self) -> LedgerCheckpoint:
        """Return what `restore` needs; DOING shards are kept as begun ones."""
        begun = np.flatnonzero((self._n_row_done > 0) & (self._state != _DONE))
        done = np.packbits(self._state == _DONE).tobytes()
        return LedgerCheckpoint(self.split, done, tuple((int(s), int(self._n_row_done[s])) for s in begun))

    def restore(self, checkpoint: LedgerCheckpoint | None = None) -> None:
        """Go back to a checkpoint (None: to the beginning); every lease given out so far turns stale.

        Grant numbers go on from where they are, else a lease from before could look like a new one.

        Raises
        ------
        CheckpointError
            When it was made of another split.
        """
        if checkpoint is None:
            checkpoint = ShardLedger(self.split).checkpoint()
        if checkpoint.split != self.split:
            raise CheckpointError(
                f"expected the queue of {self.split}, got one of {checkpoint.split}; "
                "a job goes on only with the data, batch size and seed that it began with"
            )
        done = np.unpackbits(np.frombuffer(checkpoint.done, np.uint8), count=self.split.n_shard).astype(bool)
        self._n_returned += len(self._holder)
        self._holder.clear()
        self._state[:] = np.where(done, _DONE, _TODO)
        self._recount(checkpoint)
        self._returned.clear()
        self._queue, self._next_in_queue, self._next_epoch = np.empty(0, np.int64), 0, 0

    def _recount(self, checkpoint: LedgerCheckpoint) -> None:
        done = np.flatnonzero(self._state == _DONE)
        n_row = self.split.n_rows()
        self._n_row_done[:] = 0
        self._n_row_done[done] = n_row[done]
        self._n_done, self._n_sample_done = len(done), int(n_row[done].sum())
        for shard, n_row_done in checkpoint.begun:
            self._acknowledge(shard, n_row_done)

    def _acknowledge(self, shard: int, n_row_done: int) -> None:
        self._n_sample_done += n_row_done - int(self._n_row_done[shard])
        self._n_row_done[shard] = n_row_done

    def _pop_todo(self) -> int | None:
        if self._returned:
            return self._returned.popleft()
        while self._next_in_queue == len(self._queue):
            if self._next_epoch == self.split.n_epoch:
                return None
            order = self.split.order(self._next_epoch)
            self._queue, self._next_in_queue = order[self._state[order] == _TODO], 0
            self._next_epoch += 1
        self._next_in_queue += 1
        return int(self._queue[self._next_in_queue - 1])

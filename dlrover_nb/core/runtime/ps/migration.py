"""Migration as seen by one PS: what it receives, what it owns at each moment, and when a move is complete.

Rows are sent while training goes on (`migration_source`). The source drops nothing before all of it is
acknowledged, and the target serves nothing before all of it has arrived. So every bucket has one owner at
every moment, and a move that fails before its end leaves the source unchanged.

There are no sockets here: `PsMigration.step` returns what to send, `PsMigration.receive` answers what
arrives. A chunk out of sequence is not accepted; its sender repeats it. A move is named by the epoch that it
leads to, so a chunk of a cancelled move is distinguished from a new one.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import CheckpointError, WireError
from dlrover_nb.core.runtime.checkpoints.buffer import nothing
from dlrover_nb.core.runtime.exchange.push_pull import ChunkTaken
from dlrover_nb.core.runtime.ps.migration_source import MigrationSource, Sizes
from dlrover_nb.core.runtime.store import owned_buckets

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.runtime.exchange.push_pull import MoveChunk
    from dlrover_nb.core.runtime.ps.migration_source import AddressedChunk
    from dlrover_nb.core.runtime.store import ParameterStore, StorePart
    from dlrover_nb.core.runtime.store.partition import Buckets
    from dlrover_nb.core.structs.wire.messages import Moved, MoveEnd, MoveOut


TIDY_EVERY_S = 0.01  # a step of freeing takes a millisecond or two, and workers want the rest


class PsMigration:
    """State of one PS in the migrations of its job.

    Attributes
    ----------
    store, owned
        The parameters, and the buckets that the PS owns; None before it has any.

    Parameters
    ----------
    node
        Name of the PS.
    dense_length
        Elements of the whole flat dense vector.
    new_store
        Creates the store of a PS that had none, with any dense slice.
    sizes
        Sizes of chunks; None: the defaults.
    between
        Called between the pieces of what takes long: freeing rows at once.
    """

    def __init__(
        self,
        node: str,
        dense_length: int,
        new_store: Callable[[], ParameterStore],
        sizes: Sizes | None = None,
        *,
        between: Callable[[], None] = nothing,
    ) -> None:
        self._node, self._dense_length, self._new_store = node, dense_length, new_store
        self._sizes, self._between = sizes or Sizes(), between
        self.store: ParameterStore | None = None
        self.owned: Buckets | None = None
        self._over = -1  # chunks of this and earlier moves are refused
        self._completed = -1
        self._source: MigrationSource | None = None
        self._waiting: MoveOut | None = None  # until the rows of the last move are freed
        self._receiving: int | None = None
        self._end: MoveEnd | None = None
        self._sequences: dict[str, int] = {}
        self._dense: list[StorePart] = []
        self._finished: set[str] = set()
        self._is_untidy = False  # rows of other owners' buckets are here
        self._tidy_at_s = -inf

    def hold(self, store: ParameterStore | None, owned: Buckets | None, epoch: int) -> None:
        """Hold a loaded store, or none; a move in progress has ended."""
        self.store, self.owned, self._over = store, owned, max(self._over, epoch)
        self._source = self._waiting = self._end = self._receiving = None
        self._is_untidy = False
        self._clear_received()

    def start_sending(self, order: MoveOut, at_s: float) -> None:
        """Start to send buckets to other PS, once the rows of the last move are freed."""
        if self.store is None or order.move <= self._over:
            return
        self._waiting = order
        if not self._is_untidy:
            self._begin_sending(at_s)

    def _begin_sending(self, at_s: float) -> None:
        if self._waiting is not None and self.store is not None:
            self._source = self._new_source(self._waiting.move, self.store)
            self._source.begin(self._waiting, at_s)
            self._waiting = None

    def end(self, order: MoveEnd, at_s: float) -> None:
        """Send the rest and wait for that of others; the store must not change from now on."""
        if order.move <= self._over or self._end == order:
            return
        self._end = order
        if self.owned is not None:  # it served until now
            assert self.store is not None
            if self._waiting is not None:
                self.tidy()
                self._begin_sending(at_s)
            self._source = self._source or self._new_source(order.move, self.store)
            self._source.end(order, at_s)

    def cancel(self, move: int) -> None:
        """Restore the state before the move."""
        if move <= self._over:
            return
        self._over = move
        if self._source is not None and self.store is not None:
            self.store.cancel_move()
        self._forget_received()
        self._source = self._waiting = self._end = None

    def has_ended(self, move: int) -> bool:
        """Whether the PS serves what this move led to."""
        return move == self._completed

    def receive(self, chunk: MoveChunk, part: StorePart) -> ChunkTaken:
        """Accept a chunk if it is the next of its sender; answer the last sequence number received.

        None is accepted before the rows of the last move are freed, in steps that leave time for workers.

        Raises
        ------
        WireError
            When its move is over, or its rows cannot be of this table: nothing of it was taken.
        """
        if chunk.move == self._completed:  # the answer was lost
            return ChunkTaken(chunk.move, chunk.sequence)
        if chunk.move <= self._over:
            raise WireError(f"move {chunk.move} is over")
        if self._receiving is not None and chunk.move < self._receiving:
            raise WireError(f"move {chunk.move} is over, as {self._receiving} has begun")
        if self._receiving != chunk.move:
            self._forget_received()
            self._receiving = chunk.move
        must_wait = self._is_untidy and self._end is None and len(part.ids) > 0
        if chunk.sequence == self._sequences.get(chunk.source, 0) + 1 and not must_wait:
            try:
                self._absorb(chunk, part)
            except CheckpointError as error:
                raise WireError(f"chunk {chunk.sequence} of {chunk.source} is refused: {error}") from error
            self._sequences[chunk.source] = chunk.sequence
        return ChunkTaken(chunk.move, self._sequences.get(chunk.source, 0))

    def acknowledge(self, endpoint: str, answer: ChunkTaken, at_s: float) -> None:
        """Record an acknowledgement of another PS."""
        if self._source is not None:
            self._source.acknowledge(endpoint, answer.sequence, at_s)

    def step(self, at_s: float) -> list[AddressedChunk]:
        """Return the chunks to send now; before the first one, free rows that an earlier move sent."""
        if self._source is None and self._is_untidy and at_s >= self._tidy_at_s:
            self._tidy_at_s = at_s + TIDY_EVERY_S
            if not self._tidy_some():
                self._begin_sending(at_s)
        return [] if self._source is None else self._source.step(at_s)

    def progress_report(self, at_s: float) -> Moved | None:
        """Return the report that is due to the master; None: none is."""
        return None if self._source is None else self._source.progress_report(at_s)

    def wait_s(self, at_s: float) -> float:
        """Return the time until `step` has something to do, as far as that is known; else infinity."""
        if self._source is not None:
            return self._source.wait_s(at_s)
        return max(self._tidy_at_s - at_s, 0.0) if self._is_untidy else inf

    def arrived(self) -> MoveEnd | None:
        """Return the order of a move that has just become complete, once; the PS serves its part from now on.

        Rows that were sent away are freed in the following steps.
        """
        end = self._end
        if end is None or end.index < 0 or not self._is_complete(end):
            return None
        store = self.store or self._new_store()
        store.place_dense(end.index, len(end.endpoints))
        for part in self._dense:
            store.load_dense(part)
        self.hold(store, owned_buckets(end.bucket_owner, end.index), end.move)
        store.begin_drop(~owned_buckets(end.bucket_owner, end.index))
        self._is_untidy, self._completed = True, end.move
        return end

    def stay(self) -> None:
        """Cancel a move that the master has lost, as it never saves during one."""
        source = self._source or self._waiting
        giving = -1 if source is None else source.move
        taking = -1 if self._receiving is None else self._receiving
        self.cancel(max(giving, taking))

    def tidy(self) -> bool:
        """Free the remaining rows that other PS own; whether there were any."""
        was_untidy = self._is_untidy
        if self.store is not None:
            self.store.await_choice(self._between)
        while self._is_untidy and self._tidy_some():
            self._between()
        return was_untidy

    def _tidy_some(self) -> bool:
        self._is_untidy = self.store is not None and self.store.drop_some()
        return self._is_untidy

    def _new_source(self, move: int, store: ParameterStore) -> MigrationSource:
        return MigrationSource(self._node, move, store, dense_length=self._dense_length, sizes=self._sizes)

    def _is_complete(self, end: MoveEnd) -> bool:
        has_given = self._source is None or self._source.is_done
        return has_given and self._finished >= set(end.sources)

    def _absorb(self, chunk: MoveChunk, part: StorePart) -> None:
        if self.store is None:
            self.store = self._new_store()
        if len(part.ids):
            self.tidy()
            self.store.absorb(part)
        if part.dense.shape[1]:
            self._dense.append(part)
        if chunk.is_last:
            self._finished.add(chunk.source)

    def _forget_received(self) -> None:
        """Discard what was received of a cancelled move."""
        if self._receiving is None:
            return
        self._receiving = None
        self._clear_received()
        if self.owned is None:
            self.store = None
        elif self.store is not None:
            self.store.drop(~self.owned, self._between)

    def _clear_received(self) -> None:
        self._sequences, self._dense, self._finished = {}, [], set()

"""One PS in the moves of its job: what it takes, what it owns at each moment, and when a move is complete.

What it gives away goes out while training goes on (`giving`). Nothing is dropped at the source before all of
it is acknowledged, and nothing is served at the target before all of it is there. So there is one owner of
every bucket at every moment, and a move that fails on the way leaves the source as it was.

No sockets here: `PsMigration.step` returns what to send, `PsMigration.receive` answers what came. A chunk out
of turn is not taken: its sender sends it again. A move is named by the epoch that it leads to, so a chunk
of one that was given up is told from a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange import ChunkTaken
from dlrover_nb.core.runtime.migration_source import MigrationSource, Sizes
from dlrover_nb.core.runtime.store import owned_buckets

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.runtime.exchange import MoveChunk
    from dlrover_nb.core.runtime.migration_source import AddressedChunk
    from dlrover_nb.core.runtime.store import ParameterStore, StorePart
    from dlrover_nb.core.runtime.store.parts import Buckets
    from dlrover_nb.core.structs.messages import Moved, MoveEnd, MoveOut


class PsMigration:
    """One PS in the moves of its job.

    Attributes
    ----------
    store, owned
        What the PS holds, and which buckets are its own; None while it has nothing.

    Parameters
    ----------
    node
        Its name.
    dense_length
        Elements of the whole flat dense vector.
    new_store
        Makes the store of a PS that had none, of any dense slice.
    sizes
        How parameters are cut; None: as usual.
    """

    def __init__(
        self,
        node: str,
        dense_length: int,
        new_store: Callable[[], ParameterStore],
        sizes: Sizes | None = None,
    ) -> None:
        self._node, self._dense_length, self._new_store = node, dense_length, new_store
        self._sizes = sizes or Sizes()
        self.store: ParameterStore | None = None
        self.owned: Buckets | None = None
        self._over = -1  # chunks of this move and those before come too late
        self._completed = -1
        self._source: MigrationSource | None = None
        self._receiving: int | None = None
        self._end: MoveEnd | None = None
        self._sequences: dict[str, int] = {}
        self._dense: list[StorePart] = []
        self._finished: set[str] = set()
        self._is_untidy = False  # rows of other owners' buckets are here

    def hold(self, store: ParameterStore | None, owned: Buckets | None, epoch: int) -> None:
        """Hold what was loaded, or nothing; whatever was moving has ended."""
        self.store, self.owned, self._over = store, owned, max(self._over, epoch)
        self._source = self._end = self._receiving = None
        self._is_untidy = False
        self._clear_received()

    def start_sending(self, order: MoveOut, at_s: float) -> None:
        """Begin to give buckets away."""
        if self.store is None or order.move <= self._over:
            return
        self.tidy()
        self._source = self._new_source(order.move, self.store)
        self._source.begin(order, at_s)

    def end(self, order: MoveEnd, at_s: float) -> None:
        """Send the rest and wait for that of others; nobody may change the store from now on."""
        if order.move <= self._over or self._end == order:
            return
        self._end = order
        if self.owned is not None:  # it served until now
            assert self.store is not None
            self._source = self._source or self._new_source(order.move, self.store)
            self._source.end(order, at_s)

    def cancel(self, move: int) -> None:
        """Stay as before the move."""
        if move <= self._over:
            return
        self._over = move
        if self._source is not None and self.store is not None:
            self.store.cancel_move()
        self._forget_received()
        self._source = self._end = None

    def has_ended(self, move: int) -> bool:
        """Whether the PS serves what this move led to."""
        return move == self._completed

    def receive(self, chunk: MoveChunk, part: StorePart) -> ChunkTaken:
        """Take a chunk if it is the next of its sender; answer up to which all are here.

        Raises
        ------
        WireError
            When its move is over.
        """
        if chunk.move == self._completed:  # its answer was lost
            return ChunkTaken(chunk.move, chunk.sequence)
        if chunk.move <= self._over:
            raise WireError(f"move {chunk.move} is over")
        if self._receiving is not None and chunk.move < self._receiving:
            raise WireError(f"move {chunk.move} is over, as {self._receiving} has begun")
        if self._receiving != chunk.move:
            self._forget_received()
            self._receiving = chunk.move
        if chunk.sequence == self._sequences.get(chunk.source, 0) + 1:
            self._sequences[chunk.source] = chunk.sequence
            self._absorb(chunk, part)
        return ChunkTaken(chunk.move, self._sequences.get(chunk.source, 0))

    def acknowledge(self, endpoint: str, answer: ChunkTaken, at_s: float) -> None:
        """Hear that another PS has taken chunks."""
        if self._source is not None:
            self._source.acknowledge(endpoint, answer.sequence, at_s)

    def step(self, at_s: float) -> list[AddressedChunk]:
        """Return the chunks to send now; with nothing to move, free some of what was given away."""
        if self._source is None:
            if self._is_untidy:
                self._tidy_some()
            return []
        return self._source.step(at_s)

    def progress_report(self, at_s: float) -> Moved | None:
        """Return what the master should know by now."""
        return None if self._source is None else self._source.progress_report(at_s)

    @property
    def is_busy(self) -> bool:
        """Whether `step` has something to do at once."""
        return self._is_untidy or (self._source is not None and self._source.can_send)

    def arrived(self) -> MoveEnd | None:
        """Return the order whose move is complete here, once: from now on the PS serves what it says.

        Rows that it gave away are still there; the steps that follow free them, little by little.
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
        """Give up a move that the master does not know of, as it never saves amid one; keep own rows only."""
        giving = -1 if self._source is None else self._source.move
        taking = -1 if self._receiving is None else self._receiving
        self.cancel(max(giving, taking))
        self.tidy()

    def tidy(self) -> None:
        """Free what is left of the rows that other PS own."""
        while self._is_untidy:
            self._tidy_some()

    def _tidy_some(self) -> None:
        self._is_untidy = self.store is not None and self.store.drop_some()

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
        """Throw away what came of a move that leads nowhere."""
        if self._receiving is None:
            return
        self._receiving = None
        self._clear_received()
        if self.owned is None:
            self.store = None
        elif self.store is not None:
            self.store.drop(~self.owned)

    def _clear_received(self) -> None:
        self._sequences, self._dense, self._finished = {}, [], set()

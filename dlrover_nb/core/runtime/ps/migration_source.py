"""The sending side of a migration: which rows go next, in which chunk, and what is repeated.

Rows to send are marked as pending and sent in chunks of about 1 MiB, a few at a time, between the requests of
workers. A row that is trained meanwhile becomes pending again, so the number of pending rows shrinks to those
trained between two steps. Then the master pauses all workers, and the rest follows with the dense slices.

Forwarding each update to the next owner (as replicas do) was rejected: it doubles the traffic of every push
while the copy goes on, and needs an order between the copy of a row and its updates. Chunks need none,
because a row travels whole, and later chunks replace earlier ones.

While workers train, chunks are under way for a part of the time alone (`Sizes.rest`): copying takes cores
from workers that share a machine with PS, and the time of a chunk on its way grows with the load of both
machines, so that a move gives way by itself. Limits in bytes a second were rejected: they fit one machine.

Each pair of PS numbers its chunks; unacknowledged ones are repeated after some seconds, in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.runtime.exchange.push_pull import MoveChunk
from dlrover_nb.core.runtime.store import StorePart, dense_slice
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.wire.messages import Moved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.runtime.store import ParameterStore
    from dlrover_nb.core.structs.wire.messages import MoveEnd, MoveOut

WINDOW = 2  # unacknowledged chunks per target PS
LONGEST_PAUSE_S = 0.2  # however long chunks took: a move must come to an end
REPEAT_AFTER_S = 5.0  # far above any response time: only lost chunks are repeated
MOST_ROUNDS = 4.0  # rows were sent this often on average: the rest does not shrink any further
REPORT_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a migration, and its pace.

    Parameters
    ----------
    chunk_bytes
        Of one chunk: a request of a worker waits for one at most, a few milliseconds.
    ready_bytes
        Pending bytes at which the pause may begin: sent within some tens of milliseconds.
    rest
        How long nothing is sent after some chunks, in the time that they were under way; 0: no rest.
    """

    chunk_bytes: int = 1 << 20
    ready_bytes: int = 1 << 20
    rest: float = 3.0


@dataclass(frozen=True, slots=True)
class AddressedChunk:
    """A chunk and its target."""

    endpoint: str
    chunk: MoveChunk
    part: StorePart


class Channel:
    """Numbered chunks from one PS to another, kept until they are acknowledged."""

    def __init__(self, node: str, endpoint: str, move: int, at_s: float) -> None:
        self._node, self._endpoint, self._move = node, endpoint, move
        self._unanswered: deque[AddressedChunk] = deque()
        self._n_sent = 0
        self._answered_s = at_s

    @property
    def has_room(self) -> bool:
        """Whether another chunk may be sent."""
        return len(self._unanswered) < WINDOW

    @property
    def is_clear(self) -> bool:
        """Whether all is acknowledged."""
        return not self._unanswered

    def send(self, part: StorePart, at_s: float, *, is_last: bool = False) -> AddressedChunk:
        """Return the next chunk."""
        if self.is_clear:
            self._answered_s = at_s
        self._n_sent += 1
        chunk = MoveChunk(self._move, self._node, self._n_sent, part.dense_offset, is_last=is_last)
        self._unanswered.append(AddressedChunk(self._endpoint, chunk, part))
        return self._unanswered[-1]

    def acknowledge(self, sequence: int, at_s: float) -> None:
        """Record the last sequence number that the target received."""
        self._answered_s = at_s
        while self._unanswered and self._unanswered[0].chunk.sequence <= sequence:
            self._unanswered.popleft()

    def overdue(self, at_s: float) -> list[AddressedChunk]:
        """Return the chunks to repeat."""
        if self.is_clear or at_s < self._answered_s + REPEAT_AFTER_S:
            return []
        self._answered_s = at_s
        return list(self._unanswered)


class MigrationSource:
    """The rows that one PS sends in one move.

    Parameters
    ----------
    node, move
        Name of the PS, and the epoch of the move.
    store
        The parameters; rows stay in it until the move has ended.
    dense_length
        Elements of the whole flat dense vector.
    sizes
        Sizes of chunks.
    """

    def __init__(
        self, node: str, move: int, store: ParameterStore, *, dense_length: int, sizes: Sizes
    ) -> None:
        self._node, self.move, self._store = node, move, store
        self._dense_length, self._sizes = dense_length, sizes
        self._channels: dict[str, Channel] = {}
        self._endpoints: list[str] = []
        self._target = np.full(N_BUCKET, -1)  # index of `_endpoints` for each bucket; -1: it stays
        self._row_bytes = _row_bytes(store)
        self._n_sent = self._n_begun = 0
        self._burst, self._burst_s, self._next_s = 0, 0.0, float("-inf")
        self._last: deque[tuple[str, StorePart, bool]] = deque()  # dense slices, once the end was ordered
        self._is_ending = False
        self._is_ready = False  # once set it stays set: the rest is kept small
        self._reported_s, self._was_ready = float("-inf"), False

    def begin(self, order: MoveOut, at_s: float) -> None:
        """Note the rows to send."""
        for index, target in enumerate(order.targets):
            self._target[list(target.buckets)] = index
            self._endpoints.append(target.endpoint)
            self._channel(target.endpoint, at_s)
        self._n_begun = self._store.begin_move(self._target >= 0)

    def end(self, order: MoveEnd, at_s: float) -> None:
        """Send the rest, and to every PS of the next group its part of the dense slice."""
        self._is_ending = True
        for index, endpoint in enumerate(order.endpoints):
            if index != order.index:
                self._channel(endpoint, at_s)
                theirs = dense_slice(self._dense_length, index, len(order.endpoints))
                pieces = list(_dense_pieces(self._store, theirs, self._sizes.chunk_bytes))
                self._last.extend((endpoint, piece, piece is pieces[-1]) for piece in pieces)

    @property
    def is_done(self) -> bool:
        """Whether everything is sent and acknowledged."""
        is_sent = self._is_ending and not self._store.n_pending and not self._last
        return is_sent and all(channel.is_clear for channel in self._channels.values())

    def wait_s(self, at_s: float) -> float:
        """Return the time until something can be sent, as far as that is known; infinite where it is not."""
        has_rows = self._store.n_pending > (0 if self._is_ending else self._n_ready)
        has_more = has_rows or (self._is_ending and bool(self._last))
        if not has_more or not all(channel.has_room for channel in self._channels.values()):
            return inf
        if self._is_ending or not self._sizes.rest:
            return 0.0
        return max(self._next_s - at_s, 0.0) if self._burst < WINDOW else inf

    def step(self, at_s: float) -> list[AddressedChunk]:
        """Return the chunks to send now: the next ones, and lost ones."""
        self._update_readiness()
        chunks = [chunk for channel in self._channels.values() for chunk in channel.overdue(at_s)]
        if self.wait_s(at_s) > 0:
            return chunks
        if self._store.n_pending:
            self._burst_s = self._burst_s if self._burst else at_s
            self._burst += 1
            return [*chunks, *self._rows(at_s)]
        endpoint, piece, is_last = self._last.popleft()
        return [*chunks, self._channels[endpoint].send(piece, at_s, is_last=is_last)]

    def acknowledge(self, endpoint: str, sequence: int, at_s: float) -> None:
        """Record the last sequence number that another PS received."""
        if endpoint in self._channels:
            self._channels[endpoint].acknowledge(sequence, at_s)
        if self._burst and all(channel.is_clear for channel in self._channels.values()):
            self._burst = 0
            self._next_s = at_s + min(self._sizes.rest * (at_s - self._burst_s), LONGEST_PAUSE_S)

    def progress_report(self, at_s: float) -> Moved | None:
        """Return the report that is due to the master: readiness at once, progress at intervals."""
        is_news = self._is_ready and not self._was_ready
        if self._is_ending or not (is_news or at_s >= self._reported_s + REPORT_EVERY_S):
            return None
        self._reported_s, self._was_ready = at_s, self._is_ready
        n_left = self._store.n_pending * self._row_bytes
        return Moved(self._node, self.move, self._n_sent * self._row_bytes, n_left, is_ready=self._is_ready)

    @property
    def _n_ready(self) -> int:
        return self._sizes.ready_bytes // self._row_bytes

    def _update_readiness(self) -> None:
        is_little = self._store.n_pending <= self._n_ready
        is_enough = self._n_sent > MOST_ROUNDS * max(self._n_begun, self._n_ready)
        self._is_ready = self._is_ready or is_little or is_enough

    def _rows(self, at_s: float) -> Iterator[AddressedChunk]:
        part = self._store.take_pending(max(1, self._sizes.chunk_bytes // self._row_bytes))
        self._n_sent += len(part.ids)
        targets = self._target[part.ids % N_BUCKET]
        for index in np.flatnonzero(np.bincount(targets)):  # np.unique imports for 9 ms where workers wait
            mine = np.flatnonzero(targets == index)
            piece = StorePart(part.ids[mine], part.table[mine], 0, part.dense)
            yield self._channels[self._endpoints[index]].send(piece, at_s)

    def _channel(self, endpoint: str, at_s: float) -> None:
        if endpoint not in self._channels:
            self._channels[endpoint] = Channel(self._node, endpoint, self.move, at_s)


def _row_bytes(store: ParameterStore) -> int:
    return 8 + 4 * int(store.export().table.shape[1])


def _dense_pieces(store: ParameterStore, theirs: slice, chunk_bytes: int) -> Iterator[StorePart]:
    """Yield copies of what the dense slice of `store` has in common with `theirs`; one at least."""
    part = store.export()
    start = max(theirs.start, part.dense_offset)
    stop = min(theirs.stop, part.dense_offset + part.dense.shape[1])
    width = max(1, chunk_bytes // (4 * part.dense.shape[0]))
    none = StorePart(part.ids[:0], part.table[:0], 0, part.dense[:, :0])
    if start >= stop:
        yield none
    for at in range(start, stop, width):
        here = slice(at - part.dense_offset, min(at + width, stop) - part.dense_offset)
        yield StorePart(none.ids, none.table, at, part.dense[:, here].copy())

"""Parameter servers of the model world: real stores and real moves, with a test in the place of sockets.

Every row of the data is a row of the table; one batch takes 1 from each of its rows (SGD of rate 1) and from
every dense parameter. So what a store holds says exactly how often each row was trained.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.exchange.push_pull import ChunkTaken
from dlrover_nb.core.runtime.ps.migration import PsMigration
from dlrover_nb.core.runtime.ps.migration_source import AddressedChunk, Sizes
from dlrover_nb.core.runtime.store import ParameterStore, StorePart, owned_buckets
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Optimizer
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MODEL = ModelSpec(embedding_dim=1, hidden=(1,), optimizer=Optimizer.SGD, learning_rate=1.0)
N_DENSE = 7
SIZES = Sizes(chunk_bytes=16 * 20, ready_bytes=16 * 5, rest=0.0)  # 20 rows; 5 rows


class Network:
    """What PS have sent each other and has not arrived: in order per pair."""

    def __init__(self) -> None:
        self.loses: Callable[[], bool] = lambda: False
        self.links: dict[tuple[str, str], deque[AddressedChunk | ChunkTaken]] = {}

    def send(self, source: str, target: str, item: AddressedChunk | ChunkTaken) -> None:
        if not self.loses():
            self.links.setdefault((source, target), deque()).append(item)

    @property
    def busy(self) -> list[tuple[str, str]]:
        return [pair for pair, items in self.links.items() if items]


class FakePs:
    def __init__(self, name: str, n_id: int, network: Network) -> None:
        self.name, self._n_id, self._network = name, n_id, network
        self.migration = PsMigration(name, N_DENSE, self.new_store, SIZES)
        self.epoch = -1
        self.forgotten: set[str] = set()

    def new_store(self, index: int = 0, n_ps: int = 1) -> ParameterStore:
        return ParameterStore(MODEL, self._n_id, N_DENSE, index=index, n_ps=n_ps)

    def load(self, load: m.Load, parts: Sequence[StorePart]) -> None:
        owned = owned_buckets(load.bucket_owner, load.index)
        store = self.new_store(load.index, load.n_ps)
        for part in parts:
            store.load(part, owned)
        self.migration.hold(store, owned, load.ps_epoch)
        self.epoch = load.ps_epoch

    def obey_move(self, order: m.MoveOut | m.MoveEnd | m.MoveCancel, at_s: float) -> tuple[m.FromNode, ...]:
        match order:
            case m.MoveEnd(move) if self.migration.has_ended(move):
                return (m.Loaded(self.name, move),)
            case m.MoveOut():
                self.migration.start_sending(order, at_s)
            case m.MoveEnd():
                self.epoch = -1
                self.migration.end(order, at_s)
            case m.MoveCancel(move):
                self.migration.cancel(move)
        return ()

    def step(self, at_s: float) -> tuple[m.FromNode, ...]:
        """Send chunks; return what there is to tell the master."""
        for parcel in self.migration.step(at_s):
            self._network.send(self.name, parcel.endpoint.removeprefix("ipc://"), parcel)
        told: list[m.FromNode] = []
        if (report := self.migration.progress_report(at_s)) is not None:
            told.append(report)
        if (end := self.migration.arrived()) is not None:
            self.epoch = end.move
            told.append(m.Loaded(self.name, end.move))
        return tuple(told)

    def hear(self, source: str, item: AddressedChunk | ChunkTaken, at_s: float) -> None:
        if isinstance(item, ChunkTaken):
            self.migration.acknowledge(f"ipc://{source}", item, at_s)
            return
        try:
            self._network.send(self.name, source, self.migration.receive(item.chunk, item.part))
        except WireError:  # the real one answers that it refuses, and nobody minds
            return

    def push(self, ids: np.ndarray) -> None:
        store = self.store
        store.init_dense(np.zeros(store.answer_shape[1], np.float32))
        store.push(ids, np.ones((len(ids), MODEL.row_width), np.float32))
        store.push_dense(np.ones(store.answer_shape[1], np.float32))

    def copy(self) -> StorePart:
        self.migration.stay()
        cut = self.store.cut(is_awaited=True)
        part = cut.part
        found = {name: np.empty_like(getattr(part, name)) for name in ("ids", "table", "dense")}
        cut.copy_to(found)
        return StorePart(found["ids"], found["table"], part.dense_offset, found["dense"])

    def taught(self) -> dict[int, int]:
        """How often each row of its own buckets was trained."""
        assert self.migration.owned is not None
        ids = np.flatnonzero(self.migration.owned[np.arange(self._n_id) % N_BUCKET])
        first = self.new_store().pull(ids)
        counts = np.rint((first - self.store.pull(ids))[:, 0]).astype(int)
        return {int(i): int(n) for i, n in zip(ids, counts, strict=True) if n}

    @property
    def store(self) -> ParameterStore:
        assert self.migration.store is not None
        return self.migration.store

"""PS and workers that exchange over real sockets within one thread, with or without slabs.

A worker that waits lets the PS serve, so the order of all that happens is that of the test, and two worlds
can be compared bit by bit.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import zmq

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.runtime.exchange.slab import AttachedSlabs
from dlrover_nb.core.runtime.exchange.sockets import bind_router, new_keys
from dlrover_nb.core.runtime.kernels import VARIABLE
from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
from dlrover_nb.core.runtime.ps.serving import Serving
from dlrover_nb.core.runtime.store import ParameterStore, owned_buckets
from dlrover_nb.core.runtime.store.batches import PreparedBatch
from dlrover_nb.core.runtime.worker.ps_client import GbaClient, Pending, PsClient
from dlrover_nb.core.runtime.worker.synchronous_clients import BspClient, SspClient
from dlrover_nb.core.runtime.worker.trainer import Push, Refusal
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.wire.messages import Train

if TYPE_CHECKING:
    from typing import Self

    from dlrover_nb.core.runtime.exchange.push_pull import BellName

N_ID, N_DENSE = 5000, 1001
MODEL = ModelSpec(embedding_dim=4, hidden=(2,))
CLIENTS = {Sync.ASP: PsClient, Sync.GBA: GbaClient, Sync.BSP: BspClient, Sync.SSP: SspClient}


def n_open(bell: BellName) -> int:
    """Return how many descriptors of this process, in which other tests ran too, are of a bell's pipes."""
    pipes, found = {f"pipe:[{pipe.inode}]" for pipe in (bell.ask, bell.answers)}, 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the folder, and those of other threads
            found += str(descriptor.readlink()) in pipes
    return found


class Agent:
    """What `PsClient` needs of an agent: it waits, and lets the PS serve meanwhile."""

    def __init__(self, world: World) -> None:
        self._world, self._sockets = world, set[object]()

    def watch(self, socket: object) -> None:
        self._sockets.add(socket)

    def unwatch(self, socket: object) -> None:
        self._sockets.remove(socket)

    def wait(self, timeout_s: float) -> list[object]:
        poller = zmq.Poller()
        bells = [bell.ask for slabs in self._world.slabs for bell in slabs.bells.values()]
        for socket in (*self._sockets, *self._world.routers, *bells):
            poller.register(socket, zmq.POLLIN)
        ready = [socket for socket, _ in poller.poll(timeout_s * 1000)]
        for router, serving in zip(self._world.routers, self._world.servings, strict=True):
            if router in ready:
                serving.serve()
            serving.wait((), 0.0)
            serving.serve_rung()
        return [socket for socket in ready if socket in self._sockets]


class World:
    """PS and workers; without `shares` they use only frames. `kernel` names that of the PS; `fields` are of the job."""

    def __init__(
        self,
        folder: Path,
        n_ps: int,
        sync: Sync = Sync.ASP,
        *,
        shares: bool = True,
        model: ModelSpec = MODEL,
        kernel: str = "",
        **fields: object,
    ) -> None:
        self.model, self.kernel = model, kernel
        folder.mkdir(mode=0o700, exist_ok=True)
        self.shares = shares
        self.spec = JobSpec("law", model=model, sync=sync, **fields)
        self.context, self.keys, self.folder = zmq.Context(), new_keys(), folder
        self.owner, self.epoch, self.n_client = tuple(i % n_ps for i in range(N_BUCKET)), 1, 0
        self.servings: list[Serving] = []
        self.slabs: list[AttachedSlabs] = []
        self.routers: list[object] = []
        self.endpoints: list[str] = []
        self.clients: dict[str, PsClient] = {}
        for i in range(n_ps):
            self._start_ps(self._new_store(i, n_ps))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()
        for router, slabs in zip(self.routers, self.slabs, strict=True):
            router.close(linger=0)
            slabs.close()
        self.context.term()

    def _new_store(self, index: int, n_ps: int) -> ParameterStore:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(VARIABLE, self.kernel)
            return ParameterStore(self.model, N_ID, N_DENSE, index=index, n_ps=n_ps)

    def _start_ps(self, store: ParameterStore) -> None:
        path = self.folder / f"ps{len(self.routers)}"
        router, endpoint = bind_router(self.context, "ipc", path, self.keys)
        slabs = AttachedSlabs()
        serving = Serving(router, TimeAccounting(SystemClock()), path.name, self.spec, slabs)
        serving.open(store, self.epoch)
        self.servings.append(serving)
        self.slabs.append(slabs)
        self.routers.append(router)
        self.endpoints.append(endpoint)

    # what a test does

    @property
    def stores(self) -> list[ParameterStore]:
        return [serving.store for serving in self.servings if serving.store is not None]

    def client(self, worker: str) -> PsClient:
        if worker not in self.clients:
            self.n_client += 1
            kind = CLIENTS[self.spec.sync]
            make = kind if kind in (PsClient, GbaClient) else partial(kind, worker=worker)
            self.clients[worker] = client = make(
                self.context, keys=self.keys, identity=f"{worker}/1/{self.n_client}", agent=Agent(self),
                train=Train(self.epoch, tuple(self.endpoints), self.owner), dense_length=N_DENSE,
                pending=lambda: Pending.NONE, shares_memory=self.shares,
            )  # fmt: skip
            client.init_dense(np.linspace(-1, 1, N_DENSE, dtype=np.float32))
            client.begin()
        return self.clients[worker]

    def disconnect(self) -> None:
        for client in self.clients.values():
            client.close()
        self.clients = {}

    def batch(self, rng: np.random.Generator, n: int) -> PreparedBatch:
        ids = rng.choice(N_ID, n, replace=False)
        owner = np.array(self.owner)[ids % N_BUCKET]
        counts = np.bincount(owner, minlength=len(self.endpoints))
        none = np.empty(0, np.float32)
        rows = ids[np.argsort(owner, kind="stable")].astype(np.int64)
        return PreparedBatch(rows, (0, *np.cumsum(counts).tolist()), rows, none, none)

    def push(self, rng: np.random.Generator, n: int, *, skipped: bool = False, poison: float = 0.0) -> Push:
        batch = self.batch(rng, n)
        rows = rng.normal(size=(n, MODEL.row_width)).astype(np.float32)
        dense = rng.normal(size=N_DENSE).astype(np.float32)
        dense[0] += poison
        labels = replace(batch, labels=np.zeros(max(n, 1), np.float32))
        refusal = Refusal("of the test", np.zeros(n, np.bool_)) if skipped else None
        return Push(labels, rows, dense, 0.0, refusal, rate=float(rng.choice([0.5, 1.0])))

    def exchange(self, worker: str, push: Push | None, pull: PreparedBatch, repeats: int = 0) -> np.ndarray:
        """Return the rows and dense parameters of an exchange, whose request is sent so often again."""
        client, dense = self.client(worker), np.full(N_DENSE, np.nan, np.float32)
        client.start(push, pull)
        for _ in range(repeats):
            client._ask_again()
        rows = client.finish(dense)
        return np.concatenate([rows.ravel(), dense])

    def move(self, rng: np.random.Generator, n_ps: int, *, restarted: bool) -> None:
        """Let `n_ps` PS serve the same parameters by another layout: those of before, or new ones."""
        self.disconnect()
        for serving in self.servings:
            serving.settle()
        parts = [store.export() for store in self.stores]
        self.owner = (*range(n_ps), *rng.integers(0, n_ps, N_BUCKET - n_ps).tolist())
        self.epoch += 1
        stores = [self._new_store(i, n_ps) for i in range(n_ps)]
        for i, store in enumerate(stores):
            for part in parts:
                store.load(part, owned_buckets(self.owner, i))
        for serving in self.servings:
            serving.close()
        if restarted:
            self.endpoints = []
            for slabs in self.slabs:
                slabs.close()
            for store in stores:
                self._start_ps(store)
        else:
            self.endpoints = self.endpoints[:n_ps]
            for serving, store in zip(self.servings[-len(stores) :], stores, strict=True):
                serving.open(store, self.epoch)

    def parameters(self) -> list[np.ndarray]:
        """All of them, in the order of their ids."""
        parts = [store.export() for store in self.stores]
        ids = np.concatenate([part.ids for part in parts])
        table = np.concatenate([part.table for part in parts])
        order = np.argsort(ids)
        return [ids[order], table[order], np.concatenate([part.dense for part in parts], axis=1)]


@contextlib.contextmanager
def both(folder: Path, n_ps: int, sync: Sync = Sync.ASP):
    """Two worlds that differ in how arrays travel."""
    with (
        World(folder / "s", n_ps, sync) as shared,
        World(folder / "f", n_ps, sync, shares=False) as frames,
    ):
        yield shared, frames

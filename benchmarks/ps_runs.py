"""Our side of `ps_throughput.py`: PS processes, workers in the peers' training loop, the master's part."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import queue
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import plain_node
import ps_processes
import zmq

from dlrover_nb.core.master.own.servers.bucket_owners import assign_buckets
from dlrover_nb.core.models.matmul import fast_matmul
from dlrover_nb.core.runtime.exchange import ps_link
from dlrover_nb.core.runtime.exchange.sockets import JobKeys, new_keys
from dlrover_nb.core.runtime.kernels import kernel
from dlrover_nb.core.runtime.node.node import keep_freed
from dlrover_nb.core.runtime.store.batches import BucketLayout, PreparedBatch
from dlrover_nb.core.runtime.worker.ps_client import Pending, PsClient
from dlrover_nb.core.runtime.worker.trainer import Push
from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec, NumericColumn
from dlrover_nb.core.structs.job.exchange_spec import PLAIN, Encryption, ExchangeSpec
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.wire.messages import Train
from dlrover_nb.core.structs.wire.node_config import NodeConfig

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from dlrover_nb.core.structs.training.checkpoints import PartSource

NO_FLOATS = np.empty(0, np.float32)
MODELS = {"wide_deep": "wide_deep", "dcnv2": "dcn_v2", "xdeepfm": "xdeepfm"}  # the peers' names and ours


@dataclass(frozen=True)
class Run:
    """Settings of one measurement; `max_steps` None: for `seconds`, else only for the loss."""

    peers: str
    model: str
    n_worker: int
    n_ps: int
    seconds: float
    overlap: bool = False
    own_model: bool = False
    max_steps: int | None = None
    initial: tuple[PartSource, ...] = ()
    n_thread: int = 1
    carrier: str = "slab"  # or frames, tcp, tcp_trusted, tcp_plain, tcp_curve

    @property
    def bucket_owner(self) -> tuple[int, ...]:
        return assign_buckets((), self.n_ps)


class Access:
    """Our client with the interface of the peers' training loop: `start` and `finish`."""

    def __init__(self, client: PsClient, loop: Any) -> None:
        self._client, self._dense = client, NO_FLOATS
        flatten = loop.flatten_parameters

        def flattened(model: Any) -> tuple[Any, Any]:
            values, gradients = flatten(model)
            self._dense = values.numpy()  # answers go into the model's parameters at once, as in our trainer
            return values, gradients

        loop.flatten_parameters = flattened

    def start(self, push_rows: Any, row_gradient: Any, dense_gradient: Any, pull_rows: Any) -> None:
        push = None
        if push_rows is not None:
            push = Push(self._prepared(push_rows), row_gradient, dense_gradient, 0.0)
        self._client.start(push, self._prepared(pull_rows))

    def finish(self, _handle: None) -> tuple[Any, Any]:
        return self._client.finish(self._dense), self._dense

    def _prepared(self, rows: Any) -> PreparedBatch:
        """Return rows that are grouped by PS already."""
        layout = self._client.layout
        if layout.n_ps == 1:  # as `prepare_batch` does
            return PreparedBatch(rows, (0, len(rows)), rows, NO_FLOATS, NO_FLOATS)
        counts = np.bincount(layout.owner[rows % N_BUCKET], minlength=layout.n_ps)
        bounds = (0, *np.cumsum(counts).tolist())
        return PreparedBatch(np.ascontiguousarray(rows, np.int64), bounds, rows, NO_FLOATS, NO_FLOATS)


def group_by_ps(loop: Any, layout: BucketLayout) -> None:
    """Let the peers' loop find distinct rows as before, and then group them by PS."""
    unique_rows = loop.unique_rows

    def grouped(ids: Any) -> tuple[Any, Any]:
        rows, inverse = unique_rows(ids)
        return kernel().grouped(rows, inverse, layout.owner, layout.n_ps)[:2]

    loop.unique_rows = grouped


def worker(
    index: int, run: Run, servers: list[tuple[int, str]], keys: JobKeys, barrier: Any, done: Any
) -> None:
    if run.carrier == "tcp_plain":
        plain_node.unseal()
    if run.carrier == "tcp_curve":
        ps_link.is_between_hosts = lambda _endpoint: False  # so it asks for no session
    sys.path.insert(0, run.peers)
    from ctr import loop
    from ctr.data import NUM_BATCHES
    from ctr.models import build_model, flatten_parameters

    if run.own_model:
        take_own_model(run.model)

    keep_freed(Role.WORKER)  # as a node does
    values, _ = flatten_parameters(build_model(run.model))
    context = zmq.Context()
    client = PsClient(
        context,
        keys=keys,
        identity=f"worker-{index}",
        shares_memory=run.carrier == "slab",
        agent=ps_processes.Waiter(),  # type: ignore[arg-type]  # all of an agent that is used
        train=Train(ps_processes.FIRST_EPOCH, tuple(endpoint for _, endpoint in servers), run.bucket_owner),
        dense_length=values.numel(),
        pending=lambda: Pending.NONE,
    )
    client.init_dense(values.numpy())
    if run.n_ps > 1:
        group_by_ps(loop, client.layout)
    with fast_matmul():  # the same
        result = loop.train(
            Access(client, loop),
            run.model,
            run.seconds,
            threads=run.n_thread,
            first_batch=index * NUM_BATCHES // run.n_worker,
            pipelined=run.overlap,
            when_warm=barrier.wait,
            server_pids=[pid for pid, _ in servers] if index == 0 else (),
            max_steps=run.max_steps,
        )
    done.put(result)
    client.close()
    context.term()


def take_own_model(name: str) -> None:
    """Let the peers' loop train our module of the same model, as a job of ours does."""
    from ctr import models
    from ctr.data import NUM_DENSE, NUM_FIELDS

    from dlrover_nb.core.models.built_in import model_kind

    module, _, attribute = model_kind(MODELS[name]).module.partition(":")
    kind = getattr(importlib.import_module(module), attribute)
    models.MODELS[name] = lambda: kind(model_spec(name), NUM_FIELDS, NUM_DENSE)


def model_spec(name: str) -> ModelSpec:
    from ctr.hyperparameters import EMBEDDING_DIM, HIDDEN, INITIAL_SUM, LEARNING_RATE

    return ModelSpec(
        name=MODELS[name],
        embedding_dim=EMBEDDING_DIM,
        hidden=HIDDEN,
        learning_rate=LEARNING_RATE,
        initial_accumulator=INITIAL_SUM,
    )


def feature_spec() -> FeatureSpec:
    from ctr.data import FIELD_OFFSETS, FIELD_SIZES, NUM_DENSE

    fields = zip(FIELD_OFFSETS.tolist(), FIELD_SIZES.tolist(), strict=True)
    return FeatureSpec(
        label="label",
        numeric=tuple(NumericColumn(f"I{i}", 0, 1) for i in range(NUM_DENSE)),
        categorical=tuple(
            CategoricalColumn(f"C{i}", offset, size) for i, (offset, size) in enumerate(fields)
        ),
        n_train=1,
        n_eval=0,
    )


def server_config(index: int, run: Run, folder: Path, endpoint: str, keys: JobKeys) -> NodeConfig:
    exchange = ExchangeSpec(encryption=Encryption.NONE) if run.carrier == "tcp_trusted" else PLAIN
    model = model_spec(run.model)
    return NodeConfig(
        node=f"ps-{index}",
        role=Role.PS,
        spec=JobSpec(name="benchmark", model=model, heartbeat_timeout_s=600, exchange=exchange),
        features=feature_spec(),
        cpu=os.cpu_count() or 1,
        memory_mib=8192,
        master=endpoint,
        listen="tcp://127.0.0.1" if run.carrier.startswith("tcp") else "ipc",
        folder=str(folder),
        public_key=keys.public,
        secret_key=keys.secret,
    )


def servers(run: Run, keys: JobKeys) -> AbstractContextManager[list[tuple[int, str]]]:
    """Serve while the block runs: process ids and endpoints."""

    def config(index: int, folder: Path, endpoint: str) -> NodeConfig:
        return server_config(index, run, folder, endpoint, keys)

    program = (plain_node.__file__,) if run.carrier == "tcp_plain" else ps_processes.NODE
    group = ps_processes.Group(config, run.n_ps, run.bucket_owner, run.initial, program)
    return ps_processes.servers(group, keys)


def next_result(results: Any, workers: list[Any]) -> dict[str, Any]:
    """Wait for a worker's result, unless one of them failed."""
    while not any(process.exitcode for process in workers):
        with suppress(queue.Empty):
            return results.get(timeout=1)
    raise SystemExit("a worker failed: see above")


def ours(run: Run) -> dict[str, Any]:
    from ctr.clock import combine

    keys, spawn = new_keys(), multiprocessing.get_context("spawn")
    with servers(run, keys) as serving:
        barrier, done = spawn.Barrier(run.n_worker), spawn.Queue()
        workers = [
            spawn.Process(target=worker, args=(i, run, serving, keys, barrier, done), daemon=True)
            for i in range(run.n_worker)
        ]
        for process in workers:
            process.start()
        results = [next_result(done, workers) for _ in workers]
        for process in workers:
            process.join(30)
    return results[0] if run.max_steps is not None else combine(results)

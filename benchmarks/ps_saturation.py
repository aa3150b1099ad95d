"""How many exchanges a core of a parameter server serves, and how many workers that is.

A real PS serves real clients, each in a process of its own, with the batches of a Criteo-like job (512 rows
of 26 ids by Zipf's law, Wide & Deep: 150,000 dense parameters). A client sends the gradients of one batch,
asks for the rows of the next, and sleeps for the 10 ms that a worker elsewhere would compute. What counts is
the CPU time of the PS's process, which other processes hardly change: a PS is saturated when it takes a core.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import zmq
from ps_processes import FIRST_EPOCH, Group, Waiter, servers

from dlrover_nb.core.models.built_in import dense_parameter_count
from dlrover_nb.core.runtime.exchange.sockets import JobKeys, new_keys
from dlrover_nb.core.runtime.kernels import kernel
from dlrover_nb.core.runtime.node.node import keep_freed
from dlrover_nb.core.runtime.store.batches import PreparedBatch
from dlrover_nb.core.runtime.worker.ps_client import Pending, PsClient
from dlrover_nb.core.runtime.worker.trainer import Push
from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec, NumericColumn
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.wire.messages import Train
from dlrover_nb.core.structs.wire.node_config import NodeConfig

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

STEP_S = 0.010
N_FIELD, N_NUMBER, BATCH, FIELD_SIZE = 26, 13, 512, 400_000
N_BATCH, N_WARM, NEW_ROWS = (
    40,
    45,
    100,
)  # of a client; before it measures; of a batch
ZIPF = 1.15
MODEL = ModelSpec(embedding_dim=16, hidden=(256, 128, 64))
N_DENSE = dense_parameter_count(MODEL, N_FIELD, N_NUMBER)
SHORT_S, LONG_S = 1.5, 4.0  # of one measurement
CARRIERS = ("slab", "messages", "tcp")
NONE = np.empty(0, np.float32)


@dataclass(frozen=True)
class Load:
    """So many workers of a PS, their carrier, and what they wait between exchanges.

    `new`: each batch has rows that nobody trained.
    """

    carrier: str
    n_worker: int
    new: bool = False
    n_core: int = 1  # of the PS
    pause_s: float = STEP_S
    seconds: float = LONG_S


def config_of(index: int, folder: Path, endpoint: str, keys: JobKeys, load: Load) -> NodeConfig:
    features = FeatureSpec(
        label="label",
        numeric=tuple(NumericColumn(f"I{i}", 0, 1) for i in range(N_NUMBER)),
        categorical=tuple(CategoricalColumn(f"C{i}", i * FIELD_SIZE, FIELD_SIZE) for i in range(N_FIELD)),
        n_train=1,
        n_eval=0,
    )
    return NodeConfig(
        node=f"ps-{index}",
        role=Role.PS,
        spec=JobSpec(name="benchmark", model=MODEL, heartbeat_timeout_s=600),
        features=features,
        cpu=load.n_core,
        memory_mib=8192,
        master=endpoint,
        listen="tcp://127.0.0.1" if load.carrier == "tcp" else "ipc",
        folder=str(folder),
        public_key=keys.public,
        secret_key=keys.secret,
    )


def batches(rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return the distinct rows of each batch of one client."""
    fields = np.arange(N_FIELD) * FIELD_SIZE
    ranks = rng.zipf(ZIPF, size=(N_BATCH, BATCH, N_FIELD)).astype(np.uint64)
    ids = (ranks * np.uint64(2_654_435_761) % np.uint64(FIELD_SIZE)).astype(np.int64) + fields
    return [kernel().distinct(batch.ravel())[0] for batch in ids]


def with_new(rows: NDArray[np.int64], step: int, index: int, n_worker: int) -> NDArray[np.int64]:
    """Return rows of which some are new: the table is walked through once, by all workers together."""
    first = NEW_ROWS * (step * n_worker + index) % (N_FIELD * FIELD_SIZE - NEW_ROWS)
    return kernel().distinct(np.concatenate([rows[NEW_ROWS:], np.arange(first, first + NEW_ROWS)]))[0]


def prepared(rows: NDArray[np.int64]) -> PreparedBatch:
    return PreparedBatch(rows, (0, len(rows)), rows, NONE, NONE)


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, also of its threads that ended."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def client(
    index: int, load: Load, serving: tuple[int, str], keys: JobKeys, barrier: Any, results: Any
) -> None:
    """Exchange, and report exchanges, seconds, and CPU seconds of the PS and of this process."""
    keep_freed(Role.WORKER)
    pid, endpoint = serving
    rng, context = np.random.default_rng(index), zmq.Context()
    link = PsClient(
        context,
        keys=keys,
        identity=f"worker-{index}",
        shares_memory=load.carrier == "slab",
        agent=Waiter(),  # type: ignore[arg-type]  # all of an agent that is used
        train=Train(FIRST_EPOCH, (endpoint,), (0,) * N_BUCKET),
        dense_length=N_DENSE,
        pending=lambda: Pending.NONE,
    )
    link.init_dense(np.zeros(N_DENSE, np.float32))
    rows, dense = batches(rng), np.empty(N_DENSE, np.float32)
    gradients = (rng.standard_normal((2 * max(map(len, rows)), MODEL.row_width)) * 1e-3).astype(np.float32)
    dense_gradient = (rng.standard_normal(N_DENSE) * 1e-3).astype(np.float32)
    last: PreparedBatch | None = None

    def exchange(step: int) -> None:
        nonlocal last
        mine = rows[step % N_BATCH]
        following = prepared(with_new(mine, step, index, load.n_worker) if load.new else mine)
        push = None if last is None else Push(last, gradients[: len(last.rows)], dense_gradient, 0.0)
        link.start(push, following)
        link.finish(dense)
        last = following

    for step in range(N_WARM):
        exchange(step)
    barrier.wait()
    began_s, own_s, ps_s, n = time.perf_counter(), time.process_time(), cpu_s(pid), 0
    while time.perf_counter() - began_s < load.seconds:
        exchange(N_WARM + n)
        n += 1
        time.sleep(load.pause_s)  # what a worker computes between exchanges
    took_s = time.perf_counter() - began_s
    results.put((n, took_s, cpu_s(pid) - ps_s, time.process_time() - own_s))
    barrier.wait()
    link.close()
    context.term()


def measure(load: Load) -> dict[str, float]:
    """Return CPU milliseconds of an exchange, on the PS and on a worker, and the PS's share of a core."""
    keys, spawn = new_keys(), multiprocessing.get_context("spawn")

    def config(index: int, folder: Path, endpoint: str) -> NodeConfig:
        return config_of(index, folder, endpoint, keys, load)

    with servers(Group(config, 1, (0,) * N_BUCKET), keys) as (serving,):
        barrier, results = spawn.Barrier(load.n_worker), spawn.Queue()
        clients = [
            spawn.Process(target=client, args=(i, load, serving, keys, barrier, results), daemon=True)
            for i in range(load.n_worker)
        ]
        for process in clients:
            process.start()
        found = [results.get(timeout=120) for _ in clients]
        for process in clients:
            process.join(30)
    n = sum(each[0] for each in found)
    ps_s, took_s = max(each[2] for each in found), max(each[1] for each in found)
    return {
        "exchanges_per_s": round(n / took_s),
        "ps_cores": round(ps_s / took_s, 3),
        "ps_cpu_ms": round(1e3 * ps_s / n, 3),
        "worker_cpu_ms": round(1e3 * sum(each[3] for each in found) / n, 3),
    }


def saturation(n_worker: int, rounds: int, *, whole: bool = False) -> dict[str, Any]:
    """Return, for each carrier, medians of runs that take turns, and what follows for one core of a PS.

    `whole`: also with frames, with new rows, without pauses, and each for longer.
    """
    seconds = LONG_S if whole else SHORT_S
    carriers = CARRIERS if whole else ("slab", "tcp")
    loads = {carrier: Load(carrier, n_worker, seconds=seconds) for carrier in carriers}
    if whole:
        loads["slab_new_rows"] = Load("slab", n_worker, new=True, seconds=seconds)
        for n_core in (1, 2):
            full = Load("slab", n_worker, n_core=n_core, pause_s=0.0, seconds=seconds)
            loads[f"slab_full_{n_core}_threads"] = full
    runs = [{name: measure(load) for name, load in loads.items()} for _ in range(rounds)]
    found = {}
    for name in loads:
        medians = {key: statistics.median(run[name][key] for run in runs) for key in runs[0][name]}
        per_core_s = 1e3 / medians["ps_cpu_ms"]
        found[name] = {
            **medians,
            "exchanges_per_ps_core_s": round(per_core_s),
            "workers_until_saturation": round(per_core_s * STEP_S, 1),
        }
    most = {f"workers_{name}": found[name]["workers_until_saturation"] for name in ("slab", "tcp")}
    return {"clients": n_worker, "cores": os.cpu_count(), **most, "saturation": found}

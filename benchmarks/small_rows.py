"""What an exchange between hosts costs, of few small rows, which are messages, and of many, which are bytes.

One client and real PS exchange rows over TCP: in sealed sessions (`sealed`), in such with each array in a
frame of its own (`apart`), in such that are authenticated only (`authenticated`: on a trusted network), and
in such that are neither (`plain`, which no job does). All take turns. Each cell is CPU milliseconds of both
ends for one exchange, the median and the least of the turns; ratios are medians of those within a turn.

    python benchmarks/small_rows.py [--shapes few large --rounds 9]
"""

from __future__ import annotations

import argparse
import os
import statistics
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import plain_node
import ps_processes
import zmq
from lengths import parsed, print_figures

from dlrover_nb.core.master.own.servers.bucket_owners import assign_buckets
from dlrover_nb.core.models.built_in import dense_parameter_count
from dlrover_nb.core.runtime.exchange import sealed, wire
from dlrover_nb.core.runtime.exchange.sockets import JobKeys, new_keys
from dlrover_nb.core.runtime.node.node import keep_freed
from dlrover_nb.core.runtime.store.batches import PreparedBatch
from dlrover_nb.core.runtime.worker.ps_client import Pending, PsClient
from dlrover_nb.core.runtime.worker.trainer import Push
from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec, NumericColumn
from dlrover_nb.core.structs.job.exchange_spec import Encryption, ExchangeSpec
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.wire.messages import Train
from dlrover_nb.core.structs.wire.node_config import NodeConfig

NO_FLOATS = np.empty(0, np.float32)
N_ID, N_NUMERIC, N_CATEGORICAL = 100_000, 13, 26
NUMERIC = tuple(NumericColumn(f"I{i}", 0, 1) for i in range(N_NUMERIC))
CATEGORICAL = tuple(
    CategoricalColumn(f"C{i}", i * (N_ID // N_CATEGORICAL), N_ID // N_CATEGORICAL)
    for i in range(N_CATEGORICAL)
)
N_WARM = 50
APART = """
import sys
from dlrover_nb.core.runtime.exchange import wire
from dlrover_nb.core.runtime.node.node import main
wire.INLINE_BYTES = -1
sys.exit(main(sys.argv[1:]))
"""
PROGRAMS = {
    "sealed": ps_processes.NODE,
    "apart": ("-c", APART),
    "authenticated": ps_processes.NODE,
    "plain": (plain_node.__file__,),
}


@dataclass(frozen=True)
class Shape:
    """Rows of one exchange, the model that they are of, and to how many PS they go."""

    n_row: int
    dim: int
    hidden: tuple[int, ...]
    n_ps: int = 1

    @property
    def model(self) -> ModelSpec:
        return ModelSpec(embedding_dim=self.dim, hidden=self.hidden, hash_size=N_ID // N_CATEGORICAL)

    @property
    def n_dense(self) -> int:
        return dense_parameter_count(self.model, N_CATEGORICAL, N_NUMERIC)


SHAPES = {
    "few": Shape(300, 4, (4,)),
    "few_2_ps": Shape(300, 4, (4,), 2),
    "some": Shape(600, 8, (16,)),
    "large": Shape(6000, 16, (256, 128)),
}


def batch_of(shape: Shape) -> PreparedBatch:
    """Return rows that are grouped by PS."""
    rows = (
        np.random.default_rng(0).choice(CATEGORICAL[-1].offset, shape.n_row, replace=False).astype(np.int64)
    )
    owner = np.asarray(assign_buckets((), shape.n_ps))[rows % N_BUCKET]
    bounds = (0, *np.cumsum(np.bincount(owner, minlength=shape.n_ps)).tolist())
    return PreparedBatch(rows[np.argsort(owner, kind="stable")], bounds, rows, NO_FLOATS, NO_FLOATS)


class World:
    """A client and its PS, of one shape and one kind of messages."""

    def __init__(self, shape: Shape, kind: str, held: ExitStack) -> None:
        self._inline_bytes = -1 if kind == "apart" else wire.INLINE_BYTES
        keys, owner = new_keys(), assign_buckets((), shape.n_ps)

        def config(index: int, folder: Path, endpoint: str) -> NodeConfig:
            return server_config(shape, kind, f"ps-{index}", folder, endpoint, keys)

        group = ps_processes.Group(config, shape.n_ps, owner, (), PROGRAMS[kind])
        serving = held.enter_context(ps_processes.servers(group, keys))
        self._client = PsClient(
            held.enter_context(zmq.Context()),
            keys=keys,
            identity="worker-0",
            agent=ps_processes.Waiter(),  # type: ignore[arg-type]  # all of an agent that is used
            train=Train(ps_processes.FIRST_EPOCH, tuple(endpoint for _, endpoint in serving), owner),
            dense_length=shape.n_dense,
            pending=lambda: Pending.NONE,
        )
        held.callback(self._client.close)
        self._pids = [*(pid for pid, _ in serving), os.getpid()]
        self._batch, self._dense = batch_of(shape), np.zeros(shape.n_dense, np.float32)
        self._client.init_dense(self._dense)
        self._client.start(None, self._batch)
        rows = self._client.finish(self._dense)
        self._push = Push(self._batch, np.full_like(rows, 1e-6), np.full_like(self._dense, 1e-6), 0.0)
        for _ in range(N_WARM):
            self._exchange()
        if "CURVE" in self._client.carrier:
            raise SystemExit(f"the session is not open: {self._client.carrier}")

    def _exchange(self) -> None:
        self._client.start(self._push, self._batch)
        self._client.finish(self._dense)

    def cpu_ms(self, n: int) -> float:
        """Return the CPU time of one of `n` exchanges."""
        wire.INLINE_BYTES = self._inline_bytes
        before_ms = self._cpu_ms()
        for _ in range(n):
            self._exchange()
        return (self._cpu_ms() - before_ms) / n

    def _cpu_ms(self) -> float:
        """Return the CPU time of all threads so far, by the kernel's exact account of it."""
        tasks = (task for pid in self._pids for task in Path(f"/proc/{pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def server_config(
    shape: Shape, kind: str, node: str, folder: Path, endpoint: str, keys: JobKeys
) -> NodeConfig:
    encryption = Encryption.NONE if kind == "authenticated" else Encryption.AES_GCM
    spec = JobSpec("small-rows", model=shape.model, heartbeat_timeout_s=600)
    return NodeConfig(
        node=node,
        role=Role.PS,
        spec=replace(spec, exchange=ExchangeSpec(encryption=encryption)),
        features=FeatureSpec("label", NUMERIC, CATEGORICAL, n_train=1, n_eval=0),
        cpu=os.cpu_count() or 1,
        memory_mib=4096,
        master=endpoint,
        listen="tcp://127.0.0.1",
        folder=str(folder),
        public_key=keys.public,
        secret_key=keys.secret,
    )


def opened(shape: Shape, kind: str, held: ExitStack) -> World:
    """Return a world; one of plain messages has another kind of seals while its sessions open."""
    seals = sealed.SEALS
    if kind == "plain":
        plain_node.unseal()
    try:
        return World(shape, kind, held)
    finally:
        sealed.SEALS = seals


def measure(shape: Shape, rounds: int, n: int) -> dict[str, Any]:
    with ExitStack() as held:
        worlds = {kind: opened(shape, kind, held) for kind in PROGRAMS}
        turns = [{kind: world.cpu_ms(n) for kind, world in worlds.items()} for _ in range(rounds)]
    found: dict[str, Any] = {
        f"{kind}_cpu_ms": round(statistics.median(turn[kind] for turn in turns), 3) for kind in PROGRAMS
    }
    ratios = {kind: statistics.median(turn["plain"] / turn[kind] for turn in turns) for kind in PROGRAMS}
    found |= {f"{kind}_least_cpu_ms": round(min(turn[kind] for turn in turns), 3) for kind in PROGRAMS}
    found["sealed_over_apart"] = round(statistics.median(t["sealed"] / t["apart"] for t in turns), 3)
    return found | {f"plain_over_{kind}": round(ratios[kind], 3) for kind in ("sealed", "authenticated")}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--exchanges", type=int, default=100, help="of each in a turn")
    options = parsed(parser, rounds=9)
    keep_freed(Role.WORKER)
    figures: dict[str, float] = {"rounds": options.rounds}
    for name in options.shapes:
        run = measure(SHAPES[name], options.rounds, options.exchanges)
        print(f"{name}: {run}", flush=True)
        figures |= {f"{name}_{key}": value for key, value in run.items()}
    print_figures("small_rows", figures)


if __name__ == "__main__":
    main()

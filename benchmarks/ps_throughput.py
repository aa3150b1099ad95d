"""Samples per second of 2 workers + 1 parameter server beside one process without any communication.

Both train the same Wide&Deep on the same synthetic, Criteo-like batches, in turns within one run; ours is
measured by the peers' own training loop, which talks to our parameter server through our wire. No CPU limits,
gradients of a step always arrive before the rows of the next are read, numpy kernel on both sides. Needs the
peers' scripts (`--peers DIR`), which are no part of this repository.

    python benchmarks/ps_throughput.py --peers ../shared/peers [--rounds 3 --seconds 12 --workers 2]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import zmq

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.runtime.batches import Prepared
from dlrover_nb.core.runtime.line import PsLine
from dlrover_nb.core.runtime.store import even_bucket_owner
from dlrover_nb.core.runtime.trainer import Push
from dlrover_nb.core.runtime.wire import JobKeys, bind_router, decode, encode, new_keys
from dlrover_nb.core.structs.job import CategoricalColumn, FeatureSpec, JobSpec, NumericColumn
from dlrover_nb.core.structs.messages import Hello, Load, Loaded, NodeConfig, Stop, Train
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_FLOATS = np.empty(0, np.float32)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=Path, default=Path("../shared/peers"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--workers", type=int, default=2)
    return parser.parse_args()


class Waiter:
    """What a `PsLine` asks of an agent: wait for answers."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()

    def watch(self, socket: Any) -> None:
        self._poller.register(socket, zmq.POLLIN)

    def unwatch(self, socket: Any) -> None:
        self._poller.unregister(socket)

    def wait(self, timeout_s: float) -> list[Any]:
        return [socket for socket, _ in self._poller.poll(timeout_s * 1e3)]


class Access:
    """Our line, as the peers' training loop wants it: `start` and `finish`."""

    def __init__(self, line: PsLine, dense_size: int) -> None:
        self._line, self._dense = line, np.empty(dense_size, np.float32)

    def start(self, push_rows: Any, row_gradient: Any, dense_gradient: Any, pull_rows: Any) -> None:
        push = None if push_rows is None else Push(_prepared(push_rows), row_gradient, dense_gradient, 0.0)
        self._line.start(push, _prepared(pull_rows))

    def finish(self, _handle: None) -> tuple[Any, Any]:
        return self._line.finish(self._dense), self._dense


def _prepared(rows: Any) -> Prepared:
    rows = np.ascontiguousarray(rows, np.int64)
    return Prepared(rows, (0, len(rows)), rows, NO_FLOATS, NO_FLOATS)


def worker(
    index: int, n_worker: int, endpoint: str, keys: JobKeys, options: Any, barrier: Any, queue: Any
) -> None:
    sys.path.insert(0, str(options.peers))
    from ctr.data import NUM_BATCHES
    from ctr.loop import train
    from ctr.models import build_model, flatten_parameters

    values, _ = flatten_parameters(build_model("wide_deep"))
    order = Train(0, (endpoint,), even_bucket_owner(1))
    context = zmq.Context()
    line = PsLine(
        context,
        keys=keys,
        identity=f"worker-{index}",
        agent=Waiter(),  # type: ignore[arg-type]
        train=order,
        dense_length=values.numel(),
        patience_s=lambda: float("inf"),
    )
    line.init_dense(values.numpy())
    result = train(
        Access(line, values.numel()),
        "wide_deep",
        options.seconds,
        first_batch=index * NUM_BATCHES // n_worker,
        when_warm=barrier.wait,
        server_pids=(options.server_pid,) if index == 0 else (),
    )
    queue.put(result)
    line.close()
    context.term()


def server_config(folder: Path, endpoint: str, keys: JobKeys, sizes: list[int]) -> NodeConfig:
    offsets = [0, *np.cumsum(sizes)[:-1].tolist()]
    columns = [CategoricalColumn(f"C{i}", offsets[i], size) for i, size in enumerate(sizes)]
    features = FeatureSpec(
        label="label",
        numeric=tuple(NumericColumn(f"I{i}", 0, 1) for i in range(13)),
        categorical=tuple(columns),
        n_train=1,
        n_eval=0,
    )
    return NodeConfig(
        node="ps-0",
        role=Role.PS,
        spec=JobSpec(name="benchmark", heartbeat_timeout_s=600),
        features=features,
        cpu=os.cpu_count() or 1,
        memory_mib=8192,
        master=endpoint,
        listen="ipc",
        folder=str(folder),
        public_key=keys.public,
        secret_key=keys.secret,
    )


def messages(router: Any) -> Iterator[tuple[bytes, Any]]:
    while True:
        sender, *frames = router.recv_multipart(copy=False)
        yield sender.bytes, decode(frames)[0]


def start_server(
    folder: Path, router: Any, endpoint: str, keys: JobKeys, sizes: list[int]
) -> tuple[Any, str]:
    """Start a PS that owns everything; return its process and endpoint."""
    file = folder / "ps-0.json"
    file.write_bytes(to_json(server_config(folder, endpoint, keys, sizes)))
    process = subprocess.Popen([sys.executable, "-m", "dlrover_nb.core.runtime.node", str(file)])
    at = ""
    for sender, message in messages(router):
        if isinstance(message, Hello):
            at = message.endpoint
            router.send_multipart([sender, *encode(Load(0, 0, 1, even_bucket_owner(1), ()))])
        elif isinstance(message, Loaded):
            return process, at
    raise AssertionError


def ours(options: argparse.Namespace) -> dict[str, float]:
    sys.path.insert(0, str(options.peers))
    from ctr.clock import combine
    from ctr.data import FIELD_SIZES

    keys, context = new_keys(), zmq.Context()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="dlb") as name:
        folder = Path(name)
        router, endpoint = bind_router(context, "ipc", folder / "master", keys)
        server, at = start_server(folder, router, endpoint, keys, FIELD_SIZES.tolist())
        options.server_pid = server.pid
        try:
            barrier, queue = spawn.Barrier(options.workers), spawn.Queue()
            workers = [
                spawn.Process(target=worker, args=(i, options.workers, at, keys, options, barrier, queue))
                for i in range(options.workers)
            ]
            for process in workers:
                process.start()
            results = [queue.get(timeout=options.seconds + 120) for _ in workers]
            for process in workers:
                process.join(30)
            router.send_multipart([b"ps-0", *encode(Stop())])
            server.wait(30)
        finally:
            server.kill()
            server.wait()
            router.close()
            context.term()
    return combine(results)


def single(options: argparse.Namespace) -> dict[str, float]:
    script = options.peers / "ctr" / "single.py"
    command = [sys.executable, str(script), "--seconds", str(options.seconds), "--update", "numpy"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    options = arguments()
    options.peers = options.peers.resolve()
    rounds = []
    print("round        ours  CPU ms/step      single  CPU ms/step   ratio")
    for number in range(options.rounds):
        alone, together = single(options), ours(options)
        ratio = together["samples_s"] / alone["samples_s"]
        rounds.append((together, alone, ratio))
        print(
            f"{number + 1:5} {together['samples_s']:>11,} {together['cpu_ms_per_step']:>12} "
            f"{alone['samples_s']:>11,} {alone['cpu_ms_per_step']:>12} {ratio:>7.2f}"
        )
    median = statistics.median
    print(
        json.dumps(
            {
                "benchmark": "ps_throughput",
                "workers": options.workers,
                "ps": 1,
                "samples_per_s": median(r[0]["samples_s"] for r in rounds),
                "cpu_ms_per_step": median(r[0]["cpu_ms_per_step"] for r in rounds),
                "single_samples_per_s": median(r[1]["samples_s"] for r in rounds),
                "single_cpu_ms_per_step": median(r[1]["cpu_ms_per_step"] for r in rounds),
                "over_single": round(median(r[2] for r in rounds), 3),
            }
        )
    )


if __name__ == "__main__":
    main()

"""Samples per second of a parameter server by torch's own RPC: what torch offers for it.

A PS process owns the peers' parameter store and its kernel; each of n workers runs their training loop, and
sends the gradients of a batch and requests the rows of the next in one call (`torch.distributed.rpc`,
TensorPipe). Products are MKL's, as torch's packages have them. For `ps_throughput.py`; prints one JSON line.

TensorPipe and the rendezvous of processes use a file and the loopback device.

    python torch_rpc.py --peers DIR --workers 2
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TP_SOCKET_IFNAME"] = "lo"

import torch
from torch.distributed import rpc

PS = "ps"
_served: dict[str, Any] = {}  # in the PS: its store


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=Path, default=Path("../shared/peers"))
    parser.add_argument("--model", default="wide_deep")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--kernel", default="c", choices=("numpy", "c"))
    return parser.parse_args()


def exchange(
    push_rows: torch.Tensor | None, row_gradient: Any, dense_gradient: Any, pull_rows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """In the PS: one step; its threads take turns, as the store has no locks."""
    pushed = [None if each is None else each.numpy() for each in (push_rows, row_gradient, dense_gradient)]
    with _served["lock"]:
        rows, dense = _served["store"].push_pull(*pushed, pull_rows.numpy())
        return torch.from_numpy(rows), torch.from_numpy(dense.copy())


class Access:
    """The interface of the peers' training loop."""

    def start(self, *request: Any) -> Any:
        tensors = [None if each is None else torch.from_numpy(each) for each in request]
        return rpc.rpc_async(PS, exchange, args=tuple(tensors))

    def finish(self, future: Any) -> Any:
        return tuple(each.numpy() for each in future.wait())


def options(path: str) -> rpc.TensorPipeRpcBackendOptions:
    return rpc.TensorPipeRpcBackendOptions(init_method=f"file://{path}", rpc_timeout=600)


def serve(path: str, peers: str, model: str, kernel: str, n_worker: int) -> None:
    sys.path.insert(0, peers)
    from ctr.models import build_model, flatten_parameters
    from ctr.store import ParameterStore

    values, _ = flatten_parameters(build_model(model))
    _served.update(store=ParameterStore.create(values.numpy(), kernel), lock=threading.Lock())
    rpc.init_rpc(PS, rank=0, world_size=n_worker + 1, rpc_backend_options=options(path))
    rpc.shutdown()  # waits for the workers


def work(index: int, path: str, args: argparse.Namespace, server: int, barrier: Any, done: Any) -> None:
    sys.path.insert(0, str(args.peers))
    from ctr import loop
    from ctr.data import NUM_BATCHES

    rpc.init_rpc(
        f"worker-{index}", rank=index + 1, world_size=args.workers + 1, rpc_backend_options=options(path)
    )
    result = loop.train(
        Access(),
        args.model,
        args.seconds,
        first_batch=index * NUM_BATCHES // args.workers,
        when_warm=barrier.wait,
        server_pids=(server,) if index == 0 else (),
    )
    done.put(result)
    rpc.shutdown()


def next_result(results: Any, processes: list[Any]) -> dict[str, Any]:
    while not any(process.exitcode for process in processes):
        with suppress(queue.Empty):
            return results.get(timeout=1)
    raise SystemExit("a process failed: see above")


def main() -> None:
    args = arguments()
    args.peers = args.peers.resolve()
    sys.path.insert(0, str(args.peers))
    from ctr.clock import combine
    from ctr.loopback import isolate

    if not isolate():
        raise SystemExit("cannot make a network namespace with loopback only; run this as root")
    spawn = multiprocessing.get_context("spawn")
    barrier, done = spawn.Barrier(args.workers), spawn.Queue()
    with tempfile.TemporaryDirectory(prefix="dlb") as folder:
        path = str(Path(folder) / "rendezvous")
        server = spawn.Process(
            target=serve, args=(path, str(args.peers), args.model, args.kernel, args.workers), daemon=True
        )
        server.start()
        processes = [
            spawn.Process(target=work, args=(i, path, args, server.pid, barrier, done), daemon=True)
            for i in range(args.workers)
        ]
        for process in processes:
            process.start()
        results = [next_result(done, [server, *processes]) for _ in processes]
        for process in [*processes, server]:
            process.join(30)
    print(
        json.dumps({"script": "torch_rpc", "model": args.model, "workers": args.workers, **combine(results)})
    )


if __name__ == "__main__":
    main()

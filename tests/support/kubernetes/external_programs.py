"""Programs of users for the tests of external jobs: they really train, with nothing of this package in them."""

from __future__ import annotations

import sys

# A parameter server and its workers, which meet as TF_CONFIG says; no TensorFlow is needed for that. Each server holds a
# part of the weights of a linear regression; a worker pulls all parts and pushes its gradient to each.
TF_PROGRAM = """
import json, os, threading, time
from multiprocessing.connection import Client, Listener
import numpy as np

config = json.loads(os.environ["TF_CONFIG"])
cluster, task = config["cluster"], config["task"]
own = cluster[task["type"]][task["index"]]
truth = np.linspace(-1, 1, 12)
places = np.array_split(np.arange(12), len(cluster["ps"]))

def serve():
    weights = np.zeros(len(places[task["index"]]))
    def answer(line):
        with line:
            try:
                while True:
                    gradient = line.recv()
                    if gradient is not None:
                        weights[:] -= 0.05 * gradient
                    line.send(weights)
            except EOFError:
                pass
    listener = Listener(("0.0.0.0", int(own.rpartition(":")[2])))
    while True:
        threading.Thread(target=answer, args=(listener.accept(),), daemon=True).start()

def connect(where):
    host, _, port = where.rpartition(":")
    for _ in range(600):
        try:
            return Client((host, int(port)))
        except OSError:
            time.sleep(0.2)
    raise SystemExit("no server at " + where)

def train():
    servers = [connect(where) for where in cluster["ps"]]
    rng = np.random.default_rng(["chief", "worker"].index(task["type"]) * 100 + task["index"])
    gradients = [None] * len(servers)
    for step in range(400):
        for server, gradient in zip(servers, gradients):
            server.send(gradient)
        weights = np.concatenate([server.recv() for server in servers])
        rows = rng.normal(size=(32, 12))
        error = rows @ (weights - truth)
        gradient = rows.T @ error / len(rows)
        gradients = [gradient[place] for place in places]
        if step % 20 == 0:
            print("step %d loss %.6f" % (step, np.mean(error ** 2)), flush=True)
    n_worker = len(cluster.get("worker", ())) + len(cluster.get("chief", ()))
    print("last loss %.6f of %d workers" % (np.mean(error ** 2), n_worker), flush=True)

serve() if task["type"] == "ps" else train()
"""

# A linear regression whose gradient is the mean over all processes.
TORCH_PROGRAM = """
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
generator = torch.Generator().manual_seed(rank)
truth, weights = torch.linspace(-1, 1, 12), torch.zeros(12)
for step in range(200):
    rows = torch.randn(32, 12, generator=generator)
    error = rows @ (weights - truth)
    gradient = rows.T @ error / len(rows)
    dist.all_reduce(gradient)
    weights -= 0.1 * gradient / size
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {(error ** 2).mean().item():.6f}", flush=True)
if rank == 0:
    print(f"last loss {(error ** 2).mean().item():.6f} of {size} workers", flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def tensorflow(**more: object) -> dict[str, object]:
    """Return the ``external`` group of a job file for servers and workers that read TF_CONFIG."""
    role = {"command": [sys.executable, "-c", TF_PROGRAM]}
    return {"framework": "tensorflow", "n_sample": 12_800, "worker": role, "ps": role, **more}


def torch(*, launcher: bool = False, **more: object) -> dict[str, object]:
    """Return the same for torch; by `launcher` torchrun starts the program."""
    words = [sys.executable, "-m", "torch.distributed.run", "--no-python"] if launcher else []
    role = {"command": [*words, sys.executable, "-c", TORCH_PROGRAM]}
    return {"framework": "torch", "n_sample": 12_800, "worker": role, **more}


def losses(text: str) -> tuple[float, float, int]:
    """Return the first and the last loss in a program's log, and the number of workers."""
    first = text.partition("step 0 loss ")[2].split()
    last = text.partition("last loss ")[2].split()
    return float(first[0]), float(last[0]), int(last[2])

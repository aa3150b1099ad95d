"""A program of somebody else, which trains a small model by the services of its job's master, or alone.

It runs in torch and in TensorFlow with nothing of this package but the client. Its state are its weights and
how often each row was in a step of these: so a checkpoint that is loaded again says which rows it has seen.

    python external_train.py torch OUT --rows 40000 --save-every 50
"""

from __future__ import annotations

import argparse
import io
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np

from dlrover_nb import client

if TYPE_CHECKING:
    from collections.abc import Callable

Array: TypeAlias = "np.ndarray[Any, Any]"
Model: TypeAlias = (
    "tuple[Callable[[Array, Array], float], Callable[[], list[Array]], Callable[[list[Array]], None]]"
)

N_FEATURE = 64
BATCH = 256
WARM_UP = 20  # batches that are not measured


def torch_step() -> Model:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(N_FEATURE, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1), torch.nn.Flatten(0)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    def step(x: Array, y: Array) -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        return float(loss)

    def weights() -> list[Array]:
        return [p.detach().numpy() for p in model.parameters()]

    def load(arrays: list[Array]) -> None:
        with torch.no_grad():
            for p, array in zip(model.parameters(), arrays, strict=True):
                p.copy_(torch.from_numpy(array))

    return step, weights, load


def tensorflow_step() -> Model:
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential(
        [tf.keras.Input((N_FEATURE,)), tf.keras.layers.Dense(128, "relu"), tf.keras.layers.Dense(1)]
    )
    optimizer = tf.keras.optimizers.SGD(0.05)

    @tf.function(reduce_retracing=True)
    def run(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x)[:, 0] - y) ** 2)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    return lambda x, y: float(run(x, y)), model.get_weights, model.set_weights


def packed(weights: list[Array], seen: Array) -> bytes:
    out = io.BytesIO()
    np.savez(out, seen=seen, **{f"w{i}": array for i, array in enumerate(weights)})
    return out.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("framework", choices=("torch", "tensorflow"))
    parser.add_argument("out", type=Path, help="folder of its checkpoints and its results")
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--save-every", type=int, default=0, help="batches between two checkpoints; 0: none")
    parser.add_argument("--slow-s", type=float, default=0.0, help="pause after each batch, so that kills hit")
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    features = rng.standard_normal((args.rows, N_FEATURE), np.float32)
    labels = features[:, :8].sum(axis=1)
    step, weights, load = torch_step() if args.framework == "torch" else tensorflow_step()
    seen, n_batch, folder = np.zeros(args.rows, np.int32), 0, str(args.out / "checkpoints")
    found = client.checkpoint.load(folder=folder) if args.save_every else None
    if found is not None:
        with np.load(io.BytesIO(found.state)) as arrays:
            seen, n_batch = arrays["seen"].copy(), found.step
            load([arrays[f"w{i}"] for i in range(len(arrays) - 1)])
    loss, n_run, began_s, began_cpu_s = 0.0, 0, 0.0, 0.0
    for shard in client.shards(args.rows):
        for rows in shard.batches(BATCH):
            loss = step(features[rows], labels[rows])
            seen[rows] += 1
            n_batch += 1
            n_run += 1
            shard.done(len(rows))
            client.report(len(rows), loss)
            if args.save_every and n_batch % args.save_every == 0:
                client.checkpoint.save(lambda: packed(weights(), seen), n_batch, folder=folder)
            if n_run == WARM_UP:
                began_s, began_cpu_s = time.monotonic(), time.process_time()
            time.sleep(args.slow_s)
    spent_s, spent_cpu_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    result = {
        "ms_per_batch": 1e3 * spent_s / max(n_run - WARM_UP, 1),
        "cpu_ms_per_batch": 1e3 * spent_cpu_s / max(n_run - WARM_UP, 1),
        "n_batch": n_batch,
        "loss": loss,
        "least_seen": int(seen.min()),
        "most_seen": int(seen.max()),
    }
    (args.out / "result.new").write_text(json.dumps(result))
    (args.out / "result.new").rename(args.out / "result.json")


if __name__ == "__main__":
    main()

"""Samples per second of workers and parameter servers, compared with the machine's limit and with peers.

On the same synthetic, Criteo-like batches and the same models: ours, hogwild (n processes on tables in shared
memory, no messages: the limit), one process without any communication, and TensorFlow's parameter servers
(where `--venv-tf` names its environment). Ours is measured by the peers' own training loop, which calls real
PS processes through our client, once through shared memory and once through messages (`frames`); no CPU
limits. With `--tcp` messages also go over TCP as between hosts: in sealed sessions (`tcp`), in such that do
not encrypt (`tcp_plain`, which no job does), and under CURVE (`tcp_curve`). All take turns within one run.
The results are medians of the ratios within a round, and CPU milliseconds per step (all processes).

First our loss after some steps, with one worker and no overlap, must equal that of one process: the PS begin
with the peers' initial rows, which they load from a checkpoint. Our PS hold the rows that were trained (0.5
of the table's 10.3 million), in the order of their first push; the peers hold all.

Needs the peers' scripts (`--peers DIR`), which are not part of this repository.

    python benchmarks/ps_throughput.py --peers DIR --venv-tf DIR --overlap --model wide_deep dcnv2 xdeepfm
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import queue
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import plain_node
import ps_processes
import zmq

from dlrover_nb.core.runtime import checkpoint, ps_link
from dlrover_nb.core.runtime.allocator import keep_freed
from dlrover_nb.core.runtime.batches import BucketLayout, PreparedBatch
from dlrover_nb.core.runtime.flash import run_name
from dlrover_nb.core.runtime.kernels import VARIABLE, kernel
from dlrover_nb.core.runtime.placement import assign_buckets
from dlrover_nb.core.runtime.ps_client import PsClient
from dlrover_nb.core.runtime.slab import SlabPlace
from dlrover_nb.core.runtime.sockets import JobKeys, new_keys
from dlrover_nb.core.runtime.store import StorePart
from dlrover_nb.core.runtime.trainer import Push
from dlrover_nb.core.structs.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.checkpoints import PartSource
from dlrover_nb.core.structs.features import CategoricalColumn, FeatureSpec, NumericColumn
from dlrover_nb.core.structs.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.messages import Train
from dlrover_nb.core.structs.node_config import NodeConfig
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

TCP = ("tcp", "tcp_plain", "tcp_curve")
NO_FLOATS = np.empty(0, np.float32)
MODELS = {"wide_deep": "wide_deep", "dcnv2": "dcn_v2", "xdeepfm": "xdeepfm"}  # the peers' names and ours
EXACT_STEPS = {"wide_deep": 150, "dcnv2": 40, "xdeepfm": 20}
# Each step of xDeepFM in torch allocates new large tensors: page faults double its time, for all.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "268435456",
}


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
    carrier: str = "slab"  # or frames, tcp, tcp_plain, tcp_curve

    @property
    def bucket_owner(self) -> tuple[int, ...]:
        return assign_buckets((), self.n_ps)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=Path, default=Path("../shared/peers"))
    parser.add_argument(
        "--own-model",
        action="store_true",
        help="ours trains the product's module of the model, not the peers' (the same mathematics); "
        "equality is shown with the peers'",
    )
    parser.add_argument(
        "--tf-steps-per-call",
        type=int,
        default=5,
        help="steps that a worker of TensorFlow makes per order of its chief; 5 were faster than its usual 1",
    )
    parser.add_argument(
        "--venv-tf", type=Path, help="virtual environment of TensorFlow; without it: not beside it"
    )
    parser.add_argument("--model", nargs="+", default=["wide_deep"], choices=MODELS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ps", type=int, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument(
        "--overlap", action="store_true", help="messages travel while the next step is computed"
    )
    parser.add_argument("--kernel", default=kernel().NAME, choices=("numpy", "c"), help="ours and the peers'")
    parser.add_argument("--exact-steps", type=int, help="0: do not compare losses first")
    parser.add_argument("--tcp", action="store_true", help="also over TCP, as between hosts")
    parser.add_argument("--no-malloc", action="store_true", help="leave the allocator as it is")
    return parser.parse_args()


# ours: a worker


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
    folder = str(Path(servers[0][1].removeprefix("ipc://")).parent)
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
        slabs=SlabPlace(run_name("benchmark", folder)) if run.carrier == "slab" else None,
        agent=ps_processes.Waiter(),  # type: ignore[arg-type]
        train=Train(0, tuple(endpoint for _, endpoint in servers), run.bucket_owner),
        dense_length=values.numel(),
        patience_s=lambda: float("inf"),
    )
    client.init_dense(values.numpy())
    if run.n_ps > 1:
        group_by_ps(loop, client.layout)
    result = loop.train(
        Access(client, loop),
        run.model,
        run.seconds,
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

    from dlrover_nb.core.models.table import model_kind

    module, _, attribute = model_kind(MODELS[name]).module.partition(":")
    kind = getattr(importlib.import_module(module), attribute)
    models.MODELS[name] = lambda: kind(model_spec(name), NUM_FIELDS, NUM_DENSE)


# ours: parameter servers, and the master's part


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
    return NodeConfig(
        node=f"ps-{index}",
        role=Role.PS,
        spec=JobSpec(name="benchmark", model=model_spec(run.model), heartbeat_timeout_s=600),
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


# the others


def script(python: str, run: Run, name: str, *options: str) -> dict[str, Any]:
    command = [python, str(Path(run.peers) / "ctr" / name), "--model", run.model, *options]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stderr[-2000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def initial_checkpoint(path: Path) -> PartSource:
    """Write a checkpoint with the peers' initial rows, of all ids that are in the batches."""
    from ctr.data import make_batches
    from ctr.hyperparameters import INITIAL_SUM
    from ctr.store import initial_table

    ids = np.unique(make_batches()[0])
    values = initial_table()[ids]
    table = np.concatenate([values, np.full_like(values, INITIAL_SUM)], axis=1)
    written = checkpoint.write(path, StorePart(ids, table, 0, np.empty((2, 0), np.float32)))
    return PartSource(str(path), written.sha256)


def assert_same_losses(model: str, n_ps: int, options: argparse.Namespace) -> dict[str, Any]:
    """Refuse to compare speed with one process before the losses are equal."""
    n_step = EXACT_STEPS[model] if options.exact_steps is None else options.exact_steps
    if not n_step:
        return {}
    with tempfile.TemporaryDirectory(prefix="dlb") as folder:
        initial = (initial_checkpoint(Path(folder) / "initial"),)
        run = Run(str(options.peers), model, 1, n_ps, 0, max_steps=n_step, initial=initial)
        found = ours(run)["loss"]
    exact = ("--exact-steps", str(n_step))
    expected = script(sys.executable, run, "single.py", "--update", options.kernel, *exact)["loss"]
    if abs(found - expected) > 1.5e-6:  # both are rounded to 6 digits
        raise SystemExit(
            f"{model}: loss of step {n_step} is {found} with {n_ps} PS, {expected} in one process"
        )
    return {"exact_steps": n_step, "loss": found, "loss_of_one_process": expected}


def one_round(run: Run, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    seconds = ("--seconds", str(run.seconds))
    workers = ("--workers", str(run.n_worker))
    limit = ("--kernel", options.kernel)
    results = {
        "ours": ours(run),
        "frames": ours(replace(run, carrier="frames")),
        **{carrier: ours(replace(run, carrier=carrier)) for carrier in TCP if options.tcp},
        "hogwild": script(sys.executable, run, "hogwild.py", *seconds, *workers, *limit),
        "single": script(sys.executable, run, "single.py", *seconds, "--update", options.kernel),
    }
    if options.venv_tf is not None:
        python = str(options.venv_tf / "bin" / "python")
        calls = ("--steps-per-call", str(options.tf_steps_per_call))
        results["tf_ps"] = script(python, run, "tf_ps.py", *seconds, *workers, *calls)
    return results


def measure(run: Run, options: argparse.Namespace) -> dict[str, Any]:
    exact = assert_same_losses(run.model, run.n_ps, options)
    print(
        f"\n{run.model}, {run.n_worker} workers, {run.n_ps} PS{', overlap' if run.overlap else ''}: {exact}"
    )
    rounds = []
    for number in range(options.rounds):
        rounds.append(one_round(run, options))
        cells = (f"{name} {r['samples_s']:,} ({r['cpu_ms_per_step']} ms)" for name, r in rounds[-1].items())
        print(f"round {number + 1}: " + ", ".join(cells), flush=True)
    median = statistics.median
    summary: dict[str, Any] = {
        "benchmark": "ps_throughput",
        "model": run.model,
        "workers": run.n_worker,
        "ps": run.n_ps,
        "overlap": run.overlap,
        "own_model": run.own_model,
        "kernel": options.kernel,
        "seconds": run.seconds,
        **exact,
    }
    for name in rounds[0]:
        summary[f"{name}_samples_per_s"] = median(r[name]["samples_s"] for r in rounds)
        summary[f"{name}_cpu_ms_per_step"] = median(r[name]["cpu_ms_per_step"] for r in rounds)
        if name != "ours":
            ratios = (r["ours"]["samples_s"] / r[name]["samples_s"] for r in rounds)
            summary[f"over_{name}"] = round(median(ratios), 3)
    for other in TCP[1:] if options.tcp else ():
        ratios = (r["tcp"]["samples_s"] / r[other]["samples_s"] for r in rounds)
        summary[f"tcp_over_{other}"] = round(median(ratios), 3)
    return summary


def main() -> None:
    options = arguments()
    options.peers = options.peers.resolve()
    sys.path.insert(0, str(options.peers))
    os.environ[VARIABLE] = options.kernel
    for model in options.model:
        if model == "xdeepfm" and not options.no_malloc:
            os.environ.update(MALLOC)
        for n_ps in options.ps:
            run = Run(
                str(options.peers),
                model,
                options.workers,
                n_ps,
                options.seconds,
                overlap=options.overlap,
                own_model=options.own_model,
            )
            print(json.dumps(measure(run, options)), flush=True)


if __name__ == "__main__":
    main()

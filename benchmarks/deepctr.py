"""CPU time of a step of a real job beside the own training loops of DeepCTR-Torch and FuxiCTR.

The same rows (Census), the same network (Wide & Deep of 256, 128 and 64, embeddings of 16 floats), batches of
512, Adagrad, one thread. Each library runs its own loop with its own loader in a process of its own. Ours
is a job of local processes, one worker and one parameter server, of the built-in model (`ours`) and of the
library's own module through `dlrover_nb.elastic` (`elastic_deepctr`, `elastic_fuxictr`). `plain` is our
model and kernels in one process without a job. All take turns.

Figures are CPU milliseconds a step: of a library's loop, and of all processes of a job (master, worker, PS),
start and end left out, as the difference of two runs of different length by the steps between them.
`over_deepctr` and `over_fuxictr` are medians over rounds of ours over theirs, `elastic_over_...` of their
own modules; below 1 ours is cheaper. `over_plain` is the job over the one process. A round takes a minute of
CPU.

With `--speed` rows a second are compared instead, of jobs of the library's module with two workers and of its
own loop: `two_workers_over_...`, above 1 ours is faster. It says something on a quiet machine alone.

    pip install --no-deps deepctr-torch==0.3.0 fuxictr==2.3.10
    pip install tqdm scikit-learn polars h5py pyyaml
    python benchmarks/deepctr.py [--rounds 3] [--sides ours deepctr ...] [--speed]
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.util
import io
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengths import parsed, print_figures

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1] / "tests"))

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH, DIM, HIDDEN, RATE = 512, 16, (256, 128, 64), 0.01
FEW, MANY = 1, 3  # passes
PR_SET_CHILD_SUBREAPER = 36
LIBRARIES = "pip install --no-deps deepctr-torch==0.3.0 fuxictr==2.3.10"
INSTALL = f"{LIBRARIES}; pip install tqdm scikit-learn polars h5py pyyaml"
Trained = tuple[int, tuple[float, ...]]  # steps; CPU and wall-clock seconds of a loop in this process
SIDES = ("ours", "plain", "deepctr", "fuxictr", "elastic_deepctr", "elastic_fuxictr")
NEEDS = {"deepctr": "deepctr_torch", "fuxictr": "fuxictr"}
PAIR_PASSES = 9  # of a job with two workers, beside FEW


def clocks() -> tuple[float, float]:
    """Return the CPU seconds of this process, and the time."""
    return time.process_time(), time.perf_counter()


def since(began: tuple[float, float]) -> tuple[float, float]:
    """Return the CPU and wall-clock seconds since then."""
    now = clocks()
    return now[0] - began[0], now[1] - began[1]


def rows() -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Return the Census rows as the libraries take them, ids and scaled numbers, and the vocabularies."""
    from dlrover_nb.core.data.selection.feature_spec import make_features
    from dlrover_nb.core.data.source import open_source
    from dlrover_nb.core.structs.job.job import DataSpec, ModelSpec

    data = DataSpec()
    source, features = open_source(data), make_features(data, ModelSpec())
    names = [c.name for c in (*features.numeric, *features.categorical)]
    table = source.read(0, source.n_row, (*names, data.label)).to_pandas()
    columns: dict[str, np.ndarray] = {}
    sizes: dict[str, int] = {}
    for number in features.numeric:
        values = table[number.name].to_numpy(np.float64)
        squashed = np.sign(values) * np.log1p(np.abs(values))
        columns[number.name] = ((squashed - number.mean) / number.std).astype(np.float32)
    for column in features.categorical:
        codes = table[column.name].astype("category").cat.codes.to_numpy()
        columns[column.name] = (codes + 1).astype(np.int64)  # 0: missing
        sizes[column.name] = int(codes.max()) + 2
    columns["label"] = table[data.label].to_numpy(np.int64)
    return columns, sizes


def deepctr_model(columns: dict[str, np.ndarray], sizes: dict[str, int]) -> Any:
    from deepctr_torch.inputs import DenseFeat, SparseFeat
    from deepctr_torch.models import WDL

    ids = [SparseFeat(name, size, DIM) for name, size in sizes.items()]
    features = ids + [DenseFeat(name, 1) for name in columns if name not in {*sizes, "label"}]
    return WDL(features, features, dnn_hidden_units=HIDDEN, l2_reg_linear=0, l2_reg_embedding=0)


def fuxictr_model(columns: dict[str, np.ndarray], sizes: dict[str, int]) -> Any:
    from fuxictr.features import FeatureMap
    from fuxictr.pytorch.layers import FeatureEmbedding, LogisticRegression, MLP_Block
    from fuxictr.pytorch.models import BaseModel

    feature_map = FeatureMap("census", "")
    feature_map.labels = ["label"]
    numbers = [name for name in columns if name not in {*sizes, "label"}]
    feature_map.features = {name: {"type": "numeric", "source": ""} for name in numbers}
    feature_map.features |= {
        name: {"type": "categorical", "source": "", "vocab_size": size} for name, size in sizes.items()
    }
    feature_map.num_fields = len(feature_map.features)

    class WideDeep(BaseModel):
        def __init__(self) -> None:
            super().__init__(feature_map, verbose=0, model_root="", metrics=["AUC"])
            self.embedding_layer = FeatureEmbedding(feature_map, DIM)
            self.wide = LogisticRegression(feature_map, use_bias=False)
            self.deep = MLP_Block(DIM * feature_map.num_fields, output_dim=1, hidden_units=list(HIDDEN))
            self.compile("Adagrad", "binary_crossentropy", RATE)
            self.reset_parameters()

        def forward(self, inputs: Any) -> Any:
            batch = self.get_inputs(inputs)
            logit = self.wide(batch) + self.deep(self.embedding_layer(batch).flatten(1))
            return {"y_pred": self.output_activation(logit)}

    return WideDeep()


def train_deepctr(n_pass: int) -> Trained:
    import torch

    columns, sizes = rows()
    model, label = deepctr_model(columns, sizes), columns.pop("label")
    model.compile(torch.optim.Adagrad(model.parameters(), RATE), "binary_crossentropy")
    began = clocks()
    model.fit(columns, label.astype(np.float32), batch_size=BATCH, epochs=n_pass, verbose=0)
    return n_pass * -(-len(label) // BATCH), since(began)


def train_fuxictr(n_pass: int) -> Trained:
    """Train by the library's own steps and loader."""
    from fuxictr.pytorch.dataloaders.npz_dataloader import NpzDataLoader

    columns, sizes = rows()
    model, n_row = fuxictr_model(columns, sizes), len(columns["label"])
    feature_map = model.feature_map
    feature_map.column_index = {name: i for i, name in enumerate([*feature_map.features, "label"])}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/rows.npz"
        np.savez(path, **columns)
        loader = NpzDataLoader(feature_map, path, batch_size=BATCH, shuffle=True, num_workers=0)
        model._max_gradient_norm = float("inf")  # noqa: SLF001 - `fit` sets it, which also evaluates
        model.train()
        began = clocks()
        for _ in range(n_pass):
            for batch in loader:
                model.train_step(batch)
        used = since(began)
    return n_pass * -(-n_row // BATCH), used


def train_ours(n_pass: int, library: str = "", n_worker: int = 1) -> Trained:
    """Run a job of local processes to its end."""
    import pandas as pd

    import dlrover_nb

    columns, sizes = rows()
    settings: dict[str, Any] = {}
    if library:
        make = {"deepctr": deepctr_model, "fuxictr": fuxictr_model}[library]
        settings["model"] = dlrover_nb.elastic(make(columns, sizes))
    else:
        settings["model"] = {"name": "wide_deep", "hidden": list(HIDDEN), "embedding_dim": DIM}
        settings |= {
            "categorical": list(sizes),
            "numeric": [n for n in columns if n not in {*sizes, "label"}],
        }
    job = dlrover_nb.connect("local").submit(
        {"name": "bench"},
        data=pd.DataFrame(columns),
        label="label",
        holdout=0,
        epochs=n_pass,
        batch_size=BATCH,
        optimizer="adagrad",
        learning_rate=RATE,
        plan={
            "worker": {"count": n_worker, "cpu": 1 if n_worker == 1 else 0.8},
            "ps": {"count": 1, "cpu": 1 if n_worker == 1 else 0.4},
        },
        mode="manual",
        **settings,
    )
    job.wait()
    return n_pass * -(-len(columns["label"]) // BATCH), ()


def train_plain(n_pass: int) -> Trained:
    """Train our model by our loop and kernels, with the parameters in this process."""
    import pandas as pd
    from support.runtime.single_process import train_single

    from dlrover_nb.core.data import encoded_rows, make_features
    from dlrover_nb.core.data.objects.stored import store_rows
    from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec

    columns, sizes = rows()
    path = store_rows(pd.DataFrame(columns), Path(os.environ["HOME"]) / "rows")
    numeric = tuple(n for n in columns if n not in {*sizes, "label"})
    data = DataSpec("parquet", str(path), numeric=numeric, categorical=tuple(sizes), holdout=0)
    model = ModelSpec("wide_deep", hidden=HIDDEN, embedding_dim=DIM, learning_rate=RATE)
    spec = JobSpec("plain", data=data, model=model, batch_size=BATCH, n_epoch=n_pass)
    features = make_features(data, model)
    began = clocks()
    n_step = len(train_single(spec, features, encoded=encoded_rows(data, features)).losses)
    return n_step, since(began)


TRAIN: dict[str, Callable[[int], Trained]] = {
    "ours": train_ours,
    "plain": train_plain,
    "deepctr": train_deepctr,
    "fuxictr": train_fuxictr,
    "elastic_deepctr": lambda n_pass: train_ours(n_pass, "deepctr"),
    "elastic_fuxictr": lambda n_pass: train_ours(n_pass, "fuxictr"),
    "pair_deepctr": lambda n_pass: train_ours(n_pass, "deepctr", 2),
    "pair_fuxictr": lambda n_pass: train_ours(n_pass, "fuxictr", 2),
}


def train(side: str, n_pass: int) -> None:
    """Train one side; print its steps, and the seconds of its loop where that is all in this process."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        n_step, loop = TRAIN[side](n_pass)
    print(json.dumps({"n_step": n_step, **dict(zip(("loop_cpu_s", "loop_s"), loop, strict=False))}))


def one_run(side: str, n_pass: int) -> dict[str, Any]:
    """Train one side in a process of its own; return its steps and CPU seconds, also of all its children."""
    command = [sys.executable, __file__, "--side", side, "--passes", str(n_pass)]
    with tempfile.TemporaryDirectory(prefix="dlb", ignore_cleanup_errors=True) as home:
        process = [sys.executable, __file__, "--accounted", *command]
        environment = os.environ | {"HOME": home, "XDG_STATE_HOME": f"{home}/state"}
        result = subprocess.run(process, check=False, capture_output=True, text=True, env=environment)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stderr[-2000:]}")
    measured: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return measured


def accounted(command: list[str]) -> None:
    """Run a command, end what it leaves behind, such as an idle master; print the CPU time of all."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this needs Linux: processes cannot be waited for")
    began_s = time.perf_counter()
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    took_s = time.perf_counter() - began_s
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while left := children.read_text().split():  # what a child leaves becomes a child of this process
        for pid in left:
            os.kill(int(pid), signal.SIGKILL)
            os.waitpid(int(pid), 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = {"cpu_s": used.ru_utime + used.ru_stime, "s": took_s}
    print(json.dumps(json.loads(result.stdout.splitlines()[-1]) | seconds))


def ms_per_step(side: str) -> float:
    """Return the CPU time of a step: of the loop, or what more passes of a job take by their steps."""
    if side in NEEDS:
        loop = one_run(side, FEW)
        return 1e3 * loop["loop_cpu_s"] / loop["n_step"]
    few, many = one_run(side, FEW), one_run(side, MANY)
    used = "loop_cpu_s" if side == "plain" else "cpu_s"
    return 1e3 * (many[used] - few[used]) / (many["n_step"] - few["n_step"])


def seconds_per_step(side: str) -> float:
    """Return the wall-clock time of a step: of the loop, or what more passes of a job take by their steps."""
    if side in NEEDS:
        loop = one_run(side, FEW)
        return float(loop["loop_s"] / loop["n_step"])
    few, many = one_run(side, FEW), one_run(side, PAIR_PASSES)
    return float(many["s"] - few["s"]) / (many["n_step"] - few["n_step"])


def compare_speed(rounds: int) -> dict[str, Any]:
    """Return how many times as many rows a second jobs with two workers train as each library's own loop."""
    result: dict[str, Any] = {}
    for library in NEEDS:
        if not missing(library):
            pairs = [(seconds_per_step(library), seconds_per_step(f"pair_{library}")) for _ in range(rounds)]
            print(f"{library}, ms a step: its own loop, two workers:", [(1e3 * a, 1e3 * b) for a, b in pairs])
            result[f"two_workers_over_{library}"] = round(statistics.median(a / b for a, b in pairs), 2)
    return result


def missing(side: str) -> bool:
    """Whether the library of a side is not installed."""
    return any(importlib.util.find_spec(module) is None for key, module in NEEDS.items() if key in side)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--sides", nargs="+", choices=SIDES, default=["ours", "plain", *NEEDS, "elastic_deepctr"]
    )
    parser.add_argument("--speed", action="store_true", help="compare rows a second, with two workers")
    parser.add_argument("--side", choices=TRAIN, help=argparse.SUPPRESS)
    parser.add_argument("--passes", type=int, default=FEW, help=argparse.SUPPRESS)
    parser.add_argument("--accounted", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parsed(parser)
    if options.accounted:
        accounted(options.accounted)
        return
    if options.side:
        train(options.side, options.passes)
        return
    if options.speed:
        print_figures("deepctr", compare_speed(options.rounds))
        return
    sides = [side for side in options.sides if not missing(side)]
    if absent := [side for side in options.sides if missing(side)]:
        print(f"not measured: {', '.join(absent)}; install the libraries: {INSTALL}")
    rounds = []
    for number in range(options.rounds):
        rounds.append({side: ms_per_step(side) for side in sides})
        print(
            f"round {number + 1}, CPU ms a step:", {k: round(v, 2) for k, v in rounds[-1].items()}, flush=True
        )
    result: dict[str, Any] = {
        f"{side}_cpu_ms_per_step": round(statistics.median(r[side] for r in rounds), 2) for side in sides
    }
    if {"ours", "plain"} <= set(sides):
        result["over_plain"] = round(statistics.median(r["ours"] / r["plain"] for r in rounds), 3)
    for library in NEEDS:
        for key, ours in ((f"over_{library}", "ours"), (f"elastic_over_{library}", f"elastic_{library}")):
            if {ours, library} <= set(sides):
                result[key] = round(statistics.median(r[ours] / r[library] for r in rounds), 3)
    print_figures("deepctr", result)


if __name__ == "__main__":
    main()

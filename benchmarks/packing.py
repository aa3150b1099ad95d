"""What exchanges between hosts cost in quality and save in bytes: bfloat16, float16, dense sums of k batches.

Each run trains a model in one process on the Census rows that ship with the package, with everything packed
and unpacked as between a worker and a PS on another host (`exchange` of the job file). Runs of one seed
differ in that alone, so the difference of their AUC on the held-out rows is its effect. `bytes` are those of
gradients and parameters of one step with 6,000 rows, both ways; `pack_ms` is the CPU time of packing and
unpacking them, worker and PS together.

    python benchmarks/packing.py [--seeds 5 --epochs 2 --models wide_deep dcn_v2]
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from lengths import parsed, print_figures

from dlrover_nb.core.data import make_features
from dlrover_nb.core.models.built_in import dense_parameter_count
from dlrover_nb.core.models.metrics import auc
from dlrover_nb.core.runtime.exchange.packing import CODECS, Packer, pack_answer, unpack_answer, unpack_push
from dlrover_nb.core.structs.job.exchange_spec import ExchangeSpec, Precision
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.runtime.single_process import train_single

if TYPE_CHECKING:
    from dlrover_nb.core.structs.data.features import FeatureSpec

F32, BF16, F16 = Precision
SETTINGS = {
    "float32": ExchangeSpec(),
    "dense bfloat16": ExchangeSpec(dense=BF16),
    "dense float16": ExchangeSpec(dense=F16),
    "dense every 2": ExchangeSpec(dense_every=2),
    "dense every 4": ExchangeSpec(dense_every=4),
    "dense every 16": ExchangeSpec(dense_every=16),
    "rows float16": ExchangeSpec(rows=F16),
    "rows bfloat16": ExchangeSpec(rows=BF16),
    "dense bfloat16 every 4, rows float16": ExchangeSpec(BF16, F16, 4),
}
N_ROW, N_STEP = 6000, 32  # distinct rows of a batch of click logs, and steps whose packing is timed


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=["wide_deep"])
    return parsed(parser, seeds=5, epochs=2)


def job(model: str, seed: int, epochs: int) -> JobSpec:
    return JobSpec(
        name=f"packing-{seed}",
        n_epoch=epochs,
        batch_size=256,
        seed=seed,
        model=ModelSpec(name=model, seed=seed, learning_rate=0.02),
    )


def bytes_of(exchange: ExchangeSpec, n_dense: int, width: int) -> int:
    """Return the bytes of gradients and parameters of one step, both ways, as a mean over many steps."""
    dense = n_dense * CODECS[exchange.dense].dtype.itemsize / exchange.dense_every
    return round(2 * (dense + N_ROW * width * CODECS[exchange.rows].dtype.itemsize))


def pack_ms(exchange: ExchangeSpec, n_dense: int, width: int) -> float:
    """Return the CPU milliseconds of packing and unpacking in one step, at both ends."""
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 0.01, (N_ROW, width)).astype(np.float32)
    dense = rng.normal(0, 0.01, n_dense).astype(np.float32)
    if exchange.is_plain:
        return 0.0
    packer, ids = Packer(exchange, n_dense), np.arange(N_ROW)
    began_s = time.process_time()
    for _ in range(N_STEP):
        arrays, form = packer.pack([ids, rows, dense])
        unpack_push(arrays, form)
        answer, *scales = pack_answer(rows, dense, form)
        unpack_answer(answer, form, *scales)
    return (time.process_time() - began_s) / N_STEP * 1e3


def measure(model: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    results: dict[str, list[float]] = {name: [] for name in SETTINGS}
    features: FeatureSpec | None = None
    for seed in range(options.seeds):
        spec = job(model, seed, options.epochs)
        features = features or make_features(spec.data, spec.model)
        for name, exchange in SETTINGS.items():
            run = train_single(replace(spec, exchange=exchange), features)
            results[name].append(auc(run.scores, run.labels))
        shown = (f"{name} {found[-1]:.5f}" for name, found in results.items())
        print(f"{model}, seed {seed}: " + "; ".join(shown), flush=True)
    assert features is not None
    spec = job(model, 0, 1).model
    n_dense = dense_parameter_count(spec, len(features.categorical), len(features.numeric))
    rows = [row(name, found, results["float32"], n_dense, spec.row_width) for name, found in results.items()]
    print(f"\n{model}: {n_dense:,} dense parameters, {options.seeds} seeds, {options.epochs} epochs")
    for each in rows:
        print(
            f"{each['exchange']:38} AUC {each['auc']:.5f}  {each['auc_difference']:+.5f} "
            f"± {each['standard_error']:.5f}  {each['bytes'] / 1e3:,.0f} kB  {each['pack_ms']:.2f} ms"
        )
    return [{"model": model, **each} for each in rows]


def row(name: str, found: list[float], plain: list[float], n_dense: int, width: int) -> dict[str, Any]:
    differences = [a - b for a, b in zip(found, plain, strict=True)]
    error = statistics.stdev(differences) / math.sqrt(len(found)) if len(found) > 1 else 0.0
    return {
        "exchange": name,
        "auc": round(statistics.mean(found), 5),
        "auc_difference": round(statistics.mean(differences), 5),
        "worst_difference": round(min(differences), 5),
        "standard_error": round(error, 5),
        "bytes": bytes_of(SETTINGS[name], n_dense, width),
        "pack_ms": round(pack_ms(SETTINGS[name], n_dense, width), 2),
    }


def main() -> None:
    options = arguments()
    results = [each for model in options.models for each in measure(model, options)]
    print_figures("packing", {"seeds": options.seeds, "results": results})


if __name__ == "__main__":
    main()

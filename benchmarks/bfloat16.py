"""Matrix products in bfloat16: what they save of a training step, and what they do to the AUC.

The same rows are trained with `matmul_precision` float32 and bfloat16, one thread, seed by seed in turn, with
the real learner and store in this process: Wide & Deep and DCN v2 with widths as in the quick start, and Wide
& Deep with wide layers and larger batches. Prints, of each: CPU milliseconds a batch both ways, their ratio
(`<model>_cpu_ratio`, median over seeds), and the change of the held-out AUC with its standard error
(`<model>_auc_change`). On a processor without instructions for bfloat16 there is nothing to compare.

    python benchmarks/bfloat16.py [--seeds 5] [--rows 30000]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from statistics import mean, median, stdev
from typing import TYPE_CHECKING

from lengths import parsed, print_figures

from dlrover_nb.core.data.selection.feature_spec import make_features
from dlrover_nb.core.models.matmul import computes_bfloat16
from dlrover_nb.core.rehearsal.delays import Delay
from dlrover_nb.core.rehearsal.rehearsal import single_threaded
from dlrover_nb.core.rehearsal.runs import Trial
from dlrover_nb.core.rehearsal.sample import read_sample
from dlrover_nb.core.rehearsal.ways import AsTheyCome
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import MatmulPrecision

if TYPE_CHECKING:
    from dlrover_nb.core.rehearsal.sample import Sample

N_EPOCH = 2
MODELS = {
    "wide_deep": (ModelSpec(), 512),
    "dcn_v2": (ModelSpec("dcn_v2"), 512),
    "wide_layers": (ModelSpec(hidden=(1024, 512, 256)), 1024),
}


def trained(sample: Sample, seed: int, precision: MatmulPrecision) -> tuple[float, float]:
    """Return the AUC of a run, and the CPU seconds of a batch."""
    trial = Trial(sample, Delay(1), AsTheyCome(), seed=seed, n_epoch=N_EPOCH)
    with single_threaded(precision):
        began_s = time.process_time()
        n_batch = sum(1 for _ in trial.steps())
        cpu_s = (time.process_time() - began_s) / n_batch
    with single_threaded():  # a model is scored in float32 wherever it is used
        return trial.result().auc, cpu_s


def compared(sample: Sample, name: str, n_seed: int) -> dict[str, float]:
    """Return the figures of one model."""
    pairs = [[trained(sample, seed, each) for each in MatmulPrecision] for seed in range(n_seed)]
    changes = [half[0] - full[0] for full, half in pairs]
    full_ms, half_ms = (1e3 * median(pair[i][1] for pair in pairs) for i in (0, 1))
    print(f"{name}: {full_ms:.2f} -> {half_ms:.2f} CPU ms a batch, AUC {mean(changes):+.7f}", flush=True)
    return {
        f"{name}_cpu_ms": round(full_ms, 3),
        f"{name}_bfloat16_cpu_ms": round(half_ms, 3),
        f"{name}_cpu_ratio": round(median(half[1] / full[1] for full, half in pairs), 3),
        f"{name}_auc": round(mean(full[0] for full, _ in pairs), 5),
        f"{name}_auc_change": round(mean(changes), 7),
        f"{name}_auc_change_error": round(stdev(changes) / n_seed**0.5, 7),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=30_000)
    options = parsed(parser)
    result: dict[str, object] = {"benchmark": "bfloat16", "seeds": options.seeds}
    if not computes_bfloat16():
        print_figures("bfloat16", result | {"note": "this processor has no instructions for bfloat16"})
        return
    for name, (model, batch_size) in MODELS.items():
        spec = JobSpec("bfloat16", model=model, batch_size=batch_size)
        sample = read_sample(replace(spec, overlap=False), make_features(spec.data, model), options.rows)
        result |= compared(sample, name, options.seeds)
    print_figures("bfloat16", result)


if __name__ == "__main__":
    main()

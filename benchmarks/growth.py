"""The longest pause of a lookup while the rows of a PS grow.

One store with hashed ids is filled up to just below 2^k rows, where a map that doubles would grow. Then
batches of new and known rows are pushed and looked up, as workers do, until there are a quarter more; each
exchange is timed. The last line is JSON:

growth_pause_ms     longest time of one exchange (push, then lookup) around the growth
growth_pause_cpu_ms the same in CPU time: what it is on a machine that does nothing else
exchange_ms         median time, for comparison
growth_peak_mib     most memory of the store during the growth, over `start_mib` before it

    python benchmarks/growth.py [--rows 8.4e6 --dim 8 --optimizer adagrad]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

from lengths import parsed, print_figures

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from dlrover_nb.core.runtime.kernels import VARIABLE, kernel
from dlrover_nb.core.runtime.node.node import keep_freed
from dlrover_nb.core.runtime.process.time_accounting import own_memory
from dlrover_nb.core.runtime.store import ParameterStore, StorePart
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding
from dlrover_nb.core.structs.plan.resources import Role

MIB = 1 << 20
FILL_ROWS = 1 << 16
NEW_ROWS, KNOWN_ROWS = 4096, 8192  # of one push
BEFORE_ROWS, AFTER_ROWS = 100_000, 1_500_000  # around the growth


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=float, default=8.4e6, help="about how many there are")
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--optimizer", default="adagrad")
    parser.add_argument("--kernel", default=kernel().NAME, choices=("numpy", "c"))
    return parsed(parser)


def fill(store: ParameterStore, n_row: int) -> None:
    """Absorb the rows 0, 1, … of another PS."""
    length = store.export().table.shape[1]
    table = np.ones((FILL_ROWS, length), np.float32)
    for start in range(0, n_row, FILL_ROWS):
        ids = np.arange(start, min(start + FILL_ROWS, n_row))
        store.absorb(StorePart(ids, table[: len(ids)], 0, store.export().dense[:, :0]))


def exchanges(store: ParameterStore, n_new: int) -> tuple[list[float], list[float], float]:
    """Return the seconds of each exchange, its CPU seconds, and the most bytes of the process."""
    rng, seconds, cpu_seconds, peak = np.random.default_rng(0), [], [], 0.0
    for start in range(store.n_row, store.n_row + n_new, NEW_ROWS):
        known = np.unique(rng.integers(0, start, KNOWN_ROWS))
        ids = np.concatenate([np.arange(start, start + NEW_ROWS), known])
        gradients = np.full((len(ids), store.pull(ids[:1]).shape[1]), 0.1, np.float32)
        began_s, cpu_began_s = time.perf_counter(), time.process_time()
        store.push(ids, gradients)
        store.pull(ids)
        seconds.append(time.perf_counter() - began_s)
        cpu_seconds.append(time.process_time() - cpu_began_s)
        peak = max(peak, own_memory())
    return seconds, cpu_seconds, peak


def main() -> None:
    """Measure and print."""
    options = arguments()
    os.environ[VARIABLE] = options.kernel
    keep_freed(Role.PS)
    model = ModelSpec(embedding_dim=options.dim, embedding=Embedding.HASH, optimizer=options.optimizer)
    store = ParameterStore(model, 0, 0)
    grows_at = 1 << round(np.log2(options.rows))
    fill(store, grows_at - BEFORE_ROWS)
    start = own_memory()
    seconds, cpu_seconds, peak = exchanges(store, BEFORE_ROWS + min(AFTER_ROWS, grows_at // 4))
    found = {
        "growth_pause_ms": round(1e3 * max(seconds), 2),
        "growth_pause_cpu_ms": round(1e3 * max(cpu_seconds), 2),
        "exchange_ms": round(1e3 * statistics.median(seconds), 2),
        "growth_peak_mib": round((peak - start) / MIB),
        "start_mib": round(start / MIB),
        "store_mib": round(store.n_byte / MIB),
    }
    print(f"growth of {grows_at:,} rows, kernel {kernel().NAME}: the longest of {len(seconds)} exchanges")
    print_figures("growth", {"rows": grows_at, "kernel": kernel().NAME, **found})


if __name__ == "__main__":
    main()

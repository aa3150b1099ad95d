"""How many rows fit into a GiB of a parameter server, how it grows, and how fast it serves them.

One store with hashed ids is filled with `--rows` by pushes of new and known rows, as workers make them; each
is timed, and the memory of the process is read. Then rows are pulled and pushed, uniform and by Zipf's law,
and pulled before they exist. Where the machine has no memory for so many, there are as many as fit into two
thirds of what is free. The last line is JSON:

rows_per_gib        rows in a GiB of memory (RSS) that the store added to the process
bytes_per_row       the same, inverted
peak_bytes_per_row  from the highest memory of the process at any time while it grew
map_bytes_per_row   of the map from ids to slots alone, as the store counts it
growth_pause_ms     longest exchange (push, then pull) of all while the store grew
growth_pause_cpu_ms the same in CPU time: what it is on a machine that does nothing else
exchange_ms         median time, for comparison, and exchange_cpu_ms
growth_row_ns       CPU time of all exchanges for each row that they made
growth_system_ns    the part of it in which the system finds memory: it depends on what is free, and on
                    the host of a virtual machine
pull_ns, push_ns    CPU time of one row by kind of ids; `push` of `new` rows makes them
workers_slab, workers_tcp
                    workers of 10 ms steps that saturate one core of a PS, by what carries arrays
saturation          of a real PS with real clients (`ps_saturation`), by what carries arrays: CPU milliseconds
                    of an exchange on either side, exchanges per second of a core of the PS, and how many
                    workers of 10 ms steps that is; `slab_new_rows`: each batch has 100 new rows;
                    `slab_full_n_threads`: workers compute nothing, and the PS may use n cores

    python benchmarks/scale.py [--whole] [--rows 20e6 --dim 16 --optimizer adagrad --kernel c --clients 6]

By default 2 million rows, and saturation of `slab` and `tcp` for 1.5 s in each of 3 rounds: a minute.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import psutil
from lengths import parsed, print_figures
from ps_saturation import saturation

from dlrover_nb.core.runtime.kernels import VARIABLE, kernel
from dlrover_nb.core.runtime.node.node import keep_freed
from dlrover_nb.core.runtime.process.time_accounting import own_memory
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Ids = NDArray[np.int64]

GIB, MS, NS = 1 << 30, 1e3, 1e9
NEW_ROWS, KNOWN_ROWS = 8192, 4096  # of one push while the store grows
N_CALL = 60  # of each kind, of which the median counts
SCATTER = 0x5851F42D4C957F2D  # odd: multiples modulo 2^63 are distinct, as the hashes of a table's ids are
BYTES_AT_MOST = 300  # of a row of dimension 16, by any map


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=float, default=2e6)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--optimizer", default="adagrad")
    parser.add_argument("--kernel", default=kernel().NAME, choices=("numpy", "c"))
    parser.add_argument("--clients", type=int, default=6, help="of the PS whose saturation is measured")
    parser.add_argument("--rounds", type=int, default=3, help="of that; medians count")
    parser.add_argument("--only-saturation", action="store_true", help="leave out what grows a table")
    return parsed(parser, rows=20e6)


def ids_of(rows: Ids) -> Ids:
    """Return the hashed ids of these rows: spread over all that there are."""
    with np.errstate(over="ignore"):
        ids: Ids = (rows * np.int64(SCATTER)) & np.int64(2**63 - 1)
    return ids


def grow(store: ParameterStore, n_row: int, gradients: NDArray[np.float32]) -> dict[str, float]:
    """Push new and known rows until there are `n_row`; return pauses and the highest memory in bytes."""
    rng, seconds, cpu_seconds, peak = np.random.default_rng(0), [], [], 0
    system_s = os.times().system
    for start in range(0, n_row, NEW_ROWS):
        new = np.arange(start, min(start + NEW_ROWS, n_row))
        known = np.unique(rng.integers(0, start, KNOWN_ROWS)) if start else new[:0]
        ids = ids_of(np.concatenate([new, known]))
        began_s, cpu_began_s = time.perf_counter(), time.process_time()
        store.push(ids, gradients[: len(ids)])
        store.pull(ids)
        seconds.append(time.perf_counter() - began_s)
        cpu_seconds.append(time.process_time() - cpu_began_s)
        peak = max(peak, own_memory())
    return {
        "growth_pause_ms": MS * max(seconds),
        "growth_pause_cpu_ms": MS * max(cpu_seconds),
        "exchange_ms": MS * statistics.median(seconds),
        "exchange_cpu_ms": MS * statistics.median(cpu_seconds),
        "growth_row_ns": NS * sum(cpu_seconds) / n_row,
        "growth_system_ns": NS * (os.times().system - system_s) / n_row,
        "peak": peak,
    }


def row_ns(draw: Callable[[], Ids], call: Callable[[Ids], object]) -> float:
    """Return the median CPU time of a call for one row, in nanoseconds."""
    spent = []
    for _ in range(N_CALL):
        ids = draw()
        began_s = time.process_time()
        call(ids)
        spent.append(NS * (time.process_time() - began_s) / len(ids))
    return round(statistics.median(spent), 1)


def speeds(store: ParameterStore, n_row: int, gradients: NDArray[np.float32]) -> dict[str, dict[str, float]]:
    """Return nanoseconds of a row by call and kind of ids."""
    rng, n = np.random.default_rng(1), NEW_ROWS
    kinds: dict[str, Callable[[], Ids]] = {
        "uniform": lambda: np.unique(rng.integers(0, n_row, n)),
        "zipf": lambda: np.unique(n_row ** rng.random(n)).astype(np.int64) - 1,  # log-uniform ranks
    }
    draws = {
        kind: lambda draw=draw: rng.permutation(ids_of(np.unique(draw()))) for kind, draw in kinds.items()
    }
    fresh = iter(range(2 * n_row, 3 * n_row + N_CALL * n, n))

    def absent() -> Ids:
        return ids_of(n_row + np.unique(rng.integers(0, n_row, n)))

    def push(ids: Ids) -> None:
        store.push(ids, gradients[: len(ids)])

    return {
        "pull_ns": {kind: row_ns(draw, store.pull) for kind, draw in draws.items()}
        | {"absent": row_ns(absent, store.pull)},
        "push_ns": {kind: row_ns(draw, push) for kind, draw in draws.items()}
        | {"new": row_ns(lambda: ids_of(next(fresh) + np.arange(n)), push)},
    }


def main() -> None:
    """Measure and print."""
    options = arguments()
    os.environ[VARIABLE] = options.kernel
    served = saturation(options.clients, options.rounds, whole=options.whole) if options.clients else {}
    for name, value in served.get("saturation", {}).items():
        print(f"  {name:20} {value}", flush=True)
    found = {} if options.only_saturation else table(options)
    print_figures("scale", {"kernel": kernel().NAME, **found, **served})


def table(options: argparse.Namespace) -> dict[str, Any]:
    """Fill a table, print and return what it took."""
    keep_freed(Role.PS)
    n_row = min(int(options.rows), psutil.virtual_memory().available * 2 // 3 // BYTES_AT_MOST)
    model = ModelSpec(embedding_dim=options.dim, embedding=Embedding.HASH, optimizer=options.optimizer)
    gradients = np.full((NEW_ROWS + KNOWN_ROWS, model.row_width), 0.1, np.float32)
    before = ParameterStore(model, 0, 0)
    grow(before, 20 * NEW_ROWS, gradients)  # buffers of a push and a pull are no part of a row
    del before
    start, store = own_memory(), ParameterStore(model, 0, 0)
    grown = grow(store, n_row, gradients)
    peak, held = grown.pop("peak") - start, own_memory() - start
    payload = store.export().table.itemsize * store.export().table.shape[1] + 8 + 1
    found = {
        "rows_per_gib": round(GIB / (held / n_row)),
        "bytes_per_row": round(held / n_row, 1),
        "peak_bytes_per_row": round(peak / n_row, 1),
        "map_bytes_per_row": round(store.n_byte / n_row - payload, 1),
        **{key: round(value, 2) for key, value in grown.items()},
    }
    rates = speeds(store, n_row, gradients)
    print(f"{n_row:,} rows of dimension {options.dim}, {options.optimizer}, kernel {kernel().NAME}")
    for name, value in {**found, **rates}.items():
        print(f"  {name:20} {value}")
    return {"rows": n_row, **found, **rates}


if __name__ == "__main__":
    main()

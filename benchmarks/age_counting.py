"""What it costs a parameter server to count how old gradients are: CPU time of an exchange with and without.

The compiled kernel serves requests as they lie in a worker's slab: gradients of distinct rows and of the
dense part, then rows to read. Half of them, in turns of a few exchanges each, have a reader in which ages are
counted; the others have none. Two connections take turns, so that rows are missed by one another. Rows are
drawn by a Zipf law from a table, as ids of click logs are. The times are of this process's CPU, so another
load of the machine hardly matters; the figure is the median over repetitions, with their interquartile range.

    python benchmarks/age_counting.py [--rows 1000000 --batch-rows 5000 --dense 120000 --repeats 15]

The last line is JSON: `overhead_percent` of each size.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from ctypes import POINTER, pointer
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from lengths import parsed, print_figures

from dlrover_nb.core.runtime.kernels.bell_requests import Bell, Outcome, Reader, Request
from dlrover_nb.core.runtime.ps.update_ages import UpdateAges
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

ZIPF = 1.1
N_IN_TURN = 8  # exchanges of one kind, then of the other
LINE = 64


@dataclass(frozen=True)
class Size:
    """Rows of the table and of a batch, and dense parameters."""

    n_table: int
    n_row: int
    n_dense: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch-rows", type=int, nargs="+", default=[500, 2000, 5000])
    parser.add_argument("--dense", type=int, nargs="+", default=[10_000, 120_000])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--exchanges", type=int, default=400)
    options = parsed(parser)
    figures: dict[str, float | list[float]] = {}
    for n_row in options.batch_rows:
        for n_dense in options.dense:
            shares, exchange_us = measured(Size(options.rows, n_row, n_dense), options)
            low, mid, high = statistics.quantiles(shares, n=4)
            size = f"{n_row}_rows_{n_dense}_dense"
            figures |= {
                f"exchange_us_{size}": round(exchange_us, 1),
                f"overhead_percent_{size}": round(mid, 2),
                f"overhead_percent_quartiles_{size}": [round(low, 2), round(high, 2)],
            }
            print(
                f"{n_row} rows, {n_dense} dense: {exchange_us:.0f} us, "
                f"{mid:+.2f} % ({low:+.2f} to {high:+.2f})"
            )
    print_figures("age_counting", figures)


def measured(size: Size, options: argparse.Namespace) -> tuple[list[float], float]:
    """Return the cost of counting in percent of each repetition, and microseconds of an exchange."""
    rng, model = np.random.default_rng(0), ModelSpec(embedding_dim=16)
    store = ParameterStore(model, size.n_table, size.n_dense)
    store.init_dense(np.zeros(size.n_dense, np.float32))
    ages, batches = UpdateAges(JobSpec("cost", overlap=False)), [*drawn(rng, size, 24)]
    bells = [Connection(size, f"w{i}", ages) for i in range(2)]
    for rows in batches:
        store.create_rows(rows)
    served = Served(store, bells, batches)
    served.run(options.exchanges, is_counted=True)
    shares, plain_s = [], []
    for _ in range(options.repeats):
        took_s = {True: 0.0, False: 0.0}
        for turn in range(options.exchanges // N_IN_TURN):
            for is_counted in (turn % 2 == 0, turn % 2 == 1):
                took_s[is_counted] += served.run(N_IN_TURN, is_counted=is_counted)
        shares.append(100 * (took_s[True] / took_s[False] - 1))
        plain_s.append(took_s[False] / (options.exchanges // N_IN_TURN * N_IN_TURN))
    n_counted = sum(sum(each.counts) for each in ages.take())
    assert n_counted == options.exchanges + options.repeats * (options.exchanges // N_IN_TURN) * N_IN_TURN
    return shares, 1e6 * statistics.median(plain_s)


def drawn(rng: np.random.Generator, size: Size, n: int) -> list[NDArray[np.int64]]:
    """Return the distinct rows of some batches."""
    places = rng.permutation(size.n_table)
    batches = []
    for _ in range(n):
        rows = np.empty(0, np.int64)
        while len(rows) < size.n_row:
            drawn_rows = places[(rng.zipf(ZIPF, 4 * size.n_row) - 1) % size.n_table]
            rows = np.unique(np.concatenate([rows, drawn_rows]))
        batches.append(rng.permutation(rows)[: size.n_row])
    return batches


class Connection:
    """A slab with one request after the other, and its bell."""

    def __init__(self, size: Size, worker: str, ages: UpdateAges) -> None:
        n_byte = 8 * size.n_row * 2 + 4 * 17 * size.n_row * 2 + 4 * size.n_dense * 2 + 8 * LINE
        memory = np.zeros(n_byte + LINE, np.uint8)
        start = -memory.ctypes.data % LINE
        self._slab, self._size, self.step, self.worker = memory[start : start + n_byte], size, 0, worker
        sink = os.open(os.devnull, os.O_WRONLY)
        self.bell = Bell(slab=self._slab.ctypes.data, n_slab=n_byte, ask=-1, answers=sink, is_open=1)
        ages.follow(worker.encode(), worker, self.bell)
        self.reader = pointer(self.bell.reader.contents)  # the field itself would follow the bell
        self._write()

    def _write(self) -> None:
        rng, size, at, places = np.random.default_rng(1), self._size, 0, []
        for n_byte in (8 * size.n_row, 68 * size.n_row, 4 * size.n_dense, 8 * size.n_row, 0):
            places.append(at)
            at += (n_byte + LINE - 1) // LINE * LINE
        self._push, gradients, dense, self._pull, self._answer = places
        for place, n in ((gradients, 17 * size.n_row), (dense, size.n_dense)):
            self._slab[place : place + 4 * n].view(np.float32)[:] = 1e-3 * rng.standard_normal(n)

    def request(self, epoch: int, pushed: NDArray[np.int64], pulled: NDArray[np.int64]) -> None:
        """Write the next request."""
        size, self.step = self._size, self.step + 1
        for place, rows in ((self._push, pushed), (self._pull, pulled)):
            self._slab[place : place + rows.nbytes].view(np.int64)[:] = rows
        self.bell.request = Request(
            epoch=epoch, step=self.step, at=self._push, n_push=size.n_row, width=17, n_dense=size.n_dense,
            n_pull=size.n_row, answer_at=self._answer, rate=1.0,
        )  # fmt: skip


class Served:
    """A store that serves two connections in turns."""

    def __init__(
        self, store: ParameterStore, bells: list[Connection], batches: list[NDArray[np.int64]]
    ) -> None:
        self._store, self._bells, self._batches, self._turn = store, bells, batches, 0

    def run(self, n: int, *, is_counted: bool) -> float:
        """Serve some requests; return the CPU seconds of the kernel."""
        took_s = 0.0
        for _ in range(n):
            self._turn += 1
            each = self._bells[self._turn % 2]
            each.bell.reader = each.reader if is_counted else POINTER(Reader)()
            server = self._store.plain_server(1)
            assert server is not None
            each.request(1, *(self._batches[(self._turn + i) % len(self._batches)] for i in (0, 2)))
            began_s = time.process_time()
            server.serve_one(each.bell)
            took_s += time.process_time() - began_s
            assert each.bell.pending == Outcome.ANSWERED
            self._store.settle(server)
        return took_s


if __name__ == "__main__":
    main()

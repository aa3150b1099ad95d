"""What deterministic training must give: the parameters after each step, computed by one loop that nothing disturbs.

The played gradients follow from the rows of a batch and from each parameter that it reads, and they are never the same
for other parameters. So parameters that differ in one bit after some step differ in all later ones, and whatever is
saved, moved or trained at the end is compared with those of this loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from simulation.exchange.account import Account

from dlrover_nb.core.master.own.state.state import train_split
from dlrover_nb.core.runtime.ps.gradient_rounds import weighted_sum
from dlrover_nb.core.runtime.store.batches import BucketLayout, ShardWork
from dlrover_nb.core.sharding.steps import Steps
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.training.shards import Lease, Purpose, Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dlrover_nb.core.data import Batch
    from dlrover_nb.core.runtime.store import ParameterStore
    from dlrover_nb.core.runtime.store.batches import PreparedBatch
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec

    Floats = np.ndarray

SPREAD = np.float32(1000.0)


def gradients(ids: Floats, rows: Floats, dense: Floats) -> tuple[Floats, Floats]:
    """Return gradients of rows [u, 2] of some ids, and of the dense parameters."""
    total = rows[np.argsort(ids)].sum(dtype=np.float32) + dense.sum(dtype=np.float32)
    of_rows = np.sin(SPREAD * (total + ids.astype(np.float32)))
    of_dense = np.cos(SPREAD * (total + np.arange(len(dense), dtype=np.float32)))
    return np.stack([np.ones_like(of_rows), of_rows], axis=1), of_dense


def states(
    job: JobSpec,
    features: FeatureSpec,
    store: ParameterStore,
    n_dense: int,
    read: Callable[[int, int], Batch],
) -> Iterator[np.ndarray]:
    """Yield the numbers of rows, then of dense parameters, [n, 2], before the first step and after each."""
    split, layout = train_split(job, features), BucketLayout(np.zeros(N_BUCKET, np.int64), 1)
    steps, dense = Steps(split), np.zeros(n_dense, np.float32)
    store.init_dense(dense)
    step = 0
    while True:
        table = store.pull(np.arange(features.n_table_row))
        store.read_dense(dense)
        yield np.concatenate([table, np.stack([np.zeros_like(dense), dense], axis=1)])
        if not (shards := steps.shards(step)):
            return
        parts, sizes = [], []
        for shard in shards:
            (start, stop), before = split.block(shard), split.n_row_before(shard)
            lease, end = Lease(Purpose.TRAIN, shard, 1), before + split.n_row(shard)
            unit = Shard(lease, split.epoch(shard), start, stop, before, end)
            work = ShardWork(unit, read(start, stop), seed=job.seed)
            batch = work.take(job.batch_size, layout)
            parts.append(_part(batch, store, dense))
            sizes.append(len(batch.labels))
        rows, of_rows, of_dense = weighted_sum(parts, [size / sum(sizes) for size in sizes])
        store.push(rows, of_rows)
        store.push_dense(of_dense)
        step += 1


def _part(batch: PreparedBatch, store: ParameterStore, dense: Floats) -> tuple[Floats, Floats, Floats]:
    return (batch.rows, *gradients(batch.rows, store.pull(batch.rows), dense))


@dataclass
class StepAccount(Account):
    """An account that compares parameters after whole steps, and knows nothing of batches.

    What a worker counts as done may be computed again: only whole steps count.

    Parameters
    ----------
    after
        The numbers after each step.
    """

    after: list[np.ndarray] = field(default_factory=list)
    n_step_seen: int = 0

    def compute(self, *_: object) -> int:  # type: ignore[override]  # it needs nothing of a batch
        return 1

    def acknowledge(self, worker: str, _mark: int) -> None:
        self._n_applied[worker] += 1

    def look_up(self, worker: str, ids: np.ndarray, values: np.ndarray) -> None:
        """Check nothing: what is computed from others shows in the next step."""

    def settle(self, server: str, numbers: Iterable[int]) -> None:
        """Check nothing: `check_step` does."""

    def copy(self, checkpoint: int, numbers: Iterable[int]) -> None:
        """Note nothing: it is what a step gave."""

    def load(self, *_: object) -> None:  # type: ignore[override]  # as above
        self.n_load += 1

    def look(self, server: str, epoch: int, numbers: np.ndarray, values: np.ndarray) -> None:
        """Check nothing amid a step."""

    def check_step(self, server: str, n_step: int, numbers: np.ndarray, values: np.ndarray) -> None:
        """Check what a server saves, or lets go, after so many steps."""
        self.n_step_seen = n_step
        differing = numbers[(self.after[n_step][numbers] != values.astype(np.float32)).any(axis=1)]
        if len(differing):
            words = f"{server} after {n_step} steps, at {differing.tolist()}"
            self._break("parameters differ from those of an undisturbed run", words)

"""Training in one process: the baseline of a distributed run.

Same model, batches, store and loop; only the access to the parameters is a function call. So a run with one
worker and one PS must give the same losses, and any difference in quality of an elastic run is the effect of
asynchrony, not of another program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.data import ShardReader
from dlrover_nb.core.models.learner import set_threads
from dlrover_nb.core.models.matmul import fast_matmul
from dlrover_nb.core.runtime.exchange.packing import Packer, pack_answer, unpack_answer, unpack_push
from dlrover_nb.core.runtime.exchange.push_pull import ExchangeCost
from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
from dlrover_nb.core.runtime.store import ParameterStore, even_bucket_owner
from dlrover_nb.core.runtime.store.batches import BucketLayout, PreparedBatch, ShardWork
from dlrover_nb.core.runtime.worker.trainer import Push, TakenBatch, Trainer
from dlrover_nb.core.sharding.split import Split
from dlrover_nb.core.structs.job.exchange_spec import PLAIN
from dlrover_nb.core.structs.training.shards import Lease, Purpose, Shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.data import EncodedRows
    from dlrover_nb.core.runtime.exchange.push_pull import BatchShare, Form
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.exchange_spec import ExchangeSpec
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.training.shards import SkippedBatch

    Floats = NDArray[np.float32]


_NO_ROWS, _NO_FLOATS = np.empty(0, np.int64), np.empty(0, np.float32)


class LocalClient:
    """Parameters in this process.

    Parameters
    ----------
    store
        All of them, with initialised dense values.
    packing
        What exchanges carry: as if a PS on another host had the parameters.
    """

    interrupted = False
    last = ExchangeCost()

    def __init__(self, store: ParameterStore, packing: ExchangeSpec = PLAIN) -> None:
        self.layout = BucketLayout(np.array(even_bucket_owner(1), np.int64), 1)
        self._store = store
        self._packer = None if packing.is_plain else Packer(packing, len(store.dense), store.n_average)
        self._form: Form | None = None
        self._pull: PreparedBatch | None = None

    def begin(self) -> None:
        """Do nothing: the parameters are here."""

    def end(self) -> None:
        """Apply what was kept of dense gradients."""
        if self._packer is not None and self._packer.owes:
            self.start(None, None)

    @property
    def was_late(self) -> bool:
        """Return at once: there is no other worker to wait for."""
        return False

    def batch_share(self, n_taken: int) -> None:  # noqa: ARG002 - all batches are alike
        """Return None: the size is the job's."""
        return

    def start(self, push: Push | None, pull: PreparedBatch | None) -> None:
        """Apply gradients and record the requested rows."""
        arrays: list[NDArray[Any]] = [_NO_ROWS, _NO_FLOATS, _NO_FLOATS]
        if push is not None and push.refusal is None:
            arrays = [push.batch.rows, push.rows, push.dense]
        if self._packer is not None:
            packed, self._form = self._packer.pack(arrays, is_last=push is None and pull is None)
            arrays = unpack_push(packed, self._form, self._store.n_average)
        rows, row_gradients, dense_gradient = arrays
        rate = 1.0 if push is None else push.rate
        if len(rows):
            self._store.push(rows, row_gradients, rate)
        if len(dense_gradient):
            self._store.push_dense(dense_gradient, rate)
        self._pull = pull

    def finish(self, dense: Floats) -> Floats:
        """Fill `dense` and return the rows."""
        n_average = self._store.n_average
        pulled = self._store.pull(_NO_ROWS if self._pull is None else self._pull.rows)
        arrays, scale, dense_scale = pack_answer(pulled, self._store.dense, self._form, n_average)
        rows, values = unpack_answer(arrays, self._form, scale, dense_scale, n_average)
        if len(values):
            dense[:] = values
        return rows


class LocalSource:
    """Batches of shards that are read one after the other.

    Parameters
    ----------
    reader, shards
        The rows, and the shards in order.
    seed
        Of the job.
    """

    def __init__(self, reader: ShardReader, shards: Iterable[Shard], seed: int) -> None:
        self._reader, self._shards, self._seed = reader, iter(shards), seed
        self.last: ShardWork
        self.n_row_done = 0
        self.skipped: list[SkippedBatch] = []
        self._begin_next()

    def take(self, share: BatchShare, layout: BucketLayout) -> TakenBatch | None:
        """Return the next batch; None after the last shard."""
        while (batch := self.last.take(share.n_row, layout)) is None:
            if not self._begin_next():
                return None
        return TakenBatch(self.last, batch, share.most_at_once)

    def skip(self, work: ShardWork, batch: SkippedBatch) -> None:  # noqa: ARG002 - it is of the last one
        """Keep the report."""
        self.skipped.append(batch)

    def finish(self, work: ShardWork) -> None:
        """Count the rows of a shard."""
        self.n_row_done += work.shard.stop - work.shard.start

    def rewind(self) -> None:
        """Take batches of the last shard again; those before it are done, as nothing is late here."""
        self.last.rewind()

    def give_back(self, work: ShardWork) -> None:
        """Go on: there is no other worker."""

    def _begin_next(self) -> bool:
        shard = next(self._shards, None)
        if shard is not None:
            self.last = ShardWork(shard, self._reader.read(shard.start, shard.stop), seed=self._seed)
        return shard is not None


@dataclass(frozen=True, slots=True)
class SingleRun:
    """The result of a run in one process.

    `losses` has the mean loss of each batch in order; `train_s` leaves out start and evaluation.
    """

    scores: Floats
    labels: Floats
    losses: tuple[float, ...]
    n_sample: int
    train_s: float
    skipped: tuple[SkippedBatch, ...] = ()

    @property
    def samples_per_s(self) -> float:
        """Training throughput."""
        return self.n_sample / self.train_s


def training_shards(spec: JobSpec, features: FeatureSpec) -> Iterator[Shard]:
    """Return the shards of all passes in the order in which a ledger grants them to a single worker."""
    split = Split(features.n_train, spec.batch_size, spec.shard_batches, n_epoch=spec.n_epoch, seed=spec.seed)
    for epoch in range(spec.n_epoch):
        for shard in split.order(epoch):
            yield Shard(Lease(Purpose.TRAIN, int(shard), 1), epoch, *split.rows(int(shard)))


def train_single(
    spec: JobSpec,
    features: FeatureSpec,
    *,
    shards: Iterable[Shard] | None = None,
    n_thread: int = 1,
    store: ParameterStore | None = None,
    folder: Path | None = None,
    encoded: EncodedRows | None = None,
) -> SingleRun:
    """Train and evaluate a job in this process.

    Parameters
    ----------
    shards
        What to train, in order; None means all passes over the training rows.
    n_thread
        Threads of torch.
    store
        The first parameters; None: they are made.
    folder
        Where a user's own code lies.
    encoded
        What is kept of rows that were encoded before.
    """
    set_threads(n_thread)
    clock, losses = SystemClock(), list[float]()
    reader = ShardReader(spec.data, features, encoded=encoded)
    trainer = Trainer(
        replace(spec, overlap=False),
        features,
        reader,
        TimeAccounting(clock),
        on_loss=losses.append,
        folder=folder,
    )
    if store is None:
        store = ParameterStore(spec.model, features.n_table_row, len(trainer.learner.values))
        store.init_dense(trainer.learner.values)
    client, began_s = LocalClient(store, spec.exchange), clock.now_s()
    source = LocalSource(reader, training_shards(spec, features) if shards is None else shards, spec.seed)
    with fast_matmul():  # as a worker does
        trainer.run(source, client)
        train_s, n_sample = clock.now_s() - began_s, source.n_row_done
        work = _evaluated(trainer, client, reader, features)
    scores = np.concatenate(work.scores) if work.scores else np.empty(0, np.float32)
    return SingleRun(scores, work.labels, tuple(losses), n_sample, train_s, tuple(source.skipped))


def _evaluated(
    trainer: Trainer, client: LocalClient, reader: ShardReader, features: FeatureSpec
) -> ShardWork:
    """Score the held-out rows, as one shard."""
    stop = features.n_train + features.n_eval
    shard = Shard(Lease(Purpose.EVALUATE, 0, 1), 0, features.n_train, stop)
    source = LocalSource(reader, [shard], seed=0)
    trainer.run(source, client)
    return source.last

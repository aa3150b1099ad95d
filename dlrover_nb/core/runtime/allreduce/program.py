"""The worker of an all-reduce job: ``python -m dlrover_nb.core.runtime.allreduce.program``.

To its master it is an external program: it gets shards, worlds and batch sizes by the services that programs
of others have (`dlrover_nb.client`), and reports its steps and the quality of the trained model by them.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.client.exchange import Steps, note_busy
from dlrover_nb.client.group import Group, LeftError
from dlrover_nb.client.rows import Rows
from dlrover_nb.client.session import session
from dlrover_nb.client.shards import Source
from dlrover_nb.core.codec import from_checked_json
from dlrover_nb.core.data import ShardReader, encoded_rows
from dlrover_nb.core.errors import CheckpointError, InvalidValueError, JobFailedError
from dlrover_nb.core.models.learner import device_of, set_threads
from dlrover_nb.core.models.matmul import fast_matmul
from dlrover_nb.core.models.score_sums import ScoreSums
from dlrover_nb.core.runtime.allreduce.job import ORIGIN_FILE
from dlrover_nb.core.runtime.allreduce.replica import Replica
from dlrover_nb.core.runtime.checkpoints import Layout, as_checkpoint_error, place_of, read_url, write_url
from dlrover_nb.core.runtime.checkpoints.ps_checkpoint import image_of, part_of
from dlrover_nb.core.runtime.pod.pod import await_value, node_config, read_pod_job
from dlrover_nb.core.runtime.pod.staging import receive
from dlrover_nb.core.runtime.process.limits import thread_count
from dlrover_nb.core.runtime.process.output import log_lines
from dlrover_nb.core.runtime.process.time_accounting import own_memory
from dlrover_nb.core.runtime.store import even_bucket_owner
from dlrover_nb.core.runtime.store.batches import BucketLayout, PreparedBatch, ShardWork, prepare_batch
from dlrover_nb.core.runtime.worker.batch_costs import BatchCosts
from dlrover_nb.core.sharding.manifest import Manifest
from dlrover_nb.core.structs.job.external import CONFIG_VAR
from dlrover_nb.core.structs.job.solution_names import MEASURES
from dlrover_nb.core.structs.training.checkpoint_places import checkpoint_root, part_url
from dlrover_nb.core.structs.training.shards import Lease, Purpose
from dlrover_nb.core.structs.training.shards import Shard as Granted
from dlrover_nb.core.structs.wire.node_config import NodeConfig
from dlrover_nb.core.structs.wire.pod_contract import outlives_node
from dlrover_nb.core.structs.wire.services import MODEL_CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dlrover_nb.client.group import Sum
    from dlrover_nb.client.session import Session
    from dlrover_nb.client.shards import Shard
    from dlrover_nb.core.data import Batch
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

logger = logging.getLogger(__name__)

WHOLE = BucketLayout(np.array(even_bucket_owner(1), np.int64), 1)
CHECKPOINTS = "replicas"  # folder of the run folder
READ_ROWS = 10_000  # held-out rows at a time


class ShardOf:
    """A shard of the job's rows, read and shuffled; fits `dlrover_nb.client.rows.Work`."""

    def __init__(self, shard: Shard, read: Callable[[int, int], Batch], seed: int) -> None:
        assert shard.lease is not None
        number, self.grant = shard.lease.key
        self.shard, self.end = shard, shard.lease.end
        granted = Granted(
            Lease(Purpose.TRAIN, number, self.grant),
            shard.epoch,
            shard.start,
            shard.stop,
            self.end - len(shard),
            self.end,
        )
        self._work = ShardWork(granted, read(shard.start, shard.stop), seed=seed)

    @property
    def n_left(self) -> int:
        """Rows that are in no batch yet."""
        return self._work.n_row_left

    @property
    def place(self) -> tuple[int, int]:
        """The grant, and the row before which all are in batches."""
        return self.grant, self._work.n_row_taken

    def take(self, size: int) -> PreparedBatch:
        """Return the next batch."""
        batch = self._work.take(size, WHOLE)
        assert batch is not None
        return batch

    def confirm(self, n_row: int) -> None:
        """Count the rows before this one as done."""
        more = n_row - self._work.n_row_done
        if more > 0:
            self._work.acknowledge(more)
            self.shard.done(more)

    def rewind(self) -> None:
        """Take again what is not done."""
        self._work.rewind()


class _HeldOut:
    """Scores the rows that were held out, some at a time, each with the parameters of that moment.

    Between two steps all members wait for the one that scores, so it scores few rows there and training goes
    on: the parameters advance a little meanwhile, as in jobs with parameter servers. A copy of the parameters
    was rejected: tables may be most of a node's memory.

    Parameters
    ----------
    reader, features, replica
        The rows, their columns, and the parameters.
    """

    def __init__(self, reader: ShardReader, features: FeatureSpec, replica: Replica) -> None:
        self._reader, self._features, self._replica = reader, features, replica

    def scored(self, size: int) -> Iterator[ScoreSums | None]:
        """Score `size` rows between two yields; the last one is the scores of all rows."""
        sums, n_train = ScoreSums(), self._features.n_train
        stop = n_train + self._features.n_eval
        for start in range(n_train, stop, READ_ROWS):
            data = self._reader.read(start, min(start + READ_ROWS, stop))
            for at in range(0, len(data.labels), size):
                part = slice(at, at + size)
                batch = prepare_batch(data.ids[part], data.dense[part], data.labels[part], WHOLE)
                values = self._replica.store.pull(batch.rows)
                scores = self._replica.learner.scores(values, batch.inverse, batch.dense)
                is_known = np.isfinite(scores)
                sums.add(start + at, scores[is_known], batch.labels[is_known])
                yield sums if start + at + len(batch.labels) == stop else None


class Training:
    """The training of one worker.

    Parameters
    ----------
    config
        Of its node.
    joined
        The way to its master.
    origin
        Files of the checkpoint that the job begins from, each with its checksum.
    """

    def __init__(self, config: NodeConfig, joined: Session, origin: tuple[tuple[str, str], ...] = ()) -> None:
        self._spec, self._features, self._joined = config.spec, config.features, joined
        folder = self._folder = Path(config.folder)
        encoded = encoded_rows(self._spec.data, self._features) if self._spec.n_epoch > 1 else None
        self._reader = ShardReader(self._spec.data, self._features, folder=folder, encoded=encoded)
        device = device_of(self._spec.device, config.gpu)
        self._replica = Replica(self._spec, self._features, folder=folder, device=device)
        for url, sha256 in origin:  # newer parameters of the job itself replace them later
            self._replica.take(part_of(read_url(url, sha256)))
        self._rows = Rows(Source(self._features.n_train), self._opened)
        self._group = Group(
            joined,
            dump=self._replica.dump,
            load=self._replica.load,
            seek=self._rows.seek,
            checkpoints=str(folder / CHECKPOINTS),
        )
        self._steps = Steps(
            self._group,
            self._rows,
            bind=lambda: self._replica.bind(self._group.n_tail),
            save_every_s=self._spec.checkpoint_every_s,
        )
        self._n_skipped, self._is_warm = 0, False
        self._costs = BatchCosts(config.need, is_due=self._spec.stragglers in MEASURES)
        self._costs.take(config.batch_costs)
        self._held_out = _HeldOut(self._reader, self._features, self._replica)
        self._scoring: tuple[int, Iterator[ScoreSums | None]] = (
            0,
            iter(()),
        )  # after which pass, and the rest of it

    def run(self) -> None:
        """Train until all rows of the job are trained, or this worker is not needed any more."""
        try:
            self._train()
            if self._group.member.rank == 0:
                self._keep()
                self._evaluate()
        except LeftError as left:
            logger.info("this worker ends: %s", left)
        finally:
            self._rows.close()
            self._group.close()

    def _opened(self, shard: Shard) -> ShardOf:
        return ShardOf(shard, self._reader.read, self._spec.seed)

    def _train(self) -> None:
        replica, is_over = self._replica, False
        self._steps.begin()
        while not is_over:
            batch = self._rows.take(self._joined.batch_size() or self._spec.batch_size)
            if batch is not None:
                self._learn(batch)
            if batch is None or replica.n_batch >= max(int(self._joined.state()["n_accumulate"]), 1):
                is_over = self._steps.complete(
                    replica.flat, replica.n_row, replica.loss, self._update, n_item=replica.n_item
                )
                replica.clear()
                self._score_some()

    def _score_some(self) -> None:
        """Score as many held-out rows as all members have trained in a step, if rank 0 is to do so."""
        after = int(self._joined.state()["evaluate_after"]) if self._group.member.rank == 0 else 0
        if not after:
            self._scoring = 0, iter(())  # another one does, or a later pass begins with all rows
            return
        if after != self._scoring[0]:
            self._scoring = after, self._held_out.scored(self._spec.batch_size)
        for sums in itertools.islice(self._scoring[1], self._group.member.size):
            if sums is not None:
                self._tell(sums, after)

    def _learn(self, batch: PreparedBatch) -> None:
        if self._costs.is_due and self._is_warm:
            self._find_cost(batch)
        since_s = time.perf_counter()
        why = self._replica.learn(batch)
        note_busy(len(batch.labels), time.perf_counter() - since_s)
        if self._is_warm:
            self._costs.check(len(batch.labels), 1, self._replica.batch_s)
        self._is_warm = True  # the first batch may compile the model
        if not why:
            return
        self._n_skipped += 1
        logger.warning("a batch of %d rows is skipped: %s", len(batch.labels), why)
        if self._n_skipped > self._spec.max_skipped_batches:
            raise JobFailedError(
                f"{self._n_skipped} batches could not be trained, the last one as {why}; "
                "see max_skipped_batches"
            )

    def _find_cost(self, batch: PreparedBatch) -> None:
        """Find what a mini-batch costs here, by which the master shares steps."""
        rows = self._replica.store.pull(batch.rows)
        self._costs.find(self._replica.learner, rows, batch, own_memory() / (1 << 20))
        if self._costs.current is not None:
            self._joined.batch_cost = asdict(self._costs.current)

    def _update(self, total: Sum) -> bool:
        gathered = self._group.gather(self._replica.packed(), total)
        if gathered is not None:
            self._replica.apply(total.n_row, gathered)
        return gathered is not None

    def _keep(self) -> None:
        """Write the trained parameters as a checkpoint, from which models are loaded and jobs begin."""
        if not outlives_node(self._spec, str(self._folder)):
            logger.info("the model is not kept: nothing outlives this pod; set checkpoint_url")
            return
        part = self._replica.store.export()
        root = checkpoint_root(self._spec.checkpoint_url, str(self._folder))
        url = part_url(root, MODEL_CHECKPOINT, 0)
        try:
            with as_checkpoint_error(f"cannot make a folder for {url}", "choose another place"):
                fs, path, _ = place_of(url.rpartition("/")[0])
                fs.makedirs(path, exist_ok=True)
            written = write_url(url, Layout(image_of(part)).chunks())
        except CheckpointError as error:
            logger.warning("the model is not kept: %s", error)
            return
        self._joined.tell_model(url, written.sha256, len(part.ids), written.n_byte)

    def _evaluate(self) -> None:
        """Score the held-out rows, and tell the master their quality."""
        for sums in self._held_out.scored(READ_ROWS):
            if sums is not None:
                self._tell(sums)

    def _tell(self, sums: ScoreSums, after: int = 0) -> None:
        if not sums.n_row:
            return
        try:
            evaluation = sums.evaluate()
        except InvalidValueError as error:
            logger.warning("the model is not evaluated: %s", error)
            return
        self._joined.tell_evaluation(evaluation.auc, evaluation.log_loss, evaluation.n_sample, after)


def _config() -> tuple[NodeConfig, tuple[tuple[str, str], ...]]:
    """Return the configuration of this node and its origin, by the file of the environment or by its pod."""
    if named := os.environ.get(CONFIG_VAR):
        config = from_checked_json(Path(named).read_bytes(), NodeConfig)
        if config.spec.start_from is None:
            return config, ()
        return config, from_checked_json((Path(config.folder) / ORIGIN_FILE).read_bytes(), Manifest).files
    job = await_value(_prepared_job, "the checkpoint that the job begins from")
    config = node_config(job, os.environ, master="")
    receive(job.spec, Path(config.folder), url=job.code_url)
    return config, job.origin


def _prepared_job() -> PodJob | None:
    """Return the job of this pod, once it says from which files it begins, if it does."""
    job = read_pod_job()
    return job if job.origin or job.spec.start_from is None else None


def main() -> None:
    """Train as the configuration says that the environment names."""
    log_lines()
    config, origin = _config()
    joined = session()
    if joined is None:
        raise JobFailedError("this program is a worker of a job; submit one with --sync allreduce")
    set_threads(thread_count(config.cpu))
    with fast_matmul(config.spec.matmul_precision):
        Training(config, joined, origin).run()


if __name__ == "__main__":
    main()

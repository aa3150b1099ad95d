"""The training loop of one worker, with PS behind sockets or with parameters in the same process.

A `ParameterClient` gives access to the parameters. `start` sends the gradients of one batch and requests the
rows of another; `finish` waits for the answer. Between the two the next batch is prepared, so finding
distinct rows overlaps with the work of a PS.

Without overlap, gradients of batch t are applied before the rows of batch t+1 are read: no staleness by the
worker itself. With overlap, batch t is computed while the gradients of t-1 and the rows of t+1 are in
transit, so the worker waits only where an exchange takes longer than a batch, and its rows miss its own last
step.

Batches continue across the ends of shards. The loop ends when no batch is ready or an order is pending, and
then all computed gradients are applied and acknowledged.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dlrover_nb.core.models.learner import Gradients, Learner, device_of
from dlrover_nb.core.runtime.exchange.push_pull import BatchShare
from dlrover_nb.core.runtime.process.time_accounting import Part, TimeAccounting
from dlrover_nb.core.runtime.store.gradients import BatchCheck
from dlrover_nb.core.runtime.worker.batch_costs import BatchCosts
from dlrover_nb.core.runtime.worker.mini_batches import step_by_parts
from dlrover_nb.core.structs.job.solution_names import MEASURES
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Need

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.data import ShardReader
    from dlrover_nb.core.runtime.exchange.push_pull import ExchangeCost
    from dlrover_nb.core.runtime.store.batches import BucketLayout, PreparedBatch, ShardWork
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.training.shards import SkippedBatch, Unit

    Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TakenBatch:
    """A batch and the shard that it is of; it is computed as mini-batches of at most so many rows."""

    work: ShardWork
    batch: PreparedBatch
    most_at_once: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the gradients of a batch cannot be used, and for which of its rows the model gives no number."""

    why: str
    is_broken: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Push:
    """Gradients of one batch and its mean loss: of its distinct rows [u, width], and of all dense parameters.

    The arrays must not change until the answer has arrived. Those with a refusal are not sent.
    """

    batch: PreparedBatch
    rows: Floats
    dense: Floats
    loss: float
    refusal: Refusal | None = None  # None: they can be used
    rate: float = 1.0  # factor of the learning rate
    unit: Unit | None = None  # in which step they are summed, in deterministic training


@dataclass(frozen=True, slots=True)
class Computed:
    """The gradients of a batch, and the shard that it is of."""

    work: ShardWork
    push: Push


FIRST_STEP_LIMIT_S = 600.0  # a longer first batch counts as hung: heartbeats stop
POLL_EVERY_S = 0.1
MOST_LATE = 3  # batches in a row that come too late, before others get the rest of the shard


class ParameterClient(Protocol):
    """Access to the parameters."""

    layout: BucketLayout
    last: ExchangeCost

    @property
    def interrupted(self) -> bool:
        """Whether an order other than to train is pending."""
        ...

    @property
    def was_late(self) -> bool:
        """Whether the gradients that were sent last came too late to be used."""
        ...

    def begin(self) -> None:
        """Begin a stream of batches; no gradients are pending."""
        ...

    def end(self) -> None:
        """End the stream; all computed gradients are applied."""
        ...

    def batch_share(self, n_taken: int) -> BatchShare | None:
        """Return what the batch after `n_taken` of the stream has; None: unchanged."""
        ...

    def start(self, push: Push | None, pull: PreparedBatch | None) -> None:
        """Send gradients and request the rows of a batch; None: neither."""
        ...

    def finish(self, dense: Floats) -> Floats:
        """Wait for the answer: write the dense parameters into `dense`, return the requested rows."""
        ...


class BatchSource(Protocol):
    """Supplier of batches."""

    def take(self, share: BatchShare, layout: BucketLayout) -> TakenBatch | None:
        """Return the next batch, of at most the rows of a share; None when none is ready."""
        ...

    def skip(self, work: ShardWork, batch: SkippedBatch) -> None:
        """Handle a batch that was not trained, before its rows count as done."""
        ...

    def finish(self, work: ShardWork) -> None:
        """Handle the end of a shard: all its rows are done."""
        ...

    def rewind(self) -> None:
        """Take batches that were taken and are not done again."""
        ...

    def give_back(self, work: ShardWork) -> None:
        """Let others train what is left of a shard."""
        ...


class Trainer:
    """Model and reader of one worker.

    `read` gives the rows [start, stop) of the data. `between` is called repeatedly while the first
    batch is computed, which takes long where the model is compiled on its first use.

    Parameters
    ----------
    spec, features, reader
        The job, its columns, and the reader of its rows.
    accounting
        Accounting of time, iterations and losses.
    on_loss
        Called with each batch's loss, in order.
    folder
        The job's run folder, where a user's own code lies.

    Attributes
    ----------
    share, rate
        Of the next batches: their rows, and the factor of the learning rate.
    costs
        What a mini-batch costs on this node.
    """

    def __init__(
        self,
        spec: JobSpec,
        features: FeatureSpec,
        reader: ShardReader,
        accounting: TimeAccounting,
        *,
        on_loss: Callable[[float], None] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.read, self._accounting, self._on_loss = reader.read, accounting, on_loss
        self._overlap = spec.overlap and spec.sync is not Sync.BSP  # a barrier leaves nothing to overlap
        self.share, self._n_taken = BatchShare(spec.batch_of(spec.plan.worker.count)), 0
        self._n_late = 0  # batches in a row that came too late
        self.rate = 1.0
        self.between: Callable[[], None] = _nothing
        is_measured = spec.sync is Sync.BSP and not spec.deterministic
        worker = spec.plan.worker
        need = Need(worker.cpu, worker.memory_mib, worker.gpu)
        self.costs = BatchCosts(need, is_due=is_measured and spec.stragglers in MEASURES)
        self._is_warm, self._seed = False, spec.seed
        n_categorical, n_numeric = len(features.categorical), len(features.numeric)
        device = device_of(spec.device, spec.plan.worker.gpu)
        self.learner = Learner(
            spec.model, n_categorical, n_numeric, sequences=features.sequences, folder=folder, device=device
        )
        self._check = BatchCheck(self.learner, spec.gradient_clip_norm, is_deterministic=spec.deterministic)
        # One gradient may travel while the next one is computed.
        self._spare = [np.empty_like(self.learner.gradients) for _ in range(2 * self._overlap)]

    def run(self, source: BatchSource, client: ParameterClient) -> None:
        """Train batches, or score those of evaluation shards, until none is ready or `client` interrupts."""
        client.begin()
        goes_on = True
        while goes_on:
            self._n_taken = 0
            first = self._take(source, client)
            goes_on = first is not None and self._stream(source, client, first)
        client.end()

    def _stream(self, source: BatchSource, client: ParameterClient, first: TakenBatch) -> bool:
        """Train from a first batch on; return whether to begin again, as gradients came too late.

        One exchange is in progress per turn: it brings `sent` to the PS and returns the rows of `requested`.
        `ready` is a batch with its rows. When a last batch is ready an exchange of nothing is sent, once per
        stream.
        """
        self._send(client, None, first.batch)
        requested: TakenBatch | None = first
        sent: Computed | None = None
        ready: tuple[TakenBatch, Floats] | None = None
        while True:
            done = self._compute(source, *ready) if ready is not None else None
            following = self._take(source, client)
            rows = self._await(client)
            if sent is not None and client.was_late:
                self._retake(source, sent)
                return not client.interrupted
            self._acknowledge(source, sent)
            if client.interrupted:
                self._flush(source, client, done)
                return False
            ready = (requested, rows) if requested is not None else None
            if ready is not None and not self._overlap:
                done, ready = self._compute(source, *ready), None
            if done is None and following is None and ready is None:
                return False
            self._send(client, done.push if done else None, following.batch if following else None)
            sent, requested = done, following

    def _flush(self, source: BatchSource, client: ParameterClient, done: Computed | None) -> None:
        """Apply pending gradients before the worker executes an order, and let go of batches taken ahead.

        The order may be taken back meanwhile; then the same connection trains on.
        """
        if done is not None:
            self._send(client, done.push, None)
            self._await(client)
            self._acknowledge(source, done)
        source.rewind()

    def _retake(self, source: BatchSource, late: Computed) -> None:
        """Train a batch again that came too late; after several in a row others get the rest of its shard."""
        self._accounting.count(0)
        self._n_late += 1
        source.rewind()
        if self._n_late >= MOST_LATE:
            self._n_late = 0
            source.give_back(late.work)

    def _compute(self, source: BatchSource, task: TakenBatch, rows: Floats) -> Computed | None:
        """Return the gradients of a batch; None for one that is only scored."""
        if self.costs.is_due and self._is_warm and task.work.trains:
            self._find_cost(task.batch, rows)
        self._accounting.switch(Part.COMPUTE)
        done = None
        if task.work.trains:
            done = Computed(task.work, self._learn(task, rows))
        else:
            self._score(source, task, rows)
        self._accounting.switch(Part.OTHER)
        return done

    def _learn(self, task: TakenBatch, rows: Floats) -> Push:
        batch, unit = task.batch, task.work.shard.unit
        if unit is not None:
            self.learner.reseed(self._seed, unit.number)
        gradients = self._step(task, rows)
        dense = self.learner.gradients
        if why := self._check.why_unusable(batch, rows, gradients):
            is_broken = ~np.isfinite(self.learner.logits(rows, batch.inverse, batch.dense))
            return Push(batch, gradients.rows, dense, gradients.loss, Refusal(why, is_broken), unit=unit)
        if self._overlap:
            self._spare.reverse()
            dense = self._spare[0]
            dense[:] = self.learner.gradients
        return Push(batch, gradients.rows, dense, gradients.loss, rate=self.rate, unit=unit)

    def _step(self, task: TakenBatch, rows: Floats) -> Gradients:
        """Compute one batch; the first one in a thread, so that heartbeats go on."""
        if self._is_warm:
            return self._warm_step(task, rows)
        with ThreadPoolExecutor(1, "first-step") as pool:
            first = pool.submit(step_by_parts, self.learner, rows, task.batch, task.most_at_once)
            until_s = time.monotonic() + FIRST_STEP_LIMIT_S
            while not wait([first], POLL_EVERY_S).done and time.monotonic() < until_s:
                self.between()
            gradients = first.result()
        self._is_warm = True
        self._accounting.forget()  # compilation time belongs to no iteration
        return gradients

    def _warm_step(self, task: TakenBatch, rows: Floats) -> Gradients:
        n_row, began_s = len(task.batch.labels), time.perf_counter()
        gradients = step_by_parts(self.learner, rows, task.batch, task.most_at_once)
        self.costs.check(n_row, -(-n_row // task.most_at_once), time.perf_counter() - began_s)
        return gradients

    def _find_cost(self, batch: PreparedBatch, rows: Floats) -> None:
        """Find what a mini-batch costs here; that time belongs to no iteration."""
        self.costs.find(self.learner, rows, batch, self._accounting.n_byte() / (1 << 20), self.between)
        self._accounting.forget()

    def _score(self, source: BatchSource, task: TakenBatch, rows: Floats) -> None:
        work, batch = task.work, task.batch
        work.scores.append(self.learner.scores(rows, batch.inverse, batch.dense))
        self._count(source, work, len(batch.labels))
        self._accounting.forget()  # it is no iteration of the training

    def _acknowledge(self, source: BatchSource, sent: Computed | None) -> None:
        """Count a batch whose gradients are applied, or that is skipped."""
        if sent is None:
            return
        push, n_row, self._n_late = sent.push, len(sent.push.batch.labels), 0
        if push.refusal is not None:
            self._accounting.count(n_row)
            source.skip(sent.work, sent.work.skipped(push.refusal.why, push.refusal.is_broken))
        else:
            self._accounting.count(n_row, push.loss)
            if self._on_loss is not None:
                self._on_loss(push.loss)
        self._count(source, sent.work, n_row)

    def _count(self, source: BatchSource, work: ShardWork, n_row: int) -> None:
        work.acknowledge(n_row)
        if work.finished:
            source.finish(work)

    def _take(self, source: BatchSource, client: ParameterClient) -> TakenBatch | None:
        self._accounting.switch(Part.DATA)
        self.share = client.batch_share(self._n_taken) or self.share
        task = source.take(self.share, client.layout)
        if task is not None and task.work.trains:
            self._n_taken += 1
        self._accounting.switch(Part.OTHER)
        return task

    def _send(self, client: ParameterClient, push: Push | None, pull: PreparedBatch | None) -> None:
        self._accounting.switch(Part.LOOKUP if push is None else Part.UPDATE)
        client.start(push, pull)
        self._accounting.switch(Part.OTHER)

    def _await(self, client: ParameterClient) -> Floats:
        self._accounting.switch(Part.LOOKUP)
        rows = client.finish(self.learner.values)
        self._accounting.switch(Part.OTHER)
        self._accounting.share(Part.UPDATE, client.last.push_share)
        self._accounting.share(Part.PEERS, client.last.peers_share)
        self._accounting.count_bytes(client.last.n_byte_sent, client.last.n_byte_received)
        return rows


def _nothing() -> None:
    """Do nothing: this trainer sends no heartbeats."""

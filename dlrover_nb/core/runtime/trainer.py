"""The training loop of one worker, the same with PS behind sockets and with parameters in the own process.

A `Line` is the way to the parameters. `start` sends the gradients of one batch and asks for the rows of the
next; `finish` waits for the answer. Between the two the batch after next is prepared, so finding distinct
rows costs no time while a PS works. No gradient is computed from rows that miss the one before: gradients of
batch t are applied before the rows of batch t+1 are read (no staleness by the worker itself).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.core.models.learner import Learner
from dlrover_nb.core.runtime.batches import Layout, Prepared, ShardWork
from dlrover_nb.core.runtime.meter import Meter, Part

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from dlrover_nb.core.data import ShardReader
    from dlrover_nb.core.structs.job import FeatureSpec, JobSpec
    from dlrover_nb.core.structs.shards import Shard

    Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Push:
    """Gradients of one batch and its mean loss: of its distinct rows [u, width], and of all dense parameters.

    The arrays must stay as they are until the answer is here.
    """

    batch: Prepared
    rows: Floats
    dense: Floats
    loss: float


class Line(Protocol):
    """Way to the parameters."""

    layout: Layout

    @property
    def interrupted(self) -> bool:
        """Whether the worker is wanted for something else than the next batch."""
        ...

    def start(self, push: Push | None, pull: Prepared | None) -> None:
        """Send gradients (None: there are none) and ask for the rows of a batch (None: of none)."""
        ...

    def finish(self, dense: Floats) -> Floats:
        """Wait for the answer: write the dense parameters into `dense`, return the rows asked for."""
        ...


class Trainer:
    """Model and reader of one worker.

    Parameters
    ----------
    spec, features, reader
        The job, its columns, and the way to its rows.
    meter
        Where time, iterations and losses are counted.
    on_loss
        Called with each batch's loss, in order.
    """

    def __init__(
        self,
        spec: JobSpec,
        features: FeatureSpec,
        reader: ShardReader,
        meter: Meter,
        *,
        on_loss: Callable[[float], None] | None = None,
    ) -> None:
        self._spec, self._reader, self._meter, self._on_loss = spec, reader, meter, on_loss
        self.learner = Learner(spec.model, len(features.categorical), len(features.numeric))

    def begin(self, shard: Shard) -> ShardWork:
        """Read a shard."""
        self._meter.switch(Part.DATA)
        data = self._reader.read(shard.start, shard.stop)
        return ShardWork(shard, data, batch_size=self._spec.batch_size, seed=self._spec.seed)

    def run(self, work: ShardWork, line: Line) -> bool:
        """Go on with a shard until it is finished or the line is interrupted; whether it is finished."""
        (self._train if work.trains else self._evaluate)(work, line)
        self._meter.switch(Part.OTHER)
        return work.finished

    def _train(self, work: ShardWork, line: Line) -> None:
        index, sent = work.n_done, None
        batch = self._prepare(work, index, line)
        if batch is not None:
            line.start(None, batch)
        while batch is not None:
            index += 1
            following = self._prepare(work, index, line)
            rows = self._await(line)
            self._acknowledge(work, sent)
            if line.interrupted:
                return
            sent = self._compute(batch, rows)
            line.start(sent, following)
            batch = following
        if sent is not None:
            self._await(line)
            self._acknowledge(work, sent)

    def _compute(self, batch: Prepared, rows: Floats) -> Push:
        self._meter.switch(Part.COMPUTE)
        gradients = self.learner.step(rows, batch.inverse, batch.dense, batch.labels)
        self._meter.switch(Part.OTHER)
        return Push(batch, gradients.rows, self.learner.gradients, gradients.loss)

    def _acknowledge(self, work: ShardWork, sent: Push | None) -> None:
        """Count a batch whose gradients are applied."""
        if sent is None:
            return
        work.n_done += 1
        self._meter.count(len(sent.batch.labels), sent.loss)
        if self._on_loss is not None:
            self._on_loss(sent.loss)

    def _evaluate(self, work: ShardWork, line: Line) -> None:
        batch = self._prepare(work, work.n_done, line)
        if batch is not None:
            line.start(None, batch)
        while batch is not None:
            following = self._prepare(work, work.n_done + 1, line)
            rows = self._await(line)
            if line.interrupted:
                return
            self._meter.switch(Part.COMPUTE)
            work.scores.append(self.learner.scores(rows, batch.inverse, batch.dense))
            work.n_done += 1
            self._meter.switch(Part.OTHER)
            if following is not None:
                line.start(None, following)
            batch = following

    def _prepare(self, work: ShardWork, index: int, line: Line) -> Prepared | None:
        self._meter.switch(Part.DATA)
        prepared = work.batch(index, line.layout)
        self._meter.switch(Part.OTHER)
        return prepared

    def _await(self, line: Line) -> Floats:
        self._meter.switch(Part.LOOKUP)
        rows = line.finish(self.learner.values)
        self._meter.switch(Part.OTHER)
        return rows

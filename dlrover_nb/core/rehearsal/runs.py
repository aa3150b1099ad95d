"""One run of a rehearsal: the job's own learner, store and optimizer, with the delay of virtual workers.

A virtual worker computes its gradients at once from the parameters that it reads, and they wait until it is
its turn to push. So one learner serves all workers, and a run costs what plain training of its rows costs,
whatever the delay. Without delay it is plain training, to the bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.models.learner import Learner
from dlrover_nb.core.models.metrics import evaluate
from dlrover_nb.core.rehearsal.delays import exchanges
from dlrover_nb.core.rehearsal.ways import Arrival
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.runtime.store.gradients import BatchCheck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dlrover_nb.core.rehearsal.delays import Delay
    from dlrover_nb.core.rehearsal.sample import Sample
    from dlrover_nb.core.rehearsal.ways import Updates, Way
    from dlrover_nb.core.runtime.store.batches import PreparedBatch
    from dlrover_nb.core.structs.views.snapshot import Evaluation

    Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Run:
    """What one run gave.

    Parameters
    ----------
    seed
        Offset from the job's seed.
    loss, auc
        On the held-out rows, after the last pass.
    age
        Mean age of its gradients, in updates by other workers.
    n_update, n_skipped
        Updates that were applied, and batches whose gradients could not be used.
    """

    way: str
    delay: Delay
    seed: int
    loss: float
    auc: float
    age: float
    n_update: int
    n_skipped: int = 0

    @property
    def has_diverged(self) -> bool:
        """Whether its model gives no numbers any more."""
        return not (math.isfinite(self.loss) and math.isfinite(self.auc))


@dataclass(slots=True)
class _InFlight:
    """A gradient that was computed and not pushed yet; `n_other` counts what others had applied by then."""

    arrival: Arrival | None  # None: it cannot be used
    n_other: int


class Trial:
    """The training of one run.

    Parameters
    ----------
    sample
        The rows, and the job that they are of.
    delay, way
        What is imposed, and how gradients are applied.
    batch_size
        Samples of a worker's mini-batch; None: that of the job.
    seed
        Added to the job's seeds: of the first parameters, and of the order of rows.
    n_epoch
        Passes.

    Attributes
    ----------
    ages
        Of the gradients that arrived, in that order.
    store
        The parameters.
    """

    def __init__(
        self,
        sample: Sample,
        delay: Delay,
        way: Way,
        *,
        seed: int = 0,
        n_epoch: int = 1,
        batch_size: int | None = None,
    ) -> None:
        self._sample, self._delay, self._way = sample, delay, way
        self._seed, self._n_epoch = seed, n_epoch
        spec, features = sample.spec, sample.features
        self._batch_size = batch_size or spec.batch_size
        model = replace(spec.model, seed=spec.model.seed + seed)
        n_categorical, n_numeric = len(features.categorical), len(features.numeric)
        self._learner = Learner(
            model, n_categorical, n_numeric, sequences=features.sequences, folder=sample.folder
        )
        self.store = ParameterStore(model, features.n_table_row, len(self._learner.values))
        self.store.init_dense(self._learner.values)
        self._checks = [BatchCheck(self._learner, spec.gradient_clip_norm) for _ in range(delay.n_worker)]
        self._n_own = [0] * delay.n_worker
        self._n_update = self._n_skipped = 0
        self.ages: list[int] = []

    def steps(self) -> Iterator[None]:
        """Train; yields after each exchange, so that a caller may say how far it is, or leave."""
        sample, n_epoch, size = self._sample, self._n_epoch, self._batch_size
        batches = sample.batches(sample.spec.seed + self._seed, n_epoch, size)
        generator = np.random.default_rng([self._seed, self._delay.n_worker])
        in_flight: dict[int, _InFlight] = {}
        for exchange in exchanges(self._delay, self.n_batch, generator):
            if exchange.push is not None:
                self._push(exchange.worker, in_flight.pop(exchange.push))
            if exchange.pull is not None:
                in_flight[exchange.pull] = self._compute(exchange.worker, exchange.pull, next(batches))
            yield
        self._count(self._way.finish(self.store))

    @property
    def n_batch(self) -> int:
        """Batches of all its passes."""
        return self._sample.n_batch(self._n_epoch, self._batch_size)

    def result(self) -> Run:
        """Score the held-out rows.

        Raises
        ------
        InvalidValueError
            When these are all of one class.
        """
        quality = self.evaluate()
        age = float(np.mean(self.ages)) if self.ages else 0.0
        seed, n_update, n_skipped = self._seed, self._n_update, self._n_skipped
        return Run(self._way.name, self._delay, seed, quality.log_loss, quality.auc, age, n_update, n_skipped)

    def evaluate(self) -> Evaluation:
        """Return the quality on the held-out rows as the parameters are now."""
        held_out = self._sample.held_out
        return evaluate(
            np.concatenate([self.scores(batch) for batch in held_out]),
            np.concatenate([batch.labels for batch in held_out]),
        )

    def scores(self, batch: PreparedBatch) -> Floats:
        """Return the probabilities of a batch."""
        self._learner.values[:] = self.store.dense
        return self._learner.scores(self.store.pull(batch.rows), batch.inverse, batch.dense)

    def _compute(self, worker: int, number: int, batch: PreparedBatch) -> _InFlight:
        """Return the gradients of a batch from the parameters of now."""
        rows, learner = self.store.pull(batch.rows), self._learner
        self.store.read_dense(learner.values)
        gradients = learner.step(rows, batch.inverse, batch.dense, batch.labels)
        n_other = self._n_update - self._n_own[worker]
        if self._checks[worker].why_unusable(batch, rows, gradients):
            self._n_skipped += 1
            return _InFlight(None, n_other)
        dense, n_row = learner.gradients.copy(), len(batch.labels)
        return _InFlight(Arrival(worker, number, n_row, batch.rows, gradients.rows, dense, 0), n_other)

    def _push(self, worker: int, gradient: _InFlight) -> None:
        if gradient.arrival is None:
            return
        age = self._n_update - self._n_own[worker] - gradient.n_other
        self.ages.append(age)
        self._count(self._way.take(replace(gradient.arrival, age=age), self.store))

    def _count(self, updates: Updates) -> None:
        """Count updates; one with gradients of a single worker is its own, as in `UpdateAges`."""
        self._n_update += len(updates)
        for contributors in updates:
            if len(contributors) == 1:
                (alone,) = contributors
                self._n_own[alone] += 1

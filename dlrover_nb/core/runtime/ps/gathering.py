"""Gradients of workers on one PS that gathers them into global batches (`sync: gba`).

Each PS gathers for itself. All get every batch, so they make as many steps of as many rows; which batches are
in a step differs between two PS by those that are under way when it ends. That changes nothing for any
parameter: each one lies on one PS and gets means of global batches alone, as in asynchronous training each PS
applies gradients in the order of its own.

What has been gathered was acknowledged to its workers: it belongs to the parameters, though they do not show
it yet. So `settle` must be called before they are copied or leave: `Serving.settle` is the one way, and the
master pauses all workers before it orders either. A PS that ends without loses it with its parameters, and
rows that were trained since the last checkpoint are trained again.

A global batch has the rows that a step of synchronous training would have: those that the job asks for, or
one batch of each worker that trains here. Workers that were given up do not count any more; the gradients
that they brought stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import WireError
from dlrover_nb.core.runtime.ps.global_batch import Gathered, GlobalBatch

if TYPE_CHECKING:
    from dlrover_nb.core.runtime.exchange.push_pull import Exchange
    from dlrover_nb.core.runtime.ps.global_batch import GlobalStep
    from dlrover_nb.core.runtime.ps.gradient_rounds import Gradients
    from dlrover_nb.core.runtime.ps.update_ages import UpdateAges
    from dlrover_nb.core.runtime.store import ParameterStore
    from dlrover_nb.core.structs.job.job import JobSpec


class Gathering:
    """What one PS gathers while it serves an epoch.

    Parameters
    ----------
    spec
        Size of a global batch, and the age up to which gradients count in full (`staleness`).
    ages
        Of gradients by connection.
    store
        What steps are applied to.
    """

    def __init__(self, spec: JobSpec, ages: UpdateAges, store: ParameterStore) -> None:
        self._spec, self._ages, self._store = spec, ages, store
        self._batch = GlobalBatch(tolerance=spec.staleness, n_average=store.n_average)
        self._contributors: set[tuple[bytes, str]] = set()  # connections of the open step
        self._workers: set[str] = set()

    @property
    def members(self) -> tuple[str, ...]:
        """Workers that have brought gradients."""
        return tuple(sorted(self._workers))

    @property
    def size(self) -> int:
        """Rows of a global batch."""
        return self._spec.global_batch or self._spec.batch_size * max(1, len(self._workers))

    def forget(self, worker: str) -> None:
        """Do not count a worker any more; its gradients stay."""
        self._workers.discard(worker)

    def take(self, identity: bytes, worker: str, request: Exchange, gradients: Gradients) -> None:
        """Gather the gradients of a request, if it brings any, and apply the step that they complete.

        Raises
        ------
        WireError
            When they cannot be applied: nothing is gathered then.
        """
        rows, row_gradients, dense = gradients
        if request.n_row:
            if not len(rows):  # a bell does not say how wide no rows are
                row_gradients = np.empty((0, self._store.answer_shape[0]), np.float32)
            self._store.check_push(rows, row_gradients, dense)
            self._workers.add(worker)
            self._contributors.add((identity, worker))
            age = self._ages.count_gathered(identity, worker)
            part = Gathered(age, request.n_row, (rows, row_gradients, dense), request.rate)
            self._apply(self._batch.add(part, self.size))
        elif len(rows) or len(dense):
            raise WireError("gradients to gather came without the number of their rows; run one release")
        self._ages.count_read(identity, worker)

    def settle(self) -> None:
        """Apply what has been gathered, as a smaller step."""
        self._apply(self._batch.flush())

    def _apply(self, step: GlobalStep | None) -> None:
        if step is None:
            return
        rows, row_gradients, dense = step.gradients
        if len(rows):
            self._store.push(rows, row_gradients)
        if len(dense):
            self._store.push_dense(dense)
        self._ages.count_step(self._contributors)
        self._contributors = set()

"""All parameters of a job in one of its workers, and the gradients of a step.

They are those of a parameter server that holds everything: the same store, optimizer and initial rows, so a
checkpoint of one kind of job fits the other. Rows of embedding tables are sparse in a step, so workers gather
the rows that each has touched and sum them; the dense parameters are summed as one vector. All workers apply
the same sums in the same order, so their parameters are the same to the bit.
"""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from dlrover_nb.core.models.learner import CPU, Learner
from dlrover_nb.core.runtime.kernels import kernel
from dlrover_nb.core.runtime.store import ParameterStore, StorePart
from dlrover_nb.core.runtime.store.gradients import BatchCheck

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.store.batches import PreparedBatch
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec

    Floats = NDArray[np.float32]
    Ids = NDArray[np.int64]


class Replica:
    """The parameters of one worker.

    Parameters
    ----------
    spec, features
        The job and its columns.
    folder
        The run folder, where a user's own code lies.
    device
        Where batches are computed; parameters and sums stay in the memory of the host.

    Attributes
    ----------
    flat
        Sums of the dense gradients of this step, and room for the tail of `bind`.
    n_row, n_batch, loss
        Rows and batches of this step, and the sum of the rows' losses.
    batch_s
        How long the gradients of the last batch took, without the reading of its parameters.
    """

    def __init__(
        self,
        spec: JobSpec,
        features: FeatureSpec,
        *,
        folder: Path | None = None,
        device: torch.device = CPU,
    ) -> None:
        n_categorical, n_numeric = len(features.categorical), len(features.numeric)
        self.learner = Learner(
            spec.model, n_categorical, n_numeric, sequences=features.sequences, folder=folder, device=device
        )
        self._n_dense, self._width = len(self.learner.values), spec.model.row_width
        self.store = ParameterStore(spec.model, features.n_table_row, self._n_dense)
        self.store.init_dense(self.learner.values)
        self._check = BatchCheck(self.learner, spec.gradient_clip_norm)
        self.batch_s = 0.0
        self.bind(0)

    def bind(self, n_tail: int) -> None:
        """Make room for `n_tail` numbers after the gradients, and begin a step."""
        self.flat = torch.zeros(self._n_dense + n_tail)
        self._dense: Floats = self.flat[: self._n_dense].numpy()
        self.clear()

    def clear(self) -> None:
        """Begin a step."""
        self._dense[:] = 0
        self._rows: list[tuple[Ids, Floats]] = []
        self.n_row = self.n_batch = 0
        self.loss = 0.0

    @property
    def n_item(self) -> int:
        """Rows of tables that this step touches here; one may count for each of its batches."""
        return sum(len(ids) for ids, _ in self._rows)

    def learn(self, batch: PreparedBatch) -> str:
        """Add the gradients of a batch to the step; return why they cannot be used, and were not added."""
        rows = self.store.pull(batch.rows)
        began_s = time.perf_counter()
        gradients = self.learner.step(rows, batch.inverse, batch.dense, batch.labels)
        self.batch_s = time.perf_counter() - began_s
        self.n_batch += 1
        if why := self._check.why_unusable(batch, rows, gradients):
            return why
        dense = self.learner.gradients
        n_row = len(batch.labels)
        np.multiply(dense, np.float32(n_row), out=dense)
        np.add(self._dense, dense, out=self._dense)
        self._rows.append((batch.rows, gradients.rows * np.float32(n_row)))
        self.n_row, self.loss = self.n_row + n_row, self.loss + gradients.loss * n_row
        return ""

    def packed(self) -> torch.Tensor:
        """Return the rows of this step, each an id and its gradients, uint8 [n_item, 8 + 4 * width]."""
        data = np.empty((self.n_item, 8 + 4 * self._width), np.uint8)
        start = 0
        for ids, gradients in self._rows:
            stop = start + len(ids)
            data[start:stop, :8] = ids.view(np.uint8).reshape(-1, 8)
            data[start:stop, 8:] = np.ascontiguousarray(gradients).view(np.uint8).reshape(stop - start, -1)
            start = stop
        return torch.from_numpy(data)

    def apply(self, n_row: int, gathered: list[torch.Tensor]) -> None:
        """Apply a step of `n_row` rows of all workers: `flat` holds its sums, `gathered` the rows of each."""
        data = np.concatenate([each.numpy() for each in gathered])
        ids = np.ascontiguousarray(data[:, :8]).view(np.int64).ravel()
        gradients = np.ascontiguousarray(data[:, 8:]).view(np.float32)
        distinct, inverse = kernel().distinct(ids)
        sums = torch.zeros(len(distinct), self._width)
        sums.index_add_(0, torch.from_numpy(inverse), torch.from_numpy(gradients))
        self.store.push(distinct, sums.div_(n_row).numpy())
        np.divide(self._dense, np.float32(n_row), out=self._dense)
        self.store.push_dense(self._dense)
        self.learner.values[:] = self.store.dense

    def dump(self) -> torch.Tensor:
        """Return all parameters with their optimizer's state, as bytes."""
        part, buffer = self.store.export(), io.BytesIO()
        np.savez(buffer, ids=part.ids, table=part.table, dense=part.dense)
        return torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)

    def load(self, data: torch.Tensor) -> None:
        """Take over what another worker dumped."""
        with np.load(io.BytesIO(data.numpy().tobytes())) as arrays:
            self.take(StorePart(arrays["ids"], arrays["table"], 0, arrays["dense"]))

    def take(self, part: StorePart) -> None:
        """Take over the parameters of a part of a checkpoint."""
        self.store.absorb(part)
        self.store.load_dense(part)
        self.learner.values[:] = self.store.dense

"""Forward and backward pass of one batch, with the dense parameters and gradients as one buffer each.

A worker then sends and receives one array per PS, and nothing is copied parameter by parameter. The optimizer
is not here: gradients are applied where the parameters live. Running averages follow the parameters in both
buffers, each with the share of a batch in the place of a gradient (`batch_norms`).
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.batch_norms import BatchNorms
from dlrover_nb.core.models.built_in import histories_of, model_kind
from dlrover_nb.core.models.custom import Built, build
from dlrover_nb.core.models.inputs import TAKES, split_inputs, takes_sequences
from dlrover_nb.core.models.trainable import CUSTOM, Columns
from dlrover_nb.core.usercode import load

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.structs.data.features import SequenceInput
    from dlrover_nb.core.structs.job.job import ModelSpec

    Floats = NDArray[np.float32]
    Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gradients:
    """Result of one batch: its mean loss, and gradients of its distinct rows [u, row_width]."""

    loss: float
    rows: Floats


class Learner:
    """A model and its flat views.

    `values` and `gradients` are float32 arrays over all dense parameters, then averages. They share memory
    with torch's tensors: write new values into the first, read the second after `step`. Of `gradients`, the
    first part is `parameter_gradients`, and the second `shares` of the batch in averages.

    Parameters
    ----------
    model
        What to build, and from which seed.
    n_categorical, n_numeric
        Columns of the data.
    sequences
        Those of the columns of ids that are sequences.
    folder
        The job's run folder, where a user's own code lies.

    Raises
    ------
    InvalidValueError
        When the user's code cannot be used, or has other averages than those of `model`.
    """

    def __init__(
        self,
        model: ModelSpec,
        n_categorical: int,
        n_numeric: int,
        *,
        sequences: tuple[SequenceInput, ...] = (),
        folder: Path | None = None,
    ) -> None:
        columns = Columns(n_categorical, n_numeric, model.embedding_dim, sequences)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(model.seed)
            built = _built(model, columns, folder)
        self._module, self._loss = built.module, built.loss
        self._columns, self._takes_sequences = columns, takes_sequences(built.module)
        self._norms = BatchNorms(self._module)
        _check_averages(model, self._norms)
        values, gradients = _flatten(self._module, self._norms.buffers)
        self.values: Floats = values.numpy()
        self.gradients: Floats = gradients.numpy()
        n_parameter = len(self.values) - model.n_average
        self.parameter_gradients, self.shares = np.split(self.gradients, [n_parameter])
        self._averages: Floats = self.values[n_parameter:]

    def step(self, rows: Floats, inverse: Ids, dense: Floats, labels: Floats) -> Gradients:
        """Return loss and row gradients of one batch; `gradients` holds the dense ones afterwards.

        It leaves `values` as they are, averages too: a batch may be skipped.

        Parameters
        ----------
        rows
            Values of the distinct rows, [u, row_width].
        inverse
            For each id of the batch, row by row, its place in `rows`, u for padding: [batch * n_slot].
        """
        self.gradients[:] = 0
        leaf = _tensor(rows).requires_grad_()
        if not self._module.training:
            self._module.train()
        before, counts = self._averages.copy(), self._norms.counts()
        loss = self._loss(self._logits(leaf, inverse, dense), _tensor(labels))
        torch.autograd.backward(loss)
        self._norms.write_shares(self.shares, before, self._averages, counts)
        self._averages[:] = before
        assert leaf.grad is not None
        return Gradients(float(loss.detach()), leaf.grad.numpy())

    def kept_bytes(self, rows: Floats, inverse: Ids, dense: Floats, labels: Floats) -> int:
        """Return the memory that the forward pass of a batch keeps for the backward one; as in `step`."""
        storages: dict[int, torch.UntypedStorage] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage  # held, else the next tensor could be at its address
            return torch.empty(0)  # the tensor itself would keep the graph for ever

        self._module.train()
        before, counts = self._averages.copy(), self._norms.counts()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            self._loss(self._logits(_tensor(rows).requires_grad_(), inverse, dense), _tensor(labels))
        self._norms.write_shares(self.shares, before, self._averages, counts)
        self._averages[:] = before
        return sum(each.nbytes() for each in storages.values())

    def scores(self, rows: Floats, inverse: Ids, dense: Floats) -> Floats:
        """Return the probabilities of one batch; arguments as in `step`."""
        probabilities: Floats = torch.sigmoid(torch.from_numpy(self.logits(rows, inverse, dense))).numpy()
        return probabilities

    def logits(self, rows: Floats, inverse: Ids, dense: Floats) -> Floats:
        """Return what the probabilities of one batch are made of; arguments as in `step`."""
        if self._module.training:
            self._module.eval()
        with torch.inference_mode():
            logits: Floats = self._logits(_tensor(rows), inverse, dense).numpy()
        return logits

    def _logits(self, rows: torch.Tensor, inverse: Ids, dense: Floats) -> torch.Tensor:
        places = torch.from_numpy(inverse).view(len(dense), -1)
        embedded, items = split_inputs(rows, places, self._columns.n_categorical, self._columns.sequences)
        more = {TAKES: items} if self._takes_sequences else {}
        logits: torch.Tensor = self._module(embedded, _tensor(dense), **more)
        return logits


def set_threads(n_thread: int) -> None:
    """Let torch compute with so many threads."""
    torch.set_num_threads(n_thread)


def _tensor(array: Floats) -> torch.Tensor:
    """Share memory with `array` where possible; torch accepts no read-only array, such as a message's."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _built(model: ModelSpec, columns: Columns, folder: Path | None) -> Built:
    if model.name == CUSTOM:
        return build(load(model.code, folder), columns)
    module, _, attribute = model_kind(model.name).module.partition(":")
    kind: type[nn.Module] = getattr(importlib.import_module(module), attribute)
    return Built(
        kind(model, columns.n_categorical, columns.n_numeric, *histories_of(model.name, columns.sequences)),
        functional.binary_cross_entropy_with_logits,
    )


def _check_averages(model: ModelSpec, norms: BatchNorms) -> None:
    if norms.averages != model.averages:
        raise InvalidValueError(
            f"expected a model with running averages {model.averages}, as it was when it was submitted, "
            f"got {norms.averages}; its code has changed since: submit it anew"
        )


def _flatten(module: nn.Module, averages: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Move parameters, then averages, into one flat tensor, and gradients into another; return both."""
    parameters = list(module.parameters())
    total = sum(each.numel() for each in (*parameters, *averages))
    values, gradients = torch.empty(total), torch.zeros(total)
    start = 0
    for each in (*parameters, *averages):
        stop = start + each.numel()
        values[start:stop] = each.data.reshape(-1)
        each.data = values[start:stop].view_as(each)
        if isinstance(each, nn.Parameter):
            each.grad = gradients[start:stop].view_as(each)
        start = stop
    return values, gradients

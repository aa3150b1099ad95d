"""Forward and backward pass of one batch, with the dense parameters and gradients as one buffer each.

A worker then sends and receives one array per PS, and nothing is copied parameter by parameter. The optimizer
is not here: gradients are applied where the parameters live. Running averages follow the parameters in both
buffers, each with the share of a batch in the place of a gradient (`batch_norms`).

On a device the module has buffers of its own there, and those of the host are copied to them and from them
once a batch, as whole: the exchange with the PS is of the host. On the CPU both are one, and nothing is
copied.
"""

from __future__ import annotations

import importlib
import logging
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
from dlrover_nb.core.models.elastic.net import ElasticNet
from dlrover_nb.core.models.inputs import TAKES, split_inputs, takes_sequences
from dlrover_nb.core.models.trainable import CUSTOM, Columns
from dlrover_nb.core.structs.job.spec_choices import Device
from dlrover_nb.core.usercode import load

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.structs.data.features import SequenceInput
    from dlrover_nb.core.structs.job.job import ModelSpec

    Floats = NDArray[np.float32]
    Ids = NDArray[np.int64]

_log = logging.getLogger(__name__)
CPU = torch.device("cpu")


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
    device
        Where batches are computed; see `device_of`.

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
        device: torch.device = CPU,
    ) -> None:
        columns = Columns(n_categorical, n_numeric, model.embedding_dim, sequences)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(model.seed)
            built = _built(model, columns, folder)
        self._module, self._loss = built.module, built.loss
        self._columns, self._takes_sequences = columns, takes_sequences(built.module)
        self._norms = BatchNorms(self._module)
        _check_averages(model, self._norms)
        self._device, self._mirror = device, _mirrored(self._module, self._norms, device)
        host = self._mirror or _flat(self._module, self._norms.buffers, CPU)
        self.values: Floats = host.values.numpy()
        self.gradients: Floats = host.gradients.numpy()
        n_parameter = len(self.values) - model.n_average
        self.parameter_gradients, self.shares = np.split(self.gradients, [n_parameter])
        self._averages: Floats = self.values[n_parameter:]

    @property
    def module(self) -> nn.Module:
        """What is trained; its parameters are `values`."""
        return self._module

    @property
    def is_on_gpu(self) -> bool:
        """Whether batches are computed on a GPU."""
        return self._device.type == "cuda"

    def reseed(self, seed: int, number: int) -> None:
        """Let what torch draws from now on, as in a dropout, follow from a seed and the number of a batch."""
        torch.manual_seed(int(np.random.SeedSequence([abs(seed), number]).generate_state(1, np.uint64)[0]))

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
        if self._mirror is not None:
            self._mirror.load()
        leaf = self._tensor(rows).requires_grad_()
        if not self._module.training:
            self._module.train()
        before, counts = self._averages.copy(), self._norms.counts()
        loss = self._loss(self._logits(leaf, inverse, dense), self._tensor(labels))
        torch.autograd.backward(loss)
        if self._mirror is not None:
            self._mirror.store()
        self._norms.write_shares(self.shares, before, self._averages, counts)
        self._averages[:] = before
        assert leaf.grad is not None
        return Gradients(float(loss.detach()), leaf.grad.cpu().numpy())

    def kept_bytes(self, rows: Floats, inverse: Ids, dense: Floats, labels: Floats) -> int:
        """Return the memory of the host that the forward pass of a batch keeps for the backward one.

        Arguments are those of `step`. A device keeps it in a memory of its own: 0.
        """
        if self._mirror is not None:
            return 0
        storages: dict[int, torch.UntypedStorage] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage  # held, else the next tensor could be at its address
            return torch.empty(0)  # the tensor itself would keep the graph for ever

        self._module.train()
        before, counts = self._averages.copy(), self._norms.counts()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            leaf = self._tensor(rows).requires_grad_()
            self._loss(self._logits(leaf, inverse, dense), self._tensor(labels))
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
        if self._mirror is not None:
            self._mirror.load()
        with torch.inference_mode():
            logits: Floats = self._logits(self._tensor(rows), inverse, dense).cpu().numpy()
        return logits

    def _logits(self, rows: torch.Tensor, inverse: Ids, dense: Floats) -> torch.Tensor:
        places = torch.from_numpy(inverse).to(self._device).view(len(dense), -1)
        if isinstance(self._module, ElasticNet):
            of_rows: torch.Tensor = self._module(rows, places, self._tensor(dense))
            return of_rows
        embedded, items = split_inputs(rows, places, self._columns.n_categorical, self._columns.sequences)
        more = {TAKES: items} if self._takes_sequences else {}
        logits: torch.Tensor = self._module(embedded, self._tensor(dense), **more)
        return logits

    def _tensor(self, array: Floats) -> torch.Tensor:
        """Return an array where batches are computed; on the CPU it shares memory that may be written."""
        return torch.from_numpy(array if array.flags.writeable else array.copy()).to(self._device)


def device_of(choice: Device, n_gpu: int) -> torch.device:
    """Return where a worker computes batches.

    Parameters
    ----------
    choice
        Of the job.
    n_gpu
        GPUs that the worker has for itself. Without one, `Device.AUTO` leaves those of the machine to others.

    Raises
    ------
    InvalidValueError
        When the job insists on one, and torch can use none.
    """
    if choice is Device.CPU or (choice is Device.AUTO and not n_gpu):
        return CPU
    if torch.cuda.is_available():
        return torch.device("cuda")
    if choice is Device.AUTO:
        _log.warning("torch %s can use no GPU here, so this worker computes on cores", torch.__version__)
        return CPU
    raise InvalidValueError(
        f"device cuda needs a GPU that torch can use, got torch {torch.__version__} without one; use an "
        "image with a CUDA build of torch and plan.worker.gpu: 1, or device: auto"
    )


def set_threads(n_thread: int) -> None:
    """Let torch compute with so many threads."""
    torch.set_num_threads(n_thread)


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


@dataclass(frozen=True, slots=True)
class _Flat:
    """All parameters, then averages, and all gradients, as a tensor each."""

    values: torch.Tensor
    gradients: torch.Tensor


@dataclass(frozen=True, slots=True)
class _Mirror(_Flat):
    """Flat tensors of the host, and those of the same module on a device."""

    device: _Flat
    n_average: int

    def load(self) -> None:
        """Begin a batch: with the host's values, and no gradients."""
        self.device.values.copy_(self.values, non_blocking=True)
        self.device.gradients.zero_()

    def store(self) -> None:
        """End a batch: the host gets gradients, and averages as the batch left them."""
        self.gradients.copy_(self.device.gradients)
        if self.n_average:
            self.values[-self.n_average :].copy_(self.device.values[-self.n_average :])


def _mirrored(module: nn.Module, norms: BatchNorms, device: torch.device) -> _Mirror | None:
    """Move a module to a device; None: it is to stay on the CPU."""
    if device == CPU:
        return None
    averages = norms.buffers
    parts = [each.detach().reshape(-1) for each in (*module.parameters(), *averages)]
    values = torch.cat(parts) if parts else torch.empty(0)
    module.to(device)
    flat = _flat(module, norms.buffers, device)
    return _Mirror(values, torch.zeros(len(values)), flat, sum(each.numel() for each in averages))


def _flat(module: nn.Module, averages: list[torch.Tensor], device: torch.device) -> _Flat:
    """Move parameters, then averages, into one flat tensor, and gradients into another; return both."""
    parameters = list(module.parameters())
    total = sum(each.numel() for each in (*parameters, *averages))
    values, gradients = torch.empty(total, device=device), torch.zeros(total, device=device)
    start = 0
    for each in (*parameters, *averages):
        stop = start + each.numel()
        values[start:stop] = each.data.reshape(-1)
        each.data = values[start:stop].view_as(each)
        if isinstance(each, nn.Parameter):
            each.grad = gradients[start:stop].view_as(each)
        start = stop
    return _Flat(values, gradients)

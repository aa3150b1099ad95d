"""Running statistics of batch normalizations, as a part of a module's flat dense vector.

A layer normalizes each training batch by the batch's own mean and variance, and keeps their running averages
for evaluation: r becomes (1 - momentum) r + momentum b. Parameter servers hold these averages as the last
elements of the dense vector, so that checkpoints, restarts and changes of PS carry them as they carry
parameters. A worker pushes the share of a batch, s = momentum b, and the PS computes (1 - momentum) r + s
from the r that it has then. So the average is that of one process which saw the batches of all workers in the
order in which they arrived, and always lies between them.

Rejected: adding the difference that a batch makes to a worker's r. Differences of many workers to one old r
add up, and beyond some sixteen workers of momentum 0.1 the sum swings ever wider. Rejected: averages of each
worker's own, merged at checkpoints (as DDP keeps those of rank 0, and FedAvg means them): a worker that ends
loses its own, and one that joins begins with none.

A layer that is called k times for one batch pushes the mean of its batches as one, later ones weighing more,
as in r itself. One that is not called pushes what it pulled, which changes nothing.

One value of each channel has no variance, and torch refuses it: a batch of one row, as the last one of a
shard may be, or lists that hold one item in all. A layer normalizes it by its running statistics, as in
evaluation, and leaves them as they are, so the batch trains all that it can. Rejected: skipping such batches,
of which jobs with short lists have many, and ending the job, as torch does with a program.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
from torch import nn

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.job import Averages

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Norm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d

_AVERAGES, _COUNTER = ("running_mean", "running_var"), "num_batches_tracked"


class BatchNorms:
    """The batch normalizations of a module that keep running statistics; they take single values from now on.

    Parameters
    ----------
    module
        The user's.

    Attributes
    ----------
    averages
        Their running averages as parts of the dense vector; layers of one weight in a row are together.

    Raises
    ------
    InvalidValueError
        When the weight of a batch is not fixed.
    """

    def __init__(self, module: nn.Module) -> None:
        named = [(name, each) for name, each in module.named_modules() if _keeps_statistics(each)]
        of = type(module).__name__
        weighted = [(layer, _weight(f"{name} of {of}", layer.momentum)) for name, layer in named]
        self._norms = [layer for layer, _ in weighted]
        for layer in self._norms:
            _let_take_one_value(layer)
        self._layers = [(layer, weight) for layer, weight in weighted if weight]  # 0: averages stay as built
        sizes = [(2 * layer.num_features, weight) for layer, weight in self._layers]
        self.averages = tuple(
            Averages(sum(n for n, _ in group), weight)
            for weight, group in groupby(sizes, lambda size: size[1])
        )

    @property
    def buffers(self) -> list[torch.Tensor]:
        """Their running averages, in the order of the dense vector; others once the module is on a device."""
        return [getattr(layer, name) for layer, _ in self._layers for name in _AVERAGES]

    def may_change(self) -> set[int]:
        """Return the ids of the buffers that training may change: averages, and counters of batches."""
        return {id(getattr(layer, name)) for layer in self._norms for name in (*_AVERAGES, _COUNTER)}

    def counts(self) -> list[int]:
        """Return how often each layer has updated its averages."""
        return [int(getattr(layer, _COUNTER)) for layer, _ in self._layers]

    def write_shares(self, out: Floats, before: Floats, after: Floats, counts: list[int]) -> None:
        """Write the shares of a batch: a PS adds them to (1 - weight) times the averages that it holds.

        Parameters
        ----------
        out, before, after
            All averages: where to write, and those before and after the batch.
        counts
            `counts` before the batch.
        """
        start = 0
        for (layer, weight), n_before, n_after in zip(self._layers, counts, self.counts(), strict=True):
            mine = slice(start, start := start + 2 * layer.num_features)
            left = (1 - weight) ** max(n_after - n_before, 1)  # of the averages before
            new = after[mine].astype(np.float64) - left * before[mine]
            out[mine] = new * (weight / (1 - left))


def _keeps_statistics(module: nn.Module) -> TypeGuard[Norm]:
    return (
        isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
        and module.track_running_stats
        and module.running_mean is not None
    )


def _let_take_one_value(layer: Norm) -> None:
    """Let a layer take one value of each channel in training, too; see the module."""
    forward = layer.forward

    def forward_any(input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's name of it
        if not layer.training or input.numel() != layer.num_features:
            return forward(input)
        layer.eval()
        try:
            return forward(input)
        finally:
            layer.train()

    layer.forward = forward_any  # type: ignore[method-assign]  # of this layer alone


def _weight(name: str, momentum: float | None) -> float:
    """Return the weight of a batch in the averages of a layer."""
    if momentum is None or not 0 <= momentum <= 1:
        raise InvalidValueError(
            f"momentum of batch normalization {name} must be a number from 0 to 1, got {momentum}; set one "
            "such as 0.1 (None, the average of all batches alike, needs the number of batches of all workers)"
        )
    return float(momentum)

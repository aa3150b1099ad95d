"""Parts of the built-in models: the deep part, the input vector, the wide part."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Sequence


def perceptron(n_input: int, hidden: Sequence[int]) -> nn.Sequential:
    """Return layers of `hidden` units with ReLU, and one output: the deep part of all three models."""
    widths = (n_input, *hidden)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 1))


def divided(embedded: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return embeddings, [batch, n_categorical, dim], and the sum of wide weights, [batch].

    The wide weight is the last of the `dim` + 1 floats of a row.
    """
    apply: Any = _Divided.apply  # without types
    embeddings, wide = apply(embedded, dim)
    return embeddings, wide


def joined(embeddings: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
    """Return embeddings and numbers of a row as one vector: [batch, n_categorical * dim + n_numeric]."""
    return torch.cat([embeddings.flatten(1), dense], 1)


class _Divided(torch.autograd.Function):
    """Both parts of a row at once: autograd fills a tensor for each slice of one, and adds them."""

    @staticmethod
    def forward(
        ctx: object,  # noqa: ARG004 - as torch calls it
        embedded: torch.Tensor,
        dim: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return embedded[:, :, :dim], embedded[:, :, dim].sum(1)

    @staticmethod
    def backward(
        ctx: object,  # noqa: ARG004 - as torch calls it
        *of_parts: torch.Tensor,
    ) -> tuple[torch.Tensor, None]:
        of_embeddings, of_wide = of_parts
        batch, n, dim = of_embeddings.shape
        gradient = of_embeddings.new_empty(batch, n, dim + 1)
        gradient[:, :, :dim] = of_embeddings
        gradient[:, :, dim] = of_wide[:, None]
        return gradient, None


class Linear(nn.Module):
    """Linear part on the numbers; like `nn.Linear`, but data without numbers leave it its bias."""

    def __init__(self, n_numeric: int) -> None:
        super().__init__()
        bound = max(n_numeric, 1) ** -0.5
        self.weight = nn.Parameter(torch.empty(n_numeric).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(1).uniform_(-bound, bound))

    def forward(self, dense: torch.Tensor) -> torch.Tensor:
        """Return [batch]."""
        return dense @ self.weight + self.bias

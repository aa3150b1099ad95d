"""Parts of the built-in models: the deep part, the input vector, the wide part."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

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


def joined(embedded: torch.Tensor, dense: torch.Tensor, dim: int) -> torch.Tensor:
    """Return embeddings and numbers of a row as one vector: [batch, n_categorical * dim + n_numeric]."""
    return torch.cat([embedded[:, :, :dim].flatten(1), dense], 1)


def wide_sum(embedded: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the sum of the wide weights, the last column of every row: [batch]."""
    return embedded[:, :, dim].sum(1)


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

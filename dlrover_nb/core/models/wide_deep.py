"""Wide & Deep (Cheng et al. 2016) on embedded rows that come from outside the module.

The table of embeddings lives on the PS; a row's last column is its weight in the linear ("wide") part, so one
look-up serves both parts.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job import ModelSpec


class WideDeep(nn.Module):
    """Logit = deep(embeddings, numbers) + linear(numbers) + sum of the wide weights.

    Parameters
    ----------
    model
        Widths.
    n_categorical, n_numeric
        Columns of the data.
    """

    def __init__(self, model: ModelSpec, n_categorical: int, n_numeric: int) -> None:
        super().__init__()
        self._embedding_dim = model.embedding_dim
        widths = (n_categorical * model.embedding_dim + n_numeric, *model.hidden)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.deep = nn.Sequential(*layers, nn.Linear(widths[-1], 1))
        self.linear = _Linear(n_numeric)

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        """Return logits [batch] of `embedded` [batch, n_categorical, row_width] and `dense`."""
        deep = embedded[:, :, : self._embedding_dim].flatten(1)
        logits: torch.Tensor = self.deep(torch.cat([deep, dense], 1)).squeeze(1) + self.linear(dense)
        return logits + embedded[:, :, self._embedding_dim].sum(1)


class _Linear(nn.Module):
    """Linear part on the numbers; like `nn.Linear`, but data without numbers leave it its bias."""

    def __init__(self, n_numeric: int) -> None:
        super().__init__()
        bound = max(n_numeric, 1) ** -0.5
        self.weight = nn.Parameter(torch.empty(n_numeric).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(1).uniform_(-bound, bound))

    def forward(self, dense: torch.Tensor) -> torch.Tensor:
        return dense @ self.weight + self.bias

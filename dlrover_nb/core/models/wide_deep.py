"""Wide & Deep (Cheng et al. 2016) on embedding rows that are supplied from outside the module.

The embedding table lives on the PS; the last column of a row is its weight in the linear ("wide") part, so
one lookup serves both parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from dlrover_nb.core.models.layers import Linear, divided, joined, perceptron

if TYPE_CHECKING:
    import torch

    from dlrover_nb.core.structs.job.job import ModelSpec


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
        self._dim = model.embedding_dim
        self.deep = perceptron(n_categorical * self._dim + n_numeric, model.hidden)
        self.linear = Linear(n_numeric)

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        """Return logits [batch] of `embedded` [batch, n_categorical, row_width] and `dense`."""
        embeddings, wide = divided(embedded, self._dim)
        logits: torch.Tensor = self.deep(joined(embeddings, dense)).squeeze(1) + self.linear(dense)
        return logits + wide

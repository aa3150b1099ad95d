"""DCN v2 (Wang et al. 2021): full-rank cross layers beside a deep part ("parallel" structure).

The paper's low-rank mixture is left out: it pays where a row's vector is thousands wide, and the vectors of
click logs are a few hundred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from dlrover_nb.core.models.layers import divided, joined, perceptron

if TYPE_CHECKING:
    import torch

    from dlrover_nb.core.structs.job.job import ModelSpec


class DcnV2(nn.Module):
    """Logit = deep(x0) + out(cross(x0)) + sum of the wide weights, x0 all embeddings and numbers of a row.

    Parameters
    ----------
    model
        Widths and the number of cross layers.
    n_categorical, n_numeric
        Columns of the data.
    """

    def __init__(self, model: ModelSpec, n_categorical: int, n_numeric: int) -> None:
        super().__init__()
        self._dim = model.embedding_dim
        width = n_categorical * self._dim + n_numeric
        self.cross = nn.ModuleList([nn.Linear(width, width) for _ in range(model.cross_layers)])
        self.deep = perceptron(width, model.hidden)
        self.out = nn.Linear(width, 1)

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        """Return logits [batch] of `embedded` [batch, n_categorical, row_width] and `dense`."""
        embeddings, wide = divided(embedded, self._dim)
        x0 = joined(embeddings, dense)
        crossed = x0
        for layer in self.cross:
            crossed = x0 * layer(crossed) + crossed  # (eq. 1)
        logits: torch.Tensor = (self.deep(x0) + self.out(crossed)).squeeze(1)
        return logits + wide

"""xDeepFM (Lian et al. 2018): a compressed interaction network (CIN) beside a deep and a linear part.

A CIN layer weights all products of two fields, element by element of the embedding (eq. 6), and its output
counts as its sum over those elements (eq. 7). Two identities make it fast without changing a number beyond
rounding:

- With the fields last, a layer is one large matrix product of all pairs [batch * dim, n_before * n_field].
- Nothing follows the last layer but the sum over the elements, and a sum commutes with the weights: the
  pairs are summed over the elements first, by one small product per row, and the large product shrinks by
  the embedding's width. For two layers that is three quarters of all arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from dlrover_nb.core.models.layers import Linear, divided, joined, perceptron

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import ModelSpec


class XDeepFm(nn.Module):
    """Logit = deep(embeddings, numbers) + linear(numbers) + out(CIN(embeddings)) + sum of the wide weights.

    Parameters
    ----------
    model
        Widths of the deep part and of the CIN.
    n_categorical, n_numeric
        Columns of the data.
    """

    def __init__(self, model: ModelSpec, n_categorical: int, n_numeric: int) -> None:
        super().__init__()
        self._dim = model.embedding_dim
        self.deep = perceptron(n_categorical * self._dim + n_numeric, model.hidden)
        self.linear = Linear(n_numeric)
        self.cin = Cin(n_categorical, model.cin)
        self.out = nn.Linear(sum(model.cin), 1)

    def forward(self, embedded: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        """Return logits [batch] of `embedded` [batch, n_categorical, row_width] and `dense`."""
        embeddings, wide = divided(embedded, self._dim)
        logits: torch.Tensor = self.deep(joined(embeddings, dense)) + self.out(self.cin(embeddings))
        linear: torch.Tensor = self.linear(dense)
        return logits.squeeze(1) + linear + wide


class Cin(nn.Module):
    """Compressed interaction network; `widths` feature maps per layer."""

    def __init__(self, n_field: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        before = (n_field, *widths[:-1])
        scales = (max(n * n_field, 1) ** -0.5 for n in before)
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(width, n * n_field) * scale)
            for width, n, scale in zip(widths, before, scales, strict=True)
        )

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        """Return the pooled maps [batch, sum of widths] of `fields` [batch, n_field, dim]."""
        x0 = hidden = fields.transpose(1, 2).contiguous()  # [batch, dim, n_field]
        pooled, (*inner, last) = [], self.weights
        for weight in inner:
            hidden = _layer(hidden, x0, weight)
            pooled.append(hidden.sum(1))  # (eq. 7)
        pairs = torch.bmm(hidden.transpose(1, 2), x0).flatten(1)  # summed over the elements: see the module
        return torch.cat([*pooled, pairs @ last.t()], 1)


def _layer(hidden: torch.Tensor, x0: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the next maps [batch, dim, width] (eq. 6)."""
    batch, dim, _ = x0.shape
    pairs = (hidden.unsqueeze(3) * x0.unsqueeze(2)).view(batch * dim, weight.shape[1])
    return (pairs @ weight.t()).view(batch, dim, len(weight))

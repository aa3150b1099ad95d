"""DIN, the deep interest network (Zhou et al. 2018, arXiv 1706.06978): a history weighed by the target item.

A user's vector is not one point: each item of the history counts by an activation unit that sees it beside
the item that is scored (eq. 3). The weights are not normalized, as in the paper: their sum says how strong
an interest is. The paper's Dice is left out: it needs running statistics of batches, which built-in models do
not keep; PReLU, its special case, stands in the unit and ReLU in the deep part. A wide part is added, as in
all models here: its weights come with the rows in any case.

The unit is computed for items alone: histories are mostly shorter than their longest, and the unit takes most
of the time.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import nn

from dlrover_nb.core.models.layers import divided, joined, perceptron

if TYPE_CHECKING:
    from dlrover_nb.core.models.inputs import Items
    from dlrover_nb.core.structs.data.features import SequenceInput
    from dlrover_nb.core.structs.job.job import ModelSpec


class Din(nn.Module):
    """Logit = deep(embeddings, numbers) + sum of the wide weights, with the history weighed by the target.

    Parameters
    ----------
    model
        Widths of the deep part and of the activation unit.
    n_categorical, n_numeric
        Columns of the data.
    history
        The sequence that is weighed, and its target; other sequences are bags.
    """

    def __init__(self, model: ModelSpec, n_categorical: int, n_numeric: int, history: SequenceInput) -> None:
        super().__init__()
        self._dim, self._history = model.embedding_dim, history
        layers: list[nn.Module] = []
        for before, after in pairwise((4 * self._dim, *model.attention)):
            layers += [nn.Linear(before, after), nn.PReLU()]
        self.unit = nn.Sequential(*layers, nn.Linear((4 * self._dim, *model.attention)[-1], 1))
        self.deep = perceptron(n_categorical * self._dim + n_numeric, model.hidden)

    def forward(
        self, embedded: torch.Tensor, dense: torch.Tensor, sequences: dict[str, Items]
    ) -> torch.Tensor:
        """Return logits [batch] of `embedded` [batch, n_categorical, row_width], `dense` and the items."""
        items, is_item = sequences[self._history.name]
        of_row, _ = is_item.nonzero(as_tuple=True)
        key = items[is_item][:, : self._dim]
        embeddings, wide = divided(embedded, self._dim)
        query = embeddings[:, self._history.target][of_row]
        weight = self.unit(torch.cat([query, key, query - key, query * key], 1))
        none = torch.zeros(len(dense), self._dim, device=dense.device)
        interest = none.index_add(0, of_row, weight * key)  # (eq. 3)
        fields = [*embeddings.unbind(1)]
        fields[self._history.place] = interest
        logits: torch.Tensor = self.deep(joined(torch.stack(fields, 1), dense)).squeeze(1)
        return logits + wide

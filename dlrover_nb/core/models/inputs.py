"""What a model gets: from the embeddings of all ids of a batch to a field for each column, and padded lists.

Every model gets one vector for each column of ids, so that models which know no sequences train on them:
that of a sequence is its bag, the mean of its items. Their sum was rejected: it grows with the length of a
history; a model that wants it has the items. An empty list is a bag of zeros. Padding is zeros too, and no
gradient comes back from it.
"""

from __future__ import annotations

import inspect
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from dlrover_nb.core.structs.data.features import SequenceInput

    Items = tuple[torch.Tensor, torch.Tensor]

TAKES = "sequences"  # the argument of `forward` of a module that takes more than the bags


def takes_sequences(module: nn.Module) -> bool:
    """Whether a module takes the items of sequences; one whose arguments cannot be known does not."""
    try:
        return TAKES in inspect.signature(module.forward).parameters
    except (TypeError, ValueError):
        return False


def split_inputs(
    rows: torch.Tensor, places: torch.Tensor, n_categorical: int, sequences: Sequence[SequenceInput]
) -> tuple[torch.Tensor, dict[str, Items]]:
    """Return a vector for each column of ids, and the items of each sequence.

    Parameters
    ----------
    rows
        Values of the distinct rows, float32 [u, row_width].
    places
        Of each id in `rows`, u for padding, int64 [batch, n_slot].
    n_categorical
        Columns of ids.
    sequences
        Those that are sequences.

    Returns
    -------
    embedded : float32 [batch, n_categorical, row_width]
    items
        By the name of the column: the items [batch, length, row_width], and where there is one: bool
        [batch, length].
    """
    if not sequences:
        return functional.embedding(places, rows), {}
    is_item = places < len(rows)
    each = functional.embedding(places, functional.pad(rows, (0, 0, 0, 1)))
    widths = [1] * n_categorical
    for sequence in sequences:
        widths[sequence.place] = sequence.length
    starts = list(accumulate(widths, initial=0))
    fields = list(each[:, starts[:-1]].unbind(1))
    items = {}
    for sequence in sequences:
        own = slice(starts[sequence.place], starts[sequence.place + 1])
        items[sequence.name] = each[:, own], is_item[:, own]
        fields[sequence.place] = bag(*items[sequence.name])
    return torch.stack(fields, 1), items


def bag(items: torch.Tensor, is_item: torch.Tensor) -> torch.Tensor:
    """Return the mean of the items of each row, [batch, row_width]; zeros where it has none."""
    return items.sum(1) / is_item.sum(1, keepdim=True).clamp(min=1)

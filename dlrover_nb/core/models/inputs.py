"""What a model gets: from the embeddings of all ids of a batch to a field for each column, and padded lists.

Every model gets one vector for each column of ids, so that models which know no sequences train on them:
that of a sequence is its bag, the mean of its items. Their sum was rejected: it grows with the length of a
history; a model that wants it has the items. An empty list is a bag of zeros. Padding is zeros too, and no
gradient comes back from it.
"""

from __future__ import annotations

import inspect
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from dlrover_nb.core.structs.data.features import SequenceInput

    Items = tuple[torch.Tensor, torch.Tensor]

TAKES = "sequences"  # the argument of `forward` of a module that takes more than the bags
N_WITHOUT_SCIPY = 1000  # sums of a process; so many save as much time by SciPy as its import takes
_n_summed = count()


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
        return gathered(rows, places), {}
    is_item = places < len(rows)
    each = gathered(functional.pad(rows, (0, 0, 0, 1)), places)
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


def gathered(rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the row at each place: float32 [*places.shape, row_width]."""
    if rows.device.type != "cpu":
        return functional.embedding(places, rows)
    apply: Any = _Gathered.apply  # without types
    each: torch.Tensor = apply(rows, places)
    return each


class _Gathered(torch.autograd.Function):
    """Rows at places; gradients of a row that stands in several are summed in the order of those.

    SciPy's product of a sparse matrix takes a tenth of the time of torch's own sum, and a third of
    `index_add_`. Its import takes .1 s of CPU time, for which a worker's first step would wait: a process
    imports it once it has trained for some time. Until then `index_add_` gives the same bits.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's, which takes any attribute
        rows: torch.Tensor,
        places: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(places)
        ctx.n_row = len(rows)
        return functional.embedding(places, rows)

    @staticmethod
    def backward(
        ctx: Any,  # noqa: ANN401 - as above
        *of_each: torch.Tensor,
    ) -> tuple[torch.Tensor, None]:
        (places,) = ctx.saved_tensors
        return summed_by_row(of_each[0], places, ctx.n_row), None


def summed_by_row(of_each: torch.Tensor, places: torch.Tensor, n_row: int) -> torch.Tensor:
    """Return the sums of what stands at each place, [*places.shape, width], by row: [n_row, width]."""
    each, flat = of_each.reshape(-1, of_each.shape[-1]), places.reshape(-1)
    if places.device.type != "cpu" or next(_n_summed) < N_WITHOUT_SCIPY:
        return summed_by_index(each, flat, n_row)
    return summed_by_product(each, flat, n_row)


def summed_by_index(each: torch.Tensor, places: torch.Tensor, n_row: int) -> torch.Tensor:
    """Return `summed_by_row` of values [n, width] at places [n], by torch."""
    return each.new_zeros(n_row, each.shape[1]).index_add_(0, places, each)


def summed_by_product(each: torch.Tensor, places: torch.Tensor, n_row: int) -> torch.Tensor:
    """Return `summed_by_row` of values [n, width] at places [n], by SciPy."""
    from scipy.sparse import csc_array  # noqa: PLC0415 - see `_Gathered`

    starts = np.arange(len(places) + 1)
    where = csc_array((np.ones(len(places), np.float32), places.numpy(), starts), shape=(n_row, len(places)))
    return torch.from_numpy(where @ each.numpy())


def bag(items: torch.Tensor, is_item: torch.Tensor) -> torch.Tensor:
    """Return the mean of the items of each row, [batch, row_width]; zeros where it has none."""
    return items.sum(1) / is_item.sum(1, keepdim=True).clamp(min=1)

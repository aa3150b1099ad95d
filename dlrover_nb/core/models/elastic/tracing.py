"""Which columns each layer of a module looks up, as one run of the module shows.

The ids of each place are random bits, so 64 rows of them tell all places apart; zero and one are ids of any
table. Layers answer with zeros meanwhile. An id that reaches a layer is that of a place plus a constant, else
the module makes ids of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.elastic.lookups import Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.models.elastic.inputs import InputColumns
    from dlrover_nb.core.models.elastic.lookups import Lookup, Lookups

SEED = 1
N_ROW = 64


def calls_of(
    lookups: Lookups, columns: InputColumns, run: Callable[[torch.Tensor], object]
) -> tuple[Call, ...]:
    """Return the different calls of a module's layers.

    Parameters
    ----------
    run
        Runs the module on numbers and ids, float32 [n, n_number + n_slot].

    Raises
    ------
    InvalidValueError
        When a layer gets ids that are of no column, or the module fails.
    """
    generator = torch.Generator().manual_seed(SEED)
    n_slot = len(columns.slots.columns)
    ids = torch.randint(0, 2, (N_ROW, n_slot), generator=generator)
    records = lookups.record()
    run(torch.cat([torch.ones(N_ROW, len(columns.numbers)), ids.float()], 1))
    calls = (_call(each, ids, lookups.names[each.table], columns) for each in records)
    return tuple(dict.fromkeys(calls))


def _call(lookup: Lookup, ids: torch.Tensor, name: str, columns: InputColumns) -> Call:
    if not lookup.ids.numel() or lookup.ids.numel() % N_ROW or lookup.ids.is_floating_point():
        raise InvalidValueError(
            f"the table {name} gets {lookup.ids.dtype} of shape {tuple(lookup.ids.shape)} for {N_ROW} rows, "
            "expected equally many whole numbers of each row, row by row; pad lists to one length"
        )
    sources = [_source(each, ids) for each in lookup.ids.reshape(N_ROW, -1).unbind(1)]
    if None in sources:
        raise InvalidValueError(
            f"the table {name} gets ids that are in no column of {', '.join(columns.ids)}; ids may be "
            "picked, stacked and shifted by constants, not computed: put them into a column of the data"
        )
    pairs = [pair for pair in sources if pair is not None]
    return Call(lookup.table, tuple(slot for slot, _ in pairs), tuple(shift for _, shift in pairs))


def _source(each: torch.Tensor, ids: torch.Tensor) -> tuple[int, int] | None:
    """Return the place whose ids these are, and what was added to them; None: there is none."""
    differences = each[:, None] - ids
    is_constant = (differences == differences[0]).all(0)
    if not is_constant.any():
        return None
    slot = int(is_constant.int().argmax())
    return slot, int(differences[0, slot])

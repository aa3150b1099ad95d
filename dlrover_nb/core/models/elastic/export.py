"""From rows of the parameter servers back to the tables of a user's module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.elastic.net import ElasticNet

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

N_ROW_AT_ONCE = 1 << 16


class Rows(Protocol):
    """All rows, as a `ParameterStore` holds them."""

    def pull(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the values of rows, float32 [n, row_width]."""
        ...


def state_of(module: nn.Module, rows: Rows) -> dict[str, torch.Tensor]:
    """Return the state of a user's module by its names, as copies.

    Raises
    ------
    InvalidValueError
        When it has no tables on parameter servers.
    """
    if not isinstance(module, ElasticNet):
        raise InvalidValueError(
            "state_dict is for modules that dlrover_nb.elastic took, and the model of this job is none; use "
            "predict"
        )
    state = {name: value.clone() for name, value in module.module.state_dict().items()}
    for table, part in zip(module.tables, module.layout.tables, strict=True):
        values = np.empty((table.n_row, table.width), np.float32)
        for start in range(0, table.n_row, N_ROW_AT_ONCE):
            stop = min(start + N_ROW_AT_ONCE, table.n_row)
            pulled = rows.pull(np.arange(part.first_row + start, part.first_row + stop))
            values[start:stop] = pulled[:, part.start : part.stop]
        state |= dict.fromkeys(table.names, torch.from_numpy(values))
    return state

"""A module of others as a worker trains it: called with the rows of a batch instead of its own tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.elastic.inputs import InputColumns, RowColumns, ids_and_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.models.elastic.layout import Layout
    from dlrover_nb.core.models.elastic.lookups import Lookups
    from dlrover_nb.core.models.elastic.tables import Table

_LEAST = 1e-7  # a probability is at least so far from 0 and 1 where its logit is computed


@dataclass(frozen=True, slots=True)
class Face:
    """How a module is called, and what is made of its output.

    Parameters
    ----------
    columns
        What it takes.
    inputs
        Makes its arguments of the columns: a tuple of them, or the only one.
    output
        Makes logits of what it returns; None: it returns them.
    is_probability
        Whether these are probabilities instead.
    sums_loss
        Whether its own training sums the loss over the rows of a batch instead of taking the mean.
    penalty
        Added to the loss: a number of the module's own parameters; None: nothing.
    row_penalties
        L2 factors of the tables, added for the rows of each batch: a factor for each, or none at all.
    """

    columns: InputColumns
    inputs: Callable[[RowColumns], object] = ids_and_numbers
    output: Callable[[object], object] | None = None
    is_probability: bool = False
    sums_loss: bool = False
    penalty: Callable[[nn.Module], torch.Tensor] | None = None
    row_penalties: tuple[float, ...] = ()


class ElasticNet(nn.Module):
    """A module without its tables; `forward` takes rows and places instead of embedded columns.

    Parameters
    ----------
    module, lookups
        The module, and what its layers look up.
    face
        How it is called.
    layout, tables
        Where its tables lie, and their names.
    """

    def __init__(
        self,
        module: nn.Module,
        lookups: Lookups,
        face: Face,
        layout: Layout,
        tables: tuple[Table, ...] = (),
    ) -> None:
        super().__init__()
        self.tables = tables
        self.module, self._lookups, self._face, self._layout = module, lookups, face, layout
        self._row_penalty: torch.Tensor | None = None

    def forward(self, rows: torch.Tensor, places: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        """Return the logits of a batch, float32 [n].

        Parameters
        ----------
        rows
            Its distinct rows, float32 [u, row_width].
        places
            The place of each id in `rows`, int64 [n, n_slot].
        dense
            Numbers, and the ids themselves behind them, float32 [n, n_number + n_slot].
        """
        columns = RowColumns(self._face.columns, dense)
        self._row_penalty = self._penalty_of(rows, places) if self.training else None
        self._lookups.begin(rows, places, columns.ids)
        try:
            return self._logits(columns)
        finally:
            self._lookups.end()

    def run(self, dense: torch.Tensor) -> torch.Tensor:
        """Return what the module makes of rows while its lookups are recorded."""
        with torch.no_grad():
            return self._logits(RowColumns(self._face.columns, dense))

    def loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of the rows, whose gradient is that of the module's own training."""
        each = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        mean = each.mean()
        trained = each.sum() if self._face.sums_loss else mean
        if self._face.penalty is not None:
            trained = trained + self._face.penalty(self.module).squeeze()
        if self._row_penalty is not None:
            trained = trained + self._row_penalty
        return mean if trained is mean else mean.detach() + (trained - trained.detach())

    @property
    def inputs(self) -> Callable[[RowColumns], object]:
        """What makes the arguments of the module."""
        return self._face.inputs

    @property
    def layout(self) -> Layout:
        """Where its tables lie."""
        return self._layout

    @property
    def penalizes_rows(self) -> bool:
        """Whether the loss has a penalty of the tables."""
        return any(self._face.row_penalties)

    def on_random(self, n_row: int, scale: float) -> object:
        """Return the logits of random rows, for a check."""
        n_slot, width = len(self._face.columns.slots.columns), self._layout.row_width
        rows = (scale * torch.randn(n_row * n_slot, width)).requires_grad_()
        places = torch.arange(n_row * n_slot).view(n_row, n_slot)
        ids, numbers = (
            torch.randint(0, 2, (n_row, n_slot)),
            torch.rand(n_row, len(self._face.columns.numbers)),
        )
        return self(rows, places, torch.cat([scale * numbers, ids.float()], 1))

    def _logits(self, columns: RowColumns) -> torch.Tensor:
        arguments = self._face.inputs(columns)
        output = self.module(*arguments) if isinstance(arguments, tuple) else self.module(arguments)
        if self._face.output is not None:
            output = self._face.output(output)
        if not isinstance(output, torch.Tensor):
            raise InvalidValueError(
                f"{type(self.module).__name__} must return a tensor of logits, got {type(output).__name__}; "
                "wrap it in a module that returns the logits alone"
            )
        logits = output.squeeze(1) if output.shape == (len(columns.ids), 1) else output
        return torch.logit(logits, eps=_LEAST) if self._face.is_probability else logits

    def _penalty_of(self, rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor | None:
        """Return the L2 penalty of the rows of a batch, each once."""
        if not any(self._face.row_penalties):
            return None
        n_group = 1 + max(part.group for part in self._layout.columns)
        factors = rows.new_zeros(n_group, self._layout.row_width)
        for factor, part in zip(self._face.row_penalties, self._layout.tables, strict=True):
            factors[part.group, part.start : part.stop] = factor
        columns = self._face.columns.slots.columns
        of_slot = torch.tensor([self._layout.columns[c].group for c in columns], device=places.device)
        group = torch.zeros(len(rows), dtype=torch.int64, device=places.device)
        group[places.reshape(-1)] = of_slot.expand_as(places).reshape(-1)
        penalty: torch.Tensor = (factors[group] * rows.square()).sum()
        return penalty

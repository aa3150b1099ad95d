"""What a module is called with: the columns of a batch, by name, in the forms that modules take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.elastic.layout import Slots

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)  # no slots: cached_property keeps what it has computed in the record
class InputColumns:
    """The columns that a module takes.

    Parameters
    ----------
    ids
        Columns with an id in each row, and columns of lists (`lists`), in the order of their places.
    lists
        The most items of a row, by column.
    numbers
        Columns of numbers.
    """

    ids: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    lists: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        names = (*self.ids, *self.numbers)
        if twice := [name for name in names if names.count(name) > 1]:
            raise InvalidValueError(f"column {twice[0]} is named twice; name it once")
        if not self.ids:
            raise InvalidValueError(
                "expected the names of the columns whose ids are looked up, got none; name them in ids"
            )

    @cached_property
    def widths(self) -> dict[str, int]:
        """Places of each column of ids in a row."""
        lengths = dict(self.lists)
        return {name: lengths.get(name, 1) for name in self.ids}

    @cached_property
    def slots(self) -> Slots:
        """The column of each place."""
        return Slots(self.ids, tuple(i for i, name in enumerate(self.ids) for _ in range(self.widths[name])))

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where each column stands: ids in a row's ids, numbers among its numbers."""
        ends = list(accumulate(self.widths.values(), initial=0))
        of_ids = {name: slice(ends[i], ends[i + 1]) for i, name in enumerate(self.ids)}
        return of_ids | {name: slice(i, i + 1) for i, name in enumerate(self.numbers)}


class RowColumns(Mapping[str, torch.Tensor]):
    """The columns of a batch by name: ids int64 [n], lists int64 [n, length], numbers float32 [n].

    Parameters
    ----------
    columns
        The columns of the module.
    values
        Numbers, and ids behind them, float32 [n, n_number + n_slot].
    """

    def __init__(self, columns: InputColumns, values: torch.Tensor) -> None:
        self._columns, self._values = columns, values
        self._n_number = len(columns.numbers)
        self.ids = values[:, self._n_number :].long()

    @property
    def numbers(self) -> torch.Tensor:
        """All numbers, float32 [n, n_number]."""
        return self._values[:, : self._n_number]

    def __getitem__(self, name: str) -> torch.Tensor:
        """Return a column."""
        each = (self.ids if name in self._columns.widths else self.numbers)[:, self._columns.places[name]]
        return each if name in dict(self._columns.lists) else each.squeeze(1)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter((*self._columns.ids, *self._columns.numbers))

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._columns.ids) + len(self._columns.numbers)

    def matrix(self, names: tuple[str, ...]) -> torch.Tensor:
        """Return columns side by side as numbers, those of ids too: float32 [n, places of all]."""
        ids, places = self._columns.widths, self._columns.places
        index = [
            each + self._n_number * (name in ids)
            for name in names
            for each in range(places[name].start, places[name].stop)
        ]
        return self._values[:, index]


def ids_and_numbers(columns: RowColumns) -> tuple[torch.Tensor, ...]:
    """Return what modules take most often: ids int64 [n, n_slot], and numbers where there are any."""
    return (columns.ids, columns.numbers) if columns.numbers.shape[1] else (columns.ids,)

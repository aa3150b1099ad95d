"""Layers that look rows up among those of a batch, in the place of `nn.Embedding` and `nn.EmbeddingBag`.

The rows of a batch come from the PS before the module runs, so it must be known beforehand which columns each
layer looks up. That is found once, by running the module on rows whose columns can be told apart
(`Lookups.record`), and checked in each batch: the ids that reach a layer are compared with those of its
columns, and others are refused. So code between the columns and a layer may do what it wants, adding the
offsets of a common table, stacking or picking columns, but not make ids that are in no column.

All lookups of a batch are one function for autograd: their gradients meet in one array and are summed by row
once, however many layers there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import nn
from torch.nn import functional

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.inputs import summed_by_row

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Call:
    """What a layer looks up for each row of a batch.

    Parameters
    ----------
    table
        Its table.
    slots, shifts
        Places of ids in a row, and what the module adds to each id.
    """

    table: int
    slots: tuple[int, ...]
    shifts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a call finds its floats: at these slots (a range, or their numbers), floats [start, stop)."""

    slots: slice | list[int]
    start: int
    stop: int


@dataclass(slots=True)
class _Batch:
    """A batch that is being computed: ids [n, n_slot], and what each call looks up, [n, n_id, width]."""

    ids: torch.Tensor
    pieces: tuple[torch.Tensor, ...]
    n_found: list[int]


@dataclass(frozen=True, slots=True)
class Lookup:
    """The ids that reached a layer while the module was recorded."""

    table: int
    ids: torch.Tensor


class Lookups:
    """What all layers of a module look up.

    Parameters
    ----------
    names
        Of the tables, for messages.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self._calls: tuple[Call, ...] = ()
        self._cuts: tuple[Cut, ...] = ()
        self._of_table: dict[int, list[int]] = {}
        self._records: list[Lookup] | None = None
        self._batch: _Batch | None = None

    def record(self) -> list[Lookup]:
        """Let layers answer with zeros from now on until `plan`, and note the ids that they get."""
        self._records = []
        return self._records

    def plan(self, calls: tuple[Call, ...], cuts: tuple[Cut, ...]) -> None:
        """Set what is looked up, and where each call finds its floats."""
        self._calls, self._cuts, self._records = calls, cuts, None
        self._of_table = {
            table: [i for i, call in enumerate(calls) if call.table == table]
            for table in range(len(self.names))
        }

    def begin(self, rows: torch.Tensor, places: torch.Tensor, ids: torch.Tensor) -> None:
        """Look up all that a batch needs.

        Parameters
        ----------
        rows
            Distinct rows, float32 [u, row_width].
        places, ids
            The place of each id in `rows`, and the id in its column: int64 [n, n_slot].
        """
        apply: Any = _Looked.apply  # without types
        self._batch = _Batch(ids, apply(rows, places, self._cuts), [0] * len(self.names))

    def end(self) -> None:
        """Forget the batch."""
        self._batch = None

    def find(self, table: int, ids: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        """Return the embeddings of ids, float32 [*ids.shape, width]; raises `InvalidValueError` for others.

        `shape` is that of the table.
        """
        if self._records is not None:
            self._records.append(Lookup(table, ids.detach().clone()))
            return torch.zeros(*ids.shape, shape[1])
        if self._batch is None:
            raise InvalidValueError(f"the table {self.names[table]} is looked up outside of a batch")
        for number in self._in_turn(table):
            if _are_ids_of(self._calls[number], self._batch.ids, ids):
                return self._batch.pieces[number].view(*ids.shape, shape[1])
        raise InvalidValueError(
            f"ids that reach the table {self.names[table]} are not those of its columns, as they were when "
            "the module was looked at; ids may be picked, stacked and shifted by constants, not computed"
        )

    def _in_turn(self, table: int) -> Iterator[int]:
        """Yield the calls of a table, first the one that is due."""
        assert self._batch is not None
        calls, n_found = self._of_table[table], self._batch.n_found[table]
        self._batch.n_found[table] += 1
        for i in range(len(calls)):
            yield calls[(n_found + i) % len(calls)]


def _are_ids_of(call: Call, all_ids: torch.Tensor, ids: torch.Tensor) -> bool:
    n, k = len(all_ids), len(call.slots)
    if ids.numel() != n * k:
        return False
    wanted = all_ids[:, picked(call.slots)]
    if any(call.shifts):
        wanted = wanted + torch.tensor(call.shifts, device=wanted.device)
    return torch.equal(ids.reshape(n, k).long(), wanted)


def picked(slots: tuple[int, ...]) -> slice | list[int]:
    """Return an index of these slots: a slice, which copies nothing, where they follow each other."""
    if slots == tuple(range(slots[0], slots[0] + len(slots))):
        return slice(slots[0], slots[0] + len(slots))
    return list(slots)


class _Looked(torch.autograd.Function):
    """The embeddings of each call of a batch."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's, which takes any attribute
        rows: torch.Tensor,
        places: torch.Tensor,
        cuts: tuple[Cut, ...],
    ) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(places)
        ctx.shape, ctx.cuts = rows.shape, cuts
        each = functional.embedding(places, rows)
        return tuple(each[:, cut.slots, cut.start : cut.stop].contiguous() for cut in cuts)

    @staticmethod
    def backward(
        ctx: Any,  # noqa: ANN401 - as above
        *of_pieces: torch.Tensor | None,
    ) -> tuple[torch.Tensor, None, None]:
        (places,) = ctx.saved_tensors
        n_row, width = ctx.shape
        of_each = torch.zeros(*places.shape, width, device=places.device)
        for cut, of_piece in zip(ctx.cuts, of_pieces, strict=True):
            if of_piece is not None:
                of_each[:, cut.slots, cut.start : cut.stop] += of_piece
        return summed_by_row(of_each, places, n_row), None, None


class RowLookup(nn.Module):
    """In the place of an `nn.Embedding`.

    Parameters
    ----------
    lookups, table
        Of the module, and which of its tables this is.
    shape
        Rows and width of the table.
    padding_idx
        The id whose row gets no gradient; None: there is none.
    """

    def __init__(self, lookups: Lookups, table: int, shape: tuple[int, int], padding_idx: int | None) -> None:
        super().__init__()
        self._lookups, self._table = lookups, table
        self.num_embeddings, self.embedding_dim = shape
        self.padding_idx = padding_idx

    @property
    def weight(self) -> NoReturn:
        """Refuse to give the table as a whole."""
        raise InvalidValueError(
            f"the module computes with the table {self._lookups.names[self._table]} as a whole, which no "
            "worker has; look its rows up by ids, or build that weight apart from the embedding"
        )

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's name of it
        """Return the embeddings of ids."""
        each = self._find(input)
        if self.padding_idx is None:
            return each
        return torch.where((input == self.padding_idx)[..., None], each.detach(), each)

    def _find(self, ids: torch.Tensor) -> torch.Tensor:
        return self._lookups.find(self._table, ids, (self.num_embeddings, self.embedding_dim))


class RowBag(RowLookup):
    """In the place of an `nn.EmbeddingBag`; parameters as above, and as torch has them."""

    def __init__(
        self,
        lookups: Lookups,
        table: int,
        shape: tuple[int, int],
        padding_idx: int | None,
        *,
        mode: str,
        include_last: bool,
    ) -> None:
        super().__init__(lookups, table, shape, padding_idx)
        self._mode, self._include_last = mode, include_last

    def forward(
        self,
        input: torch.Tensor,  # noqa: A002 - torch's name of it
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the reduced embeddings of each bag, by torch's own reduction."""
        items = self._find(input).reshape(-1, self.embedding_dim)
        index, padding = torch.arange(len(items), device=items.device).view(input.shape), None
        if self.padding_idx is not None:
            padding = len(items)
            index = torch.where(input == self.padding_idx, padding, index)
            items = functional.pad(items, (0, 0, 0, 1))
        return functional.embedding_bag(
            index,
            items,
            offsets,
            mode=self._mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self._include_last,
            padding_idx=padding,
        )

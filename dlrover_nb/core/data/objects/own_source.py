"""Rows from a user's own object, named ``package.module:name`` or sent along with the job.

The object (or what a class or function of that name returns, called without arguments) has one of two shapes:

- ``n_row`` and ``read(start, stop)``: rows [start, stop),
- ``n_row`` and ``rows(start)``: an iterator of pieces of any length from row `start` on. It is restarted
  wherever a worker's shard does not begin where its last one ended, so seeking to `start` should be cheap.

With ``n_row = None`` it is a stream: its rows are trained once, in their order, as long as there are more. It
waits where the next row is not there yet, and ends where ``rows`` ends or ``read`` gives fewer rows than
asked for; it must end at the same row on every node. A stream keeps no rows for evaluation.

Rows are a dict of arrays, a pandas DataFrame or an Arrow table, the same columns each time, and row i is the
same row on every node: shards are index ranges that are trained wherever there is room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dlrover_nb.core.data.kinds import kind_of
from dlrover_nb.core.data.objects.arrow_tables import as_table
from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.usercode import load, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class OwnSource:
    """A user's object as a source of rows.

    Parameters
    ----------
    code, folder
        Its name in the job, and the job's run folder.
    """

    def __init__(self, code: str, folder: Path | None) -> None:
        thing: Any = load(code, folder)
        self._name = name_of(thing)
        if isinstance(thing, type) or not (hasattr(thing, "read") or hasattr(thing, "rows")):
            thing = self._called(thing)
        self._read = thing.read if hasattr(thing, "read") else _Restarted(thing).read
        self.n_row = self._counted(thing)
        self._no_rows = pa.table({})
        first = self._table(0, 1)
        if not first.num_rows:
            raise InvalidValueError(f"data {self._name} has no rows; give a stream that has begun")
        self.kinds = {field.name: kind_of(field.type) for field in first.schema}
        self._no_rows = first.slice(0, 0)

    def read(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Return rows [start, stop) of some columns."""
        table = self._table(start, stop) if start < stop else self._no_rows
        missing = [name for name in columns if name not in table.column_names]
        if missing:
            raise InvalidValueError(f"{self._name} gave rows [{start}, {stop}) without column {missing[0]!r}")
        return table.select(list(columns))

    def _called(self, thing: Any) -> Any:  # noqa: ANN401 - a user's object
        try:
            made = thing()
        except Exception as error:  # whatever a user's code raises
            raise InvalidValueError(f"{self._name}() failed: {type(error).__name__}: {error}") from error
        if not (hasattr(made, "read") or hasattr(made, "rows")):
            raise InvalidValueError(
                f"data {self._name} must have read(start, stop) or rows(start), got {type(made).__name__}"
            )
        return made

    def _counted(self, thing: Any) -> int | None:  # noqa: ANN401 - as above
        n_row: Any = getattr(thing, "n_row", "nothing")
        if n_row is None:
            return None
        if isinstance(n_row, bool) or not hasattr(n_row, "__index__") or int(n_row) < 1:
            raise InvalidValueError(
                f"data {self._name} must say its rows as n_row >= 1, None for a stream; got {n_row!r}"
            )
        return int(n_row)

    def _table(self, start: int, stop: int) -> pa.Table:
        try:
            table = as_table(self._read(start, stop))
        except DlroverError:
            raise
        except Exception as error:  # as above
            raise InvalidValueError(
                f"data {self._name} failed at rows [{start}, {stop}): {type(error).__name__}: {error}"
            ) from error
        if table.num_rows == 0 and self.n_row is None:
            return self._no_rows
        if table.num_rows != stop - start and (self.n_row is not None or table.num_rows > stop - start):
            raise InvalidValueError(
                f"data {self._name} gave {table.num_rows} rows for [{start}, {stop}), expected {stop - start}"
            )
        return table


class _Restarted:
    """Ranges of rows from an iterator that can be started at any row."""

    def __init__(self, thing: Any) -> None:  # noqa: ANN401 - as above
        self._thing, self._at = thing, -1
        self._pieces: Iterator[object] = iter(())
        self._left: pa.Table | None = None

    def read(self, start: int, stop: int) -> pa.Table:
        """Return rows [start, stop), fewer when the iterator ends."""
        if start != self._at:
            self._at, self._pieces, self._left = start, iter(self._thing.rows(start)), None
        parts, n_missing = [], stop - start
        while n_missing and (piece := self._next()) is not None:
            part = piece.slice(0, n_missing)
            self._left = piece.slice(n_missing) if piece.num_rows > n_missing else None
            n_missing -= part.num_rows
            parts.append(part)
        self._at = stop - n_missing
        # pieces of pandas have floats where a whole number is missing; `encode` reads both alike
        return pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})

    def _next(self) -> pa.Table | None:
        if self._left is not None:
            return self._left
        piece = next(self._pieces, None)
        return None if piece is None else as_table(piece)

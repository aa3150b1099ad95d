"""Which row of the parameter servers has which rows of a module's tables.

Row i of table t is a part of row base(t) + i. Tables that look the same columns up lie side by side in the
same rows, so an id is pulled and pushed once for all of them: an embedding of 16 floats and its weight in a
linear part are one row of 17. Columns that look the same table up share its rows. What hangs together so is a
group; groups follow each other. All rows have the width of the widest group: in others the floats behind
their own stay zero, and are sent and stored for nothing (`Layout.unused`).

The shift s that a module adds to ids of a column before it looks table t up, as those with one table for all
columns do, ties the two: row(column, v) = base(t) + s + v for each such pair. So bases follow from each other
within a group, and pairs that contradict each other are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.elastic.lookups import Call, Cut, picked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.models.elastic.tables import Table

LEAST_WIDTH = 2  # of a row: one of embeddings has a float more for a linear part


@dataclass(frozen=True, slots=True)
class Slots:
    """The places of ids in a row, in the order of their columns: the column of each."""

    names: tuple[str, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TablePart:
    """Where a table lies: its row i at floats [start, stop) of row `first_row` + i."""

    first_row: int
    start: int
    stop: int
    group: int


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """The rows of a column: its id i has row `first_row` + i, for i below `n_id`."""

    first_row: int
    n_id: int
    group: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows of all tables and columns.

    Parameters
    ----------
    tables, columns
        In their orders.
    n_row, row_width
        Of the one table on the parameter servers.
    n_used
        Floats of all its rows that a table has.
    """

    tables: tuple[TablePart, ...]
    columns: tuple[ColumnPart, ...]
    n_row: int
    row_width: int
    n_used: int

    @property
    def unused(self) -> float:
        """Share of the floats of all rows that no table has."""
        return 1 - self.n_used / (self.n_row * self.row_width)

    def cuts(self, calls: Sequence[Call]) -> tuple[Cut, ...]:
        """Return where each call finds its floats."""
        parts = [self.tables[call.table] for call in calls]
        return tuple(
            Cut(picked(call.slots), part.start, part.stop) for call, part in zip(calls, parts, strict=True)
        )


NO_LAYOUT = Layout((), (), 0, 0, 0)  # of a module whose lookups are not known yet


def layout_of(tables: Sequence[Table], calls: Sequence[Call], slots: Slots) -> Layout:
    """Return where tables lie that are looked up so.

    Raises
    ------
    InvalidValueError
        When a column is not looked up, a table is looked up by none, or shifts contradict each other.
    """
    shifts = _shifts(calls, slots, tables)
    _check_used(shifts, tables, slots)
    parts: dict[int, TablePart] = {}
    columns: dict[int, ColumnPart] = {}
    first_row = row_width = 0
    for group, (base_of_table, base_of_column) in enumerate(_groups(shifts, tables, slots)):
        least = min(base_of_table.values())
        start = 0
        for table in sorted(base_of_table):
            stop = start + tables[table].width
            parts[table] = TablePart(first_row + base_of_table[table] - least, start, stop, group)
            start = stop
        for column, base in base_of_column.items():
            n_id = min(tables[t].n_row - shift for (t, c), shift in shifts.items() if c == column)
            columns[column] = ColumnPart(first_row + base - least, n_id, group)
        first_row += max(base - least + tables[t].n_row for t, base in base_of_table.items())
        row_width = max(row_width, start)
    return Layout(
        tuple(parts[i] for i in range(len(tables))),
        tuple(columns[i] for i in range(len(slots.names))),
        first_row,
        max(row_width, LEAST_WIDTH),
        sum(table.n_row * table.width for table in tables),
    )


def _shifts(calls: Sequence[Call], slots: Slots, tables: Sequence[Table]) -> dict[tuple[int, int], int]:
    """Return the shift of each pair of a table and a column."""
    shifts: dict[tuple[int, int], int] = {}
    for call in calls:
        for slot, shift in zip(call.slots, call.shifts, strict=True):
            pair = call.table, slots.columns[slot]
            if shifts.setdefault(pair, shift) != shift:
                raise _contradiction(tables[pair[0]], slots.names[pair[1]])
    return shifts


def _contradiction(table: Table, column: str) -> InvalidValueError:
    return InvalidValueError(
        f"the table {table.names[0]} is looked up by ids of column {column} with two shifts; give each of "
        "the two uses a table of its own"
    )


def _check_used(shifts: dict[tuple[int, int], int], tables: Sequence[Table], slots: Slots) -> None:
    used_tables, used_columns = {t for t, _ in shifts}, {c for _, c in shifts}
    for i, table in enumerate(tables):
        if i not in used_tables:
            raise InvalidValueError(
                f"the table {table.names[0]} is looked up by no column of ids; name its column in ids, or "
                "leave the layer out"
            )
    for i, name in enumerate(slots.names):
        if i not in used_columns:
            raise InvalidValueError(
                f"column {name} is named in ids, but no embedding looks it up; name it in numbers"
            )


def _groups(
    shifts: dict[tuple[int, int], int], tables: Sequence[Table], slots: Slots
) -> list[tuple[dict[int, int], dict[int, int]]]:
    """Return what hangs together: the bases of tables and columns of each group, up to a constant."""
    groups: list[tuple[dict[int, int], dict[int, int]]] = []
    left = set(range(len(tables)))
    while left:
        of_table, of_column = {min(left): 0}, dict[int, int]()
        grows = True
        while grows:
            before = len(of_table), len(of_column)
            for (table, column), shift in shifts.items():
                if table in of_table:
                    base = of_column.setdefault(column, of_table[table] + shift)
                elif column in of_column:
                    base = of_column[column]
                    of_table[table] = base - shift
                else:
                    continue
                if base != of_table[table] + shift:
                    raise _contradiction(tables[table], slots.names[column])
            grows = before != (len(of_table), len(of_column))
        left -= set(of_table)
        groups.append((of_table, of_column))
    return groups

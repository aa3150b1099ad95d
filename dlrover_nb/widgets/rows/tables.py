"""A result as data: named tables of plain values, as pandas frames and as JSON.

A result holds at most one record about itself (its head) and tables by name. Its columns are declared beside
the functions that fill them (`Columns`), so a row cannot lack a key or have one that is not declared; the
reference page lists the same declarations. Values are numbers, text, truth and None, with units in their
names; formatted text is the business of the views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import NotFoundError

if TYPE_CHECKING:
    from pandas import DataFrame

R = TypeVar("R")
Row = Mapping[str, object]


class Columns(Generic[R]):
    """The columns of one kind of row.

    Parameters
    ----------
    getters
        The value of each column, from the record behind a row.
    """

    def __init__(self, getters: Mapping[str, Callable[[R], object]]) -> None:
        self.getters = dict(getters)
        self.names = tuple(self.getters)

    def row(self, record: R) -> Row:
        """Return the row of one record."""
        return {name: _plain(get(record)) for name, get in self.getters.items()}

    def table(self, records: Iterable[R]) -> Table:
        """Return the rows of records, which may be none."""
        return Table(self.names, tuple(map(self.row, records)))


def fields(names: str) -> dict[str, Callable[[Any], object]]:
    """Return columns that are attributes of their record: ``fields("phase job=name auc=evaluation.auc")``.

    The column of a part's attribute is None where there is no such part; a number is a place in a tuple.
    """
    pairs = (name.partition("=") for name in names.split())
    return {column: reader(path or column) for column, _, path in pairs}


def reader(path: str) -> Callable[[Any], object]:
    """Return what reads a dotted path of attributes and places; None where a part of it is None."""
    parts = [int(part) if part.isdigit() else part for part in path.split(".")]

    def read(record: Any) -> object:  # noqa: ANN401 - of any kind of record
        for part in parts:
            if record is None:
                return None
            record = record[part] if isinstance(part, int) else getattr(record, part)
        return record

    return read


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of the same columns."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class Tables:
    """A result as data.

    Parameters
    ----------
    head
        The record about the result itself, as a table of one row; None: there is none.
    tables
        Its tables by name.
    main
        Name of the table that `frame` returns by default; empty: the head.
    """

    head: Table | None = None
    tables: Mapping[str, Table] = field(default_factory=dict)
    main: str = ""

    def frame(self, table: str | None = None) -> DataFrame:
        """Return one table as a pandas frame, see `Tabular.to_frame`."""
        import pandas as pd  # noqa: PLC0415 - half a second, where a frame is asked for

        chosen = self._chosen(self.main if table is None else table)
        return pd.DataFrame.from_records([dict(row) for row in chosen.rows], columns=list(chosen.columns))

    def json(self) -> bytes:
        """Return everything as one line of JSON: a list of rows, or an object where there is a head."""
        return to_json(self._content())

    def _content(self) -> object:
        if self.head is None:
            return self.tables[self.main].rows
        return {**self.head.rows[0], **{name: table.rows for name, table in self.tables.items()}}

    def _chosen(self, name: str) -> Table:
        if not name and self.head is not None:
            return self.head
        if name not in self.tables:
            names = ", ".join(self.tables) or "only the default one"
            raise NotFoundError(f"no table {name!r} in this result; choose from {names}")
        return self.tables[name]


class Tabular:
    """Base of results that can be used as data."""

    __slots__ = ()

    def tables(self) -> Tables:
        """Return the result as data, of which `to_frame` returns one table."""
        raise NotImplementedError

    def to_frame(self, table: str | None = None) -> DataFrame:
        """Return the result as a pandas `DataFrame`; the reference page of results lists its columns.

        Parameters
        ----------
        table
            Name of one of its tables, such as ``"nodes"`` of a job's state; None: the main one.

        Raises
        ------
        NotFoundError
            When the result has no table of that name; it names those there are.

        Examples
        --------
        >>> cluster.jobs().to_frame().sort_values("samples_per_s")
        >>> job.status().to_frame("nodes")["memory_used_mib"].max()
        """
        return self.tables().frame(table)


def one(columns: Columns[R], record: R) -> Table:
    """Return the head of a result."""
    return columns.table((record,))


def listed(name: str, columns: Columns[R], records: Iterable[R]) -> Tables:
    """Return a result that is a list of rows and nothing else."""
    return Tables(None, {name: columns.table(records)}, name)


def facts(**values: object) -> Tables:
    """Return a result that is one row of named values."""
    return Tables(Table(tuple(values), (values,)))


def _plain(value: object) -> object:
    """Return the value of an enumeration as text: pandas and JSON know no enumerations."""
    return value.value if isinstance(value, Enum) else value

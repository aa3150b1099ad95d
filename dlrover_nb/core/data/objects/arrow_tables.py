"""Rows that a user holds in memory as an Arrow table: one reader for submit, predict and own sources of rows.

It reads DataFrames of pandas, Arrow tables, all that exports Arrow data (polars, DuckDB), and mappings of
columns. Named levels of a pandas index are columns; an index without a name only numbers the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sized
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.data.formats.arrays import table_of
from dlrover_nb.core.data.kinds import Kind, kind_of, without_views
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Collection


def is_table(thing: object) -> bool:
    """Whether a user's object is a table of rows in memory: of pandas, Arrow, polars."""
    return not isinstance(thing, type) and (hasattr(thing, "iloc") or hasattr(thing, "__arrow_c_stream__"))


def as_table(rows: Any, columns: Collection[str] | None = None) -> pa.Table:  # noqa: ANN401 - whatever a user holds
    """Return rows in any of the shapes that a user may give them in.

    Parameters
    ----------
    columns
        Those that are needed: others may be of any kind, and may be left out. None: all.

    Raises
    ------
    InvalidValueError
        When they are no table, or a column is not of one type; it names the column.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if hasattr(rows, "iloc"):
        table = _of_frame(rows, columns)
    elif isinstance(rows, Mapping):
        table = _of_columns(rows, columns)
    elif is_table(rows):
        table = _of_arrow(rows, columns)
    else:
        raise InvalidValueError(
            "rows must be a DataFrame, an Arrow table or a dict of arrays, "
            f"got {type(rows).__name__}; make it one, such as pandas.DataFrame(rows)"
        )
    return without_views(table).replace_schema_metadata(None)


def one_row(rows: Any, sequences: Collection[str] = ()) -> Any:  # noqa: ANN401 - as above
    """Return a single row as a mapping of columns, and all else as it is.

    A row is a mapping of values, or a pandas Series with the names of columns: ``frame.iloc[0]``. Of the
    columns `sequences` a value is a list of values.
    """
    is_series = hasattr(rows, "iloc") and not hasattr(rows, "columns")
    if is_series and all(isinstance(name, str) for name in rows.index):
        rows = rows.to_dict()
    if not isinstance(rows, Mapping) or not rows:
        return rows
    lists = {name for name, value in rows.items() if name in sequences and _is_list(value)}
    if all(name in lists or _is_value(value) for name, value in rows.items()):
        return {name: [list(value) if name in lists else value] for name, value in rows.items()}
    return rows


def _is_list(thing: object) -> bool:
    """Whether a thing is the list of one row, and not a list for each row."""
    return isinstance(thing, Iterable) and not isinstance(thing, str | bytes) and all(map(_is_value, thing))


def _is_value(thing: object) -> bool:
    return isinstance(thing, str | bytes) or not isinstance(thing, Sized) or getattr(thing, "ndim", 1) == 0


def _of_frame(frame: Any, columns: Collection[str] | None) -> pa.Table:  # noqa: ANN401 - pandas is not imported here
    if not hasattr(frame, "columns"):
        raise InvalidValueError(f"expected a DataFrame, got a {type(frame).__name__}; use .to_frame()")
    levels = [n for n in frame.index.names if n is not None and n not in frame.columns]
    if levels:
        frame = frame.reset_index(level=levels)
    names = {str(n): n for n in frame.columns if columns is None or str(n) in columns}
    _check_once([str(n) for n in frame.columns if str(n) in names])
    return pa.table({name: _column(name, frame[key]) for name, key in names.items()})


def _of_arrow(rows: Any, columns: Collection[str] | None) -> pa.Table:  # noqa: ANN401 - whatever exports Arrow data
    table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    names = [name for name in table.column_names if columns is None or name in columns]
    _check_once(names)
    return table.select(names)


def _of_columns(rows: Mapping[Any, Any], columns: Collection[str] | None) -> pa.Table:
    first = {str(name).partition(".")[0] for name in columns or ()}  # those of an array of two axes
    needed = {str(n): v for n, v in rows.items() if columns is None or str(n) in {*columns, *first}}
    typed = {name: _column(name, values) for name, values in needed.items() if _is_typed(values)}
    typed |= {
        name: _column(name, values)
        for name, values in needed.items()
        if _is_lists(values) and (columns is None or name in columns)
    }
    try:
        made = table_of({name: values for name, values in needed.items() if name not in typed})
        arrays = typed | dict(zip(made.column_names, made.columns, strict=True))
        order = [n for name in needed for n in arrays if n == name or n.startswith(f"{name}.")]
        return pa.table({name: arrays[name] for name in order})
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
        if isinstance(error, InvalidValueError):
            raise
        for name, values in needed.items():
            _column(name, values if _is_typed(values) else list(values))
        raise InvalidValueError(f"the columns are no table: {_line(error)}; give them one length") from error


def _is_typed(values: object) -> bool:
    """Whether values have types that NumPy has not, such as whole numbers of which some are missing."""
    is_object = getattr(getattr(values, "dtype", None), "kind", "") == "O" and getattr(values, "ndim", 1) == 1
    return isinstance(values, pa.Array | pa.ChunkedArray) or hasattr(values, "iloc") or is_object


def _is_lists(values: object) -> bool:
    """Whether values are a list of ids for each row; equal numbers of fractions are columns."""
    if not isinstance(values, list | tuple) or not any(isinstance(each, list | tuple) for each in values):
        return False
    try:
        return kind_of(pa.array(values).type) is Kind.SEQUENCE
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return False


def _column(name: str, values: Any) -> pa.Array | pa.ChunkedArray:  # noqa: ANN401 - as above
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    try:
        return pa.array(_storable(values), from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError) as error:
        raise InvalidValueError(
            f"column {name!r} holds values of several types, or of none that Parquet has ({_line(error)}); "
            f"make them one type, such as frame[{name!r}] = frame[{name!r}].astype(str), or drop it"
        ) from error


def _storable(values: Any) -> Any:  # noqa: ANN401 - as above
    """Return a column of pandas in a type of Arrow: intervals (of `cut`) as text, sparse ones dense."""
    kind = getattr(values, "dtype", None)
    if hasattr(getattr(kind, "categories", None), "closed"):
        return values.cat.rename_categories(values.cat.categories.astype(str))
    if hasattr(kind, "closed"):
        return values.astype(object).map(str, na_action="ignore")
    return values.sparse.to_dense() if hasattr(kind, "fill_value") else values


def _check_once(names: list[str]) -> None:
    name, n = next(iter(Counter(names).most_common(1)), ("", 0))
    if n > 1:
        raise InvalidValueError(f"there are two columns {shown(name)}; rename or drop one")


def _line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")

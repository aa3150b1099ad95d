"""Columns of several files: they agree, or the error names the file and the column.

Text has no types, so a column of text files is read with one that all samples fit, as of one file. Typed
files may differ in how wide their numbers are and how they store text; a column that is text in one file
and numbers in another is a mistake, since its values would be other ids than those that a reader of the
file expects.
"""

from __future__ import annotations

import base64
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.data.kinds import is_bytes, is_list, is_number, is_text, list_of
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    Types = Mapping[str, pa.DataType]


def check_same(
    names: Sequence[str], columns: Sequence[Collection[str]], needed: Sequence[str] | None
) -> None:
    """Check that all files have the same columns, or at least those that are `needed`.

    Parameters
    ----------
    names, columns
        Of the files, and their columns.

    Raises
    ------
    InvalidValueError
        It names the file and the column.
    """
    first = set(needed if needed is not None else columns[0])
    for name, there in zip(names, columns, strict=True):
        if missing := [column for column in columns[0] if column in first and column not in there]:
            raise InvalidValueError(
                f"{name} has no column {shown(missing[0])}, which {names[0]} has; give all "
                "files the same columns"
            )
        if needed is None and (more := [column for column in there if column not in first]):
            raise InvalidValueError(
                f"{name} has a column {shown(more[0])}, which {names[0]} does not have; give all files the "
                "same columns, or exclude it"
            )


def common_types(
    names: Sequence[str], types: Sequence[Types], needed: Collection[str]
) -> dict[str, pa.DataType]:
    """Return one type for each column of typed files.

    Raises
    ------
    InvalidValueError
        When those of a needed column do not fit together; it names two files.
    """
    common = dict(types[0])
    for name, more in zip(names, types, strict=True):
        for column in more.keys() & common.keys():
            kind = _common(common[column], more[column])
            if kind is None and column in needed:
                raise InvalidValueError(
                    f"column {shown(column)} is {more[column]} in {name}, but {common[column]} in files "
                    f"before it, such as {names[0]}; write it the same way in all files, or exclude it"
                )
            common[column] = common[column] if kind is None else kind
    return common


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that holds values of both; None where there is none."""
    one, other = value_type(one), value_type(other)
    if is_list(one) and is_list(other):
        item = _common(one.value_type, other.value_type)
        return None if item is None else list_of(item, one, other)
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    return next((wide(one, other) for is_kind, wide in _WIDE if is_kind(one) and is_kind(other)), None)


def _timestamp(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    return pa.timestamp("ns", one.tz) if one.tz == other.tz else None


def _integer(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    is_signed = pa.types.is_signed_integer(one), pa.types.is_signed_integer(other)
    if not any(is_signed):
        return pa.uint64()
    return None if pa.uint64() in {one, other} else pa.int64()


_WIDE = (  # kinds of types, and the one that holds values of two of them
    (pa.types.is_integer, _integer),
    (is_number, lambda _, __: pa.float64()),
    (is_text, lambda _, __: pa.large_string()),
    (is_bytes, lambda _, __: pa.large_binary()),
    (pa.types.is_timestamp, _timestamp),
)


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values: that of a dictionary is about how they are stored."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def aligned(table: pa.Table, types: Types, name: str) -> pa.Table:
    """Return the rows of a file with the types of all files.

    Raises
    ------
    InvalidValueError
        When a value does not fit: a large whole number where other files have fractions.
    """
    for i, field in enumerate(table.schema):
        target = types.get(field.name, field.type)
        if value_type(field.type) == value_type(target):
            continue
        try:
            column = _decoded(table.column(i)).cast(target)
        except pa.ArrowInvalid as error:
            raise InvalidValueError(
                f"column {shown(field.name)} of {name} does not fit {target}, which it is in other files "
                f"({str(error).splitlines()[0][:100]}); write it the same way in all files"
            ) from error
        table = table.set_column(i, field.name, column)
    return table


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return tables with equal columns as one."""
    if len(tables) > 1 and any(not table.schema.equals(tables[0].schema) for table in tables):
        tables = [
            pa.table({n: _decoded(table.column(n)) for n in table.column_names}).replace_schema_metadata(None)
            for table in tables
        ]
    return pa.concat_tables(tables) if len(tables) != 1 else tables[0]


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def written_types(types: Types, columns: Collection[str]) -> str:
    """Return the types of some columns as text."""
    schema = pa.schema([(name, value_type(types[name])) for name in sorted(columns) if name in types])
    return base64.b64encode(schema.serialize()).decode()


@cache
def read_types(text: str) -> Types:
    """Return what `written_types` wrote; nothing of an empty text."""
    if not text:
        return {}
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    return {field.name: field.type for field in schema}

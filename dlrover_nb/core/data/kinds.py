"""What a column of the user's data is taken for, by its Arrow type."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from dlrover_nb.core.errors import InvalidValueError, shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Kind(StrEnum):
    """What a column is, unless the user says otherwise."""

    NUMERIC = "numeric"
    CATEGORICAL = "categorical"
    OTHER = "other"  # lists, structs, no value at all: no model input


def kind_of(kind: pa.DataType) -> Kind:
    """Return what a column of this type is taken for."""
    types = pa.types
    if types.is_dictionary(kind) or types.is_boolean(kind) or _is_text(kind):
        return Kind.CATEGORICAL
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_temporal(kind):
        return Kind.NUMERIC
    return Kind.OTHER


def check_distinct(names: Sequence[str], path: Path) -> None:
    """Refuse columns of one name: which of them is meant, nobody knows.

    Raises
    ------
    InvalidValueError
        It names the column.
    """
    name, n = next(iter(Counter(names).most_common(1)), ("", 0))
    if n > 1:
        raise InvalidValueError(
            f"{path} has two columns {shown(name)}; rename one of them, or leave it out of the file"
        )


def without_views(table: pa.Table) -> pa.Table:
    """Return the table with plain text: few functions of Arrow take the views that polars writes."""
    for i, field in enumerate(table.schema):
        if (plain := plain_type(field.type)) != field.type:
            table = table.set_column(i, field.with_type(plain), table.column(i).cast(plain))
    return table


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that values of a type are read as."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_string_view(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )

"""What a column of the user's data is taken for, by its Arrow type."""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


MISSING_TEXTS = (  # what readers of text files take for a missing value, as pandas does
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
    "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip


class Kind(StrEnum):
    """What a column is, unless the user says otherwise."""

    NUMERIC = "numeric"
    CATEGORICAL = "categorical"
    SEQUENCE = "sequence"  # a list of ids in each row
    OTHER = "other"  # lists of fractions, structs, no value at all: no model input


def kind_of(kind: pa.DataType) -> Kind:
    """Return what a column of this type is taken for."""
    types = pa.types
    if types.is_dictionary(kind) or types.is_boolean(kind) or is_text(kind) or is_bytes(kind):
        return Kind.CATEGORICAL
    if is_number(kind) or types.is_temporal(kind):
        return Kind.NUMERIC
    if is_list(kind):
        item = item_type(kind)
        is_id = types.is_null(item) or types.is_integer(item) or kind_of(item) is Kind.CATEGORICAL
        return Kind.SEQUENCE if is_id else Kind.OTHER
    return Kind.OTHER


def check_distinct(names: Sequence[str], path: Path) -> None:
    """Refuse columns of one name: it is not known which of them is meant.

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
    if is_list(kind):
        item = plain_type(item_type(kind))
        return list_of(item.value_type if pa.types.is_dictionary(item) else item, kind)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def text_array(words: Sequence[str]) -> pa.Array:
    """Return words as an Arrow array, without `pyarrow.array`, which imports pandas."""
    data = [word.encode() for word in words]
    ends = itertools.accumulate(map(len, data), initial=0)
    return pa.StringArray.from_buffers(
        len(data), pa.py_buffer(array("i", ends).tobytes()), pa.py_buffer(b"".join(data))
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether values are text, however it is stored."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values are bytes, however they are stored."""
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists of any or of one length."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def list_of(item: pa.DataType, *like: pa.DataType) -> pa.DataType:
    """Return the type of lists of items that holds those of other types of lists."""
    return pa.large_list(item) if any(map(pa.types.is_large_list, like)) else pa.list_(item)


def item_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the items of lists; of other values, their own."""
    return kind.value_type if is_list(kind) else kind


def is_number(kind: pa.DataType) -> bool:
    """Whether values are numbers of any width."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))

"""What a column of the user's data is taken for, by its Arrow type."""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa


class Kind(StrEnum):
    """What a column is, unless the user says otherwise."""

    NUMERIC = "numeric"
    CATEGORICAL = "categorical"
    OTHER = "other"  # lists, structs: no model input


def kind_of(kind: pa.DataType) -> Kind:
    """Return what a column of this type is taken for."""
    types = pa.types
    if types.is_dictionary(kind) or types.is_boolean(kind) or _is_text(kind):
        return Kind.CATEGORICAL
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_temporal(kind):
        return Kind.NUMERIC
    return Kind.OTHER


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    )

"""Columns that stand in the names of folders: ``country=de/part-0.parquet``, as Hive and Spark write them.

Such a column is left out of the files. Its values are text here, as folders have no types: a job uses it as
ids, and numbers of typed tables are compared with it as with any text (`core.data.types.trained_types`).
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    Values = Mapping[str, str | None]

_NOTHING = "__HIVE_DEFAULT_PARTITION__"  # the folder of rows without a value


def values_of(name: str) -> dict[str, str | None]:
    """Return the columns that the folders of a file name, by its path or URL, and their values."""
    pairs = (part.partition("=") for part in PurePosixPath(name).parts[:-1])
    return {
        unquote(key): None if value == _NOTHING else unquote(value)
        for key, mark, value in pairs
        if key and mark
    }


def partitions(names: Sequence[str], wanted: Collection[str]) -> list[dict[str, str | None]]:
    """Return for each file the columns of its folders that tell files apart, or are `wanted`."""
    of_files = [values_of(name) for name in names]
    keys = {key for values in of_files for key in values}
    used = {key for key in keys if key in wanted or len({values.get(key, "") for values in of_files}) > 1}
    return [{key: value for key, value in values.items() if key in used} for values in of_files]


def with_partitions(table: pa.Table, values: Values, columns: Sequence[str]) -> pa.Table:
    """Return the rows of a file with `columns`, of which those that it lacks are taken from its folders."""
    for name in columns:
        if name not in table.column_names:
            table = table.append_column(name, _repeated(values.get(name), table.num_rows))
    return table.select(list(columns))


def _repeated(value: str | None, n: int) -> pa.Array:
    if value is None:
        return pa.nulls(n, pa.string())
    data = value.encode()
    ends = np.arange(n + 1, dtype=np.int32) * len(data)
    return pa.StringArray.from_buffers(n, pa.py_buffer(ends), pa.py_buffer(data * n))

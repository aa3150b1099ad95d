"""Rows in a Parquet file."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dlrover_nb.core.data.kinds import kind_of
from dlrover_nb.core.data.spill import Spill
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dlrover_nb.core.data.kinds import Kind

_CACHE_BYTES = 64 << 20  # a second row group is kept only while both are small


class ParquetSource:
    """A Parquet file, read by row groups; the latest ones stay in memory, as shards follow each other.

    Parameters
    ----------
    path
        The file.
    kinds
        Columns whose kind their type does not determine, such as codes written as integers.
    """

    def __init__(self, path: Path, kinds: Mapping[str, Kind] | None = None) -> None:
        self._path = path
        self._file = _open_parquet(path)
        metadata = self._file.metadata
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.n_row = int(self._starts[-1])
        given = kinds or {}
        self.kinds = {f.name: given.get(f.name) or kind_of(f.type) for f in self._file.schema_arrow}
        self._spill = Spill()
        self._cache: OrderedDict[tuple[int, tuple[str, ...]], pa.Table] = OrderedDict()

    def read(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Return rows [start, stop) of some columns."""
        n_group = len(self._starts) - 1
        first = min(int(np.searchsorted(self._starts, start, side="right")), n_group) - 1
        last = max(first + 1, int(np.searchsorted(self._starts, stop, side="left")))
        parts = []
        for group in range(first, last):
            at = int(self._starts[group])
            low, high = max(start - at, 0), min(stop, int(self._starts[group + 1])) - at
            parts.append(self._rows(group, low, max(high, low), tuple(columns)))
        return pa.concat_tables(parts)

    def _rows(self, group: int, low: int, high: int, columns: tuple[str, ...]) -> pa.Table:
        """Return some rows of a group; of a large one that is not the only one, from where it was spilled."""
        spilled = self._spill.get((group, columns))
        if spilled is not None:
            return spilled.read(low, high)
        table = self._group(group, columns)
        if len(self._starts) > 2 and self._spill.put((group, columns), table):
            del self._cache[group, columns]
        return table.slice(low, high - low)

    def _group(self, group: int, columns: tuple[str, ...]) -> pa.Table:
        key = (group, columns)
        if key not in self._cache:
            try:  # one thread: a node may use the CPU of its plan, not of the machine
                self._cache[key] = self._file.read_row_group(group, columns=list(columns), use_threads=False)
            except (pa.ArrowInvalid, OSError) as error:
                raise InvalidValueError(f"cannot read rows of {self._path}: {_first_line(error)}") from error
            self._trim()
        self._cache.move_to_end(key)
        return self._cache[key]

    def _trim(self) -> None:
        while len(self._cache) > 1 and (
            len(self._cache) > 2 or sum(t.nbytes for t in self._cache.values()) > _CACHE_BYTES
        ):
            self._cache.popitem(last=False)


def _open_parquet(path: Path) -> pq.ParquetFile:
    try:
        names = pq.read_schema(path)
        text = [f.name for f in names if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
        return pq.ParquetFile(path, read_dictionary=text)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidValueError(
            f"{path} is not a Parquet file ({_first_line(error)}); "
            "give a Parquet file, or say its format (--format criteo)"
        ) from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")

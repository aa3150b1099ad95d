"""Rows in a Parquet file."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dlrover_nb.core.data.formats.spill import Spill
from dlrover_nb.core.data.kinds import check_distinct, kind_of, plain_type, without_views
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
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
    spill
        Where decoded groups are put, shared by the files of a data set; None: of this file alone.
    """

    def __init__(
        self, path: Path, kinds: Mapping[str, Kind] | None = None, *, spill: Spill | None = None
    ) -> None:
        self._path = path
        self._file = _open_parquet(path)
        metadata = self._file.metadata
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.n_row = int(self._starts[-1])
        given = kinds or {}
        self.types = {field.name: plain_type(field.type) for field in self._file.schema_arrow}
        self.kinds = {name: given.get(name) or kind_of(kind) for name, kind in self.types.items()}
        self._spill = spill or Spill()
        stat = path.stat()
        self._version = path, stat.st_ino, stat.st_size, stat.st_mtime_ns  # one written since is another file
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

    def heads(
        self, n_group: int, n_row: int, columns: Sequence[str], *, after: int
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yield (first row, rows) of the heads of some row groups behind row `after`, spread evenly."""
        behind = np.flatnonzero(self._starts[:-1] >= after)
        chosen = (
            behind[np.unique(np.linspace(0, len(behind) - 1, n_group).astype(int))] if len(behind) else []
        )
        for group in map(int, chosen):
            batches = self._file.iter_batches(
                batch_size=n_row, row_groups=[group], columns=list(columns), use_threads=False
            )
            for batch in itertools.islice(batches, 1):
                table = without_views(pa.Table.from_batches([batch]))
                yield int(self._starts[group]), table.select(list(columns))

    def release(self) -> None:
        """Let go of decoded groups in memory."""
        self._cache.clear()

    def _rows(self, group: int, low: int, high: int, columns: tuple[str, ...]) -> pa.Table:
        """Return some rows of a group; of a large one that is not the only one, from where it was spilled."""
        spilled = self._spill.get((self._version, group, columns))
        if spilled is not None:
            return spilled.read(low, high)
        table = self._group(group, columns)
        if len(self._starts) > 2 and self._spill.put((self._version, group, columns), table):
            del self._cache[group, columns]
        return table.slice(low, high - low)

    def _group(self, group: int, columns: tuple[str, ...]) -> pa.Table:
        key = (group, columns)
        if key not in self._cache:
            try:  # one thread: a node may use the CPU of its plan, not of the machine
                table = self._file.read_row_group(group, columns=list(columns), use_threads=False)
                self._cache[key] = without_views(table)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
                raise InvalidValueError(
                    f"cannot read rows of {self._path}: {_first_line(error)}; "
                    "the file is damaged: write it again"
                ) from error
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
        schema = pq.read_schema(path)
        check_distinct(schema.names, path)
        text = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
        return pq.ParquetFile(path, read_dictionary=text)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise InvalidValueError(
            f"{path} is not a Parquet file ({_first_line(error)}); "
            "give a Parquet file, or say its format (--format criteo)"
        ) from error


def _first_line(error: BaseException) -> str:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])

"""Where rows come from: one small class per file format, all with the same two questions.

A source says which columns it has and of what kind, and reads a range of rows as an Arrow table. Mistakes in
the user's data end here, each as one line with what to do.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dlrover_nb.core.data.spill import Spill
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.structs.job import DataFormat, DataSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CENSUS_FILE = Path(__file__).parent / "census" / "census_income.parquet"
CENSUS_CODES = ("industry_code", "occupation_code", "own_business", "veterans_benefits", "year")
_CACHE_BYTES = 64 << 20  # a second row group is kept only while both are small


class Kind(StrEnum):
    """What a column is, unless the user says otherwise."""

    NUMERIC = "numeric"
    CATEGORICAL = "categorical"
    OTHER = "other"  # lists, structs: no model input


class Source(Protocol):
    """Rows [0, n_row) of one file, or of a stream without an end."""

    @property
    def n_row(self) -> int | None:
        """Number of rows; None for a stream, which gives fewer rows than asked for where it ends."""
        ...

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Columns in the file's order, with their kind."""
        ...

    def read(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Return rows [start, stop) of some columns."""
        ...


def open_source(data: DataSpec, folder: Path | None = None) -> Source:
    """Open the rows that `data` names; `folder` is the job's run folder, where a user's own object lies.

    Raises
    ------
    NotFoundError
        When there is no such file.
    InvalidValueError
        When it is not a file of that format, or has no rows.
    """
    from dlrover_nb.core.data.arrays import NumpySource  # noqa: PLC0415 - these import the kinds from here
    from dlrover_nb.core.data.criteo import CriteoSource  # noqa: PLC0415 - as above
    from dlrover_nb.core.data.own import OwnSource  # noqa: PLC0415 - as above

    match data.format:
        case DataFormat.CENSUS:
            source: Source = ParquetSource(CENSUS_FILE, dict.fromkeys(CENSUS_CODES, Kind.CATEGORICAL))
        case DataFormat.PARQUET:
            source = ParquetSource(_existing(data))
        case DataFormat.CRITEO:
            source = CriteoSource(_existing(data))
        case DataFormat.NUMPY:
            source = NumpySource(_existing(data))
        case DataFormat.OWN:
            source = OwnSource(data.path, folder)
        case _:
            assert_never(data.format)
    if source.n_row == 0:
        raise InvalidValueError(f"{data.path} has no rows; give a file with data")
    return source


def _existing(data: DataSpec) -> Path:
    path = Path(data.path)
    if path.is_dir():
        raise NotFoundError(
            f"data path {path} is a folder, expected one {data.format} file; name a file in it"
        )
    if not path.is_file():
        raise NotFoundError(
            f"no data file {path}; check the path (nodes on other machines need it at the same place)"
        )
    return path


class ParquetSource:
    """A Parquet file, read by row groups; the latest ones stay in memory, as shards follow each other.

    Parameters
    ----------
    path
        The file.
    kinds
        Columns whose kind their type does not tell, such as codes written as integers.
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
            try:  # one thread: a node may use the CPU of its plan, not the machine's
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

"""Where rows come from: one small class per file format, all with the same interface.

A source says which columns it has and of what kind, and reads a range of rows as an Arrow table. Errors in
the user's data are raised here, each as one line with what to do.

`SOURCES` is the table of formats: a new one is a class of the interface `Source` in a file of its own, a
member of `DataFormat`, and a line here. An installed package adds a format by an entry point of the group
``dlrover_nb.data_sources``, which names an `Opener`. A single data set needs no format: `own` opens an
object by the name ``package.module:name``, see `core.data.own`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from dlrover_nb.core import extensions
from dlrover_nb.core.data.arrays import NumpySource
from dlrover_nb.core.data.criteo import CriteoSource
from dlrover_nb.core.data.kinds import Kind
from dlrover_nb.core.data.own import OwnSource
from dlrover_nb.core.data.parquet import ParquetSource
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.structs.job import DataFormat, DataSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

CENSUS_FILE = Path(__file__).parent / "census" / "census_income.parquet"
CENSUS_CODES = ("industry_code", "occupation_code", "own_business", "veterans_benefits", "year")


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


Opener = Callable[[DataSpec, Path | None], Source]  # of the data, and of the job's run folder
SOURCES: Mapping[str, Opener] = {
    DataFormat.CENSUS: lambda _, __: ParquetSource(
        CENSUS_FILE, dict.fromkeys(CENSUS_CODES, Kind.CATEGORICAL)
    ),
    DataFormat.PARQUET: lambda data, _: ParquetSource(_existing(data)),
    DataFormat.CRITEO: lambda data, _: CriteoSource(_existing(data)),
    DataFormat.NUMPY: lambda data, _: NumpySource(_existing(data)),
    DataFormat.OWN: lambda data, folder: OwnSource(data.path, folder),
}


def open_source(data: DataSpec, folder: Path | None = None) -> Source:
    """Open the rows that `data` names; `folder` is the job's run folder, where a user's own object lies.

    Raises
    ------
    NotFoundError
        When there is no such file.
    InvalidValueError
        When there is no such format, it is not a file of that format, or has no rows.
    """
    source = _opener(data.format)(data, folder)
    if source.n_row == 0:
        raise InvalidValueError(f"{data.path} has no rows; give a file with data")
    return source


def _opener(name: str) -> Opener:
    """Return what opens a format; packages are looked for only where it is none of ours."""
    if name in SOURCES:
        return SOURCES[name]
    found = extensions.find(extensions.DATA_SOURCES, name, SOURCES)
    if not callable(found):
        raise InvalidValueError(
            f"data format {name} must be a function of (data, folder), got {type(found).__name__}"
        )
    return cast("Opener", found)  # another package's function is not checked


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

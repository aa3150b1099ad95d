"""Where rows come from: one small class per format, all with the same interface.

A source says which columns it has and of what kind, and reads a range of rows as an Arrow table. Errors in
the user's data are raised here, each as one line with what to do.

`FILE_FORMATS` is the table of formats of files, of which data may have several
(`core.data.storage.file_set`); `SOURCES` that of all others. A new one is a class in a file of its own, a
member of `DataFormat`, and a line in one of them. An installed package adds a format by an entry point of the
group ``dlrover_nb.data_sources``, which names an `Opener`. A single data set needs no format: `own` opens an
object by the name ``package.module:name``, see `core.data.objects.own_source`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

import pyarrow as pa

from dlrover_nb.core import extensions
from dlrover_nb.core.data.formats.arrays import NumpySource
from dlrover_nb.core.data.formats.criteo import CriteoSource, is_criteo
from dlrover_nb.core.data.formats.delimited import DelimitedSource, as_written
from dlrover_nb.core.data.formats.parquet import ParquetSource
from dlrover_nb.core.data.formats.spill import Spill
from dlrover_nb.core.data.kinds import Kind
from dlrover_nb.core.data.objects.own_source import OwnSource
from dlrover_nb.core.data.storage.file_set import FilesSource, OneFile
from dlrover_nb.core.data.storage.listing import files_again, find_files
from dlrover_nb.core.data.storage.versions import version_of
from dlrover_nb.core.data.types.agreement import read_types
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.datafiles import TEXT
from dlrover_nb.core.structs.job.job import DataSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.structs.data.features import FeatureSpec

CENSUS_FILE = Path(__file__).parent / "census" / "census_income.parquet"
CENSUS_CODES = ("industry_code", "occupation_code", "own_business", "veterans_benefits", "year")


class Source(Protocol):
    """Rows [0, n_row) of some files, or of a stream without an end."""

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


@runtime_checkable
class Versioned(Protocol):
    """A source that knows whether its rows are those that it had before."""

    def content_version(self, start: int, stop: int) -> str | None:
        """Return the version of the content of rows [start, stop) now; None where it is not known."""
        ...


class _PackagedRows(ParquetSource):
    """Rows that ship with the package: no submit looks at the content of their file."""

    def content_version(self, start: int, stop: int) -> str | None:  # noqa: ARG002 - the file has one version
        return version_of(CENSUS_FILE, "")


Opener = Callable[[DataSpec, Path | None], Source]  # of the data, and of the job's run folder
SOURCES: Mapping[str, Opener] = {
    DataFormat.CENSUS: lambda _, __: _PackagedRows(
        CENSUS_FILE, dict.fromkeys(CENSUS_CODES, Kind.CATEGORICAL)
    ),
    DataFormat.OWN: lambda data, folder: OwnSource(data.path, folder),
}
_Types = Mapping[str, pa.DataType]
FileOpener = Callable[[Path, DataSpec, _Types | None, Spill], OneFile]
FILE_FORMATS: Mapping[str, FileOpener] = {  # one file of each format
    DataFormat.PARQUET: lambda path, _, __, spill: ParquetSource(path, spill=spill),
    DataFormat.CSV: lambda path, data, types, _: DelimitedSource(
        path, data.separator or None, ids=data.ids, types=types
    ),
    DataFormat.TSV: lambda path, data, types, _: _tab_separated(path, data, types),
    DataFormat.CRITEO: lambda path, *_: CriteoSource(path),
    DataFormat.NUMPY: lambda path, *_: NumpySource(path),
}


def open_source(
    data: DataSpec,
    folder: Path | None = None,
    *,
    features: FeatureSpec | None = None,
    types: _Types | None = None,
) -> Source:
    """Open the rows that `data` names.

    Parameters
    ----------
    folder
        The job's run folder, where a user's own object lies.
    features
        What was found when the job was submitted; None: this is the submit.
    types
        Of columns of text files that are not to be guessed from a sample.

    Raises
    ------
    NotFoundError
        When there is no such file.
    InvalidValueError
        When there is no such format, it is not a file of that format, or has no rows.
    """
    is_file = data.format in FILE_FORMATS
    source = _files(data, features, types or {}) if is_file else _opener(data.format)(data, folder)
    if source.n_row == 0:
        raise InvalidValueError(f"{data.place} has no rows; give a file with data")
    return source


def _files(data: DataSpec, features: FeatureSpec | None, types: _Types) -> Source:
    spill, open_one = Spill(), FILE_FORMATS[data.format]

    def opened(path: Path, types: _Types | None) -> OneFile:
        return open_one(path, data, types, spill)

    if features is None or not features.files:
        return FilesSource(data, find_files(data), opened, types=types)
    files, types = files_again(data, features.files), read_types(features.column_types)
    if data.format in TEXT:
        types = as_written(types, data.ids)
    return FilesSource(data, files, opened, submitted=features.files, types=types)


def _opener(name: str) -> Opener:
    """Return what opens a format; packages are looked for only where it is none of ours."""
    if name in SOURCES:
        return SOURCES[name]
    opener = extensions.find(extensions.DATA_SOURCES, name, {**SOURCES, **FILE_FORMATS})
    if not callable(opener):
        raise InvalidValueError(
            f"data format {name} must be a function of (data, folder), got {type(opener).__name__}"
        )
    return cast("Opener", opener)  # another package's function is not checked


def _tab_separated(path: Path, data: DataSpec, types: _Types | None) -> OneFile:
    """Open a TSV file; Criteo's logs have the same extension and no header."""
    if is_criteo(path):
        return CriteoSource(path)
    return DelimitedSource(path, "\t", ids=data.ids, types=types)

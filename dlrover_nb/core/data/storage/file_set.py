"""Rows numbered over the files of a data set.

A submit opens all files: it counts their rows, checks that their columns agree and decides one type for
each. What it found travels with the job, so that a node lists nothing and opens a file when a shard of its
rows comes up. Files that appear later are no part of the job. One that has changed would give other rows
under the same numbers: a file is compared with its size and parts of its content as they were at the submit
when it is opened, and by its time and size before each read; a file of another machine may have another
time.

Compressed text is unpacked once to the cache of the machine. Shards are ranges of rows in any order, and a
compressed file can only be read from its beginning: an index of positions within it would still unpack half a
file for each shard in the mean. So a file is unpacked where it is first needed, and read as plain text from
then on, by all processes of the machine.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import zlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import pyarrow as pa

from dlrover_nb.core.data.formats.delimited import DelimitedSource, as_written, narrowed
from dlrover_nb.core.data.kinds import kind_of
from dlrover_nb.core.data.storage import remote
from dlrover_nb.core.data.storage.cache import check_room, data_cache
from dlrover_nb.core.data.storage.listing import name_of
from dlrover_nb.core.data.storage.partitions import partitions, values_of, with_partitions
from dlrover_nb.core.data.storage.remote import RemoteFile
from dlrover_nb.core.data.storage.versions import version_of
from dlrover_nb.core.data.types.agreement import aligned, check_same, common_types, joined
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.structs.data.column_types import column_types
from dlrover_nb.core.structs.data.file_rows import FileRows
from dlrover_nb.core.structs.job.datafiles import TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from dlrover_nb.core.data.kinds import Kind
    from dlrover_nb.core.data.storage.cache import DataCache
    from dlrover_nb.core.data.storage.listing import DataFile
    from dlrover_nb.core.structs.job.job import DataSpec

N_WARM, N_OPEN = 2, 64  # files whose decoded rows stay in memory, and files that stay open
_WHOLE, _BLOCK, _N_BLOCK = (
    1 << 18,
    1 << 12,
    64,
)  # bytes: of a file that is hashed whole, of parts of a larger one


_CHUNK_BYTES = 4 << 20


def _zstd(path: Path) -> Any:  # noqa: ANN401 - pyarrow has no types
    return pa.CompressedInputStream(pa.OSFile(str(path), "rb"), "zstd")


_OPENERS: Mapping[bytes, Callable[[Path], Any]] = {  # how a file begins -> what unpacks it
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\x28\xb5\x2f\xfd": _zstd,
}


def plain(path: Path, name: str, cache: DataCache) -> Path:
    """Return a file of plain text with the content of one that may be compressed.

    Parameters
    ----------
    name
        Of the file in messages.

    Raises
    ------
    InvalidValueError
        When it is damaged or cut off.
    BackendError
        When there is no room to unpack it.
    """
    with path.open("rb") as file:
        begin = file.read(4)
    opened = next((opener for magic, opener in _OPENERS.items() if begin.startswith(magic)), None)
    if opened is None:
        return path
    stat = path.stat()  # an entry of the cache is named by its version, and its time is that of its last use
    version = "" if path.parent == cache.folder else f"{stat.st_mtime_ns}\n{stat.st_ino}"
    key = f"unpacked\n{path}\n{stat.st_size}\n{version}"
    return cache.get(key, lambda part: _unpack(opened, path, part, name))


def _unpack(opened: Callable[[Path], Any], path: Path, part: Path, name: str) -> None:
    n_byte = 0
    with part.open("wb") as sink:
        try:
            with opened(path) as source:
                while chunk := source.read(_CHUNK_BYTES):
                    sink.write(chunk)
                    n_byte += len(chunk)
                    check_room(part.parent, f"the content of {name}")
        except (EOFError, zlib.error, gzip.BadGzipFile, pa.ArrowException, ValueError) as error:
            raise _damaged(name, n_byte, error) from error
        except OSError as error:
            if error.errno is not None:  # of the disk, and not of the content
                raise
            raise _damaged(name, n_byte, error) from error


def _damaged(name: str, n_byte: int, error: Exception) -> InvalidValueError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return InvalidValueError(
        f"{name} cannot be unpacked beyond {n_byte:,} bytes ({reason}): it is damaged "
        "or cut off; write it again"
    )


class OneFile(Protocol):
    """Rows of one file."""

    @property
    def n_row(self) -> int:
        """Number of rows."""
        ...

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Columns in the file's order, with their kind."""
        ...

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """Columns with their types."""
        ...

    def read(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Return rows [start, stop) of some columns."""
        ...


class _Opened:
    """A file that is open, and what it looked like then."""

    def __init__(self, file: DataFile, path: Path, source: OneFile) -> None:
        self.file, self.path, self.source = file, path, source
        self.looks = looks_of(path)


class FilesSource:
    """The rows of some files, one after the other.

    Parameters
    ----------
    data, files
        The data, and its files.
    open_file
        Opens one of them, with the types of its columns where they are known.
    submitted, types
        What a submit found; nothing: this is the submit, and `types` are those of columns of text files
        that are not guessed from a sample.

    Raises
    ------
    InvalidValueError
        When a file is not of the format, or its columns are not those of the others.
    """

    def __init__(
        self,
        data: DataSpec,
        files: Sequence[DataFile],
        open_file: Callable[[Path, Mapping[str, pa.DataType] | None], OneFile],
        *,
        submitted: Sequence[FileRows] = (),
        types: Mapping[str, pa.DataType] | None = None,
    ) -> None:
        self._data, self._files, self._open_file = data, files, open_file
        self._opened: OrderedDict[int, _Opened] = OrderedDict()
        self.types: Mapping[str, pa.DataType] = (types or {}) if submitted else {}
        self.files = tuple(submitted)
        if not submitted:
            self._look(types or {})
        self._starts = np.concatenate([[0], np.cumsum([file.n_row for file in self.files])]).astype(np.int64)
        self.n_row = int(self._starts[-1])

    @property
    def kinds(self) -> dict[str, Kind]:
        """Columns in the first file's order, with their kind."""
        return {name: kind_of(kind) for name, kind in self.types.items()}

    def read(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Return rows [start, stop) of some columns."""
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        last = max(first + 1, int(np.searchsorted(self._starts, stop, side="left")))
        parts: list[pa.Table] = []
        for i in range(min(first, len(self.files) - 1), min(last, len(self.files))):
            at, n_row = int(self._starts[i]), self.files[i].n_row
            low, high = min(max(start - at, 0), n_row), min(stop - at, n_row)
            if low < high or not parts:
                table = self._rows(i, low, max(low, high), columns)
                parts.append(aligned(table, self.types, self.files[i].name))
        return joined([part for part in parts if part.num_rows] or parts[:1])

    def _rows(self, i: int, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Return rows of a file, with the columns that its folders name."""
        source, name = self._file(i).source, self.files[i].name
        within = [column for column in columns if column in source.types] or list(source.types)[:1]
        return with_partitions(source.read(start, stop, within), values_of(name), columns)

    def content_version(self, start: int, stop: int) -> str | None:
        """Return the version of the content of rows [start, stop) now; None where it is not known."""
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        last = max(first + 1, int(np.searchsorted(self._starts, stop, side="left")))
        versions = []
        for i in range(min(first, len(self.files) - 1), min(last, len(self.files))):
            version = version_of(self._file(i).path, self.files[i].identity)
            if version is None:
                return None
            versions.append(version)
        return "\n".join(versions)

    def some(self, n_file: int, after: int) -> Iterator[tuple[int, OneFile, str]]:
        """Yield (first row, rows, name) of a few files that have rows behind row `after`, spread evenly."""
        behind = [
            i for i, file in enumerate(self.files) if file.n_row and self._starts[i] + file.n_row > after
        ]
        places = np.linspace(0, max(len(behind) - 1, 0), min(n_file, len(behind)))
        for i in (behind[k] for k in np.unique(places.astype(int))):
            yield int(self._starts[i]), self._file(i).source, self.files[i].name

    # a submit

    @property
    def is_text(self) -> bool:
        """Whether the files are text, whose types are guesses from samples."""
        return self._data.format in TEXT and all(
            isinstance(opened.source, DelimitedSource) for opened in self._opened.values()
        )

    def read_as_text(self, columns: Collection[str]) -> None:
        """Read some columns of text files as they are written from now on."""
        self.types = as_written(self.types, columns)
        for opened in self._opened.values():
            if isinstance(opened.source, DelimitedSource):
                opened.source.use({n: kind for n, kind in self.types.items() if n in opened.source.types})

    def _look(self, given: Mapping[str, pa.DataType]) -> None:
        """Open all files, and decide what nodes read them with."""
        names, rows, types, texts = [name_of(file) for file in self._files], [], [], []
        for i, name in enumerate(names):
            opened = self._file(i)
            rows.append(FileRows(name, opened.source.n_row, identity_of(opened.path)))
            types.append(opened.source.types)
            if isinstance(opened.source, DelimitedSource):
                texts.append(opened.source)
        wanted = self._wanted()
        named = (*(wanted or ()), *column_types(self._data.types))
        folders = [dict.fromkeys(each, pa.string()) for each in partitions(names, named)]
        types = [{**own, **more, **own} for own, more in zip(types, folders, strict=True)]
        check_same(names, [self._without_excluded(each) for each in types], wanted)
        if len(texts) == len(names):
            guessed = {**types[0], **narrowed(texts, self._data.ids)}
            self.types = guessed | {name: kind for name, kind in given.items() if name in guessed}
        else:
            self.types = common_types(names, types, wanted or self._without_excluded(types[0]))
        for source in texts:
            source.use({name: kind for name, kind in self.types.items() if name in source.types})
        self.files = tuple(rows)

    def _wanted(self) -> Sequence[str] | None:
        """Return the columns that the user named; None where all are used."""
        data = self._data
        is_named = data.numeric or data.categorical
        return (data.label, *data.numeric, *data.ids) if is_named else None

    def _without_excluded(self, names: Collection[str]) -> list[str]:
        return [name for name in names if name not in self._data.exclude]

    # files

    def _file(self, i: int) -> _Opened:
        """Return a file, opened again where it has another look; only a few keep rows in memory."""
        opened = self._opened.get(i)
        if opened is None or looks_of(opened.path) != opened.looks:
            opened = self._opened[i] = self._open(i)
        self._opened.move_to_end(i)
        self._release()
        return opened

    def _open(self, i: int) -> _Opened:
        file = self._files[i]
        path = self._on_this_machine(file)
        expected = self.files[i] if self.files else None
        if expected is not None and identity_of(path) != expected.identity:
            raise self._changed(expected.name)
        try:
            source = self._open_file(path, self.types or None)
        except OSError as error:
            raise NotFoundError(
                f"cannot read {name_of(file)}: {error.strerror or error}; let its owner "
                "allow it, or check the disk"
            ) from error
        if expected is not None and source.n_row != expected.n_row:
            raise self._changed(expected.name)
        return _Opened(file, path, source)

    def _changed(self, name: str) -> InvalidValueError:
        return InvalidValueError(
            f"{name} has changed since the job was submitted; put the former file back, or stop the job and "
            "submit it again"
        )

    def _on_this_machine(self, file: DataFile) -> Path:
        """Return the file as a plain one on a disk of this machine."""
        path = remote.fetch(file, data_cache()) if isinstance(file, RemoteFile) else file
        try:
            return plain(path, name_of(file), data_cache()) if self._data.format in TEXT else path
        except FileNotFoundError as error:
            raise NotFoundError(f"no data file {name_of(file)}; it was there before: put it back") from error
        except OSError as error:
            raise NotFoundError(
                f"cannot read {name_of(file)}: {error.strerror or error}; let its owner "
                "allow it, or check the disk"
            ) from error

    def _release(self) -> None:
        releasable = [i for i, opened in self._opened.items() if hasattr(opened.source, "release")]
        for i in releasable[:-N_OPEN]:
            del self._opened[i]
        for i in releasable[-N_OPEN:-N_WARM]:
            cast("_Releasable", self._opened[i].source).release()


class _Releasable(Protocol):
    def release(self) -> None: ...


def looks_of(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is written: its size, node and time; None where it is gone.

    The time of an entry of the cache is that of its last use, and its content never changes.
    """
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_ino, 0 if path.parent == data_cache().folder else stat.st_mtime_ns


def identity_of(path: Path) -> str:
    """Return a hash of a file's size and of parts of its content; of a small one, of all of it."""
    try:
        with path.open("rb") as file:
            n_byte = path.stat().st_size
            digest = hashlib.sha256(n_byte.to_bytes(8, "little"))
            if n_byte <= _WHOLE:
                digest.update(file.read(_WHOLE))
            else:
                for at in np.linspace(0, n_byte - _BLOCK, _N_BLOCK).astype(np.int64).tolist():
                    file.seek(at)
                    digest.update(file.read(_BLOCK))
    except FileNotFoundError as error:
        raise NotFoundError(f"no data file {path}; it was there before: put it back") from error
    return digest.hexdigest()[:24]

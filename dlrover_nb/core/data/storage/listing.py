"""Which files a job's data are, in a fixed order.

A path is a file, a folder, a pattern (``*``, ``?``, ``[``, and ``**`` for folders within folders), or a URL
of these. Several paths keep their order; the files of one are sorted by their names as text. Names that
begin with ``.`` or ``_`` are left out, as writers of data sets put their marks there. A folder gives the
files in it of the job's format, and none of the folders within: whether those are parts of the data, only
their owner knows, unless their names say so (``country=de``, see `core.data.storage.partitions`).
"""

from __future__ import annotations

import glob
import os
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.data.storage import remote
from dlrover_nb.core.data.storage.remote import RemoteFile
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.structs.job.datafiles import FILES, bare, format_of, is_pattern, is_url
from dlrover_nb.core.structs.job.spec_choices import DataFormat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dlrover_nb.core.structs.data.file_rows import FileRows
    from dlrover_nb.core.structs.job.job import DataSpec

DataFile = Path | RemoteFile
MOST_FILES = 5_000  # their names travel with the job, and a Secret of Kubernetes holds 1 MiB


def name_of(file: DataFile) -> str:
    """Return the name of a file in messages and records: its path, or its URL without credentials."""
    return file.name if isinstance(file, RemoteFile) else str(file)


def find_files(data: DataSpec) -> tuple[DataFile, ...]:
    """Return the files of some data, in the order of their rows.

    Raises
    ------
    NotFoundError
        When a path gives none.
    InvalidValueError
        When a file is named twice, there are too many, or a URL cannot be read.
    BackendError
        When a server does not answer.
    """
    files = tuple(file for path in data.paths for file in _files_of(path, data.format))
    if len(files) > MOST_FILES:
        raise InvalidValueError(
            f"{data.place} has {len(files):,} files, expected at most {MOST_FILES:,}; merge small files"
        )
    places = Counter(os.path.realpath(f) if isinstance(f, Path) else f.path for f in files)
    twice = next((bare(path) for path, n in places.items() if n > 1), None)
    if twice is not None:
        raise InvalidValueError(
            f"data.path names {twice} twice, so its rows would be trained twice; name it once"
        )
    return files


def files_again(data: DataSpec, submitted: Sequence[FileRows]) -> tuple[DataFile, ...]:
    """Return the files that a submit found, in its order; disks are not listed again.

    Raises
    ------
    NotFoundError, InvalidValueError, BackendError
        As `find_files`, or when a URL names one of them no more.
    """
    if not any(is_url(each.name) for each in submitted):
        return tuple(Path(each.name) for each in submitted)
    there: dict[str, list[DataFile]] = {}
    for file in find_files(data):
        there.setdefault(name_of(file), []).append(file)
    if gone := next((each.name for each in submitted if not there.get(each.name)), ""):
        raise NotFoundError(f"no data at {gone}; it was there when the job was submitted: put it back")
    return tuple(there[each.name].pop(0) for each in submitted)


def _files_of(path: str, kind: str) -> tuple[DataFile, ...]:
    if is_url(path):
        files, local = remote.find(path)
        if not local:
            several = path.endswith("/") or is_pattern(path) or len(files) > 1
            return tuple(_fitting(files, kind, bare(path))) if several else files
        path = local
    return _local(Path(path), kind)


def _local(path: Path, kind: str) -> tuple[DataFile, ...]:
    try:
        if path.is_dir():
            return _of_folder(path, kind)
        if path.is_file():
            return (path,)
        matches = glob.glob(str(path), recursive=True) if is_pattern(str(path)) else []  # noqa: PTH207 - of an absolute path
    except (OSError, ValueError) as error:
        raise NotFoundError(
            f"cannot read the data path {shown(str(path))}: {error}; check the path"
        ) from error
    if not is_pattern(str(path)):
        raise NotFoundError(
            f"no data file {path}; check the path (nodes on other machines need it at the same place)"
        )
    return tuple(_fitting(_files(map(Path, sorted(matches)), kind), kind, str(path)))


def _of_folder(folder: Path, kind: str) -> tuple[DataFile, ...]:
    entries = sorted(folder.iterdir())
    folders = [each for each in entries if each.is_dir() and not _is_mark(each.name)]
    if folders and all("=" in each.name for each in folders):  # partitions, of which any tool reads all
        files = _files((file for each in folders for file in sorted(each.rglob("*"))), kind)
        there = [file for file in files if not any(map(_is_mark, file.relative_to(folder).parts))]
        return tuple(_fitting(there, kind, str(folder)))
    within = next((each for each in folders if "=" not in each.name), None)
    if within is not None:
        raise InvalidValueError(
            f"data path {folder} holds folders ({within.name}), expected {kind} files; name the files with a "
            f"pattern, such as {folder}/**/*"
        )
    return tuple(_fitting(_files(entries, kind), kind, str(folder)))


def _files(entries: Iterable[Path], kind: str) -> Iterator[Path]:
    """Yield the files among the entries of a folder; a link into nowhere would be rows that are left out."""
    for each in entries:
        if each.is_file():
            yield each
        elif each.is_symlink() and not each.exists() and not _is_mark(each.name) and _may_be(each, kind):
            raise NotFoundError(
                f"{each} is a link to {each.readlink()}, which is not there; put it there, or remove the link"
            )


def _may_be(path: Path, kind: str) -> bool:
    return format_of(path.name) in {kind, None}


def _fitting(files: Iterable[DataFile], kind: str, where: str) -> Sequence[DataFile]:
    """Return the files of a format: where only some have its extension, these."""
    there = [file for file in files if not _is_mark(PurePosixPath(name_of(file)).name)]
    of_kind = [file for file in there if format_of(name_of(file)) == kind]
    fits = of_kind or [f for f in there if format_of(name_of(f)) is None or kind not in FILES]
    if kind == DataFormat.CRITEO:  # logs without an extension, or with that of text
        fits = there
    if not fits:
        names = ", ".join(PurePosixPath(name_of(file)).name for file in there[:5])
        raise NotFoundError(
            f"no {kind} files at {where}{names and f', but {names}'}; check data.path and data.format"
        )
    return fits


def _is_mark(name: str) -> bool:
    return name.startswith((".", "_"))

"""Image files: atomic writes, verified reads, at a path or any URL that fsspec supports.

On a local disk an image is written under another name, synced and renamed, so that a crash or a full disk
leaves the last good file intact. The reader compares the SHA-256 of the whole file with the recorded one and
maps the arrays; neither side holds a second copy of the parameters.

Elsewhere it is written under another name and moved (object stores copy and delete for that, on their side),
and read into memory. Committing an upload would save that copy, but not every file system supports it, and
one that does not would show half a file. Either way a checkpoint is valid only with its manifest, written
last.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import mmap
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from dlrover_nb.core.disk.files import make_folder, sync_folder
from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.checkpoints.buffer import HASH_BYTES, nothing, sha256_of
from dlrover_nb.core.runtime.checkpoints.image import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.checkpoints.image import Image

_WRITE_BYTES = 8 << 20
_DIRECT = getattr(os, "O_DIRECT", 0)  # 0: not on this system


@dataclass(frozen=True, slots=True)
class Written:
    """A finished file: its checksum and size."""

    sha256: str
    n_byte: int


def write_url(
    url: str, chunks: Iterable[NDArray[np.uint8]], *, between: Callable[[], None] = nothing
) -> Written:
    """Write `chunks`, one after the other, to `url` atomically.

    Parameters
    ----------
    url
        A path or a URL; missing folders are created.
    between
        Called after every few MiB; what it raises ends the writing.

    Raises
    ------
    CheckpointError
        When it cannot be written; the content of `url` is unchanged.
    """
    advice = "the last good one is unchanged; free space there or choose another place"
    with as_checkpoint_error(f"cannot write the checkpoint {url}", advice):
        fs, path, is_local = _place_to_open(url)
        if is_local:
            return _write_local(Path(path), chunks, between)
        return _write_remote(fs, path, chunks, between)


def read_url(url: str, sha256: str, *, between: Callable[[], None] = nothing) -> Image:
    """Return the image at `url`, its arrays read-only; those of a local file are mapped from it.

    Raises
    ------
    CheckpointError
        When the file is missing, changed, or of another format.
    """
    with as_checkpoint_error(f"cannot read the checkpoint {url}", "use an earlier one"):
        fs, path, is_local = _place_to_open(url)
        data = _mapped(path) if is_local else _download(fs, path, between)
    digest = sha256_of(data, between).hex()
    if digest != sha256:
        raise CheckpointError(
            f"the checkpoint {url} is damaged: expected SHA-256 {sha256[:12]}, got {digest[:12]}; "
            "use an earlier checkpoint"
        )
    return parse(data, url)


def place_of(url: str) -> tuple[Any, str, bool]:
    """Return the file system of a URL, the path in it, and whether it is a disk of this machine.

    Without a scheme it is a local path.
    """
    import fsspec  # noqa: PLC0415 - a fourth of a parameter server's imports; most never need it
    from fsspec.implementations.local import LocalFileSystem  # noqa: PLC0415 - the same

    fs, path = fsspec.core.url_to_fs(url) if "://" in url else (LocalFileSystem(), url)
    return fs, path, isinstance(fs, LocalFileSystem)


def _place_to_open(url: str) -> tuple[Any, str, bool]:
    """Return the same, with no file system for a path, which is opened without one."""
    return place_of(url) if "://" in url else (None, url, True)


@contextlib.contextmanager
def as_checkpoint_error(what: str, advice: str) -> Iterator[None]:
    """Convert any error of a file system into a `CheckpointError` of one line."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:  # each file system of fsspec has errors of its own
        text = isinstance(error, OSError) and error.strerror
        reason = text or " ".join(f"{type(error).__name__}: {error}".split())
        raise CheckpointError(f"{what}: {reason}; {advice}") from error


def _write_local(path: Path, chunks: Iterable[NDArray[np.uint8]], between: Callable[[], None]) -> Written:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        make_folder(path.parent)
        with _uncached(temporary) as file:
            written = _write(file, chunks, between)
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return written


def _write_remote(
    fs: Any,  # noqa: ANN401 - fsspec has no types
    path: str,
    chunks: Iterable[NDArray[np.uint8]],
    between: Callable[[], None],
) -> Written:
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{os.getpid()}-{threading.get_native_id()}.tmp"
    fs.makedirs(folder, exist_ok=True)
    try:
        with fs.open(temporary, "wb") as file:
            written = _write(file, chunks, between)
        fs.mv(temporary, path)
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is reported
            fs.rm(temporary)
        raise
    return written


def _uncached(path: Path) -> BinaryIO:
    """Create a file that is written around the page cache where its file system can do that.

    To fill that cache takes several times the CPU time of the checksum, and memory from what trains.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    _set_direct(handle, _DIRECT)
    return os.fdopen(handle, "wb", buffering=0)


def _set_direct(handle: int, flag: int) -> None:
    with contextlib.suppress(OSError):  # not on this file system
        fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) & ~_DIRECT | flag)


def _write(file: BinaryIO, chunks: Iterable[NDArray[np.uint8]], between: Callable[[], None]) -> Written:
    """Write in pieces of one size that begin with a page, as files around the page cache need them."""
    digest, n_byte = hashlib.sha256(), 0
    for piece in _pieces(memoryview(mmap.mmap(-1, _WRITE_BYTES)), chunks):
        if len(piece) < _WRITE_BYTES and isinstance(file, io.FileIO):
            _set_direct(file.fileno(), 0)  # the last one
        _write_all(file, piece)
        digest.update(piece)
        n_byte += len(piece)
        between()
    return Written(digest.hexdigest(), n_byte)


def _pieces(page: memoryview, chunks: Iterable[NDArray[np.uint8]]) -> Iterator[memoryview]:
    """Yield all bytes of `chunks` in pieces as long as `page`, and the rest; each is void with the next.

    What does not lie in such pieces, as a copy in shared memory does, is copied to `page`.
    """
    n = 0
    for chunk in chunks:
        data = chunk.data
        if not n and chunk.ctypes.data % mmap.PAGESIZE == 0:
            whole = len(data) // len(page) * len(page)
            for start in range(0, whole, len(page)):
                yield data[start : start + len(page)]
            data = data[whole:]
        while data:
            take = min(len(data), len(page) - n)
            page[n : n + take], data, n = data[:take], data[take:], n + take
            if n == len(page):
                yield page[:n]
                n = 0
    if n:
        yield page[:n]


def _write_all(file: BinaryIO, data: memoryview) -> None:
    """Write all of `data`: a nearly full disk may accept a part only."""
    while data:
        try:
            data = data[file.write(data) :]
        except OSError as error:
            is_direct = isinstance(file, io.FileIO) and fcntl.fcntl(file, fcntl.F_GETFL) & _DIRECT
            if error.errno != errno.EINVAL or not is_direct:
                raise
            _set_direct(file.fileno(), 0)  # of a part that was accepted the rest lies anywhere


def _mapped(path: str) -> NDArray[np.uint8]:
    if Path(path).stat().st_size == 0:
        return np.empty(0, np.uint8)  # an empty file cannot be mapped
    return np.memmap(path, np.uint8, "r")


def _download(fs: Any, path: str, between: Callable[[], None]) -> NDArray[np.uint8]:  # noqa: ANN401 - as above
    data = np.empty(int(fs.info(path)["size"]), np.uint8)
    at = 0
    with fs.open(path, "rb") as file:
        while chunk := file.read(HASH_BYTES):
            if at + len(chunk) > len(data):
                raise CheckpointError(f"the checkpoint {path} grows while it is read; use an earlier one")
            data[at : at + len(chunk)] = np.frombuffer(chunk, np.uint8)
            at += len(chunk)
            between()
    return data[:at]

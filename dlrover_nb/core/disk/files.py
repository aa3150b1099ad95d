"""Files written whole or not at all, and folders that cannot be written to, reported with the way out.

A file is synced before it is renamed: after a power failure its name must not stand for an empty file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import IO, BinaryIO

_FULL = {errno.ENOSPC, errno.EDQUOT}
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}  # of some file systems, and of folders on them


def write(
    path: Path | str,
    content: str | bytes | Iterable[str],
    *,
    force: bool = False,
    is_private: bool = False,
) -> Path:
    """Write a whole file or none of it, and return its absolute path.

    Parameters
    ----------
    content
        Of several texts, one is held at a time.
    is_private
        Whether only this account may read it.

    Raises
    ------
    InvalidValueError
        When the file is there and `force` is not given, it is no ordinary file (a device would be replaced
        by one), or it cannot be written.
    NotFoundError
        When its folder is not there.
    """
    path = Path(path).expanduser().absolute()
    try:
        _check_free(path, force=force)
        _replace(path, _parts(content), is_private=is_private)
    except OSError as error:
        raise InvalidValueError(f"cannot write {path}: {error.strerror}; name another file") from error
    return path


def sync(file: IO[bytes] | int) -> None:
    """Wait until what was written to a file is on the disk; `OSError` where it cannot be written there."""
    try:
        os.fdatasync(file if isinstance(file, int) else file.fileno())
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


def replace_synced(temporary: Path, path: Path) -> None:
    """Give a file that was written its name, in place of another, so that a power failure leaves one whole.

    Raises
    ------
    OSError
        When it cannot be written to the disk; the other is still there.
    """
    _sync_path(temporary, os.O_RDWR)
    temporary.replace(path)
    _sync_path(path.parent, os.O_RDONLY | os.O_DIRECTORY)


def replace_open(path: Path, data: bytes) -> BinaryIO:
    """Replace a file atomically by one of mode 0600; return it, open at its end."""
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    file = open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")  # noqa: PTH123, SIM115 - pathlib opens no descriptor; the caller closes it
    try:
        file.write(data)
        file.flush()
        replace_synced(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        raise
    return file


def _sync_path(path: Path, flags: int) -> None:
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        sync(handle)
    finally:
        os.close(handle)


def _check_free(path: Path, *, force: bool) -> None:
    if not path.parent.is_dir():
        raise NotFoundError(f"no folder {path.parent}; create it first, or name another file")
    if path.is_dir():
        raise InvalidValueError(f"{path} is a folder, expected a file; add a file name")
    if not path.exists():
        return
    if not path.is_file():
        raise InvalidValueError(f"{path} is a device, expected an ordinary file; name another file")
    if not force:
        raise InvalidValueError(f"{path} exists already; use --force to overwrite it, or name another file")


def _parts(content: str | bytes | Iterable[str]) -> Iterable[bytes]:
    if isinstance(content, bytes):
        return (content,)
    return (text.encode() for text in ((content,) if isinstance(content, str) else content))


def _replace(path: Path, content: Iterable[bytes], *, is_private: bool = False) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(content)
        if not is_private:
            umask = os.umask(0)
            os.umask(umask)
            Path(name).chmod(0o666 & ~umask)  # what open() would have given; mkstemp's files are private
        replace_synced(Path(name), path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def make_folder(path: Path) -> None:
    """Make a folder, closed to other users, and those above it, so that a power failure leaves them."""
    new = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in new:
        sync_folder(each.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; `OSError` where they cannot be written there."""
    _sync_path(folder, os.O_RDONLY | os.O_DIRECTORY)


@contextlib.contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn what the system says about a folder into one line with the way out.

    Raises
    ------
    BackendError
        When the block within could not write.
    """
    try:
        yield
    except OSError as error:
        way_out = (
            "make room on its disk"
            if error.errno in _FULL
            else "make it writable, or let XDG_STATE_HOME name a folder that is"
        )
        raise BackendError(f"cannot write to {folder}: {error.strerror or error}; {way_out}") from error

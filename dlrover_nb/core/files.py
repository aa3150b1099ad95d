"""Files written whole or not at all, and folders that cannot be written to, reported with the way out."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FULL = {errno.ENOSPC, errno.EDQUOT}


def write(path: Path | str, content: str | bytes, *, force: bool = False) -> Path:
    """Write a whole file or none of it, and return its absolute path.

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
        _replace(path, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise InvalidValueError(f"cannot write {path}: {error.strerror}; name another file") from error
    return path


def _check_free(path: Path, *, force: bool) -> None:
    if not path.parent.is_dir():
        raise NotFoundError(f"no folder {path.parent}; make it first, or name another file")
    if path.is_dir():
        raise InvalidValueError(f"{path} is a folder, expected a file; add a file name")
    if not path.exists():
        return
    if not path.is_file():
        raise InvalidValueError(f"{path} is a device, expected an ordinary file; name another file")
    if not force:
        raise InvalidValueError(f"{path} is there already; use --force to overwrite it, or name another file")


def _replace(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)  # what open() would have given; mkstemp's files are private
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


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

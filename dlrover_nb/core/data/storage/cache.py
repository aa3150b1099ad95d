"""Files that were fetched or unpacked, kept on this machine for all processes of its user.

An entry is named by a hash of what it is made from (place, version), so a changed source is another entry.
It is written under another name, synced and renamed: a file with its final name is whole. The maker of an
entry holds a lock of it, which ends with its process, so that two processes do not fetch at once and a killed
one leaves nothing but an unfinished file, which the next one overwrites. Entries that were not used for the
longest time are deleted once all of them take more than `most_bytes`, or more than half of the disk's room;
an open file survives that.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.disk.paths import Xdg, user_folder
from dlrover_nb.core.errors import BackendError, InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER_VAR, SIZE_VAR = "DLROVER_NB_CACHE", "DLROVER_NB_CACHE_GIB"
MOST_GIB = 100.0
LEAST_FREE = 256 << 20  # bytes of the disk that are never taken
_ENDING, _PART = ".data", ".part"
_ABANDONED_S = 86_400.0  # after it an unfinished file has no writer any more


class DataCache:
    """Whole files by their keys.

    Parameters
    ----------
    folder
        Where they lie.
    most_bytes
        Of all of them; the newest one is kept even if it alone is larger.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder, self.most_bytes = folder, most_bytes

    def get(self, key: str, write: Callable[[Path], None]) -> Path:
        """Return the file of a key; where there is none, `write` fills a file of the given path.

        Raises
        ------
        BackendError
            When the folder cannot be written to.
        """
        name = hashlib.sha256(key.encode()).hexdigest()[:40]
        path = self.folder / f"{name}{_ENDING}"
        with _as_backend_error(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _touched(path):
                with self._locked(name):
                    if not _touched(path):  # another process has made it meanwhile
                        self._make(path, write)
        return path

    def _make(self, path: Path, write: Callable[[Path], None]) -> None:
        part = path.with_suffix(_PART)
        try:
            write(part)
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        self._evict(path)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        # 256 lock files that are never deleted: another process may wait for a deleted one, and a third
        # would lock a new one.
        with (self.folder / f"{name[:2]}.lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _evict(self, newest: Path) -> None:
        """Delete the entries that were not used for the longest time."""
        entries = []
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                if path.suffix == _ENDING:
                    entries.append((stat.st_mtime, stat.st_size, path))
                elif path.suffix == _PART and time.time() - stat.st_mtime > _ABANDONED_S:
                    path.unlink()
        n_total = sum(size for _, size, _ in entries)
        most = min(self.most_bytes, (shutil.disk_usage(self.folder).free + n_total) // 2)
        for _, size, path in sorted(entries):
            if n_total <= most:
                return
            if path != newest:
                path.unlink(missing_ok=True)
                n_total -= size


def check_room(folder: Path, name: str) -> None:
    """Refuse to fill the disk: checked while a file is written whose size is not known before.

    Raises
    ------
    BackendError
        When nearly nothing is left.
    """
    if shutil.disk_usage(folder).free < LEAST_FREE:
        raise BackendError(
            f"no room in {folder} for {name}; free space there, or set {FOLDER_VAR} to a folder with more"
        )


@cache
def data_cache() -> DataCache:
    """Return the cache of this user on this machine.

    Raises
    ------
    InvalidValueError
        When its size in the environment is no number.
    """
    text = os.environ.get(SIZE_VAR, "")
    try:
        gib = float(text or MOST_GIB)
    except ValueError as error:
        raise InvalidValueError(
            f"{SIZE_VAR} must be a number of GiB, got {text!r}; for example 20"
        ) from error
    if not 0 <= gib < 1 << 30:
        raise InvalidValueError(f"{SIZE_VAR} must be a number of GiB from 0 on, got {text!r}; for example 20")
    return DataCache(_folder(), int(gib * (1 << 30)))


def _folder() -> Path:
    if given := os.environ.get(FOLDER_VAR):
        return Path(given).expanduser().absolute() / "data"
    try:
        folder = user_folder(Xdg.CACHE) / "data"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, BackendError):  # a pod whose user has no home
        folder = Path(tempfile.gettempdir()) / f"dlrover-nb-cache-{os.getuid()}"
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if folder.lstat().st_uid != os.getuid() or folder.is_symlink():  # put there by another user
            raise BackendError(
                f"{folder} is of another user; set {FOLDER_VAR} to a folder of yours"
            ) from None
    return folder


def _touched(path: Path) -> bool:
    """Mark an entry as used now; return whether it is there."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def _as_backend_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackendError(
            f"cannot write to the data cache {folder}: {error.strerror or error}; set {FOLDER_VAR} to "
            "a folder that can be written to and has room"
        ) from error

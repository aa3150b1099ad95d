"""Compressed text, unpacked once to the cache of the machine.

Shards are ranges of rows in any order, and a compressed file can only be read from its beginning: an index
of positions within it would still unpack half a file for each shard in the mean. So a file is unpacked
where it is first needed, and read as plain text from then on, by all processes of the machine.
"""

from __future__ import annotations

import bz2
import gzip
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dlrover_nb.core.data.storage.cache import check_room
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from dlrover_nb.core.data.storage.cache import DataCache

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

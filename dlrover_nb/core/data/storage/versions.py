"""The version of a file: what is another one whenever its content may be.

Rows that were encoded from a file may be used again only as long as the file has the rows that it had then.
Hashing all of a file before each use of a part of it was rejected: a worker that trains one shard of 10 GB
would read all of them. So a version is what a submit has hashed of the content, and what the system notes of
each write: size, file system, node, time of the content, and the time of the last change of any kind, which
no program can set back, so that a copy with the former time (``cp -p``, ``rsync -t``) is seen.

Times are coarse: two writes within one tick have the same. A file that was written a moment ago has no
version, as git does with its index: what is written next may look the same.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dlrover_nb.core.data.storage.cache import data_cache

if TYPE_CHECKING:
    from pathlib import Path

SETTLED_NS = 2_000_000_000  # since the last change of a file: the coarsest times, of FAT, are of 2 s


def version_of(path: Path, identity: str) -> str | None:
    """Return the version of a file as it is now; None where it is gone, or may be written within one tick.

    The content of an entry of the cache of fetched files never changes, and its times are those of its uses.

    Parameters
    ----------
    identity
        A hash of its content, or of parts of it.
    """
    try:
        stat = path.stat()
    except OSError:
        return None
    if path.parent == data_cache().folder:
        return f"{identity} {path.name} {stat.st_size} {stat.st_ino}"
    if max(stat.st_mtime_ns, stat.st_ctime_ns) > time.time_ns() - SETTLED_NS:
        return None
    of_writes = stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
    return " ".join((identity, *map(str, of_writes)))

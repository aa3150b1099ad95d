"""Shared memory that outlives a process: two places for its checkpoints, named as those of own jobs.

The names begin as the master orders (`core.runtime.checkpoints.memory_names` there): the job's end frees
them, and what a dead job left is swept by the next one on the host. A lock on the job's claim keeps it from
being swept while this process lives. Its own place on the node, which its successor has too, is in the name.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from .session import Session

logger = logging.getLogger(__name__)

SHM = "/dev/shm"  # noqa: S108 - names are of this user, and locked


class Memory:
    """The places of one process.

    Parameters
    ----------
    run
        Prefix of the job's names.
    owner
        What distinguishes this process and its successors from others of the job.
    """

    def __init__(self, run: str, owner: str) -> None:
        self.places = tuple(f"{SHM}/{run}-{owner}-{side}" for side in "ab")
        self._claim = _claim(f"{SHM}/{run}.claim")

    @staticmethod
    def open(path: str) -> BinaryIO:
        """Open a place to be filled anew."""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        return os.fdopen(handle, "wb")

    @staticmethod
    def free(path: str) -> None:
        """Free a place."""
        if os.path.exists(path):
            os.unlink(path)


def memory_of(joined: Session | None, folder: str) -> Memory | None:
    """Return the memory for checkpoints of a folder; None outside of a job, and where there is none."""
    if joined is None or not os.path.isdir(SHM):
        return None
    run = str(joined.state()["memory"])
    kind = hashlib.sha256(folder.encode()).hexdigest()[:8]
    return Memory(run, "{}.{}.{}".format(joined.caller["node"], joined.caller["slot"], kind)) if run else None


def _claim(path: str) -> int:
    """Lock the claim; the file may be swept between opening and locking, and is then made again."""
    try:
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            fcntl.flock(handle, fcntl.LOCK_SH)
            if os.fstat(handle).st_nlink:
                return handle
            os.close(handle)
    except OSError as error:
        logger.warning("shared memory cannot be claimed, so another job may free it: %s", error)
        return -1

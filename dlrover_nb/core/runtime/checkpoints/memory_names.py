"""Names of a job's shared memory, and when it may be freed.

Each process of a job claims the job's memory on its host: it holds a shared lock (flock) on a small file
beside the buffers. The kernel releases it when the process ends, for any reason. So memory without a claim
belongs to a job that is dead on this host, and `sweep_memory` frees it; process ids, which are reused, are
not used. One remaining process, or a master that will restart with living nodes, keeps all of it: the memory
of a killed PS is available to its successor.

`multiprocessing.shared_memory` was rejected: its tracker unlinks the memory of a killed process, which is the
memory that must be found again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
from pathlib import Path

logger = logging.getLogger(__name__)

SHM_VAR = "DLROVER_NB_SHM"  # variable: where shared memory lies, if not in /dev/shm
SHM = Path(os.environ.get(SHM_VAR, "/dev/shm"))  # noqa: S108 - names are of this user, made with O_EXCL or locked
_PREFIX = "dlrover-nb"
_NAME = re.compile(  # those that end with s are of earlier releases
    rf"(?P<run>{_PREFIX}-[^/]+-[0-9a-f]{{12}})(?:-(?P<node>[^/]+)-[ab]|-[^/]+-s|\.claim)"
)


def run_name(job: str, folder: Path | str) -> str:
    """Return the common prefix of the names of a run's shared memory."""
    run = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    return f"{_PREFIX}-{job}-{run}"


class MemoryClaim:
    """Keeps a job's shared memory on this host from being swept, until it is closed or the process ends.

    Parameters
    ----------
    job, folder
        Name of the job and its run folder.
    shm
        Folder of shared memory; without it there is nothing to claim.
    """

    def __init__(self, job: str, folder: Path | str, *, shm: Path = SHM) -> None:
        self._run, self._shm = run_name(job, folder), shm
        self._handle = _claim(shm / f"{self._run}.claim") if shm.is_dir() else -1

    def close(self) -> None:
        """Release the claim; idempotent. The last process removes it if no buffers are left."""
        handle, self._handle = self._handle, -1
        if handle < 0:
            return
        with contextlib.suppress(BlockingIOError):  # claimed by others
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(handle).st_nlink and not buffers_of(self._run, shm=self._shm):
                _unlink_run(self._run, self._shm)
        os.close(handle)


def _claim(path: Path) -> int:
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


def sweep_memory(*, shm: Path = SHM) -> tuple[str, ...]:
    """Free the shared memory of this user's jobs that have no process left on this host; return its names."""
    runs = {match["run"] for match in _matches(shm)}
    return tuple(name for run in sorted(runs) for name in _sweep_run(run, shm))


def free_memory(job: str, folder: Path | str, *, shm: Path = SHM) -> None:
    """Free all shared memory of a run that has ended, also if it is claimed."""
    free_run(run_name(job, folder), shm=shm)


def free_run(run: str, *, shm: Path = SHM) -> None:
    """Free the same, by the common prefix of its names."""
    _unlink_run(run, shm)


def is_buffer_of(run: str, name: str) -> bool:
    """Whether this is the name of a buffer of a run."""
    match = _NAME.fullmatch(name)
    return match is not None and match["run"] == run and match["node"] is not None and "/" not in name


def buffers_of(run: str, *, shm: Path = SHM) -> tuple[Path, ...]:
    """Return the buffers of all nodes of a run on this host."""
    return tuple(shm / m.string for m in _matches(shm) if m["run"] == run and m["node"])


def _sweep_run(run: str, shm: Path) -> tuple[str, ...]:
    try:
        handle = os.open(shm / f"{run}.claim", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:  # of another user
        return ()
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(handle).st_nlink:  # another process swept it at this moment
            return ()
        return _unlink_run(run, shm)
    except OSError:  # claimed: the job lives
        return ()
    finally:
        os.close(handle)


def _unlink_run(run: str, shm: Path) -> tuple[str, ...]:
    """Free all of a run; the claim last, so that what an interrupted sweep leaves is found again."""
    names = [match.string for match in _matches(shm) if match["run"] == run]
    for name in sorted(names, key=lambda name: name.endswith(".claim")):
        (shm / name).unlink(missing_ok=True)
    if names:
        logger.info("freed %d pieces of shared memory of %s", len(names), run)
    return tuple(names)


def _matches(shm: Path) -> list[re.Match[str]]:
    """Return this user's files of that kind."""
    matches = []
    for path in shm.glob(f"{_PREFIX}-*"):
        with contextlib.suppress(FileNotFoundError):  # freed at this moment
            match = _NAME.fullmatch(path.name)
            if match and path.lstat().st_uid == os.getuid():
                matches.append(match)
    return matches

"""The master's files in a job's run folder: job file, and the lock of its one master.

They are for a master that restarts after kill -9, or after its host lost power: a file is synced before it
gets its name. The job file has a checksum, as a disk may change what it has taken: a changed one is refused.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlrover_nb.core.clock import Anchor  # noqa: TC001 - a file is decoded by its annotations
from dlrover_nb.core.codec import from_checked_json, to_checked_json
from dlrover_nb.core.disk.files import make_folder, replace_open, writing_to
from dlrover_nb.core.errors import BackendError, CheckpointError, WireError
from dlrover_nb.core.structs.data.features import FeatureSpec  # noqa: TC001 - decoded by its annotations
from dlrover_nb.core.structs.job.job import JobSpec  # noqa: TC001 - a file is decoded by its annotations
from dlrover_nb.core.structs.job.start_from import BeganFrom  # noqa: TC001 - as above

if TYPE_CHECKING:
    import contextlib
    from pathlib import Path

JOB, WRITE_AHEAD_LOG, LOCK = "job.json", "diary.log", "master.lock"


@dataclass(frozen=True, slots=True)
class JobFile:
    """The constant data of a job; it holds the secret key."""

    spec: JobSpec
    features: FeatureSpec
    started_at_s: float
    endpoint: str  # to which nodes send Hello
    public_key: str
    secret_key: str = field(repr=False)
    began_from: BeganFrom | None = None
    anchor: Anchor | None = None  # of the job's time; None: written by release 0.1


def write_job(folder: Path, job: JobFile) -> None:
    """Write the job's file, for its owner alone.

    Raises
    ------
    BackendError
        When the folder cannot be written to.
    """
    try:
        replace_open(folder / JOB, to_checked_json(job)).close()
    except OSError as error:
        raise BackendError(
            f"cannot write {folder / JOB}: {error.strerror}; choose another run folder"
        ) from error


def read_job(folder: Path) -> JobFile:
    """Return the job of a run folder.

    Raises
    ------
    CheckpointError
        When it is of none, or its file is damaged.
    """
    path = folder / JOB
    try:
        return from_checked_json(path.read_bytes(), JobFile)
    except OSError as error:
        raise CheckpointError(
            f"{folder} is not a run folder of a job: {path.name}: {error.strerror}; submit the job again"
        ) from error
    except WireError as error:
        raise CheckpointError(
            f"{path} is damaged: {error}; restore it from a backup, or {submit_from(folder)}"
        ) from error


def submit_from(folder: Path) -> str:
    """Return the way out of a run folder that no master can go on from, as the end of a message."""
    source = f"{{source: {folder / 'checkpoints'}, rows: true}}"
    return (
        f"submit the job again: start_from: {source} goes on from its last checkpoint (of a job with a "
        "checkpoint_url name that place), without start_from all rows are trained anew"
    )


def check_new(folder: Path) -> None:
    """Refuse to begin a job where one had begun: nodes of it may live, and its rows would be trained again.

    Raises
    ------
    CheckpointError
        When there is a log or a journal, but no job file.
    """
    left = [path.name for path in (folder / WRITE_AHEAD_LOG, *folder.glob("journal*")) if path.exists()]
    if left and not (folder / JOB).exists():
        raise CheckpointError(
            f"{folder / JOB} is gone, though a job had begun there ({', '.join(sorted(left)[:2])}); "
            f"restore it from a backup, or {submit_from(folder)}"
        )


def listen_again(job: JobFile, listen: str) -> str:
    """Return the endpoint that a resuming master binds, given its backend's present `listen`.

    The endpoint that nodes have, unless this host has another address now.
    """
    if job.endpoint.startswith("ipc"):
        return "ipc"
    has_moved = listen.startswith("tcp") and _address(listen) != _address(job.endpoint)
    return listen if has_moved else job.endpoint


def _address(endpoint: str) -> str:
    """Return ``tcp://ADDRESS`` of an endpoint or its prefix."""
    address, _, port = endpoint.rpartition(":")
    return address if port.isdecimal() or port == "*" else endpoint


class MasterLock:
    """Held by the one master of a run folder for as long as its process lives.

    Raises
    ------
    BackendError
        When another process holds it, or the folder's file system has no locks, as some volumes of pods.
    """

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            if isinstance(error, BlockingIOError):
                why = f"the job in {folder} has a running master; attach to that one"
            else:
                why = f"{folder} cannot be locked ({error.strerror}); keep it on a file system with locks"
            raise BackendError(why) from error

    def release(self) -> None:
        """Release it."""
        os.close(self._file)


def hold_folder(folder: Path, resources: contextlib.ExitStack) -> None:
    """Make a run folder, closed to other users, and hold its `MasterLock` until `resources` is closed."""
    with writing_to(folder):
        make_folder(folder)
        resources.callback(MasterLock(folder).release)

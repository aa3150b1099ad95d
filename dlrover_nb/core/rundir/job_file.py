"""The master's files in a job's run folder: job file, write-ahead log, and the lock of its one master.

They are for a master that restarts after kill -9, or after its host lost power. A killed process loses
nothing that it has written; for the host, a file is synced before it gets its name, and so is an entry with a
state: others act on it, or it tells of a checkpoint that outlives the parameter servers. Entries without one
are leases and acknowledged rows, and those end with the nodes.

A full disk does not stop training. The log is deleted then, since a master restarted from an incomplete one
would grant leases and epochs twice. Once there is room again, a new log with the complete state takes its
place: a disk that was full for a moment must not cost the job hours later, when its master is lost.

A disk may also change what it has taken. Both files have checksums: a job file that was changed is refused,
and a log is read up to its damage (`log_frames`), from where the job goes on from a checkpoint.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlrover_nb.core.clock import Anchor  # noqa: TC001 - a file is decoded by its annotations
from dlrover_nb.core.codec import Tagged, from_checked_json, to_checked_json
from dlrover_nb.core.disk.files import make_folder, replace_synced, sync, writing_to
from dlrover_nb.core.errors import BackendError, CheckpointError, WireError
from dlrover_nb.core.master.own.write_ahead_log import Entry
from dlrover_nb.core.rundir.log_frames import LogDamage, frame_of, head_of, read_log
from dlrover_nb.core.structs.data.features import FeatureSpec  # noqa: TC001 - decoded by its annotations
from dlrover_nb.core.structs.job.job import JobSpec  # noqa: TC001 - a file is decoded by its annotations
from dlrover_nb.core.structs.job.start_from import BeganFrom  # noqa: TC001 - as above

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

logger = logging.getLogger(__name__)

JOB, WRITE_AHEAD_LOG, LOCK = "job.json", "diary.log", "master.lock"
LONG_BYTES = 32 << 20  # a longer write-ahead log is compacted
_ENTRIES: Tagged[Entry] = Tagged(Entry)
_START = b"\x92\xa5Entry"  # of every entry: a pair of this name and its fields


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
        _replace(folder / JOB, to_checked_json(job)).close()
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


class WriteAheadLogFile:
    """The write-ahead log on disk.

    Parameters
    ----------
    folder
        The job's run folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / WRITE_AHEAD_LOG
        self._file: BinaryIO | None = None
        self._n_byte = self._n_entry = 0
        self._has_failed = False

    @property
    def is_long(self) -> bool:
        """Whether it should be compacted, so that a restarted master has little to read."""
        return self._n_byte > LONG_BYTES

    @property
    def is_lost(self) -> bool:
        """Whether it could not be written, so that no other master can continue the job until `begin`."""
        return self._has_failed

    def begin(self, first: Entry) -> None:
        """Replace the log by one with a single entry.

        Raises
        ------
        BackendError
            When the first log of this master cannot be written. That of its predecessor is left as it is:
            no order was sent since, so a later master can still continue from there.
        """
        frame, is_first = frame_of(0, _ENTRIES.pack(first)), self._file is None and not self._has_failed
        try:
            old, self._file = self._file, _replace(self._path, head_of(len(frame)) + frame)
        except OSError as error:
            if is_first:
                raise BackendError(
                    f"cannot write {self._path}: {error.strerror}; make room on its disk, and try again"
                ) from error
            self._give_up(error)
            return
        self._n_byte, self._n_entry = len(frame), 1
        if old is not None:
            old.close()
        if self._has_failed:
            logger.warning("the write-ahead log %s is complete again", self._path)
        self._has_failed = False

    def append(self, entry: Entry) -> None:
        """Add an entry, then count it in the head; nothing happens between a failure and the next `begin`."""
        if self._file is None:
            return
        frame = frame_of(self._n_entry, _ENTRIES.pack(entry))
        try:
            self._file.write(frame)
            self._file.flush()
            os.pwrite(self._file.fileno(), head_of(self._n_byte + len(frame)), 0)
            if entry.state is not None:
                sync(self._file)
        except OSError as error:
            self._give_up(error)
            return
        self._n_byte += len(frame)
        self._n_entry += 1

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _give_up(self, error: OSError) -> None:
        if not self._has_failed:
            logger.warning(
                "the write-ahead log %s cannot be written; the job continues, but cannot outlive this master "
                "until that is possible again: %s",
                self._path,
                error,
            )
        self._has_failed, self._n_byte = True, 0
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = None


@dataclass(frozen=True, slots=True)
class ReadLog:
    """The entries of a log.

    Parameters
    ----------
    path
        The log.
    entries
        Those before the damage, or all but one that was being written: its orders were not carried out.
    damage
        None: the log is whole.
    after
        Whole entries behind the damage: what they say of rows cannot be used, their states can.
    """

    path: Path
    entries: tuple[Entry, ...]
    damage: LogDamage | None = None
    after: tuple[Entry, ...] = ()


def read_log_file(folder: Path) -> ReadLog:
    """Return what a log holds, whole or damaged.

    Raises
    ------
    CheckpointError
        When there is no log, or it is of another release.
    """
    path = folder / WRITE_AHEAD_LOG
    try:
        content = read_log(path.read_bytes(), _START)
    except OSError as error:
        if error.errno == errno.EIO:  # of a disk that is damaged itself
            return ReadLog(path, (), LogDamage(1, 0))
        raise CheckpointError(
            f"the master of the job in {folder} left no write-ahead log ({error.strerror}); "
            "submit the job again; start_from begins it from its last checkpoint"
        ) from error
    try:
        entries, after = (tuple(map(_ENTRIES.unpack, each)) for each in (content.entries, content.after))
    except WireError as error:
        raise CheckpointError(
            f"{path} cannot be read, though it is whole: {error}; continue the job with the release that "
            f"wrote it, or {submit_from(folder)}"
        ) from error
    return ReadLog(path, entries, content.damage, after)


def _replace(path: Path, data: bytes) -> BinaryIO:
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

"""The master's files in a job's run folder: job file, write-ahead log, and the lock of its one master.

They are for a master that restarts after kill -9, or after its host lost power. A killed process loses
nothing that it has written; for the host, a file is synced before it gets its name, and so is an entry with a
state: others act on it, or it tells of a checkpoint that outlives the parameter servers. Entries without one
are leases and acknowledged rows, and those end with the nodes.

A full disk does not stop training. The log is deleted then, since a master restarted from an incomplete one
would grant leases and epochs twice. Once there is room again, a new log with the complete state takes its
place: a disk that was full for a moment must not cost the job hours later, when its master is lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlrover_nb.core.clock import Anchor  # noqa: TC001 - a file is decoded by its annotations
from dlrover_nb.core.codec import Tagged, from_json, to_json
from dlrover_nb.core.errors import BackendError, CheckpointError, WireError
from dlrover_nb.core.files import make_folder, replace_synced, sync, writing_to
from dlrover_nb.core.runtime.write_ahead_log import Entry
from dlrover_nb.core.structs.features import FeatureSpec  # noqa: TC001 - decoded by its annotations
from dlrover_nb.core.structs.job import JobSpec  # noqa: TC001 - a file is decoded by its annotations
from dlrover_nb.core.structs.start_from import BeganFrom  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

logger = logging.getLogger(__name__)

JOB, WRITE_AHEAD_LOG, LOCK = "job.json", "diary.log", "master.lock"
LONG_BYTES = 32 << 20  # a longer write-ahead log is compacted
_FRAME = struct.Struct("<II")  # length and CRC-32 of one entry
_ENTRIES: Tagged[Entry] = Tagged(Entry)


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
        _replace(folder / JOB, to_json(job)).close()
    except OSError as error:
        raise BackendError(
            f"cannot write {folder / JOB}: {error.strerror}; choose another run folder"
        ) from error


def read_job(folder: Path) -> JobFile:
    """Return the job of a run folder.

    Raises
    ------
    CheckpointError
        When it is of none.
    """
    try:
        return from_json((folder / JOB).read_bytes(), JobFile)
    except (OSError, WireError) as error:
        raise CheckpointError(
            f"{folder} is not a run folder of a job: {error}; submit the job again"
        ) from error


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


def hold_folder(folder: Path, held: contextlib.ExitStack) -> None:
    """Make a run folder, closed to other users, and hold its `MasterLock` until `held` is closed."""
    with writing_to(folder):
        make_folder(folder)
        held.callback(MasterLock(folder).release)


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
        self._n_byte = 0
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
        frame, is_first = _frame(first), self._file is None and not self._has_failed
        try:
            old, self._file = self._file, _replace(self._path, frame)
        except OSError as error:
            if is_first:
                raise BackendError(
                    f"cannot write {self._path}: {error.strerror}; make room on its disk, and try again"
                ) from error
            self._give_up(error)
            return
        self._n_byte = len(frame)
        if old is not None:
            old.close()
        if self._has_failed:
            logger.warning("the write-ahead log %s is complete again", self._path)
        self._has_failed = False

    def append(self, entry: Entry) -> None:
        """Add an entry; nothing happens between a failure and the next `begin`."""
        if self._file is None:
            return
        frame = _frame(entry)
        try:
            self._file.write(frame)
            self._file.flush()
            if entry.state is not None:
                sync(self._file)
        except OSError as error:
            self._give_up(error)
        self._n_byte += len(frame)

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


def read_write_ahead_log(folder: Path) -> Iterator[Entry]:
    """Yield the entries of a log; a partly written last one is left out: its orders were not carried out.

    Raises
    ------
    CheckpointError
        When there is no log.
    """
    path = folder / WRITE_AHEAD_LOG
    try:
        file = path.open("rb")
    except OSError as error:
        raise CheckpointError(
            f"the master of the job in {folder} left no write-ahead log ({error.strerror}); "
            "submit the job again; start_from begins it from its last checkpoint"
        ) from error
    with file:
        while len(head := file.read(_FRAME.size)) == _FRAME.size:
            n_byte, checksum = _FRAME.unpack(head)
            data = file.read(n_byte)
            if len(data) < n_byte or zlib.crc32(data) != checksum:
                return
            yield _ENTRIES.unpack(data)


def _frame(entry: Entry) -> bytes:
    data = _ENTRIES.pack(entry)
    return _FRAME.pack(len(data), zlib.crc32(data)) + data


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

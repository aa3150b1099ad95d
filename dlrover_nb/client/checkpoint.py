"""Checkpoints that training hardly waits for, with the account of the rows that their parameters have seen.

`save` copies the state to shared memory, which outlives the process, and writes it to a folder in the
background. Either copy is whole or is not used: each has a checksum, a file gets its name when it is
complete, and memory has two places in turn. `load` takes the newest whole copy.

Rows and parameters are in one file. `save` first asks the master for the account of rows, and only then takes
the state: so each row that counts as done is in the parameters. `load` goes back to that account. So relative
to the parameters each row is trained exactly once, if no other process trains between the two: with one
process, or with processes in step that wait for each other around `save` (`acknowledge`). Where others train
on, their rows of that moment may be trained twice, and never not at all.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import threading
import zlib
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from .memory import Memory, memory_of
from .session import session

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

FOLDER_VAR = "DLROVER_NB_CHECKPOINTS"
N_KEPT = 2  # files in the folder: the one before the newest is there if that is damaged
_FORMAT, _BEFORE = "dlrover-nb-checkpoint-2", "dlrover-nb-checkpoint-1"  # which had no checksum of the head
_NAME = re.compile(r"checkpoint-(\d{8,})\.dlnb")
_PIECE = 8 << 20


class Checkpoint(NamedTuple):
    """A loaded checkpoint."""

    state: bytes
    step: int


class Head(NamedTuple):
    """What a copy begins with: which save it is, its size and checksum, and the account of rows with it."""

    number: int  # of all saves of the job, over restarts
    step: int
    n_byte: int
    checksum: int
    rows: str


class _Copy(NamedTuple):
    head: Head
    path: str


class Saver:
    """Saves and loads the checkpoints of this process in one folder."""

    def __init__(self, folder: str, memory: Memory | None) -> None:
        self.folder, self._memory = folder, memory
        self._writer: threading.Thread | None = None
        self._written_from = ""  # the place in memory that is being written to the folder
        self._count = max([copy.head.number for copy in self._copies()], default=0)

    def save(self, state: bytes | Callable[[], bytes], step: int) -> None:
        """Save the state of a step, and the rows that it has seen."""
        joined = session()
        rows = "" if joined is None else joined.rows()
        data = memoryview(state() if callable(state) else state).cast("B")
        self._count += 1
        head = Head(self._count, step, data.nbytes, zlib.crc32(data), rows)
        path = self._keep(head, data)
        self.wait()
        if path is None:
            self._begin(lambda file, copy=bytes(data): write_copy(file, head, copy))  # type: ignore[misc]
        else:
            self._written_from = path
            self._begin(lambda file: _copy(path, file))

    def load(self) -> tuple[Head, bytes] | None:
        """Return the newest copy that is whole; None: there is none."""
        self.wait()
        for copy in sorted(self._copies(), reverse=True):
            data = _read(copy)
            if data is not None:
                return copy.head, data
            logger.warning("the checkpoint in %s is damaged; an older one is used", copy.path)
        return None

    def wait(self) -> None:
        """Wait until the last save is in the folder."""
        if self._writer is not None:
            self._writer.join()
            self._writer, self._written_from = None, ""

    def _keep(self, head: Head, data: memoryview) -> str | None:
        """Copy to shared memory; None where there is none, or not enough of it."""
        if self._memory is None:
            return None
        numbers = {copy.path: copy.head.number for copy in self._in_memory(self._memory)}
        path = min(self._memory.places, key=lambda place: numbers.get(place, 0))
        if path == self._written_from:
            self.wait()
        try:
            with self._memory.open(path) as file:
                write_copy(file, head, data)
        except OSError as error:
            logger.warning("the checkpoint is not kept in memory: %s", error)
            self._memory.free(path)
            return None
        return path

    def _begin(self, fill: Callable[[BinaryIO], None]) -> None:
        """Write the folder's file in the background; at its exit the process waits for it."""
        self._writer = threading.Thread(
            target=self._write_file, args=(self._count, fill), name="dlrover-nb-checkpoint"
        )
        self._writer.start()

    def _write_file(self, count: int, fill: Callable[[BinaryIO], None]) -> None:
        path = os.path.join(self.folder, f"checkpoint-{count:08d}.dlnb")
        temporary = f"{path}.{os.getpid()}.tmp"
        try:
            os.makedirs(self.folder, exist_ok=True)
            with open(temporary, "wb") as file:
                fill(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            _sync_folder(self.folder)
            self._prune(path)
        except OSError as error:
            logger.warning("the checkpoint %s could not be written; the one before is kept: %s", path, error)

    def _prune(self, newest: str) -> None:
        """Delete what is older than the last files, and what a killed process left unfinished."""
        names = sorted(name for name in os.listdir(self.folder) if _NAME.fullmatch(name))
        unfinished = [name for name in os.listdir(self.folder) if name.endswith(".tmp")]
        for name in [*names[: names.index(os.path.basename(newest)) + 1][:-N_KEPT], *unfinished]:
            os.unlink(os.path.join(self.folder, name))

    def _copies(self) -> list[_Copy]:
        """Return all copies with a readable head."""
        names = os.listdir(self.folder) if os.path.isdir(self.folder) else []
        paths = [os.path.join(self.folder, name) for name in names if _NAME.fullmatch(name)]
        files = [_Copy(head, path) for path in paths for head in [read_head(path)] if head is not None]
        return files + ([] if self._memory is None else self._in_memory(self._memory))

    @staticmethod
    def _in_memory(memory: Memory) -> list[_Copy]:
        heads = [(path, read_head(path)) for path in memory.places]
        return [_Copy(head, path) for path, head in heads if head is not None]


def write_copy(file: BinaryIO, head: Head, data: memoryview | bytes) -> None:
    """Write a copy: its head as one line, then the state."""
    file.write(json.dumps([_FORMAT, *head, _checksum(head)]).encode() + b"\n")
    file.write(data)


def _copy(path: str, file: BinaryIO) -> None:
    with open(path, "rb") as source:
        shutil.copyfileobj(source, file, _PIECE)


def read_head(path: str) -> Head | None:
    """Return the head of a copy; None where there is none, or it is damaged."""
    try:
        with open(path, "rb") as file:
            form, *fields = json.loads(file.readline())
        head = Head(*fields[: len(Head._fields)])
    except (OSError, ValueError, TypeError):
        return None
    checksum = fields[len(head) :]
    return head if form == _BEFORE or (form == _FORMAT and checksum == [_checksum(head)]) else None


def _checksum(head: Head) -> int:
    """Return the checksum of a head: a bit of its account of rows is worth as much as one of the state."""
    return zlib.crc32(json.dumps(head).encode())


def _read(copy: _Copy) -> bytes | None:
    """Return the state of a copy; None where it is not whole."""
    try:
        with open(copy.path, "rb") as file:
            file.readline()
            data = file.read()
    except OSError:
        return None
    is_whole = len(data) == copy.head.n_byte and zlib.crc32(data) == copy.head.checksum
    return data if is_whole else None


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _own_folder() -> str:
    """Return a folder of this run: from one that it shares it would load what another run left, rows too."""
    joined = session()
    return os.path.join("checkpoints", "" if joined is None else str(joined.state()["memory"]))


_savers: dict[tuple[int, str], Saver] = {}


def _saver(folder: str | None) -> Saver:
    place = os.path.abspath(folder or os.environ.get(FOLDER_VAR) or _own_folder())
    key = os.getpid(), place
    if key not in _savers:
        _savers[key] = Saver(place, memory_of(session(), place))
    return _savers[key]


def save(state: bytes | Callable[[], bytes], step: int, *, folder: str | None = None) -> None:
    """Keep the state of training; returns when it is copied.

    Count the rows that the state has seen as done before (``shard.done(...)``): those that are not are
    trained again when it is loaded.

    Parameters
    ----------
    state
        Bytes, or a function that returns them.
    step
        Number of the step, as `load` returns it.
    folder
        Where files are kept; by default the variable ``DLROVER_NB_CHECKPOINTS``, else a folder of the run in
        ``checkpoints``. One process saves there: where several do, each has a folder of its own. A run that
        names the folder of another one goes on where that stopped.
    """
    _saver(folder).save(state, int(step))


def load(*, folder: str | None = None, with_rows: bool = True) -> Checkpoint | None:
    """Return the newest checkpoint, and go back to the rows that it has seen; None: there is none.

    Without one the job's rows begin anew, since the parameters do. Call it before `shards`, in each process
    or in one of those that train in step, and not in one that joins others whose parameters live.

    Parameters
    ----------
    with_rows
        False leaves the job's account of rows as it is.

    Raises
    ------
    ServiceError
        When the account is of other rows, or other processes of this start loaded another checkpoint.
    """
    newest, joined = _saver(folder).load(), session()
    if joined is not None and with_rows:
        joined.restore("" if newest is None else newest[0].rows)
    return None if newest is None else Checkpoint(newest[1], newest[0].step)


def wait(*, folder: str | None = None) -> None:
    """Wait until the last checkpoint is in its folder."""
    _saver(folder).wait()


def rows() -> str:
    """Return the account of rows, for programs that keep checkpoints by other means; empty outside of a job.

    Ask for it before the state is taken, and keep it with the state.
    """
    joined = session()
    return "" if joined is None else joined.rows()


def restore(rows: str) -> None:
    """Go back to an account of rows, after the state was loaded that was kept with it; empty: all rows."""
    joined = session()
    if joined is not None:
        joined.restore(rows)

"""The write-ahead log on disk: entries in frames, and what is whole of a log that is damaged.

A killed process loses nothing that it has written; for the host's power, an entry with a state is synced:
others act on it, or it tells of a checkpoint that outlives the parameter servers. Entries without one are
leases and acknowledged rows, and those end with the nodes.

A full disk does not stop training. The log is deleted then, since a master restarted from an incomplete one
would grant leases and epochs twice. Once there is room again, a new log with the complete state takes its
place: a disk that was full for a moment must not cost the job hours later, when its master is lost.

A log has two kinds of bad end, and they mean opposite things. A master that is killed, or whose disk is full,
leaves its last entry unfinished: no node has acted on that, so it is left out. A disk that loses or changes
what it had taken leaves a hole: nodes have acted on what follows it, so a master that goes on from before the
hole grants rows twice. To take each bad checksum for the first kind was rejected for that reason.

The head of the file tells them apart. It says how many bytes of whole entries follow, and is written after
each entry and before its orders are carried out. Whatever is bad or missing before that mark is damage; what
lies behind it is an entry that was being written. Each frame has the number of its entry in its checksum, so
an entry that is doubled, moved or missing is found, too. The head is far below the size of a sector, so that
no power failure leaves half of it.

Logs of releases without a head are read as well. There a bad entry is damage where a whole one follows it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import Tagged
from dlrover_nb.core.disk.files import replace_open, sync
from dlrover_nb.core.errors import BackendError, CheckpointError, WireError
from dlrover_nb.core.master.own.write_ahead_log import Entry
from dlrover_nb.core.rundir.job_file import WRITE_AHEAD_LOG, submit_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

logger = logging.getLogger(__name__)

LONG_BYTES = 32 << 20  # a longer write-ahead log is compacted
_ENTRIES: Tagged[Entry] = Tagged(Entry)
_START = b"\x92\xa5Entry"  # of every entry: a pair of this name and its fields
MARK = b"dlnbwal1"
_HEAD = struct.Struct("<8sQI")  # mark, bytes of whole entries, CRC-32 of both
_FRAME = struct.Struct("<III")  # length and number of an entry, CRC-32 of both and of the entry
_OLD_FRAME = struct.Struct("<II")  # length and CRC-32 of an entry
HEAD_BYTES = _HEAD.size


@dataclass(frozen=True, slots=True)
class LogDamage:
    """Where a log is damaged.

    Parameters
    ----------
    entry
        The number of the first bad or missing entry, counted from 1.
    n_after
        Whole entries that were found behind it.
    """

    entry: int
    n_after: int

    @property
    def words(self) -> str:
        """What is wrong, for people."""
        if self.n_after:
            entries = "entry" if self.n_after == 1 else "entries"
            return f"entry {self.entry} is damaged, with {self.n_after} whole {entries} behind it"
        return f"entry {self.entry} and what followed it are missing or damaged"


@dataclass(frozen=True, slots=True)
class LogContent:
    """The entries of a log.

    Parameters
    ----------
    entries
        Those before the damage, or all.
    damage
        None: only an entry that was being written may be missing.
    after
        Whole entries behind the damage, in the order of the file.
    """

    entries: tuple[bytes, ...]
    damage: LogDamage | None = None
    after: tuple[bytes, ...] = ()


def head_of(n_byte: int) -> bytes:
    """Return the head of a log with so many bytes of whole entries."""
    marked = struct.pack("<8sQ", MARK, n_byte)
    return marked + struct.pack("<I", zlib.crc32(marked))


def frame_of(number: int, entry: bytes) -> bytes:
    """Return an entry as the log has it; `number` counts from 0."""
    return _FRAME.pack(len(entry), number, _checksum(number, entry)) + entry


def read_log(data: bytes, start: bytes) -> LogContent:
    """Return what a log holds.

    Parameters
    ----------
    data
        The whole file.
    start
        The bytes that every entry begins with, by which whole ones are found behind a damage.
    """
    n_marked = _marked(data)
    is_old = n_marked is None and not data.startswith(MARK) and _at_old(data, 0) is not None
    read = _at_old if is_old else _at_new
    at = 0 if is_old else HEAD_BYTES
    end, entries = at, list[bytes]()
    while (entry := read(data, end, len(entries))) is not None:
        entries.append(entry)
        end += (_OLD_FRAME if is_old else _FRAME).size + len(entry)
    after = tuple(_whole_after(data, end, start))
    is_short = n_marked is None or end < HEAD_BYTES + n_marked
    if after if is_old else is_short:
        return LogContent(tuple(entries), LogDamage(len(entries) + 1, len(after)), after)
    return LogContent(tuple(entries))


def _marked(data: bytes) -> int | None:
    """Return how many bytes of whole entries the head says; None: there is no whole head."""
    if len(data) < HEAD_BYTES:
        return None
    _, n_byte, _ = _HEAD.unpack_from(data)
    return n_byte if data[:HEAD_BYTES] == head_of(n_byte) else None


def _checksum(number: int, entry: bytes) -> int:
    return zlib.crc32(entry, zlib.crc32(struct.pack("<II", len(entry), number)))


def _at_new(data: bytes, at: int, number: int | None = None) -> bytes | None:
    """Return the whole entry whose frame begins there, of this number or any; None: there is none."""
    if at < 0 or len(data) < at + _FRAME.size:
        return None
    n_byte, own_number, checksum = _FRAME.unpack_from(data, at)
    entry = _bytes_at(data, at + _FRAME.size, n_byte)
    if entry is None or number not in {None, own_number} or _checksum(own_number, entry) != checksum:
        return None
    return entry


def _at_old(data: bytes, at: int, _number: int | None = None) -> bytes | None:
    """Return the same of a log without a head."""
    if at < 0 or len(data) < at + _OLD_FRAME.size:
        return None
    n_byte, checksum = _OLD_FRAME.unpack_from(data, at)
    entry = _bytes_at(data, at + _OLD_FRAME.size, n_byte)
    return entry if entry is not None and zlib.crc32(entry) == checksum else None


def _bytes_at(data: bytes, at: int, n_byte: int) -> bytes | None:
    """Return the bytes of an entry, none of which is empty: zeros are no entry."""
    return data[at : at + n_byte] if 0 < n_byte <= len(data) - at else None


def _whole_after(data: bytes, at: int, start: bytes) -> Iterator[bytes]:
    """Yield the whole entries behind a place where the frames are not known."""
    kinds: tuple[tuple[Callable[[bytes, int], bytes | None], int], ...] = (
        (_at_new, _FRAME.size),
        (_at_old, _OLD_FRAME.size),
    )
    while (at := data.find(start, at)) >= 0:
        entries = (read(data, at - n_head) for read, n_head in kinds)
        entry = next((each for each in entries if each is not None), None)
        if entry is not None:
            yield entry
        at += len(entry) if entry else 1


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
            old, self._file = self._file, replace_open(self._path, head_of(len(frame)) + frame)
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

"""The bytes of a write-ahead log: entries in frames, and what is whole of a log that is damaged.

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

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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

"""The journal of a job: the events that its controller received, one JSON line each, in order.

It is kept in segments of about `SEGMENT_BYTES`, or of a few times their snapshot where that is more. Each but
the first begins with a snapshot of the state before its events (a file beside it), so that a restart reads
the newest segment alone, however long the job has run. The one before is kept too: where the newest snapshot
is damaged, a restart begins with the older one. A snapshot is written to a temporary name, synced and
renamed, so at every moment there is a whole one; a segment is deleted only after that. The first segment of a
job, and the only one of earlier releases, has no number and no snapshot. Rejected: snapshots by time, of
which a job of one worker would make thousands.

The journal must not stop training: a full disk is logged, the job continues, and later a new segment, whose
snapshot has what was not written, makes the journal complete again: some seconds later, and at once with a
decision, as its client is told that it was taken. To wait for a megabyte of events was rejected: a small job
writes that in hours, and a master that is killed meanwhile would take decisions with it.

Nor must one line keep a master from resuming: each line has a checksum, and what a damaged disk changed costs
that event alone and is said.

Reports, progress and ticks are not synced one by one: the next ones say nearly the same.
"""

from __future__ import annotations

import contextlib
import gzip
import logging
import os
import re
import shutil
import struct
import sys
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import Tagged
from dlrover_nb.core.disk.files import replace_synced, sync
from dlrover_nb.core.errors import WireError
from dlrover_nb.core.structs.views.events import Decided, Event, NodeReported, ProgressMade, Ticked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

logger = logging.getLogger(__name__)


JOURNAL = "journal.jsonl"
SEGMENT_BYTES = 8 << 20
EVENT_SHARE = 3  # times the bytes of its snapshot: of a thousand nodes, that takes the loop 100 ms
RETRY_S = 5.0  # by the times of events, until writing is tried again; a snapshot costs up to 100 ms
PROGRESS_BYTES = 1 << 20
LAST_BYTES = 1 << 20  # of a segment, in which its last events are looked for
_NAME = re.compile(r"journal(?:-(\d{6,}))?\.(?:jsonl(?:\.gz)?|snapshot)")
_HEAD = struct.Struct("<8sII")  # mark, length and CRC-32 of a snapshot
_MARK = b"dlnbsn01"
_CHECKSUM = re.compile(rb',"([0-9a-f]{8})"\]\n\Z')
_UNSYNCED = (NodeReported, ProgressMade, Ticked)
_EVENTS: Tagged[Event] = Tagged(Event)
_PROGRESS = f'["{ProgressMade.__name__}"'.encode()


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of the journal in `folder`; `number` 0 is the first."""

    folder: Path
    number: int

    @property
    def events(self) -> Path:
        """Its events."""
        return self.folder / (f"journal-{self.number:06}.jsonl" if self.number else JOURNAL)

    @property
    def compressed(self) -> Path:
        """Its events after the end of the job."""
        return _compressed(self.events)

    @property
    def snapshot(self) -> Path:
        """The state before its events."""
        return self.events.with_suffix(".snapshot")

    @property
    def n_byte(self) -> int:
        """Bytes of its events as they lie on the disk."""
        with contextlib.suppress(OSError):
            return self.events.stat().st_size
        with contextlib.suppress(OSError):
            return self.compressed.stat().st_size
        return 0

    def delete(self) -> None:
        """Delete it, the snapshot first: events without one are not begun with."""
        for path in (self.snapshot, self.events, self.compressed):
            path.unlink(missing_ok=True)


def segments(folder: Path) -> tuple[Segment, ...]:
    """Return the segments of a run folder's journal, oldest first."""
    names = (_NAME.fullmatch(path.name) for path in folder.glob("journal*"))
    return tuple(Segment(folder, number) for number in sorted({int(name[1] or 0) for name in names if name}))


class Journal:
    """Writes the journal of one job; there is one at a time, of the master that holds the folder.

    Parameters
    ----------
    folder
        The job's run folder.
    """

    def __init__(self, folder: Path) -> None:
        for unfinished in folder.glob("journal*.new"):  # of a master that was killed
            with contextlib.suppress(OSError):
                unfinished.unlink()
        existing = segments(folder)
        self._segment = existing[-1] if existing else Segment(folder, 0)
        self._base = self._segment.number  # a restart can begin with this one
        self._file: BinaryIO | None = None
        self._has_failed = False
        self._n_byte = self._segment.n_byte
        self._due_byte = SEGMENT_BYTES
        self._retry_at_s: float | None = None  # of a journal that has failed; None: from the next event on

    @property
    def segment(self) -> int:
        """Number of the segment that is written."""
        return self._segment.number

    @property
    def is_due(self) -> bool:
        """Whether another segment should begin: this one is full, or could not be written."""
        return self._n_byte >= self._due_byte

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be appended to the newest segment: the job had ended."""
        return self._segment.compressed.exists()

    def begun_with(self, number: int) -> None:
        """Note the segment that a restart began with: what follows is kept until there is a newer one."""
        self._base = number

    def append(self, event: Event) -> None:
        """Write one event."""
        line = to_line(event)
        self._n_byte += len(line)
        if self._has_failed:
            self._retry_at_s = self._retry_at_s or event.at_s + RETRY_S
            if isinstance(event, Decided) or event.at_s >= self._retry_at_s:
                self._due_byte = self._n_byte
            return
        try:
            if self._file is None:
                self._file = _opened(self._segment.events)
            self._file.write(line)
            self._file.flush()
            if not isinstance(event, _UNSYNCED):
                sync(self._file)
        except OSError as error:
            self._fail(error)

    def begin_segment(self, snapshot: bytes) -> None:
        """Begin another segment with the state after all events so far, and delete those before the last."""
        following = Segment(self._segment.folder, self._segment.number + 1)
        try:
            if self._file is not None and not self._has_failed:
                sync(self._file)
            _write_snapshot(following.snapshot, snapshot)
            file = _opened(following.events)
        except OSError as error:
            self._fail(error)
            return
        self.close()
        self._file, self._segment = file, following
        self._has_failed, self._n_byte = False, 0
        self._due_byte = max(SEGMENT_BYTES, EVENT_SHARE * len(snapshot))
        self._delete_before(self._base)
        self._base = following.number

    def cannot_begin(self) -> None:
        """Note that there is no snapshot to begin another segment with; it is tried again later."""
        self._due_byte = self._n_byte + SEGMENT_BYTES

    def _delete_before(self, number: int) -> None:
        for old in segments(self._segment.folder):
            if old.number < number:
                with contextlib.suppress(OSError):
                    old.delete()

    def _fail(self, error: OSError) -> None:
        if not self._has_failed:
            logger.warning(
                "the journal %s is incomplete from here on; the job continues: %s",
                self._segment.events,
                error,
            )
        self._has_failed, self._due_byte, self._retry_at_s = True, sys.maxsize, None

    def close(self) -> None:
        """Close the file; on a full disk the unwritten last lines are dropped."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def to_line(event: Event) -> bytes:
    """Return an event as the journal has it: its name, its fields, and the CRC-32 of these."""
    pair = _EVENTS.to_line(event)[:-1]
    return pair[:-1] + b',"%08x"]\n' % zlib.crc32(pair)


def _event_of(line: bytes) -> Event:
    """Return the event of a line; those of earlier releases have no checksum. Raises `WireError`."""
    if (end := _CHECKSUM.search(line)) is None:
        return _EVENTS.from_line(line)
    pair = line[: end.start()] + b"]"
    if b"%08x" % zlib.crc32(pair) != end[1]:
        raise WireError("its checksum differs: it was changed since it was written")
    return _EVENTS.from_line(pair)


def _nothing(_n: int) -> None:
    """Let a number go by."""


def read_journal(
    path: Path,
    on_read: Callable[[int], None] = _nothing,
    on_damaged: Callable[[int], None] = _nothing,
) -> Iterator[Event]:
    """Yield the events of one segment, compressed or not; none where there is no such file.

    A partly written last line is left out, as lines that cannot be read.

    Parameters
    ----------
    on_read
        Called from time to time with the bytes that were read since the last call.
    on_damaged
        Called with the number of each line that cannot be read.
    """
    n_byte = 0
    for number, line in enumerate(_lines(path), 1):
        n_byte += len(line)
        if n_byte >= PROGRESS_BYTES:
            on_read(n_byte)
            n_byte = 0
        if not line.endswith(b"\n"):
            continue
        try:
            event = _event_of(line)
        except WireError as error:
            if line.strip():
                on_damaged(number)
                logger.warning("line %d of %s cannot be read and is left out: %s", number, path, error)
            continue
        yield event


def read_events(folder: Path) -> Iterator[Event]:
    """Yield all events that are kept of a job, oldest first."""
    for segment in segments(folder):
        yield from read_journal(segment.events)


def last_progress(folder: Path) -> ProgressMade | None:
    """Return the newest progress in the last MiB of a segment; None: none is there that can be read."""
    for segment in reversed(segments(folder)):
        for line in reversed(_last_lines(segment.events)):
            if line.startswith(_PROGRESS):
                with contextlib.suppress(WireError):
                    event = _event_of(line)
                    return event if isinstance(event, ProgressMade) else None
    return None


def _last_lines(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_BYTES))
            return [line for line in file if line.endswith(b"\n")]
    except OSError:
        return []


def read_snapshot(path: Path) -> bytes:
    """Return a snapshot.

    Raises
    ------
    WireError
        When it is not there, or damaged.
    """
    try:
        data = path.read_bytes()
        mark, n_byte, checksum = _HEAD.unpack_from(data)
    except (OSError, struct.error) as error:
        raise WireError(f"{path} cannot be read: {error}") from error
    body = data[_HEAD.size :]
    if (mark, n_byte, checksum) != (_MARK, len(body), zlib.crc32(body)):
        raise WireError(f"{path} is damaged: its checksum or length differ")
    return body


def compress(folder: Path) -> None:
    """Compress the journal of an ended job; the same events give the same bytes."""
    for segment in segments(folder):
        if segment.events.exists():
            try:
                _compress(segment.events, segment.compressed)
            except OSError as error:
                logger.warning("%s cannot be compressed and stays as it is: %s", segment.events, error)


def _compress(plain: Path, into: Path) -> None:
    temporary, times = into.with_suffix(".new"), plain.stat()
    try:
        with (
            plain.open("rb") as source,
            temporary.open("wb") as file,
            gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
        ):
            shutil.copyfileobj(source, packed, 1 << 20)
        os.utime(temporary, ns=(times.st_atime_ns, times.st_mtime_ns))  # pruning counts from the last write
        replace_synced(temporary, into)
        plain.unlink()
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            yield from file
    except FileNotFoundError:
        if _compressed(path).exists():
            yield from _unpacked(_compressed(path))


def _unpacked(path: Path) -> Iterator[bytes]:
    """Yield the lines of a compressed file up to where it is damaged."""
    try:
        with gzip.open(path, "rb") as file:
            yield from file
    except (OSError, EOFError, zlib.error) as error:
        logger.warning("%s is damaged and read in part: %s", path, error)


def _compressed(path: Path) -> Path:
    return path.with_name(path.name + ".gz")


def _opened(path: Path) -> BinaryIO:
    """Open a segment to append to it; a last line that was partly written is taken away first."""
    file = path.open("ab")
    if file.tell() > 0:
        with path.open("rb") as written:
            n_torn = len(written.read().rpartition(b"\n")[2])
        if n_torn:
            os.truncate(path, file.tell() - n_torn)
    return file


def _write_snapshot(path: Path, body: bytes) -> None:
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(
        os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
    ) as file:
        file.write(_HEAD.pack(_MARK, len(body), zlib.crc32(body)) + body)
    replace_synced(temporary, path)

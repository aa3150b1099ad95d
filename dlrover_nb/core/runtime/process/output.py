"""The log of a node: its logging, prints, tracebacks, and what libraries write in C, line by line.

Standard output and error of a node go directly into two files of the run folder (`output_path`), and the node
reads them back once a second for its master. So writes are never blocked, an idle node pays for two checks of
a file's size, and the last lines of a process that crashes or is killed are in a file that a master on the
same host reads to its end. A pipe with a thread behind it was rejected: the content of the pipe is lost with
the process, and these are the most important lines.

Logging writes a head of time and level before each line, also of a traceback, so reading it back is exact.
Any other line gets the time of the file's last change, and the name of the stream as its level.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import logging
import os
import re
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dlrover_nb.core.basics.redaction import Redactor
from dlrover_nb.core.structs.decisions.query_answers import LogLine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from _typeshed import ReadableBuffer

    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

_log = logging.getLogger(__name__)

STREAMS = ("stdout", "stderr")
MOST_LINES = 100  # of one stream in one batch; there is a batch a second
MOST_BYTES = 32 << 10
MOST_LETTERS = 2000  # of one line
LONG_BYTES = 16 << 20  # a longer file is truncated once it was read
_HEAD = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ([A-Za-z]\w*) ?(.*)", re.DOTALL)
_LEVELS = frozenset(logging.getLevelNamesMapping())
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")  # colours, bells; a tab stays
_RAY_MARKS = (":job_id:", ":actor_name:", ":task_name:")  # Ray's, for its own reader of such files


def output_path(folder: Path, node: str, stream: str) -> Path:
    """Return the file of the run folder that holds what a node writes to one of `STREAMS`."""
    return folder / "nodes" / f"{node}.{'out' if stream == 'stdout' else 'err'}"


def head(at_s: float, level: str) -> str:
    """Return the head of a line: its time in UTC to the millisecond, and its level."""
    whole_s, ms = divmod(round(at_s * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole_s))}.{ms:03d}Z {level} "


def read_head(text: str) -> tuple[float, str, str] | None:
    """Return time, level and the rest of a line that begins with a `head`; None for any other."""
    match = _HEAD.fullmatch(text)
    if match is None:
        return None
    try:
        return datetime.fromisoformat(match[1]).timestamp(), match[2], match[3]
    except ValueError:  # the 31st of February
        return None


# A private key takes several lines: those after its first one, as long as they look like it, are left out.
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?!.*-----END )")
_OF_KEY = re.compile(r"\s*[A-Za-z0-9+/=]{0,100}\s*")


class LineFormatter(logging.Formatter):
    """Puts a head before each line of a record, those of a traceback too."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line or more."""
        before = head(record.created, record.levelname.partition(" ")[0])
        text = f"{record.name}: {super().format(record)}"
        return "\n".join(before + line for line in text.splitlines())


def log_lines() -> None:
    """Configure logging to standard error with heads that can be read back; idempotent."""
    root = logging.getLogger()
    if any(isinstance(handler.formatter, LineFormatter) for handler in root.handlers):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    root.addHandler(handler)
    root.setLevel(logging.INFO)


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """New lines, oldest first, and the read position in each of `STREAMS`."""

    lines: tuple[LogLine, ...]
    n_byte: tuple[int, int]


class Tail:
    """Reads the new lines of a growing file.

    Parameters
    ----------
    path
        The file; one that is not there has nothing new.
    node, stream
        Name of the node, and of the stream.
    at
        Position to start at, in bytes.
    secrets
        Texts to take out; credentials of known forms are taken out too.
    pass_on
        A descriptor to copy all lines to.
    """

    def __init__(
        self,
        path: Path,
        node: str,
        stream: str,
        *,
        at: int = 0,
        secrets: Sequence[str] = (),
        pass_on: int | None = None,
    ) -> None:
        self._path, self._node, self._stream, self._redact = path, node, stream, Redactor(tuple(secrets))
        self._at, self._pass_on = at, pass_on
        self._is_in_key = False

    @property
    def n_byte(self) -> int:
        """Position of the first unread line."""
        return self._at

    def take(self, now_s: float, *, is_last: bool = False) -> list[LogLine]:
        """Return the lines completed since the last call, the newest that fit into a batch.

        `is_last` includes an incomplete line.
        """
        try:
            status = self._path.stat()
            if status.st_size == self._at:
                return []
            data, n_left_out = self._read(status.st_size)
        except OSError:
            return []
        end = len(data) if is_last else data.rfind(b"\n") + 1
        if not end and len(data) == MOST_BYTES:
            end = len(data)  # a line without an end
        self._at += end
        if self._pass_on is not None:
            with contextlib.suppress(OSError):  # no reader any more
                os.write(self._pass_on, data[:end])
        texts = [text for raw in data[:end].split(b"\n") if (text := self._clean(raw))]
        n_left_out += sum(len(text) + 1 for text in texts[:-MOST_LINES])
        at_s = min(now_s, status.st_mtime)
        return [
            *self._left_out(n_left_out, at_s),
            *(self._log_line(text, at_s) for text in texts[-MOST_LINES:]),
        ]

    def cut(self) -> None:
        """Truncate a long file; lines written at this very moment may be lost."""
        with contextlib.suppress(OSError):
            if self._at > LONG_BYTES and self._path.stat().st_size == self._at:
                os.truncate(self._path, 0)
                self._at = 0

    def _read(self, size: int) -> tuple[bytes, int]:
        """Return the end of the new bytes, and how many before it are omitted."""
        if size < self._at:  # it was truncated
            self._at = 0
        n_left_out = max(0, size - self._at - MOST_BYTES)
        with self._path.open("rb") as file:
            file.seek(self._at + n_left_out)
            data = file.read(MOST_BYTES)
        if n_left_out:
            n_cut = data.find(b"\n") + 1  # drop the incomplete first line
            data, n_left_out = data[n_cut:], n_left_out + n_cut
        self._at += n_left_out
        return data, n_left_out

    def _clean(self, raw: bytes) -> str:
        text = (
            raw.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
        )  # the last state of a progress bar
        text = self._redact(_ESCAPES.sub("", text).rstrip())
        if self._is_in_key and _OF_KEY.fullmatch(text):
            return ""
        self._is_in_key = _KEY_BEGINS.search(text) is not None
        return "" if text.startswith(_RAY_MARKS) else text

    def _log_line(self, text: str, at_s: float) -> LogLine:
        parsed = read_head(text) if self._stream == "stderr" else None
        level = self._stream
        if parsed is not None and parsed[1] in _LEVELS:
            at_s, level, text = parsed
        if len(text) > MOST_LETTERS:
            text = f"{text[:MOST_LETTERS]} ({len(text) - MOST_LETTERS} more letters)"
        return LogLine(at_s, self._node, level, text)

    def _left_out(self, n_byte: int, at_s: float) -> list[LogLine]:
        if not n_byte:
            return []
        bound = f"more than {MOST_LINES} lines or {MOST_BYTES >> 10} KiB at once"
        text = f"{n_byte} bytes of {self._stream} before this were left out: {bound}"
        return [LogLine(at_s, self._node, "WARNING", text)]


class Output:
    """The log of one node, read back by itself.

    Parameters
    ----------
    tails
        One for each of `STREAMS`.
    clock
        The time.
    """

    def __init__(self, tails: tuple[Tail, Tail], clock: Clock) -> None:
        self._tails, self._clock = tails, clock

    def take(self, *, is_last: bool = False) -> OutputChunk | None:
        """Return the new lines; None without any."""
        now_s = self._clock.now_s()
        _flush()
        lines = [line for tail in self._tails for line in tail.take(now_s, is_last=is_last)]
        for tail in self._tails:
            tail.cut()
        if not lines:
            return None
        out, err = self._tails
        return OutputChunk(tuple(sorted(lines, key=lambda line: line.at_s)), (out.n_byte, err.n_byte))


@contextlib.contextmanager
def captured(config: NodeConfig, clock: Clock) -> Iterator[Output]:
    """Redirect this process into the log files of its node, if it is not yet; yield the reader.

    A process of a terminal is not redirected, so that it can be debugged.
    """
    log_lines()
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(_tailed(config, 1, "stdout"))
        err = stack.enter_context(_tailed(config, 2, "stderr"))
        stack.enter_context(contextlib.redirect_stdout(_patient(1)))
        stack.enter_context(contextlib.redirect_stderr(_patient(2)))
        if not faulthandler.is_enabled():
            with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):
                faulthandler.enable(2)
        yield Output((out, err), clock)


class _Patient(io.FileIO):
    """A file that ignores write errors such as a full disk: training goes on without a log."""

    def write(self, data: ReadableBuffer) -> int:
        """Write what can be written, and report success."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _patient(descriptor: int) -> TextIO:
    """Return a text stream that writes each line at once, as a process that is killed flushes nothing."""
    raw = io.BufferedWriter(_Patient(descriptor, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)


@contextlib.contextmanager
def _tailed(config: NodeConfig, descriptor: int, stream: str) -> Iterator[Tail]:
    path, before = output_path(Path(config.folder), config.node, stream), None
    with contextlib.ExitStack() as stack:
        if not os.isatty(descriptor) and not _leads_to(descriptor, path):
            before = stack.enter_context(_redirected(descriptor, path))
        secrets = config.secret_key, config.public_key
        yield Tail(path, config.node, stream, secrets=secrets, pass_on=before)


def _leads_to(descriptor: int, path: Path) -> bool:
    """Whether what is written there reaches the file at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


@contextlib.contextmanager
def _redirected(descriptor: int, path: Path) -> Iterator[int | None]:
    """Redirect a descriptor to a file while the node runs; yield a copy of the original.

    Without a writable file it is unchanged.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        before = os.dup(descriptor)
    except OSError as error:
        _log.warning("the log of this node cannot be read by its master: %s", error)
        yield None
        return
    _flush()
    os.dup2(file, descriptor)
    os.close(file)
    try:
        yield before
    finally:
        _flush()
        os.dup2(before, descriptor)
        os.close(before)


def _flush() -> None:
    """Flush the buffers of Python's streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # full, closed, not there
            stream.flush()

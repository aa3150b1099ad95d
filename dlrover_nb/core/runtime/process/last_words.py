"""The error in the last lines of a program that ended: which line says why, if any does.

The last line of a log is rarely the reason: a healthy program reports its progress until it is killed, and
after an exception other threads go on to write. So an error is looked for by what marks one: the end of a
traceback, Python's message of a fatal signal, a line logged as an error, and what C libraries, runtimes and
shells write before they abort. A log without any of them has no error in it, which is worth knowing.
"""

from __future__ import annotations

import re
import signal
from pathlib import PurePath
from typing import TYPE_CHECKING

from dlrover_nb.core.runtime.process.output import read_head
from dlrover_nb.core.structs.training.failures import ProgramError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Line = tuple[str, str]  # level, or the name of the stream, and text

OWN_SIGNALS = frozenset(
    {
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGSEGV,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)  # by which a program ends itself
FATAL = "Fatal Python error"  # Python's message of a crash, before its traceback
_MOST_LETTERS = 300
_ERROR_LEVELS = frozenset({"ERROR", "CRITICAL", "FATAL"})
_LIFE_LEVELS = frozenset({"DEBUG", "INFO", "WARNING"})
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>\S+))?')
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Failure)\b(?::.*)?")
_LOGGER = re.compile(r"[A-Za-z_][\w.]*: ")
_ABORTED = re.compile(
    r"terminate called|what\(\): |Assertion .*failed|double free|free\(\): |malloc\(\)"
    r"|corrupted (?:size|double)|Segmentation fault|Bus error|Illegal instruction|Aborted\b|core dumped"
    r"|panicked at|panic: |(?:^|[\s:])(?:fatal|error)(?: error)?: |[Oo]ut of memory|[Oo][Oo][Mm][- ]?[Kk]ill"
)


def last_error(lines: Iterable[Line]) -> ProgramError | None:
    """Return the last error in lines, the oldest first; None: there is none."""
    last, traceback = None, _Traceback()
    for level, text in lines:
        error = traceback.read(level, text)
        if error is None and not traceback.is_open and level not in _LIFE_LEVELS:
            error = _by_itself(level, text)
        last = error or last
    return last


def is_failure(code: int) -> bool:
    """Whether a program failed by itself, from its exit code: above 128 or below 0 for a signal."""
    number = -code if code < 0 else code - 128
    return number in OWN_SIGNALS or (code > 0 and number not in signal.valid_signals())


def parsed(text: str) -> Sequence[Line]:
    """Return the lines of a log file, with the heads of logging or without."""
    heads = [(read_head(line), line) for line in text.splitlines() if line.strip()]
    return [(head[1], head[2]) if head else ("stderr", line) for head, line in heads]


def place_of(file: str, line: int | str | None, name: str | None) -> str:
    """Return a place in code as text; folders differ from node to node and are left out."""
    return f"{PurePath(file).name}:{line}" + (f" in {name}" if name else "")


class _Traceback:
    """Reads a traceback line by line; lines of other levels may stand in between."""

    def __init__(self) -> None:
        self._level, self._place = "", ""
        self.is_open = False

    def read(self, level: str, text: str) -> ProgramError | None:
        """Return the error that ends a traceback, with its place, when this line does."""
        if text.strip() == _TRACEBACK:
            self.is_open, self._level, self._place = True, level, ""
            return None
        if not self.is_open or level != self._level:
            return None
        if text.startswith((" ", "\t")):
            if frame := _FRAME.match(text):
                self._place = place_of(frame["file"], frame["line"], frame["name"])
            return None
        self.is_open = False
        return ProgramError(text.strip()[:_MOST_LETTERS], self._place)


def _by_itself(level: str, text: str) -> ProgramError | None:
    """Return the error that a line outside of a traceback tells."""
    message = text.strip()
    if level in _ERROR_LEVELS and (logger := _LOGGER.match(message)):  # without one: the rest of a message
        message = message[logger.end() :]
    elif not (message.startswith(FATAL) or _RAISED.fullmatch(message) or _ABORTED.search(message)):
        return None
    return ProgramError(message[:_MOST_LETTERS])

"""What the program of a node writes, read from the file that it writes to.

A line has no time of its own here: those that are found together get times spread evenly over the time since
the look before, so that the speed of steps in a log is right on average. No two lines of a node have the same
time, and a small file beside the log holds which byte belongs to the last line of each of the last looks, and
the time after which its lines were written. So the master that replaces this one, which saved the time of the
last line it read, goes on with the next line, and gives lines that were read before the same times again.

A program that writes faster than it is read, by more than `MOST_BEHIND_BYTES`, is read on near the end of its
file: a line says how much was left out. Else its lines filled the master's memory when it exits.

A carriage return ends a line too: a progress bar writes a step after each of them, and a newline only when it
is full, which may be hours later.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core.backends.programs.program_files import write_whole
from dlrover_nb.core.structs.job.external import Written

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 1 << 20  # of one look
MOST_BEHIND_BYTES = 32 << 20  # that are read later
LONG_BYTES = 16 << 20  # a longer file is emptied once it was read
_N_PLACE = 64  # looks whose places are kept: a master saves its state after each look


class _Place(NamedTuple):
    """Where a look ended: time and end of its last line, and when there was nothing new before it."""

    at_ns: int
    n_byte: int
    looked_ns: int = 0  # not in older files


class ProgramLog:
    """The lines of one node; for one thread.

    Parameters
    ----------
    node, path
        Its name, and the file that its program appends to.
    began_ns
        When the file was begun, or last read: no line gets an earlier time.
    since_ns
        Time of the last line that an earlier master read, 0 when there is none; None: there was no other
        master.
    """

    def __init__(self, node: str, path: Path, began_ns: int, *, since_ns: int | None = None) -> None:
        self._node, self._path, self._places = node, path, path.with_suffix(".places")
        self._kept: deque[_Place] = deque(maxlen=_N_PLACE)
        self._again: deque[_Place] = deque()  # looks whose lines are read once more
        self._at_ns, self._n_byte, self._since_ns = began_ns, 0, since_ns or 0
        self._looked_ns = 0  # when there was nothing new: later lines were written after that
        if since_ns is not None and (places := _read_places(self._places)):
            self._kept.extend(each for each in places if each.at_ns <= since_ns)
            self._again.extend(each for each in places if each.at_ns > since_ns)
            if self._kept:
                self._at_ns, self._n_byte = self._kept[-1].at_ns, self._kept[-1].n_byte
        elif since_ns is not None:
            self._at_ns = max(began_ns, since_ns)

    def take(self, now_ns: int, *, is_last: bool = False) -> list[Written]:
        """Return new lines; with `is_last` an unfinished one too, as the program has ended."""
        while self._again:
            place = self._again.popleft()
            if place.n_byte - self._n_byte > MOST_BYTES:  # it was read on near the end
                self._skip_to(place.n_byte - MOST_BYTES)
            texts = _texts(self._read(place.n_byte - self._n_byte))
            self._looked_ns = place.looked_ns
            lines, self._n_byte, self._at_ns = self._lines(texts, place.at_ns), place.n_byte, place.at_ns
            self._kept.append(place)
            if new := [line for line in lines if line.at_ns > self._since_ns]:
                return new  # else the file was emptied since
        left_out = self._catch_up()
        data = self._read(MOST_BYTES)
        end = _end(data)
        if (is_last and len(data) < MOST_BYTES) or (not end and len(data) == MOST_BYTES):
            end = len(data)  # the last line, or one that is longer than all that is read at once
        texts = left_out + _texts(data[:end])
        if not texts:
            self._looked_ns = now_ns
            return []
        lines = self._lines(texts, now_ns)
        self._at_ns, self._n_byte = lines[-1].at_ns, self._n_byte + end
        self._shorten()
        self._keep_place()
        return lines

    def _lines(self, texts: list[str], until_ns: int) -> list[Written]:
        """Return lines with times after the last one, evenly until about this time."""
        before_ns = max(self._at_ns, self._looked_ns)
        step_ns = max(until_ns - before_ns, len(texts)) // max(len(texts), 1)
        return [Written(self._node, before_ns + step_ns * i, text) for i, text in enumerate(texts, 1)]

    def remove(self) -> None:
        """Delete the files; their lines are read."""
        for path in (self._path, self._places):
            path.unlink(missing_ok=True)

    def _read(self, n_byte: int) -> bytes:
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._n_byte:
                    self._n_byte = 0  # another process emptied it
                file.seek(self._n_byte)
                return file.read(max(n_byte, 0))
        except OSError:
            return b""

    def _catch_up(self) -> list[str]:
        """Go on near the end of a file that is read too slowly; return a line that says so."""
        try:
            n_behind = self._path.stat().st_size - self._n_byte
        except OSError:
            return []
        if n_behind <= MOST_BEHIND_BYTES:
            return []
        n_left_out = n_behind - MOST_BYTES
        self._skip_to(self._n_byte + n_left_out)
        return [f"dlrover-nb: {n_left_out >> 20} MiB of output are left out: it came faster than it is read"]

    def _skip_to(self, n_byte: int) -> None:
        """Go on with the first whole line from here."""
        self._n_byte = n_byte
        self._n_byte += self._read(MOST_BYTES).find(b"\n") + 1

    def _shorten(self) -> None:
        with contextlib.suppress(OSError):
            if self._n_byte > LONG_BYTES and self._path.stat().st_size == self._n_byte:
                os.truncate(self._path, 0)  # the program appends, so it goes on at the beginning
                self._n_byte = 0

    def _keep_place(self) -> None:
        self._kept.append(_Place(self._at_ns, self._n_byte, self._looked_ns))
        with contextlib.suppress(OSError):  # on a full disk lines may be read twice by the next master
            write_whole(self._places, "".join(f"{p.at_ns} {p.n_byte} {p.looked_ns}\n" for p in self._kept))


def _end(data: bytes) -> int:
    """Return where the last complete line ends; a last carriage return may be the first half of an end."""
    return max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1


def _texts(data: bytes) -> list[str]:
    return data.decode(errors="replace").splitlines()


def _read_places(path: Path) -> list[_Place]:
    try:
        return [_Place(*map(int, line.split())) for line in path.read_text().splitlines()]
    except (OSError, ValueError, TypeError):
        return []

"""One line that says what is waited for and since when: redrawn in place, or repeated at growing intervals.

A terminal's line and a notebook's output are overwritten each time; of a pipe, a file or a log nothing can be
taken back, so a line appears there after 2, 4, 8, 16, ... seconds. All of it goes beside the result: to
standard error, or to an output of its own in the cell, which is taken away at the end.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Protocol

from dlrover_nb.widgets.blocks import escape

if TYPE_CHECKING:
    from typing import Any, TextIO

FIRST_S = 2.0  # of a piped line: a script's log says nothing of calls that take a moment
_ERASE = "\r\x1b[K"


class WaitLine(Protocol):
    """Where the line is drawn."""

    def show(self, text: str, waited_s: float) -> None:
        """Draw the text anew."""
        ...

    def close(self) -> None:
        """Take the line away, as far as that is possible."""
        ...


def text_of(what: str, waited_s: float) -> str:
    """Return the line: "Waiting for first steps: 1 of 2 nodes up (12 s)"."""
    return f"Waiting for {what} ({_time_words(int(waited_s))})"


def _time_words(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours = minutes // 60
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class TerminalLine:
    """A line that is overwritten; it keeps to one row, so that it can be erased."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._is_drawn = stream, False

    def show(self, text: str, waited_s: float) -> None:  # noqa: ARG002 - drawn each time
        """Draw the text over the one before."""
        self._write(f"{_ERASE}{text[: shutil.get_terminal_size().columns - 1]}")
        self._is_drawn = True

    def close(self) -> None:
        """Erase the line."""
        if self._is_drawn:
            self._write(_ERASE)
        self._is_drawn = False

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class PlainLines:
    """Lines at growing intervals, for a pipe, a file or a log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._next_s = stream, FIRST_S

    def show(self, text: str, waited_s: float) -> None:
        """Write the text if the wait is twice as long as at the last line."""
        if waited_s < self._next_s:
            return
        self._next_s = 2 * max(waited_s, self._next_s)
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """Leave what was written."""


class NotebookLine:
    """An output of the running cell, replaced each time and taken away at the end.

    Jupyter cannot remove one output of several. Where this is the only one so far the cell is cleared, so
    that a saved notebook has no empty output; else it is emptied.

    Parameters
    ----------
    is_only
        Whether the cell has no other output before the line ends.
    """

    def __init__(self, *, is_only: bool = False) -> None:
        self._shown: Any = None  # IPython's handle of the output: it carries no types
        self._is_only = is_only

    def show(self, text: str, waited_s: float) -> None:  # noqa: ARG002 - drawn each time
        """Replace the output."""
        self._draw(text, f'<span style="font:13px system-ui,sans-serif">{escape(text)}</span>')

    def close(self) -> None:
        """Take the output away: a saved notebook keeps results, not the waits for them."""
        if self._shown is None:
            return
        if self._is_only:
            from IPython.display import clear_output  # noqa: PLC0415 - as below

            clear_output()
        else:
            self._shown.update({}, raw=True)
        self._shown, self._is_only = None, False

    def _draw(self, text: str, html: str) -> None:
        from IPython.display import display  # noqa: PLC0415 - only a notebook draws here

        bundle = {"text/plain": text, "text/html": html}
        if self._shown is None:
            self._shown = display(bundle, raw=True, display_id=True)
        else:
            self._shown.update(bundle, raw=True)


def stream_line(stream: TextIO) -> WaitLine:
    """Return the line for a stream: redrawn on a terminal, plain elsewhere."""
    can_redraw = stream.isatty() and os.environ.get("TERM") != "dumb"
    return TerminalLine(stream) if can_redraw else PlainLines(stream)


def session_line(*, is_only: bool = False) -> WaitLine | None:
    """Return the line of an interactive Python session; None for a program, whose output is its own.

    Parameters
    ----------
    is_only
        As of `NotebookLine`.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return None
    if getattr(shell, "kernel", None) is not None:
        return NotebookLine(is_only=is_only)
    return stream_line(sys.stderr) if sys.stderr.isatty() else None

"""The keys that are pressed in a terminal, one by one, without Enter and without an echo."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

# What arrow and function keys send, and a letter pressed with Alt: its letters are no keys.
_ESCAPED = re.compile(r"\x1b(\[[0-9;?]*[@-~]|O.|.)?", re.DOTALL)


class Keyboard(Protocol):
    """Where keys come from."""

    is_there: bool

    def read(self, timeout_s: float) -> str:
        """Return the keys pressed by now; wait for one for up to so long."""
        ...


class NoKeyboard:
    """The keyboard of a process whose input is no terminal."""

    is_there = False

    def read(self, timeout_s: float) -> str:
        """Wait."""
        time.sleep(timeout_s)
        return ""


class TerminalKeyboard:
    """The keyboard of a terminal in cbreak mode; Ctrl-C still interrupts.

    Parameters
    ----------
    descriptor
        Of the terminal.
    """

    def __init__(self, descriptor: int) -> None:
        self.is_there = True
        self._descriptor = descriptor

    def read(self, timeout_s: float) -> str:
        """Return the keys pressed by now; wait for one for up to so long."""
        if not self.is_there:
            return NoKeyboard().read(timeout_s)
        if not select.select([self._descriptor], [], [], timeout_s)[0]:
            return ""
        pressed = os.read(self._descriptor, 64)
        self.is_there = bool(pressed)  # nothing to read: the terminal has hung up
        return _ESCAPED.sub("", pressed.decode(errors="replace"))


@contextlib.contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Return the keyboard while the terminal passes on each key; the terminal is then as before.

    There is none where input or output is no terminal, and on Windows.
    """
    if find_spec("termios") is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield NoKeyboard()
        return
    import termios  # noqa: PLC0415 - Windows has none
    import tty  # noqa: PLC0415 - as above

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield TerminalKeyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

"""Show what a call waits for, once it has taken more than a second, with the time that passed.

The call itself blocks, so a thread of its own redraws the line, and ends with the call. What is waited for
comes from the code that waits, by `dlrover_nb.core.basics.waits`.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from contextvars import copy_context
from threading import Event, Thread
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.waits import is_heard, listening, tell
from dlrover_nb.widgets.jobs.wait_lines import session_line, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dlrover_nb.widgets.jobs.wait_lines import WaitLine

REDRAW_S = 1.0  # a shorter wait shows nothing


@contextmanager
def shown_waits(what: str, line: Callable[[], WaitLine | None] = session_line) -> Iterator[None]:
    """Show what the block, or the decorated function, waits for; the outermost such block shows it.

    Parameters
    ----------
    what
        What is waited for until the block tells more.
    line
        Makes the line; None from it: nothing is shown.
    """
    drawn = None if is_heard() else line()
    if drawn is None:
        tell(what)  # to the outer block, if there is one
        yield
        return
    redrawn = _Redrawn(drawn, what)
    with listening(redrawn.tell):
        redrawn.start()
        try:
            yield
        finally:
            redrawn.end()


class _Redrawn:
    """The line, and the thread that redraws it."""

    def __init__(self, line: WaitLine, what: str) -> None:
        self._line, self._what = line, what
        self._ends = Event()
        self._began_s = time.monotonic()
        # In a notebook the running cell is part of the context, and its outputs belong there.
        self._thread = Thread(target=copy_context().run, args=(self._run,), name="wait-line", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def tell(self, what: str) -> None:
        """Take note of what is waited for; empty: something else draws from now on."""
        self._what = what

    def end(self) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(OSError):  # the reader of the line is gone; the call goes on
            while not self._ends.wait(REDRAW_S):
                what, waited_s = self._what, time.monotonic() - self._began_s
                if what:
                    self._line.show(text_of(what, waited_s), waited_s)
                else:
                    self._line.close()
            self._line.close()

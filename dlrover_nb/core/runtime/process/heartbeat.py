"""The heartbeat of a node whose main thread is busy.

The main thread reports once a second between its pieces of work (`Agent.tick`). Where a piece takes longer (a
slow disk, a share of a core, a step of seconds), this thread says that the process lives, and how far the
main thread is: a counter of its pieces. So the master tells three nodes apart: a stopped process, which is
silent; a hung main thread, whose counter stands still; and a slow one, whose counter moves. A heartbeat that
only says "alive" was rejected: it would keep a hung node for ever.

This thread needs a processor too. It tells for how long it got none when it was due: a host that lets it wait
so long may do it again, and a silence proves nothing there. The mere lateness was rejected as a measure: a
stopped process, and a main thread that keeps the interpreter's lock, make it late too.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dlrover_nb.core.runtime.process.cpu_waits import own_wait_s

if TYPE_CHECKING:
    from collections.abc import Callable


class HeartbeatThread:
    """Calls `beat` every `every_s` seconds, from `start` to `stop`.

    It is given for how many seconds this thread waited for a processor since the call before.
    """

    def __init__(self, beat: Callable[[float], None], every_s: float) -> None:
        self._beat, self._every_s = beat, every_s
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin; once."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for the last beat."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        waited_s = own_wait_s()
        while not self._ends.wait(self._every_s):
            before_s, waited_s = waited_s, own_wait_s()
            self._beat(waited_s - before_s)

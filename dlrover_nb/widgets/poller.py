"""One thread that keeps every live view of the process fresh, and holds none of them alive.

A periodic callback for each viewer would ask the masters once per viewer and second. Here each view is
polled once a period on a small pool, so a master that hangs delays only its own view; a view whose last
poll still runs is skipped. Views are held weakly: the thread ends with the last of them. Nothing is
ever printed from here, because in a notebook the text would land in whatever cell runs.
"""

from __future__ import annotations

import logging
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

PERIOD_S = 1.0
_N_THREAD = 4
_log = logging.getLogger(__name__)


class Polled(Protocol):
    """What the poller keeps fresh."""

    def poll(self) -> None:
        """Fetch what is new and show it; errors of the link are the view's to show."""
        ...

    def tick(self) -> None:
        """Show that time passed, although a poll still runs."""
        ...

    def keep(self) -> None:
        """Bring what a saved file shows up to date."""
        ...


class Poller:
    """Polls registered views until they are gone.

    Parameters
    ----------
    period_s
        Seconds between two polls of one view.
    """

    def __init__(self, period_s: float = PERIOD_S) -> None:
        self._period_s = period_s
        self._lock = threading.Lock()
        self._running: weakref.WeakKeyDictionary[Polled, Future[None]] = weakref.WeakKeyDictionary()
        self._views: weakref.WeakSet[Polled] = weakref.WeakSet()
        self._thread: threading.Thread | None = None
        self._pool = ThreadPoolExecutor(_N_THREAD, thread_name_prefix="dlrover-view")

    def watch(self, view: Polled) -> None:
        """Poll `view` from now on, as long as somebody else holds it."""
        with self._lock:
            self._views.add(view)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dlrover-poller", daemon=True)
                self._thread.start()

    def forget(self, view: Polled) -> None:
        """Poll `view` no more."""
        with self._lock:
            self._views.discard(view)

    def look(self) -> None:
        """Poll every view now, on the caller's thread, and keep what it saw: there may be no more."""
        for view in self._all():
            view.poll()
            view.keep()

    def forget_all(self) -> None:
        """Poll no view any more: their masters are gone."""
        for view in self._all():
            self.forget(view)

    def _all(self) -> list[Polled]:
        with self._lock:
            return list(self._views)

    def _run(self) -> None:
        pause = threading.Event()
        while self._round():
            pause.wait(self._period_s)

    def _round(self) -> bool:
        """Start a poll of each view; return whether any is left."""
        with self._lock:
            views = list(self._views)
            if not views:
                self._thread = None
                return False
        for view in views:
            self._poll(view)
        return True

    def _poll(self, view: Polled) -> None:
        last = self._running.get(view)
        if last is not None and not last.done():
            view.tick()
            return
        if last is not None and (error := last.exception()) is not None:
            _log.error("a live view could not be drawn and is not updated any more", exc_info=error)
            self.forget(view)
            return
        try:
            self._running[view] = self._pool.submit(view.poll)
        except RuntimeError as error:
            if "shutdown" not in str(error):
                raise
            self.forget(view)  # the interpreter ends: its pools take no more work

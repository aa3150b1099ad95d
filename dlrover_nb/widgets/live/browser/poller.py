"""Polls the live views of one cluster, by weak references.

A periodic callback for each viewer would query the masters once per viewer and second. Here each view is
polled once a period on a small pool, so a master that hangs delays only its own view; a view whose last
poll still runs is skipped. Views are held weakly: the thread ends with the last of them. Nothing is
ever printed from here, because in a notebook the text would appear in whatever cell runs.

Each cluster has its own poller. One poller for the process was rejected: the shutdown of one cluster
stopped the updates of every other cluster's views.
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
    """A view that the poller updates."""

    def poll(self) -> None:
        """Fetch and show updates; the view shows errors of the link itself."""
        ...

    def tick(self) -> None:
        """Update displayed ages, although a poll still runs."""
        ...

    def keep(self) -> None:
        """Update the static copy of a saved file."""
        ...


class Poller:
    """Polls registered views until they are gone or the poller is closed.

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
        self._is_closed = False
        self._pool = ThreadPoolExecutor(_N_THREAD, thread_name_prefix="dlrover-view")

    def watch(self, view: Polled) -> None:
        """Poll `view` from now on, as long as it is referenced elsewhere; a closed poller ignores it."""
        with self._lock:
            if self._is_closed:
                return
            self._views.add(view)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dlrover-poller", daemon=True)
                self._thread.start()

    def forget(self, view: Polled) -> None:
        """Stop polling `view`."""
        with self._lock:
            self._views.discard(view)

    def refresh(self) -> None:
        """Poll every view now, on the caller's thread, and write its static copy."""
        for view in self._all():
            view.poll()
            view.keep()

    def close(self) -> None:
        """Stop polling for good: the masters of these views are gone. Views keep their last state."""
        with self._lock:
            self._is_closed = True
            self._views.clear()
        self._pool.shutdown(wait=False)

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

    def _poll_now(self, view: Polled) -> None:
        if not self._is_closed:
            view.poll()

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
            self._running[view] = self._pool.submit(self._poll_now, view)
        except RuntimeError as error:
            if "shutdown" not in str(error):
                raise
            self.forget(view)  # the poller was closed, or the interpreter ends: pools take no more work

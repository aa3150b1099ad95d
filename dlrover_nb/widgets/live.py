"""A job live: charts, the open proposal, and the buttons to answer it, in a notebook or a served page.

A `LiveView` holds the job's newest picture (`JobViewModel`) and any number of screens drawn from it. The
poller of the job's cluster refreshes the feed; each screen flushes once a tick. What a notebook's cell shows
of it, and keeps when it is saved, is `cell`'s.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dlrover_nb.widgets.cell import Cell, static_bundle
from dlrover_nb.widgets.job_view_model import JobViewModel
from dlrover_nb.widgets.plans import plans_view
from dlrover_nb.widgets.status import status_view

if TYPE_CHECKING:
    from threading import RLock
    from typing import Any

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.widgets.poller import Poller
    from dlrover_nb.widgets.render_target import RenderTarget
    from dlrover_nb.widgets.screen import Screen


class LiveView:
    """Live view of one job.

    Parameters
    ----------
    handle
        The job.
    poller
        Keeps the view up to date; the one of the job's cluster.
    """

    def __init__(self, handle: JobHandle, poller: Poller) -> None:
        self._poller = poller
        self.name = handle.name
        self.feed = JobViewModel(handle, self.flush)
        self._screens: list[Screen] = []
        self._lock = threading.Lock()
        self._cell = Cell(self._static)
        self._poller.watch(self)

    def panel(self) -> Any:  # noqa: ANN401 - panel has no types
        """Return a Panel layout: for a served page, or to put into a layout of one's own."""
        return self._new_screen().layout

    def screen_on(self, stage: RenderTarget) -> Screen:
        """Return a screen to be put on the stage of another live view, until `take_off`."""
        screen = self._new_screen(stage.lock)
        screen.stage.put_on(stage)
        return screen

    def take_off(self, screen: Screen) -> None:
        """Let go of a screen of `screen_on`."""
        self._drop(screen)

    def _new_screen(self, lock: RLock | None = None) -> Screen:
        from dlrover_nb.widgets.screen import Screen  # noqa: PLC0415 - panel takes seconds to import

        screen = Screen(self.feed, self._drop, self._cell.take_back_scripts, lock=lock)
        with self._lock:
            self._screens.append(screen)
        self._poller.watch(self)
        return screen

    def _drop(self, screen: Screen) -> None:
        """Let go of a screen whose page or cell is gone; a view that nobody sees any more is not polled."""
        with self._lock:
            self._screens = [s for s in self._screens if s is not screen]
            is_seen = bool(self._screens)
        if not is_seen:
            self._poller.forget(self)

    def poll(self) -> None:
        """Fetch and show what is new (called by the poller); an ended job is not asked any more."""
        if not self._ended:
            self.feed.fetch()
        self.flush()
        self._cell.renew(is_last=self._ended)

    @property
    def _ended(self) -> bool:
        return self.feed.picture().snapshot.phase.is_final

    def tick(self) -> None:
        """Show how old the picture has become (called by the poller)."""
        self.flush()

    def keep(self) -> None:
        """Bring what a saved notebook shows up to date (called before the cluster ends)."""
        self._cell.keep()

    def flush(self) -> None:
        """Bring every screen up to date."""
        with self._lock:
            screens = list(self._screens)
        for screen in screens:
            screen.flush()

    # static copies

    def _static(self) -> dict[str, str]:
        picture = self.feed.picture()
        return static_bundle((status_view(picture.snapshot, picture.series), plans_view(picture.snapshot)))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002 - IPython's signature
        return self._static()

    def __str__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]

    def _ipython_display_(self) -> None:
        self._cell.display(self._notebook_layout)

    def _notebook_layout(self) -> Any:  # noqa: ANN401 - panel has no types
        return self._new_screen().stage.notebook_layout()

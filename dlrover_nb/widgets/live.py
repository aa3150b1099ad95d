"""A job live: charts, the open proposal, and the buttons to answer it, in a notebook or a served page.

A `LiveView` holds the job's newest picture (`Feed`) and any number of screens drawn from it. One poller
thread per process refreshes the feed; each screen flushes once a tick. In a notebook the cell shows two
outputs: the live screen, whose saved form is a one-line placeholder, and a static copy of the same
state as SVG and tables, hidden by CSS while the live one is connected and renewed under its display id.
So a notebook saved and opened without a kernel shows the last state instead of dead buttons over an old
one.
"""

from __future__ import annotations

import threading
import time
import uuid
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dlrover_nb.widgets.feed import Feed
from dlrover_nb.widgets.plans import plans_view
from dlrover_nb.widgets.poller import Poller
from dlrover_nb.widgets.status import status_view

if TYPE_CHECKING:
    from typing import Any

    from dlrover_nb.core.session.client import JobHandle
    from dlrover_nb.widgets.blocks import View
    from dlrover_nb.widgets.feed import Picture
    from dlrover_nb.widgets.screen import Screen
    from dlrover_nb.widgets.scripts import Scripts

STATIC_EVERY_S = 10.0
_HIDE_WHILE_LIVE = (
    "<style>.jp-OutputArea:has(.dlrover-live-on) .dlrover-static{display:none}"
    ".output:has(.dlrover-live-on) .dlrover-static{display:none}</style>"
)
POLLER = Poller()  # one thread for all views of the process; it holds them weakly


class LiveView:
    """Live view of one job.

    Parameters
    ----------
    handle
        The job.
    """

    def __init__(self, handle: JobHandle) -> None:
        self.name = handle.name
        self.feed = Feed(handle, self.flush)
        self._screens: list[Screen] = []
        self._lock = threading.Lock()
        self._display_id = f"dlrover-{uuid.uuid4().hex}"
        self._static_at_s: float | None = None  # None: no static copy is shown, or it is the last one
        self._scripts: Scripts | None = None  # None: not in a notebook, or taken back
        POLLER.watch(self)

    def panel(self) -> Any:  # noqa: ANN401 - panel has no types
        """Return a Panel layout: for a served page, or to put into a layout of one's own."""
        return self._new_screen().layout

    def _new_screen(self) -> Screen:
        from dlrover_nb.widgets.screen import Screen  # noqa: PLC0415 - panel takes seconds to import

        screen = Screen(self.feed, on_close=self._drop, on_connect=self._take_back_scripts)
        with self._lock:
            self._screens.append(screen)
        return screen

    def _drop(self, screen: Screen) -> None:
        with self._lock:
            self._screens = [s for s in self._screens if s is not screen]

    def poll(self) -> None:
        """Fetch and show what is new (called by the poller); an ended job is not asked any more."""
        if not self._ended:
            self.feed.fetch()
        self.flush()
        self._renew_static()

    @property
    def _ended(self) -> bool:
        return self.feed.picture().snapshot.phase.is_final

    def tick(self) -> None:
        """Show how old the picture has become (called by the poller)."""
        self.flush()

    def flush(self) -> None:
        """Bring every screen up to date."""
        with self._lock:
            screens = list(self._screens)
        for screen in screens:
            screen.flush()

    # static copies

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002 - IPython's signature
        return static_bundle(self.feed.picture())

    def _ipython_display_(self) -> None:
        from IPython.display import display  # noqa: PLC0415 - only a notebook calls this

        if can_show_live():
            from dlrover_nb.widgets.scripts import Scripts  # noqa: PLC0415 - panel takes seconds to import

            self._scripts = Scripts()
            display(self._new_screen().notebook_layout())
            self._static_at_s = time.monotonic()
        display(static_bundle(self.feed.picture()), raw=True, display_id=self._display_id)

    def _renew_static(self) -> None:
        """Replace the static copy now and then, and at the job's end: a saved file holds the last state."""
        now_s, ended = time.monotonic(), self._ended
        if self._static_at_s is None or (now_s - self._static_at_s < STATIC_EVERY_S and not ended):
            return
        from IPython.display import update_display  # noqa: PLC0415 - only in a notebook

        self._static_at_s = None if ended else now_s
        update_display(static_bundle(self.feed.picture()), raw=True, display_id=self._display_id)
        if ended:
            self._take_back_scripts()

    def _take_back_scripts(self) -> None:
        scripts, self._scripts = self._scripts, None
        if scripts is not None:
            scripts.take_back()


def static_bundle(picture: Picture) -> dict[str, str]:
    """Return the state as text and self-contained HTML."""
    views: tuple[View, ...] = (
        status_view(picture.snapshot, picture.series),
        plans_view(picture.snapshot),
    )
    html = "".join(view.html() for view in views)
    return {
        "text/plain": "\n\n".join(view.text() for view in views),
        "text/html": f'{_HIDE_WHILE_LIVE}<div class="dlrover-static">{html}</div>',
    }


def can_show_live() -> bool:
    """Return whether this is a notebook, with what live views need installed."""
    from IPython import get_ipython  # noqa: PLC0415 - only a notebook calls this

    return getattr(get_ipython(), "kernel", None) is not None and find_spec("panel") is not None

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
        self._static_at_s: float | None = None  # None: no static copy is shown
        POLLER.watch(self)

    def panel(self) -> Any:  # noqa: ANN401 - panel has no types
        """Return a Panel layout: for a served page, or to put into a layout of one's own."""
        return self._new_screen().layout

    def _new_screen(self) -> Screen:
        from dlrover_nb.widgets.screen import Screen  # noqa: PLC0415 - panel takes seconds to import

        screen = Screen(self.feed, on_close=self._drop)
        with self._lock:
            self._screens.append(screen)
        return screen

    def _drop(self, screen: Screen) -> None:
        with self._lock:
            self._screens = [s for s in self._screens if s is not screen]

    def poll(self) -> None:
        """Fetch and show what is new (called by the poller)."""
        self.feed.fetch()
        self.flush()
        self._renew_static()

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
            layout = self._new_screen().notebook_layout()
            display(layout)
            self._static_at_s = time.monotonic()
        display(static_bundle(self.feed.picture()), raw=True, display_id=self._display_id)

    def _renew_static(self) -> None:
        """Replace the static copy now and then, so that a saved notebook holds the last state."""
        now_s = time.monotonic()
        if self._static_at_s is None or now_s - self._static_at_s < STATIC_EVERY_S:
            return
        from IPython.display import update_display  # noqa: PLC0415 - only in a notebook

        self._static_at_s = now_s
        update_display(static_bundle(self.feed.picture()), raw=True, display_id=self._display_id)


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
    """Load Panel into the notebook if this is one; return whether live views work here."""
    from IPython import get_ipython  # noqa: PLC0415 - only a notebook calls this

    if getattr(get_ipython(), "kernel", None) is None:
        return False
    try:
        from dlrover_nb.widgets.screen import load_extension  # noqa: PLC0415 - panel takes seconds to import
    except ModuleNotFoundError:
        return False  # installed without the extra `notebook`: the static view says all it can
    load_extension()
    return True

"""The outputs of a live view in a notebook's cell: the live screen, and a static copy of the same state.

The saved form of the live screen is a one-line placeholder. The static copy, SVG and tables, is hidden by
CSS while the live one is connected, and renewed under its display id: a notebook opened without a kernel
shows the last state instead of dead buttons.
"""

from __future__ import annotations

import time
import uuid
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dlrover_nb.widgets import theme

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from dlrover_nb.widgets.blocks import View
    from dlrover_nb.widgets.live.browser.scripts import Scripts

STATIC_EVERY_S = 10.0
_HIDE_WHILE_LIVE = (
    "<style>.jp-OutputArea:has(.dlrover-live-on) .dlrover-static{display:none}"
    ".output:has(.dlrover-live-on) .dlrover-static{display:none}</style>"
)
# A page that is opened again shows this copy: the live view's half of the page is gone, and it says so.
AS_LAST_SEEN = "This is the state as last seen; it does not move. Run the cell again for the live view."
_FIRST_LINE = f'<p style="color:{theme.MUTED};font:13px system-ui,sans-serif;margin:6px 0">{AS_LAST_SEEN}</p>'


class Cell:
    """The outputs of one live view in cells.

    Parameters
    ----------
    bundle
        Returns the state as text and self-contained HTML, see `static_bundle`.
    """

    def __init__(self, bundle: Callable[[], dict[str, str]]) -> None:
        self._bundle = bundle
        self._display_id = f"dlrover-{uuid.uuid4().hex}"
        self._static_at_s: float | None = None  # None: no static copy is shown, or it is the last one
        self._scripts: Scripts | None = None  # None: not in a notebook, or removed
        self._widget: dict[str, object] = {}  # what shows the live view as an ipywidget; empty: Panel does

    def display(self, live_layout: Callable[[], Any]) -> None:
        """Show the view in the running cell: live where the front end can, and the static copy."""
        from IPython.display import display  # noqa: PLC0415 - only a notebook calls this

        if can_show_live():
            from dlrover_nb.widgets.live.browser.scripts import Scripts  # noqa: PLC0415 - panel takes seconds to import

            self._scripts = Scripts()
            display(live_layout())
            self._static_at_s = time.monotonic()
        display(self._bundle(), raw=True, display_id=self._display_id)

    def display_widget(self, widget: Any) -> None:  # noqa: ANN401 - of ipywidgets, which has no types
        """Show the view in the running cell as an ipywidget, with the static copy where none can be shown."""
        from IPython.display import display  # noqa: PLC0415 - only a notebook calls this

        self._widget = dict(widget._repr_mimebundle_())
        self._static_at_s = time.monotonic()
        display({**self._widget, **self._bundle()}, raw=True, display_id=self._display_id)

    def renew(self, *, is_last: bool) -> None:
        """Replace the static copy periodically, and at the end: a saved file holds the last state.

        Beside a widget only at the end: with its output a front end would make the widget anew.
        """
        now_s = time.monotonic()
        is_soon = bool(self._widget) or now_s - (self._static_at_s or 0.0) < STATIC_EVERY_S
        if self._static_at_s is None or (is_soon and not is_last):
            return
        self._static_at_s = None if is_last else now_s
        self._write()

    def keep(self) -> None:
        """Write the present state: the cluster is about to end, and a saved file shows the last state."""
        if self._static_at_s is not None:
            self._write()

    def _write(self) -> None:
        from IPython.display import update_display  # noqa: PLC0415 - only in a notebook

        update_display({**self._widget, **self._bundle()}, raw=True, display_id=self._display_id)
        self.take_back_scripts()  # where no page has connected by now, none runs them: the file stays small

    def take_back_scripts(self) -> None:
        """Remove Panel's scripts from the cell: the page has run them, or does not need them."""
        scripts, self._scripts = self._scripts, None
        if scripts is not None:
            scripts.take_back()


def static_bundle(views: Iterable[View]) -> dict[str, str]:
    """Return views as text and self-contained HTML, hidden while the live view beside it is connected."""
    views = tuple(views)
    html = f"{_FIRST_LINE}{''.join(view.html() for view in views)}"
    return {
        "text/plain": "\n\n".join((AS_LAST_SEEN, *(view.text() for view in views))),
        "text/html": f'{_HIDE_WHILE_LIVE}<div class="dlrover-static" style="{theme.INLINE}">{html}</div>',
    }


def can_show_live() -> bool:
    """Return whether this is a notebook with the packages of live views installed."""
    from IPython import get_ipython  # noqa: PLC0415 - only a notebook calls this

    return getattr(get_ipython(), "kernel", None) is not None and find_spec("panel") is not None

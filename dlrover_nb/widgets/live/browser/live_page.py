"""Common part of live views: screens drawn from one model, a poller, and the outputs of a cell.

A view defines its screen, what is fetched, and its static copy; everything else is here.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from dlrover_nb.widgets.live.browser.cell_outputs import Cell
from dlrover_nb.widgets.rows.tables import Tabular

if TYPE_CHECKING:
    from typing import Any

    from dlrover_nb.widgets.live.browser.poller import Poller
    from dlrover_nb.widgets.live.browser.render_target import RenderTarget


class _Screen(Protocol):
    layout: Any  # of panel, which has no types
    stage: RenderTarget

    @property
    def flush(self) -> Any: ...  # noqa: ANN401 - a method of one screen, a function of the other


S = TypeVar("S", bound=_Screen)


class LivePage(Tabular, ABC, Generic[S]):
    """A live view: any number of screens, kept up to date by a poller.

    Parameters
    ----------
    poller
        Calls `poll` and `tick`; a subclass adds the view to it once it is complete.
    """

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._screens: list[S] = []
        self._lock = threading.Lock()
        self._cell = Cell(self._static)

    @abstractmethod
    def _make_screen(self) -> S:
        """Return a new screen that calls `_drop` when it is closed."""

    @abstractmethod
    def _static(self) -> dict[str, str]:
        """Return the state as text and self-contained HTML."""

    @abstractmethod
    def poll(self) -> None:
        """Fetch and show what is new (called by the poller)."""

    def panel(self) -> Any:  # noqa: ANN401 - panel has no types
        """Return a Panel layout: for a served page, or for use in another layout."""
        return self._new_screen().layout

    @property
    def n_screen(self) -> int:
        """Number of pages and cells that show it."""
        return len(self._screens)

    def _new_screen(self) -> S:
        return self._added(self._make_screen())

    def _added(self, screen: S) -> S:
        with self._lock:
            self._screens.append(screen)
        return screen

    def _drop(self, screen: S) -> None:
        """Remove a screen whose page or cell is gone."""
        with self._lock:
            self._screens = [s for s in self._screens if s is not screen]

    def tick(self) -> None:
        """Show the age of the state (called by the poller)."""
        self.flush()

    def keep(self) -> None:
        """Update the static copy of a saved notebook (called before the cluster ends)."""
        self._cell.keep()

    def flush(self) -> None:
        """Update every screen."""
        with self._lock:
            screens = list(self._screens)
        for screen in screens:
            screen.flush()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002 - IPython's signature
        return self._static()

    def __str__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]

    __repr__ = __str__

    def _ipython_display_(self) -> None:
        self._cell.display(self._notebook_layout)

    def _notebook_layout(self) -> Any:  # noqa: ANN401 - panel has no types
        return self._new_screen().stage.notebook_layout()

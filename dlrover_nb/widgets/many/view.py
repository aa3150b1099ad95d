"""The live view of all jobs of a cluster: `%dlrover dash`.

A `ManyJobs` holds one roster and any number of screens drawn from it. The poller asks the cluster once a
tick for all jobs together, however many screens and jobs there are.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dlrover_nb.widgets.cell import Cell, static_bundle
from dlrover_nb.widgets.live import LiveView
from dlrover_nb.widgets.many import static
from dlrover_nb.widgets.many.jobs_view_model import JobsViewModel

if TYPE_CHECKING:
    from typing import Any

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.widgets.many.screen import ManyScreen
    from dlrover_nb.widgets.poller import Poller


class ManyJobs:
    """Live view of all jobs of a cluster.

    Parameters
    ----------
    cluster
        Where they run.
    poller
        Keeps this view, and those of jobs opened from it, up to date; the one of the cluster.

    Raises
    ------
    BackendError
        When it does not answer.
    """

    def __init__(self, cluster: Cluster, poller: Poller) -> None:
        self._cluster = cluster
        self._poller = poller
        self.roster = JobsViewModel(cluster)
        self._screens: list[ManyScreen] = []
        self._lock = threading.Lock()
        self._cell = Cell(self._static)
        poller.watch(self)

    def panel(self) -> Any:  # noqa: ANN401 - panel has no types
        """Return a Panel layout: for a served page, or to put into a layout of one's own."""
        return self._new_screen().layout

    @property
    def n_screen(self) -> int:
        """How many pages and cells show it."""
        return len(self._screens)

    def _new_screen(self) -> ManyScreen:
        from dlrover_nb.widgets.many.screen import ManyScreen  # noqa: PLC0415 - panel takes seconds to import

        screen = ManyScreen(
            self.roster.picture,
            self._open,
            on_close=self._drop,
            on_connect=self._cell.take_back_scripts,
        )
        with self._lock:
            self._screens.append(screen)
        return screen

    def _drop(self, screen: ManyScreen) -> None:
        with self._lock:
            self._screens = [s for s in self._screens if s is not screen]

    def _open(self, name: str) -> LiveView:
        return LiveView(self._cluster.job(name), self._poller)

    def poll(self) -> None:
        """Fetch and show what is new (called by the poller)."""
        self.roster.fetch()
        self.flush()
        self._cell.renew(is_last=False)

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

    def _static(self) -> dict[str, str]:
        return static_bundle((static.view(self.roster.picture()),))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002 - IPython's signature
        return self._static()

    def __str__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]

    def _ipython_display_(self) -> None:
        self._cell.display(self._notebook_layout)

    def _notebook_layout(self) -> Any:  # noqa: ANN401 - panel has no types
        return self._new_screen().stage.notebook_layout()

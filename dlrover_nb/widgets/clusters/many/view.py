"""The live view of all jobs of a cluster: `%dlrover jobs --live`.

A `ManyJobs` holds one `JobsViewModel` and any number of screens drawn from it. The poller queries the cluster
once a tick for all jobs, however many screens and jobs there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.widgets.clusters.many import static
from dlrover_nb.widgets.clusters.many.jobs_view_model import JobsViewModel
from dlrover_nb.widgets.live.browser.cell_outputs import static_bundle
from dlrover_nb.widgets.live.browser.live_page import LivePage
from dlrover_nb.widgets.live.live_view import LiveView
from dlrover_nb.widgets.rows.job_columns import JOBS
from dlrover_nb.widgets.rows.tables import listed

if TYPE_CHECKING:
    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.widgets.blocks import View
    from dlrover_nb.widgets.clusters.many.screen import ManyScreen
    from dlrover_nb.widgets.live.browser.poller import Poller
    from dlrover_nb.widgets.rows.tables import Tables


class ManyJobs(LivePage["ManyScreen"]):
    """Live view of all jobs of a cluster.

    Parameters
    ----------
    cluster
        Where they run.
    poller
        Updates this view, and those of jobs opened from it; the cluster's poller.
    opened
        Name of the job that each screen has open at first; empty: none.

    Raises
    ------
    BackendError
        When it does not answer.
    """

    def __init__(self, cluster: Cluster, poller: Poller, opened: str = "") -> None:
        super().__init__(poller)
        self._cluster, self._opened = cluster, opened
        self.view_model = JobsViewModel(cluster)
        poller.watch(self)

    def _make_screen(self) -> ManyScreen:
        from dlrover_nb.widgets.clusters.many.screen import ManyScreen  # noqa: PLC0415 - panel takes seconds to import

        return ManyScreen(
            self.view_model.state,
            self._open,
            on_close=self._drop,
            on_connect=self._cell.take_back_scripts,
            opened=self._opened,
        )

    def _open(self, name: str) -> LiveView:
        return LiveView(self._cluster.job(name), self._poller)

    def poll(self) -> None:
        """Fetch and show what is new (called by the poller)."""
        self.view_model.fetch()
        self.flush()
        self._cell.renew(is_last=False)

    def view(self) -> View:
        """Return the newest state, for where nothing is live."""
        return static.view(self.view_model.state())

    def tables(self) -> Tables:
        """Return the newest state as data."""
        return listed("jobs", JOBS, (reading.summary for reading in self.view_model.state().jobs))

    def _static(self) -> dict[str, str]:
        return static_bundle((self.view(),))

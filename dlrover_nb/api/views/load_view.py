"""What `Cluster.load` returns: the load of a cluster now, and its recent past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.widgets.clusters.cluster_load import load_view
from dlrover_nb.widgets.rows import results

if TYPE_CHECKING:
    from dlrover_nb.core.history.stores.load_series import LoadPoint
    from dlrover_nb.core.structs.cluster.cluster_load import ClusterLoad
    from dlrover_nb.widgets.blocks import View
    from dlrover_nb.widgets.rows.tables import Tables


@dataclass(frozen=True, slots=True, repr=False)
class LoadView(Shown):
    """The load of a cluster now, and points of all machines together, oldest first."""

    description: str
    load: ClusterLoad
    points: tuple[LoadPoint, ...] = ()

    def view(self) -> View:
        """Return the content."""
        return load_view(self.description, self.load, self.points)

    def tables(self) -> Tables:
        """Return it as data."""
        return results.load(self.description, self.load, self.points)

"""One sample of the load of a cluster, into the history: for callers with an interval, a service or a timer.

The time is an argument, and nothing is kept between two calls, so that a service that restarts, or two of
them, write the same series.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from dlrover_nb.core.history.database import default_url, is_there
from dlrover_nb.core.history.stores.load_series import ALL
from dlrover_nb.core.history.stores.loads import LoadStore

if TYPE_CHECKING:
    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.history.stores.load_series import LoadPoint
    from dlrover_nb.core.structs.cluster.cluster_load import ClusterLoad


def sample_load(cluster: Cluster, at_s: float, url: str | None = None) -> ClusterLoad:
    """Read the load of a cluster, write it to the history, and return it; a simulated one is not written.

    Parameters
    ----------
    cluster
        The cluster.
    at_s
        The present time, in seconds since 1970.
    url
        Of the history's database; None for the user's own.

    Raises
    ------
    BackendError
        When the cluster does not answer, or the history cannot be written.
    """
    load = cluster.load()
    if load.place:
        with closing(LoadStore(url)) as store:
            store.add(load, at_s)
    return load


def recent_points(
    load: ClusterLoad, start_s: float, end_s: float, url: str | None = None
) -> tuple[LoadPoint, ...]:
    """Return the points of all machines of a cluster together; none where there is no history.

    Raises
    ------
    BackendError
        When the history is there and cannot be read.
    """
    if not load.place or not is_there(url or default_url()):
        return ()
    with closing(LoadStore(url)) as store:
        return store.between(load.place, start_s, end_s, ALL)

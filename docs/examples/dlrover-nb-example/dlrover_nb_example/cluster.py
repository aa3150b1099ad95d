"""A kind of cluster: `%dlrover connect small-sim`, a simulated cluster of two machines.

A real one returns an object with the methods of `dlrover_nb.core.client.cluster.Cluster`, whose jobs run on a
backend with those of `dlrover_nb.core.driver.backend.Backend`. The contracts that ours are held to, in
tests/support/conformance/cluster.py and tests/support/conformance/backend.py, serve for it as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.connect.kinds import Kind

if TYPE_CHECKING:
    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.connect.kinds import Place


def connect(place: Place) -> Cluster:
    """Return the cluster; imports stand here, so that naming the kind costs nothing."""
    from dlrover_nb.core.connect import connect as connect_to

    return connect_to("sim", machines=2, speed=place.options.get("speed"))


KIND = Kind("small-sim", "a small simulated cluster", ("speed",), connect, is_shared=False)

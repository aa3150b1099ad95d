"""What benchmarks of a real job master share: a backend that starts no process, and percentiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.capacity import Capacity

if TYPE_CHECKING:
    from collections.abc import Collection
    from multiprocessing.connection import Connection

    from dlrover_nb.core.structs.plan.capacity import NodeShape
    from dlrover_nb.core.structs.wire.node_config import NodeConfig


class HandedOut:
    """A backend that starts nothing: it passes the requested nodes to the clients' process.

    Parameters
    ----------
    shape
        All room that there is.
    listen
        Where the master listens.
    """

    def __init__(self, shape: NodeShape, listen: str, clients: Connection) -> None:
        self._shape, self._listen, self._clients = shape, listen, clients

    def capacity(self) -> Capacity:
        return Capacity((self._shape,))

    def room(self) -> Capacity:
        return self.capacity()

    def listen(self) -> str:
        return self._listen

    def start_node(self, config: NodeConfig) -> None:
        self._clients.send(config)

    def adopt(self, nodes: Collection[str]) -> None:
        raise AssertionError(nodes)

    def stop_node(self, node: str) -> None:
        """Do nothing: the nodes end with the measurement."""

    def poll(self) -> tuple[()]:
        return ()

    def set_master_endpoint(self, endpoint: str) -> None:
        raise AssertionError(endpoint)

    def waiting(self) -> dict[str, str]:
        return {}

    def denied(self) -> str:
        return ""

    def close(self) -> None:
        """Close nothing."""


def percentile_ms(seconds: list[float], fraction: float) -> float:
    """Return the time that a fraction of all took at most, in milliseconds."""
    ordered = sorted(seconds)
    return round(ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] * 1e3, 4)

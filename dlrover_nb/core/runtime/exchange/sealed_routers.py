"""Which nodes have a router of sealed sessions: those that others reach over the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.runtime.exchange.sockets import is_between_hosts

if TYPE_CHECKING:
    from dlrover_nb.core.runtime.exchange.sealed import SealedRouter
    from dlrover_nb.core.runtime.exchange.sockets import Context
    from dlrover_nb.core.structs.wire.node_config import NodeConfig


def sealed_router(context: Context, config: NodeConfig, endpoint: str) -> SealedRouter | None:
    """Return a router of sealed sessions beside the one of `endpoint`; None within one host."""
    if not is_between_hosts(endpoint):
        return None
    from dlrover_nb.core.runtime.exchange.sealed import SealedRouter  # noqa: PLC0415 - one host needs no cipher

    return SealedRouter(context, config.listen, config.spec.exchange.encryption)

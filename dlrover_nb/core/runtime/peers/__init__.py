"""Copies of checkpoints in the memory of peers: every node sends what it has, and keeps what it is told to.

Two threads do it, so that neither requests of workers nor batches wait: one answers reads of this host's
shared memory (`sending`), one reads parts of other PS and keeps them (`keeping`). The job master decides who
keeps what (`runtime.peer_copies`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.runtime.exchange.sockets import JobKeys
from dlrover_nb.core.runtime.peers.keeping import CopyKeeper
from dlrover_nb.core.runtime.peers.reading import read_copy
from dlrover_nb.core.runtime.peers.sending import CopySender
from dlrover_nb.core.runtime.process.limits import MOST_USED

if TYPE_CHECKING:
    from dlrover_nb.core.runtime.exchange.sockets import Context
    from dlrover_nb.core.runtime.process.agent import Agent
    from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

__all__ = ["CopyExchange", "CopyKeeper", "CopySender", "read_copy"]

_MIB = 1 << 20


class CopyExchange:
    """The copies that one node sends and keeps; it takes the orders of the master from its agent.

    Parameters
    ----------
    context, config
        Where sockets are made; name, keys and run folder of the node.
    agent, accounting
        Tells the master what became of a copy, and how much memory the node uses.
    """

    def __init__(
        self, context: Context, config: NodeConfig, agent: Agent, accounting: TimeAccounting
    ) -> None:
        keys = JobKeys(config.public_key, config.secret_key)
        self._sender = CopySender(context, config, keys)
        self._keeper = CopyKeeper(context, config, keys, tell=agent.send, most_bytes=self._spare_bytes)
        self._agent, self._accounting = agent, accounting
        agent.keep_copy, agent.make_way, agent.copies = (
            self._keeper.keep,
            self.make_way,
            self._sender.endpoint,
        )

    def make_way(self) -> int:
        """Free copies that exceed the limit; return the bytes of those that are kept."""
        self._keeper.give_way()
        return self._keeper.n_byte

    def close(self) -> None:
        """End both threads and free the copies: the master counts none of a node that ends."""
        self._keeper.close()
        self._sender.close()

    def _spare_bytes(self) -> int:
        n_used = self._accounting.n_byte() - self._keeper.n_byte
        return round(self._agent.memory_mib * _MIB * MOST_USED) - n_used

"""A rule of a cluster about the size of nodes, as a LimitRange or an admission policy is one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dlrover_nb.core.driver.backend import NodeExited
from dlrover_nb.core.structs.plan.capacity import NodeLimits

if TYPE_CHECKING:
    from dlrover_nb.core.structs.wire.node_config import NodeConfig


class Limits:
    """The rule of one cluster, which may be lifted."""

    def __init__(self) -> None:
        self._most_cpu, self._until_s = math.inf, 0.0

    def set(self, most_cpu: float, until_s: float) -> None:
        self._most_cpu, self._until_s = most_cpu, until_s

    def refusal(self, config: NodeConfig, elapsed_s: float) -> NodeExited | None:
        """Return how the cluster refuses a node; None: it makes it."""
        if elapsed_s >= self._until_s or config.cpu <= self._most_cpu:
            return None
        limits = NodeLimits(most_cpu=self._most_cpu, why=f"at most {self._most_cpu:g} cores")
        return NodeExited(config.node, limits.why, retryable=False, refused=limits)

"""Backends of an own job whose cluster has rules: it refuses nodes by their size, and lets nodes wait for the quota.

They answer as the backend of pods does: one that is refused has ended, one over the quota is asked for again every
`AGAIN_S`, or when another node ends, and all that came after it wait with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.rules import Admission
from support.driver.driver_world import PlayedBackend, ResizingPlayedBackend

from dlrover_nb.core.driver.backend import NodeExited

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simulation.own.world import OwnWorld

    from dlrover_nb.core.driver.backend import NodeAllotted
    from dlrover_nb.core.structs.plan.capacity import Capacity, Need
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

AGAIN_S = 15.0


class RuledBackend(PlayedBackend):
    """One whose cluster has rules.

    Attributes
    ----------
    held
        Nodes that wait for the quota, in the order in which they are tried.
    unmade
        Nodes that never were made, and will not be.
    """

    _world: OwnWorld

    def __init__(self, world: OwnWorld) -> None:
        super().__init__(world)
        self.admission = Admission(world.rules)
        self.held: dict[str, NodeConfig] = {}
        self.unmade: set[str] = set()
        self._why, self._again_s = "", 0.0
        self._cpu: dict[str, float] = {}  # of nodes that were made and not stopped

    def capacity(self) -> Capacity:
        return self.admission.known(self._world.capacity, self._world.elapsed_s)

    def room(self) -> Capacity:
        return self.capacity()

    def start_node(self, config: NodeConfig) -> None:
        if (self.held and self._world.elapsed_s < self._again_s) or not self._made(config):
            self.held[config.node] = config

    def _made(self, config: NodeConfig) -> bool:
        """Whether the cluster has answered for good: it makes a node, or refuses it."""
        elapsed_s = self._world.elapsed_s
        if refused := self.admission.refused(config, elapsed_s):
            self.unmade.add(config.node)
            self._exits.append(refused)
            return True
        if why := self.admission.over_quota(config.cpu, self._used_cpu(), elapsed_s):
            self._why, self._again_s = why, elapsed_s + AGAIN_S
            return False
        super().start_node(config)
        self._cpu[config.node] = config.cpu
        self.admission.made((config.cpu, config.memory_mib))
        return True

    def _used_cpu(self) -> float:
        return sum(cpu for node, cpu in self._cpu.items() if self._world.nodes[node].is_alive)

    def _try_again(self) -> None:
        while self.held and self._world.elapsed_s >= self._again_s:
            config = self.held.pop(next(iter(self.held)))
            if not self._made(config):
                self.held[config.node] = config  # another one is tried first the next time
            elif config.node not in self.unmade:
                self._world.rules.n_found += 1

    def adopt(self, nodes: Mapping[str, Need]) -> None:
        super().adopt(nodes)
        self._cpu = {node: nodes[node][0] for node in sorted(self._living)}

    def stop_node(self, node: str) -> None:
        self._cpu.pop(node, None)
        if self.held.pop(node, None):
            self.unmade.add(node)
            self._exits.append(NodeExited(node, "it was stopped"))
        super().stop_node(node)

    def poll(self) -> tuple[NodeExited, ...]:
        exits = super().poll()
        if exits:
            self._again_s = 0.0  # it may have held what others wait for
        self._try_again()
        return exits

    def waiting(self) -> Mapping[str, str]:
        return dict.fromkeys(self.held, self._why)


class RuledResizingBackend(RuledBackend, ResizingPlayedBackend):
    """The same, which resizes nodes in place, as far as the rules allow it."""

    def allotted(self) -> tuple[NodeAllotted, ...]:
        for node, need in self.resizings.items():
            self.refusals[node] = self._refused(node, need)
        answers = super().allotted()
        self._cpu.update(
            {each.node: each.need[0] for each in answers if not each.why and each.node in self._cpu}
        )
        return answers

    def _refused(self, node: str, need: Need) -> str:
        elapsed_s = self._world.elapsed_s
        rule, more_cpu = self._world.rules.of_sizes(elapsed_s), need[0] - self._cpu.get(node, 0.0)
        if rule.forbids(need):
            return rule.words(need)
        return self.admission.over_quota(more_cpu, self._used_cpu(), elapsed_s) if more_cpu > 0 else ""

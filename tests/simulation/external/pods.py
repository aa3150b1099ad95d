"""Played pods of an external job: a backend that starts and ends them, in the place of a cluster."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.rules import Admission

from dlrover_nb.core.driver.backend import NodeAllotted, NodeExited
from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simulation.external.programs import PlayedSession
    from simulation.external.world import ExternalWorld
    from simulation.tasks import Task

    from dlrover_nb.core.structs.job.external import Written
    from dlrover_nb.core.structs.plan.capacity import Capacity, Need
    from dlrover_nb.core.structs.plan.resources import Role
    from dlrover_nb.core.structs.wire.node_config import NodeConfig


@dataclass(eq=False)
class Pod:
    """A pod, which outlives the master that started it."""

    node: str
    role: Role
    cpu: float
    memory_mib: int
    address: str = ""  # empty: it does not run yet
    is_alive: bool = True
    environment: str = ""
    n_told: int = 0  # environments that were sent to it
    exit: NodeExited | None = None
    sessions: list[PlayedSession] = field(default_factory=list)  # of its present program
    tasks: list[Task] = field(default_factory=list)
    n_start: int = 0


class PlayedPods:
    """Starts and ends pods; fits `core.driver.backend.ExternalBackend`."""

    def __init__(self, world: ExternalWorld) -> None:
        self._world, self._living = world, set[str]()
        self.admission = Admission(world.rules)
        self._exits: deque[NodeExited] = deque()
        self.has_gone = False  # with its master: it does nothing any more

    def capacity(self) -> Capacity:
        return self.admission.known(self._world.capacity, self._world.elapsed_s)

    def room(self) -> Capacity:
        return self.capacity()

    def listen(self) -> str:
        return ""

    def start_node(self, config: NodeConfig) -> None:
        if config.node in self._world.pods:
            raise InvalidValueError(f"node ids must be new, got {config.node} again; use the next number")
        if refused := self.admission.refused(config, self._world.elapsed_s):
            self._exits.append(refused)
            return
        self.admission.made((config.cpu, config.memory_mib))
        self._living.add(config.node)
        self._world.begin(Pod(config.node, config.role, config.cpu, config.memory_mib))

    def adopt(self, nodes: Mapping[str, Need]) -> None:
        there = {name for name, pod in self._world.pods.items() if pod.is_alive}
        self._living = there & nodes.keys()
        for node in there - nodes.keys():
            self._world.stop(node)
        gone = sorted(nodes.keys() - there)
        pods = self._world.pods
        self._exits.extend((pods[n].exit if n in pods else None) or NodeExited(n, "it is gone") for n in gone)

    def stop_node(self, node: str) -> None:
        if not self.has_gone:
            self._world.stop(node)

    def poll(self) -> tuple[NodeExited, ...]:
        pods = self._world.pods
        ended = sorted(node for node in self._living if not pods[node].is_alive)
        self._living.difference_update(ended)
        exits, self._exits = tuple(self._exits), deque()
        return (*exits, *(pods[node].exit or NodeExited(node, "it was ended") for node in ended))

    def set_master_endpoint(self, endpoint: str) -> None:
        """Do nothing: masters keep their address."""

    def waiting(self) -> Mapping[str, str]:
        return {node: "" for node in self._world.without_room if node in self._living}

    def denied(self) -> str:
        return ""

    def addresses(self) -> Mapping[str, str]:
        pods = self._world.pods
        return {node: pods[node].address for node in sorted(self._living) if pods[node].address}

    def send_environment(self, node: str, text: str) -> None:
        self._world.send_environment(node, text)

    def follow_logs(self, since_ns: Mapping[str, int]) -> None:
        """Do nothing: these programs write no logs."""

    def written(self) -> tuple[Written, ...]:
        return ()

    def close(self) -> None:
        for node in () if self.has_gone else self._world.pods:
            self._world.stop(node)


class ResizingPlayedPods(PlayedPods):
    """One that gives running pods other cores and memory; every third request is refused."""

    def __init__(self, world: ExternalWorld) -> None:
        super().__init__(world)
        self._requests: dict[str, Need] = {}
        self._n_request = 0

    def resizes_in_place(self) -> bool:
        return True

    def resize_node(self, node: str, need: Need) -> None:
        self._requests[node] = need

    def allotted(self) -> tuple[NodeAllotted, ...]:
        found = []
        for node, need in self._requests.items():
            self._n_request += 1
            why = "" if self._n_request % 3 else "its machine has no room"
            if not why:
                self._world.pods[node].cpu, self._world.pods[node].memory_mib = need
            found.append(NodeAllotted(node, need, why))
        self._requests.clear()
        return tuple(found)

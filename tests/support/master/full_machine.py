"""A world whose machines have no more room than they say: nodes start where they fit, and wait where they do not.

Nodes are placed as clusters place them: in the order of their requests, each on the first machine that has
room, without a thought for those that come later. So what a plan needs may be free in pieces that are too small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, in_steps
from support.master.master_world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Need


class FullMachines(World):
    """One job on machines of known size, in cores and MiB."""

    def __init__(self, job: JobSpec, rows: FeatureSpec, machines: Iterable[Need]) -> None:
        self.machines = tuple(machines)
        self.n_step_held = [0] * len(self.machines)  # CPU steps of each machine that other jobs hold
        self.place_of: dict[str, int] = {}
        super().__init__(job, rows, capacity=Capacity(tuple(NodeShape(*each) for each in self.machines)))

    def hello(self, name: str) -> None:
        if name in self.place_of:
            super().hello(name)

    def schedule(self) -> None:
        """Free what the dead held, place those that fit, and tell the master of the others."""
        living = [name for name, node in self.nodes.items() if node.is_alive]
        self.place_of = {name: at for name, at in self.place_of.items() if name in living}
        for name in living:
            cpu, mib = self._need(name)
            fitting = [at for at, free in enumerate(self.free()) if free[0] >= cpu and free[1] >= mib]
            if name not in self.place_of and fitting:
                self.place_of[name] = fitting[0]
        waiting = [name for name in living if name not in self.place_of]
        self.do(self.master.set_waiting(dict.fromkeys(waiting, ""), self.at_s))

    def free(self) -> list[list[int]]:
        """Return the CPU steps and MiB of each machine that nobody holds."""
        held = zip(self.machines, self.n_step_held, strict=True)
        free = [[in_steps(cpu) - n_held, mib] for (cpu, mib), n_held in held]
        for name, at in self.place_of.items():
            cpu, mib = self._need(name)
            free[at][0] -= cpu
            free[at][1] -= mib
        return free

    def _need(self, name: str) -> tuple[int, int]:
        order = self.nodes[name].order
        return in_steps(order.cpu), order.memory_mib

    def second(self) -> None:
        """Let one second pass."""
        self.schedule()
        assert all(n_step >= 0 and mib >= 0 for n_step, mib in self.free())
        self.round(1.0)

    def wait_for(self, condition: Callable[[], bool], limit_s: float) -> None:
        """Let time pass until `condition()` holds."""
        end_s = self.at_s + limit_s
        while not condition():
            assert self.at_s < end_s, f"not within {limit_s:g} s: {self._told()}"
            self.second()

    def _told(self) -> str:
        nodes = [(node.id, node.phase, node.waits_for) for node in self.master.nodes]
        return f"{self.master.phase} {self.master.message}, stage {self.master.stage}, nodes {nodes}"

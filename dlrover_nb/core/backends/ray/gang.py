"""A job's minimal set of nodes, placed by Ray as a whole or not at all.

Two jobs that each hold half of their minimum and wait for the other half would deadlock. So all parameter
servers of the first plan and one worker are one placement group: Ray finds room for all of them together, and
reserves none before. Further nodes of a job start one at a time, and the job trains without them too.

The group is for that moment alone. As soon as Ray has placed it, its nodes are requested outside it, and it
is removed: they get the room that it held. Nodes inside it were rejected: Ray releases a group only as a
whole, so what a change of plan took away was lost to the job until the last of its first nodes had gone, and
a change that needed that room waited for itself.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ray.exceptions import RayError
from ray.util import get_placement_group, placement_group, placement_group_table, remove_placement_group

from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.plan.resources import Need, ResourcePlan
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

MIB = 1 << 20
PLACING_S = 1  # for Ray to place a group for which there is room: it takes 10 ms; whole seconds only


class Gang:
    """The placement group of one job; Ray is not called before `open`."""

    def __init__(self, job: str) -> None:
        self._name = _name(job)
        self._needs: tuple[Need, ...] = ()
        self._group: Any = None

    def covers(self, need: Need) -> bool:
        """Whether it is requested and reserves room for nodes of this size."""
        return self.is_open and need in self._needs

    def members(self, nodes: Iterable[NodeConfig]) -> list[str]:
        """Return which of these nodes it reserves room for: all PS and the first worker."""
        configs = tuple(nodes)
        workers = [each.node for each in configs if each.role is Role.WORKER]
        return [each.node for each in configs if each.role is Role.PS] + workers[:1]

    @property
    def is_open(self) -> bool:
        """Whether the group is requested and not removed."""
        return self._group is not None

    @property
    def is_placed(self) -> bool:
        """Whether Ray has reserved room for all of it."""
        return self.is_open and placement_group_table(self._group).get("state") == "CREATED"

    def bundles(self) -> list[tuple[str, Need]]:
        """Return the machine and the size of each reserved bundle."""
        if not self.is_open:
            return []
        machines = placement_group_table(self._group).get("bundles_to_node_id", {})
        return [(str(machines.get(i, "")), need) for i, need in enumerate(self._needs)]

    def open(self, plan: ResourcePlan) -> None:
        """Request a group for all PS of a plan and one worker; where there is room, it is placed then."""
        self._needs = (*[plan.ps.need] * plan.ps.count, plan.worker.need)
        bundles = [bundle(need) for need in self._needs]
        self._group = placement_group(bundles, strategy="PACK", name=self._name, lifetime="detached")
        self._group.wait(PLACING_S)

    def close(self) -> None:
        """Remove the group."""
        group, self._group = self._group, None
        if group is not None:
            with contextlib.suppress(RayError, ConnectionError):
                remove_placement_group(group)


def bundle(need: Need) -> dict[str, float]:
    """Return what a node holds as Ray writes it, without what it holds none of."""
    gpu = {"GPU": float(need.gpu)} if need.gpu else {}
    return {"CPU": need.cpu, "memory": float(need.memory_mib * MIB), **gpu}


def remove_request(job: str) -> None:
    """Remove the group that a master requested and did not live to use."""
    _remove(_name(job))


def remove_gangs(job: str) -> None:
    """Remove all groups that a job left behind; the nodes of release 0.1 are inside theirs, and end."""
    _remove(_name(job))
    _remove(f"{job}/gang")


def _remove(name: str) -> None:
    with contextlib.suppress(ValueError, RayError, ConnectionError):
        remove_placement_group(get_placement_group(name))


def job_of_group(name: str) -> str:
    """Return the job that a group of this name was requested for; empty: it is of others."""
    job, slash, kind = name.partition("/")
    return job if slash and kind.partition("/")[0] in {"first-nodes", "gang", "room"} else ""


def room_name(job: str, node: str) -> str:
    """Return the name of the group that reserves room for one node (`nodes.reservation`)."""
    return f"{job}/room/{node}"


def _name(job: str) -> str:
    return f"{job}/first-nodes"

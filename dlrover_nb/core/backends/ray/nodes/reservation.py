"""Room for one node whose process Ray started without resources: a placement group of one bundle.

What an actor holds is fixed when Ray starts its process. A spare holds nothing while it waits, so its cores
and its memory are reserved beside it when it becomes a node: on its machine or not at all. To reserve takes
Ray some milliseconds and starts no process. A second actor beside it, which only holds resources, was
rejected: it costs a process of Ray's, which takes half a second of CPU time and 80 MiB.

A group is removed when its node has ended. It is not detached, so it goes with its master when Ray does not
restart that any more; it stays while Ray does.
"""

from __future__ import annotations

import contextlib
from operator import ge
from typing import TYPE_CHECKING

from ray._private import state
from ray.exceptions import RayError
from ray.util import get_placement_group, placement_group, placement_group_table, remove_placement_group

from dlrover_nb.core.backends.ray.gang import PLACING_S, bundle, room_name
from dlrover_nb.core.backends.ray.load import free_need

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.resources import Need

REMOVED = "REMOVED"


def machines_with_room(need: Need) -> list[str]:
    """Return Ray's ids of the machines that have so much free now, the one with most free cores first."""
    free = {machine: free_need(f) for machine, f in state.available_resources_per_node().items()}
    able = [machine for machine, has in free.items() if all(map(ge, has, need))]
    return sorted(able, key=lambda machine: free[machine], reverse=True)


def reserve(job: str, node: str, need: Need, machine: str) -> bool:
    """Reserve room for a node on a machine, given as Ray's id of it; whether that is done."""
    if machine not in machines_with_room(need):
        return False
    name = room_name(job, node)
    try:
        group = placement_group(
            [bundle(need)], strategy="STRICT_PACK", name=name, _soft_target_node_id=machine
        )
        if group.wait(PLACING_S) and _machines(group) == {machine}:
            return True
    except (RayError, ValueError, ConnectionError):  # its name is taken by what is being removed
        return False
    release(job, node)
    return False


def release(job: str, node: str) -> None:
    """Give the room of a node back, if it has one here."""
    with contextlib.suppress(ValueError, RayError, ConnectionError):
        remove_placement_group(get_placement_group(room_name(job, node)))


def reserved(job: str) -> set[str]:
    """Return the nodes of a job for which there is such room."""
    before = room_name(job, "")
    names = {group["name"] for group in placement_group_table().values() if group["state"] != REMOVED}
    return {name.removeprefix(before) for name in names if name.startswith(before)}


def _machines(group: object) -> set[str]:
    return {str(machine) for machine in placement_group_table(group).get("bundles_to_node_id", {}).values()}

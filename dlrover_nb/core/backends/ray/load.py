"""Load and capacity of a Ray cluster, from the tables that Ray's head keeps for every client.

Three tables say who holds what: what each machine offers and has left, the bundles of placement groups, and
the actors with what they requested. An actor inside a group of ours takes from its bundle, so the bundle
counts and the actor does not. What is held by neither is of others.

What is used is measured on this client's own machine alone, by psutil. Ray's own measurements of machines
need its dashboard's agents, which a head may run without (ours does). An actor on each machine that measures
would take a place in the scheduler of a cluster that is not ours each time that a client looks.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import ray
from ray._private import state
from ray.core.generated import gcs_pb2
from ray.exceptions import RayError
from ray.util import placement_group_table

from dlrover_nb.core.backends.ray.gang import MIB, job_of_group
from dlrover_nb.core.backends.ray.reach import NAMESPACE, ask_ray
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.host_use import host_use
from dlrover_nb.core.structs.cluster.cluster_load import Amount, ClusterLoad, MachineLoad, by_job
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import Need

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ELSEWHERE = "use is measured on this machine only"


class Allocation(NamedTuple):
    """What a node, or a bundle of a placement group, of a job of ours holds."""

    machine: str  # Ray's id of it
    job: str
    amount: Amount
    node: str = ""  # empty: a bundle


class RayLoads(NamedTuple):
    """The machines of a Ray by Ray's ids of them, and what our jobs hold there."""

    machines: dict[str, MachineLoad]
    allocations: list[Allocation]


class _Tables(NamedTuple):
    """What Ray's head was asked, at about one moment."""

    nodes: list[dict[str, Any]]
    free: Mapping[str, Mapping[str, float]]
    allocations: list[Allocation]


def ray_load(place: str) -> ClusterLoad:
    """Return the load of the connected Ray, which `place` names.

    Raises
    ------
    BackendError
        When Ray cannot be reached.
    """
    machines = tuple(machine_loads(measure=True).machines.values())
    is_complete = all(machine.used is not None for machine in machines)
    return ClusterLoad(machines, () if is_complete else (ELSEWHERE,), place)


def machine_loads(*, measure: bool) -> RayLoads:
    """Return the load of each machine; raises as `ray_load`.

    Parameters
    ----------
    measure
        Whether use is measured where it can be, which takes a tenth of a second.
    """
    try:
        nodes, free, allocations = ask_ray(_ask)
        here = ray.get_runtime_context().get_node_id() if measure else ""
    except (RayError, ConnectionError) as error:
        raise BackendError(f"Ray cannot be reached: {error}; connect again") from error
    addresses = Counter(str(node["NodeManagerAddress"]) for node in nodes)
    machines = {str(node["NodeID"]): _machine(node, free, allocations, addresses, here) for node in nodes}
    return RayLoads(machines, allocations)


def _ask() -> _Tables:
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
    allocations = [*_bundles(placement_group_table().values()), *_actors()]
    return _Tables(
        sorted(nodes, key=lambda n: str(n["NodeID"])), state.available_resources_per_node(), allocations
    )


def _bundles(groups: Iterable[Mapping[str, Any]]) -> list[Allocation]:
    """Return what placed groups of our jobs reserve."""
    allocations = []
    for group in groups:
        job = job_of_group(group["name"])
        if job and group["state"] == "CREATED":
            machines = group["bundles_to_node_id"]
            allocations += [
                Allocation(str(machines[i]), job, _amount(b)) for i, b in group["bundles"].items()
            ]
    return allocations


def _actors() -> list[Allocation]:
    """Return what nodes of our jobs hold outside of groups; a node's actor is named JOB/NODE."""
    accessor = state.state._connect_and_get_accessor()  # noqa: SLF001 - no public call tells requests
    allocations = []
    for packed in accessor.get_actor_table(None, "ALIVE"):
        actor = gcs_pb2.ActorTableData.FromString(packed)
        job, slash, node = actor.name.partition("/")
        if slash and actor.ray_namespace == NAMESPACE and not actor.placement_group_id:
            allocations.append(
                Allocation(actor.address.node_id.hex(), job, _amount(actor.required_resources), node)
            )
    return allocations


def _machine(
    node: Mapping[str, Any],
    free: Mapping[str, Mapping[str, float]],
    allocations: Iterable[Allocation],
    addresses: Mapping[str, int],
    here: str,
) -> MachineLoad:
    key, address = str(node["NodeID"]), str(node["NodeManagerAddress"])
    has = _amount(node["Resources"])
    jobs = by_job((each.job, each.amount) for each in allocations if each.machine == key)
    left = free.get(key)
    ours = Amount(sum(a.cpu for _, a in jobs), sum(a.memory_mib for _, a in jobs))
    others = has.beyond(_amount(left)).beyond(ours) if left is not None else None
    is_alone = addresses[address] == 1  # several nodes of Ray on one machine share what it uses
    used = host_use() if is_alone and key == here else None
    return MachineLoad(address if is_alone else f"{address}/{key[:8]}", has, jobs, others, used)


def _amount(resources: Mapping[str, float]) -> Amount:
    cpu, memory = resources.get("CPU", 0.0), resources.get("memory", 0.0)
    return Amount(round(max(0.0, cpu), 4), round(max(0.0, memory) / MIB, 4))


def free_need(resources: Mapping[str, float]) -> Need:
    """Return the cores, MiB and whole GPUs that Ray names."""
    cpu = round(float(resources.get("CPU", 0)), 4)
    return Need(cpu, int(resources.get("memory", 0)) // MIB, int(resources.get("GPU", 0)))


def ray_capacity() -> Capacity:
    """Return the machines of the connected Ray that are alive and offer CPU, largest first.

    Raises
    ------
    BackendError
        When there are none, or Ray cannot be reached.
    """
    try:
        shapes = _shapes(node["Resources"] for node in ask_ray(ray.nodes) if node["Alive"])
    except (RayError, ConnectionError) as error:
        raise BackendError(f"Ray cannot be reached: {error}; connect again") from error
    if not shapes:
        raise BackendError("no machine of the Ray cluster has cores for jobs; start one that has")
    return Capacity(shapes)


def _shapes(resources: Iterable[Mapping[str, float]]) -> tuple[NodeShape, ...]:
    shapes = [
        NodeShape(float(offer["CPU"]), int(offer.get("memory", 0)) // MIB, gpu=int(offer.get("GPU", 0)))
        for offer in resources
        if offer.get("CPU", 0) > 0
    ]
    return tuple(sorted(shapes, key=lambda s: (s.cpu, s.memory_mib), reverse=True))

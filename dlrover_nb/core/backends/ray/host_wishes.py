"""Prefers machines of a Ray for the nodes of a job: see `core.deadline.host_choice`.

Ray takes one wish per actor, a node affinity, so it gets the best host. Soft affinity alone would be a
demand: Ray then waits for a machine that exists, however full it is. So nodes may spill to others where the
preferred machine has no room. Loads are read when nodes start, so they are never stale. What was requested
and is not placed yet is missing in Ray's tables, and counts here.

Loads are what nodes hold: Ray tells of no machine what is used (`load`). A Ray of one machine is asked for
its machines alone.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dlrover_nb.core.backends.ray.load import machine_loads
from dlrover_nb.core.backends.ray.reach import ask_ray
from dlrover_nb.core.deadline.host_choice import Host, NewNode, wishes
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.cluster.cluster_load import Amount, total
from dlrover_nb.core.structs.cluster.host_wish import HostWish
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dlrover_nb.core.backends.ray.load import RayLoads
    from dlrover_nb.core.deadline.host_choice import Wish
    from dlrover_nb.core.structs.plan.resources import Need
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

logger = logging.getLogger(__name__)


class HostWishes:
    """The wishes of the nodes of one job.

    Parameters
    ----------
    job
        Its name.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._wishes: dict[str, Wish] = {}
        self._got: dict[str, str] = {}  # names of machines, by nodes

    def make(
        self,
        configs: Iterable[NodeConfig],
        *,
        unplaced: Mapping[str, Need],
        reserved: Callable[[], Iterable[tuple[str, Need]]],
    ) -> None:
        """Wish for nodes that are about to be requested together.

        Parameters
        ----------
        unplaced
            What nodes hold that were requested and are not placed yet.
        reserved
            Returns machine and size of what is reserved for these nodes until they are requested.
        """
        try:
            if len(ask_ray(_machines)) < 2:
                return
            loads = machine_loads(measure=False)
        except (BackendError, RayError, ConnectionError) as error:
            logger.warning("nodes of job %s are placed by Ray alone: %s", self._job, error)
            return
        on = {each.node: each.machine for each in loads.allocations if each.job == self._job and each.node}
        pending = {node: need for node, need in unplaced.items() if node not in on}
        hosts = self._hosts(loads, on, pending, [(machine, _amount(need)) for machine, need in reserved()])
        self._wishes |= wishes(hosts, [_new(config, on) for config in configs])

    def options(self, node: str) -> dict[str, Any]:
        """Return the options of a node's actor that express its wish; none where there is none."""
        if not (machine := self.machine(node)):
            return {}
        affinity = NodeAffinitySchedulingStrategy(machine, soft=True, _spill_on_unavailable=True)
        return {"scheduling_strategy": affinity}

    def machine(self, node: str) -> str:
        """Return Ray's id of the machine that is wished for a node; empty: none is."""
        return self._wishes[node].first.key if node in self._wishes else ""

    def by_node(self, machine_of: Callable[[str], str]) -> dict[str, HostWish]:
        """Return the wishes of nodes, with where these stand: `machine_of` returns Ray's id, or nothing."""
        for node in self._wishes.keys() - self._got.keys():
            if machine := machine_of(node):
                names = {host.key: host.name for host, _ in self._wishes[node].ranked}
                self._got[node] = names.get(machine, machine[:8])
        return {
            node: HostWish(wish.first.name, wish.why, self._got.get(node, ""))
            for node, wish in self._wishes.items()
        }

    def forget(self, node: str) -> None:
        """Forget a node that is gone."""
        self._wishes.pop(node, None)
        self._got.pop(node, None)

    def _hosts(
        self,
        loads: RayLoads,
        on: Mapping[str, str],
        pending: Mapping[str, Need],
        freed: Iterable[tuple[str, Amount]],
    ) -> list[Host]:
        """Return the machines that are known, with all that is requested on them, less what is freed."""
        by_key = {}
        for key, load in loads.machines.items():
            if load.has is not None and load.held is not None:
                n_ps = sum(machine == key and _is_ps(node) for node, machine in on.items())
                by_key[key] = Host(key, load.name, load.has, load.held, n_ps=n_ps)
        for machine, amount in freed:
            if machine in by_key:
                by_key[machine] = replace(by_key[machine], allocated=by_key[machine].allocated.beyond(amount))
        for node, need in pending.items():
            if node in self._wishes and (host := by_key.get(self._wishes[node].first.key)) is not None:
                allocated = total((host.allocated, _amount(need)))
                by_key[host.key] = replace(host, allocated=allocated, n_ps=host.n_ps + _is_ps(node))
        return list(by_key.values())


def _machines() -> list[str]:
    return [str(node["NodeID"]) for node in ray.nodes() if node["Alive"]]


def _new(config: NodeConfig, on: Mapping[str, str]) -> NewNode:
    avoid = tuple((on[node], node) for node in config.avoid if node in on)
    cpu_weight = config.spec.tuning.qore.cpu_weight
    return NewNode(config.node, config.role, config.cpu, config.memory_mib, avoid, cpu_weight)


def _is_ps(node: str) -> bool:
    return node.startswith(f"{Role.PS}-")


def _amount(need: Need) -> Amount:
    return Amount(need[0], float(need[1]))

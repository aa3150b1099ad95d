"""Prefers machines for the pods of a job: see `core.deadline.host_choice`.

A wish is made when a pod is created, by the loads of the last minute and by the job's own pods of now. Pods
that are to be created together choose together. Where loads are not known, or are old, only machines where a
node of the job was too slow are avoided, and else the scheduler alone chooses. So it does for jobs that ask
for that with ``spread: false``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.nodes.orders import Create
from dlrover_nb.core.backends.kubernetes.room.cluster_capacity import ENDED, requests_of
from dlrover_nb.core.deadline.host_choice import Host, NewNode, wishes
from dlrover_nb.core.deadline.utilisation import CPU_WEIGHT
from dlrover_nb.core.manifests.host_affinity import wish_of, with_wish, without_hosts
from dlrover_nb.core.manifests.pod_parts import NODE_LABEL, ROLE_LABEL
from dlrover_nb.core.structs.cluster.cluster_load import Amount, total
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dlrover_nb.core.backends.kubernetes.nodes.orders import Action
    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.cluster.host_wish import HostWish


class HostWishes:
    """The wishes of the pods of one job.

    Parameters
    ----------
    hosts
        Returns the machines that the job may use with what others than its nodes hold there; none where that
        is not known now.
    is_on
        Whether wishes are made.
    cpu_weight
        Weight of a machine's cores in its load (alpha 1 of Qore-DL).
    """

    def __init__(
        self, hosts: Callable[[], Sequence[Host]], *, is_on: bool, cpu_weight: float = CPU_WEIGHT
    ) -> None:
        self._hosts, self._is_on, self._cpu_weight = hosts, is_on, cpu_weight
        self._avoid: dict[str, tuple[str, ...]] = {}

    def avoid(self, node: str, others: tuple[str, ...]) -> None:
        """Let a node that is about to be created stand elsewhere than others of the job."""
        self._avoid[node] = others

    def placed(self, actions: Sequence[Action], pods: Mapping[str, Doc]) -> tuple[Action, ...]:
        """Return orders with wishes in the pods to create.

        Parameters
        ----------
        pods
            The job's pods, by their names.
        """
        creates = [action for action in actions if isinstance(action, Create)]
        if not creates or not self._is_on:
            return tuple(actions)
        standing = [pod for pod in pods.values() if pod["spec"].get("nodeName")]
        on = {_node_of(pod): str(pod["spec"]["nodeName"]) for pod in standing}
        hosts = _with_own(self._hosts(), (pod for pod in standing if not _has_ended(pod)))
        keys = {host.name: host.key for host in hosts}
        slow = {c.node: [(on[o], o) for o in self._avoid.get(c.node, ()) if o in on] for c in creates}
        avoid = {c.node: tuple((keys.get(at, at), o) for at, o in slow[c.node]) for c in creates}
        new = [_new(c, avoid[c.node], self._cpu_weight) for c in creates]
        wish_of = wishes(hosts, new)
        pods_of = {c.node: with_wish(c.pod, wish_of[c.node]) for c in creates if c.node in wish_of}
        if not hosts:
            pods_of = {c.node: without_hosts(c.pod, slow[c.node]) for c in creates if slow[c.node]}
        return tuple(
            replace(action, pod=pods_of[action.node])
            if isinstance(action, Create) and action.node in pods_of
            else action
            for action in actions
        )

    @staticmethod
    def by_node(pods: Iterable[Doc]) -> dict[str, HostWish]:
        """Return the wishes that pods were created with, by their nodes."""
        pairs = ((_node_of(pod), wish_of(pod)) for pod in pods)
        return {node: wish for node, wish in pairs if wish is not None}


def _with_own(hosts: Iterable[Host], own: Iterable[Doc]) -> list[Host]:
    """Return hosts with the job's pods on them."""
    by_name = {host.name: host for host in hosts}
    for pod in own:
        if (host := by_name.get(pod["spec"]["nodeName"])) is not None:
            n_ps = host.n_ps + (pod["metadata"]["labels"].get(ROLE_LABEL) == Role.PS)
            allocated = total((host.allocated, Amount(*requests_of(pod))))
            by_name[host.name] = replace(host, allocated=allocated, n_ps=n_ps)
    return list(by_name.values())


def _new(order: Create, avoid: tuple[tuple[str, str], ...], cpu_weight: float) -> NewNode:
    role = Role(order.pod["metadata"]["labels"][ROLE_LABEL])
    cpu, mib = requests_of(order.pod)
    return NewNode(order.node, role, cpu, int(mib), avoid, cpu_weight)


def _node_of(pod: Doc) -> str:
    return str(pod["metadata"]["labels"][NODE_LABEL])


def _has_ended(pod: Doc) -> bool:
    return (pod.get("status") or {}).get("phase") in ENDED

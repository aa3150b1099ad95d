"""Load of a Kubernetes cluster: machines, requests of pods, and what metrics.k8s.io measures.

Three rights may be missing, each on its own, and most users lack all of them. Machines that may not be listed
are known by the pods of the namespace that stand on them, with what these request. Where pods of other
namespaces may not be listed, nothing is said of others, and so of what is idle: a machine that looks empty
from one namespace may be full. Metrics are an addition to Kubernetes that a cluster may lack.

Ours are all pods of jobs in this namespace, their masters too; pods that wait stand on no machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import Forbidden, NotThere, Unreachable
from dlrover_nb.core.backends.kubernetes.room.cluster_capacity import ENDED, amount_of, requests_of
from dlrover_nb.core.manifests.kinds import NODE, NODE_METRICS, POD
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL
from dlrover_nb.core.structs.cluster.cluster_load import Amount, ClusterLoad, MachineLoad, by_job, total

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Doc

NO_MACHINES = (
    "you may not list machines (needs: list nodes), so we show only those with pods of this namespace"
)
NO_PODS = (
    "you may not list pods of other namespaces (needs: list pods in all namespaces), so we cannot say what "
    "others hold or what is idle"
)
NO_METRICS = "we cannot see what is used: metrics.k8s.io is not installed, or you may not read it"
_LIVING = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """What could be listed.

    Parameters
    ----------
    namespace
        Of our jobs.
    nodes
        Machines; None: they may not be listed.
    pods
        Of all namespaces, or of ours alone.
    sees_all
        Whether they are of all namespaces.
    metrics
        NodeMetrics; None: there are none to read.
    """

    namespace: str
    nodes: tuple[Doc, ...] | None
    pods: tuple[Doc, ...]
    sees_all: bool
    metrics: tuple[Doc, ...] | None


def kubernetes_load(api: Api) -> ClusterLoad:
    """Return the load of the cluster as far as this user may read it, by three or four requests."""
    everywhere = api.within("")
    nodes = _listed(lambda: everywhere.list(NODE).items)
    metrics = _metrics(everywhere) if nodes is not None else None
    pods = _listed(lambda: everywhere.list(POD, fields=_LIVING).items)
    own = pods if pods is not None else tuple(api.list(POD, fields=_LIVING).items)
    load = load_of(ClusterObjects(api.namespace, nodes, own, pods is not None, metrics))
    return replace(load, place=f"kubernetes {api.host}/{api.namespace}")


def load_of(objects: ClusterObjects) -> ClusterLoad:
    """Return the load by what could be listed."""
    on: dict[str, list[Doc]] = {}
    for pod in objects.pods:
        at = pod["spec"].get("nodeName")
        if at and (pod.get("status") or {}).get("phase") not in ENDED:
            on.setdefault(at, []).append(pod)
    if objects.nodes is None:
        ours = sorted(at for at, pods in on.items() if any(_job_of(pod, objects.namespace) for pod in pods))
        has: dict[str, Amount | None] = dict.fromkeys(ours)
    else:
        has = {
            n["metadata"]["name"]: _amount(*amount_of(n["status"].get("allocatable"))) for n in objects.nodes
        }
    used = {m["metadata"]["name"]: _amount(*amount_of(m.get("usage"))) for m in objects.metrics or ()}
    machines = tuple(
        _machine(name, has[name], on.get(name, []), objects, used.get(name)) for name in sorted(has)
    )
    return ClusterLoad(machines, _notes(objects, machines))


def _machine(
    name: str, has: Amount | None, pods: list[Doc], objects: ClusterObjects, used: Amount | None
) -> MachineLoad:
    requests = [(_job_of(pod, objects.namespace), _amount(*requests_of(pod))) for pod in pods]
    jobs = by_job((job, amount) for job, amount in requests if job)
    others = total(amount for job, amount in requests if not job) if objects.sees_all else None
    return MachineLoad(name, has, jobs, others, used)


def _notes(objects: ClusterObjects, machines: tuple[MachineLoad, ...]) -> tuple[str, ...]:
    applies = {
        NO_MACHINES: objects.nodes is None,
        NO_PODS: not objects.sees_all,
        NO_METRICS: not machines or any(machine.used is None for machine in machines),
    }
    return tuple(note for note, holds in applies.items() if holds)


def _job_of(pod: Doc, namespace: str) -> str:
    """Return the job of this namespace that a pod belongs to; empty: it is another's."""
    meta = pod["metadata"]
    return str((meta.get("labels") or {}).get(JOB_LABEL, "")) if meta.get("namespace") == namespace else ""


def _amount(cpu: float, memory_mib: float) -> Amount:
    return Amount(round(max(0.0, cpu), 4), round(max(0.0, memory_mib), 4))


def _listed(look: Callable[[], list[Doc]]) -> tuple[Doc, ...] | None:
    """Return the objects; None where they may not be listed."""
    try:
        return tuple(look())
    except Forbidden:
        return None


def _metrics(api: Api) -> tuple[Doc, ...] | None:
    """Return what is measured; metrics that are installed and do not answer are no reason to show nothing."""
    try:
        return _listed(lambda: api.list(NODE_METRICS).items)
    except (NotThere, Unreachable):
        return None

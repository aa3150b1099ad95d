"""Capacity of a cluster for a job, total and free, computed from machines, quotas and pods.

Machines can be listed only with a right that users may lack. Then the namespace's quota is used alone, and
without a quota the capacity observed by the client at submission. A machine counts with its allocatable
amount, less the pods of every machine (DaemonSets, the kubelet's own pods) and less this job's master, which
runs as long as the job.

A quota cuts the machines, the largest first, until their sum fits, and GPUs alike, where most of them are
first. That may refuse a plan that would just fit, but never admits one that does not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.room.kueue import is_managed
from dlrover_nb.core.deadline.host_choice import Host
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.export.quantities import MIB, amount
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL, MASTER_ROLE, ROLE_LABEL, pod_frame
from dlrover_nb.core.manifests.podspec import HOSTNAME
from dlrover_nb.core.structs.cluster import cluster_load
from dlrover_nb.core.structs.cluster.cluster_load import total
from dlrover_nb.core.structs.cluster.queue_quota import UNLIMITED
from dlrover_nb.core.structs.job.kubernetes import GPU_RESOURCE
from dlrover_nb.core.structs.plan import default_bounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import MOST_CPU, MOST_MEMORY_MIB

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.cluster.queue_quota import Limit, QueueQuota
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec

Amount = tuple[float, float]  # cores and MiB
Machine = tuple[float, float, int]  # and GPUs
ASSUMED_TIMES = 8  # the memory of a job's largest node, on machines that may not be listed
_BORNE = frozenset({"NoSchedule", "NoExecute"})  # effects of taints that exclude pods
_OUR_SCOPES = frozenset({"NotTerminating", "NotBestEffort"})  # our pods have limits, and none of time
ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Looked:
    """Observed objects of a cluster.

    Parameters
    ----------
    nodes
        Machines; None: listing them is forbidden.
    quotas
        ResourceQuotas of the namespace.
    pods
        Pods of all namespaces that have not ended; None: listing them is forbidden.
    metrics
        What machines use, by metrics.k8s.io; None: it is not served, or may not be read.
    queue
        What the queue of Kueue admits that the job's pods name; None: there is none.
    """

    nodes: tuple[Doc, ...] | None
    quotas: tuple[Doc, ...]
    pods: tuple[Doc, ...] | None
    metrics: tuple[Doc, ...] | None = None
    queue: QueueQuota | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    """The job: its name, its namespace, how its pods are made, and the GPUs of its first plan."""

    job: str
    namespace: str
    spec: KubernetesSpec
    n_gpu: int = 0


def capacity_of(looked: Looked, tenant: Tenant, fallback: Capacity | None) -> Capacity:
    """Return the job's maximum capacity.

    Parameters
    ----------
    looked
        The cluster.
    tenant
        The job.
    fallback
        Capacity observed elsewhere, used when nothing may be listed here.

    Raises
    ------
    BackendError
        When nothing is known.
    """
    residents = [pod for pod in looked.pods or () if _stays(pod) or _is_master(pod, tenant)]
    machines = _free(looked.nodes, residents, tenant.spec)
    limit, queue = _limit(looked.quotas, tenant, of_free=False), looked.queue
    n_gpu = _gpu_limit(looked.quotas, tenant, of_free=False)
    if queue is None:
        return _with_gpus(_offer(machines, limit, tenant, fallback), n_gpu)
    own = -tenant.spec.master_cpu, -float(tenant.spec.master_memory_mib)
    capacity = _offer(machines, _within(limit, queue.most, own), tenant, fallback)
    return replace(_with_gpus(capacity, n_gpu, queue.most_gpu), note=queue.limit_words)


def assumed(spec: JobSpec) -> Capacity:
    """Return machines for the job's largest bounds: the assumption where the cluster may not be listed.

    That is the usual case: most users' rights end with their namespace. A pod that does not fit waits, with
    the scheduler's reason. Memory is bounded too, so that a node that needs more and more does not wait
    forever. Each of the machines has the GPUs of one node.
    """
    plan, bounds = spec.plan, default_bounds.assumed(spec.bounds)
    cpu = max(plan.worker.cpu, plan.ps.cpu, *bounds.worker_cpus, *bounds.ps_cpus)
    mib = ASSUMED_TIMES * max(plan.worker.memory_mib, plan.ps.memory_mib)
    most_workers, most_ps = bounds.counts
    count = max(plan.worker.count, most_workers) + max(plan.ps.count, most_ps)
    return Capacity((NodeShape(cpu, min(mib, MOST_MEMORY_MIB), count, max(plan.gpus)),))


def room_of(
    looked: Looked, tenant: Tenant, fallback: Capacity | None, *, mine: Collection[Doc] = ()
) -> Capacity:
    """Return the job's capacity in use by the pods `mine` plus free capacity; raises as `capacity_of`."""
    others = [pod for pod in looked.pods or () if not _is_node_of(pod, tenant)]
    machines = _free(looked.nodes, others, tenant.spec)
    limit = _limit(looked.quotas, tenant, of_free=True)
    if limit:
        own_requests = _total_requests(mine)
        limit = limit[0] + own_requests[0], limit[1] + own_requests[1]
    n_gpu = _gpu_limit(looked.quotas, tenant, of_free=True)
    n_gpu = None if n_gpu is None else n_gpu + _total_gpus(mine)
    queue, counted = looked.queue, [pod for pod in mine if is_managed(pod)]
    if queue is None or (mine and not counted):  # Kueue lets these pods be
        return _with_gpus(_offer(machines, limit, tenant, fallback), n_gpu)
    admitted = [pod for pod in counted if not pod["spec"].get("schedulingGates")]
    of_queue = None if queue.free_gpu is None else queue.free_gpu + _total_gpus(admitted)
    capacity = _offer(machines, _within(limit, queue.free, _total_requests(admitted)), tenant, fallback)
    capacity = _with_gpus(capacity, n_gpu, of_queue)
    note = "; ".join(filter(None, (queue.limit_words, queue.closed)))
    return replace(capacity, note=note)


def _total_requests(pods: Iterable[Doc]) -> Amount:
    """Return what pods hold that have not ended."""
    requests = [requests_of(pod) for pod in pods if (pod.get("status") or {}).get("phase") not in ENDED]
    return sum(cpu for cpu, _ in requests), sum(mib for _, mib in requests)


def _total_gpus(pods: Iterable[Doc]) -> int:
    """Return the GPUs that pods hold that have not ended."""
    return sum(gpus_of(pod) for pod in pods if (pod.get("status") or {}).get("phase") not in ENDED)


def _within(limit: Amount | None, queue: Limit, own: Amount) -> Amount | None:
    """Return a limit cut to what a queue admits, with what the job has of that, or needs for its master."""
    if queue == UNLIMITED:
        return limit
    cpu, mib = limit or (float(MOST_CPU), float(MOST_MEMORY_MIB))
    of_queue = (inf if given is None else max(0.0, given + own[i]) for i, given in enumerate(queue))
    return min(cpu, next(of_queue)), min(mib, next(of_queue))


def hosts_of(looked: Looked, tenant: Tenant) -> tuple[Host, ...]:
    """Return the machines that the job may use, with what others than its nodes hold, and what is used.

    Nothing where neither pods nor use are known: then nothing is known of loads. Where use alone is known,
    a machine may hold less than it seems.
    """
    if looked.nodes is None or (looked.pods is None and looked.metrics is None):
        return ()
    used = {each["metadata"]["name"]: _load(each.get("usage")) for each in looked.metrics or ()}
    on: dict[str, list[Amount]] = {}
    for pod in looked.pods or ():
        if not _is_node_of(pod, tenant) and (pod.get("status") or {}).get("phase") not in ENDED:
            on.setdefault(pod["spec"].get("nodeName") or "", []).append(requests_of(pod))
    hosts = []
    for node in looked.nodes:
        if _takes(node, tenant.spec):
            meta = node["metadata"]
            name, key = meta["name"], (meta.get("labels") or {}).get(HOSTNAME, meta["name"])
            requests = total(cluster_load.Amount(*amount) for amount in on.get(name, ()))
            hosts.append(Host(key, name, _load(node["status"].get("allocatable")), requests, used.get(name)))
    return tuple(hosts)


def _load(resources: Mapping[str, object] | None) -> cluster_load.Amount:
    return cluster_load.Amount(*amount_of(resources))


def requests_of(pod: Doc) -> Amount:
    """Return what a machine reserves for a pod."""
    spec = pod["spec"]
    together = [amount_of((c.get("resources") or {}).get("requests")) for c in spec.get("containers") or ()]
    first = [amount_of((c.get("resources") or {}).get("requests")) for c in spec.get("initContainers") or ()]
    cpu, mib = (max(sum(a[n] for a in together), *(a[n] for a in first), 0.0) for n in (0, 1))
    more = amount_of(spec.get("overhead"))
    return cpu + more[0], mib + more[1]


def amount_of(resources: Mapping[str, object] | None) -> Amount:
    """Return the cores and the MiB of a map of resources; what it does not name is 0."""
    given = {"cpu": "0", "memory": "0"} | dict(resources or {})
    return float(amount(given["cpu"], "cpu")), float(amount(given["memory"], "memory")) / MIB


def _offer(
    machines: list[Machine] | None, limit: Amount | None, tenant: Tenant, fallback: Capacity | None
) -> Capacity:
    """Return machines, or the fallback, cut to a limit."""
    if machines is None:
        if fallback:
            machines = [(s.cpu, float(s.memory_mib), s.gpu) for s in fallback.shapes for _ in range(s.count)]
        elif limit:
            machines = [(*limit, tenant.n_gpu)]
    if machines is None:
        raise BackendError(
            f"the service account of job {tenant.job} can list neither machines nor quotas of namespace "
            f"{tenant.namespace}, and the capacity was unknown when the job was submitted; "
            "allow it to get and list resourcequotas"
        )
    return _shapes(_cut(machines, limit) if limit else machines)


def _shapes(machines: Iterable[Machine]) -> Capacity:
    rounded = [(int(cpu * 100 + 1e-6) / 100, int(mib), gpu) for cpu, mib, gpu in machines]
    counts = Counter(shape for shape in rounded if shape[0] > 0 and shape[1] > 0)
    ordered = sorted(counts.items(), reverse=True)
    return Capacity(tuple(NodeShape(cpu, mib, count, gpu) for (cpu, mib, gpu), count in ordered))


def _with_gpus(capacity: Capacity, *limits: float | None) -> Capacity:
    """Return machines with as many GPUs in all as each of the limits allows; None limits nothing."""
    least = min((limit for limit in limits if limit is not None), default=None)
    if least is None or capacity.total_gpu <= least:
        return capacity
    left, cut = int(least), list[Machine]()
    machines = [(s.cpu, float(s.memory_mib), s.gpu) for s in capacity.shapes for _ in range(s.count)]
    for cpu, mib, gpu in sorted(machines, key=lambda machine: machine[2], reverse=True):
        cut.append((cpu, mib, min(gpu, left)))
        left -= cut[-1][2]
    return replace(_shapes(cut), note=capacity.note)


def _cut(machines: Iterable[Machine], limit: Amount) -> list[Machine]:
    left_cpu, left_mib, cut = *limit, list[Machine]()
    for cpu, mib, gpu in sorted(machines, reverse=True):
        cut.append((min(cpu, left_cpu), min(mib, left_mib), gpu))
        left_cpu, left_mib = left_cpu - cut[-1][0], left_mib - cut[-1][1]
    return cut


def _free(nodes: Iterable[Doc] | None, pods: Iterable[Doc], spec: KubernetesSpec) -> list[Machine] | None:
    """Return what each machine usable by the job has left beside the given pods."""
    if nodes is None:
        return None
    fitting = (node for node in nodes if _takes(node, spec))
    free = {n["metadata"]["name"]: _machine(n["status"]["allocatable"]) for n in fitting}
    for pod in pods:
        at = pod["spec"].get("nodeName")
        if at in free and (pod.get("status") or {}).get("phase") not in ENDED:
            cpu, mib = requests_of(pod)
            has = free[at]
            free[at] = max(0.0, has[0] - cpu), max(0.0, has[1] - mib), max(0, has[2] - gpus_of(pod))
    return list(free.values())


def _machine(allocatable: Mapping[str, object]) -> Machine:
    return (*amount_of(allocatable), int(amount(allocatable.get(GPU_RESOURCE, "0"), GPU_RESOURCE)))


def gpus_of(pod: Doc) -> int:
    """Return the GPUs that a pod's containers hold."""
    limits = [(c.get("resources") or {}).get("limits") or {} for c in pod["spec"].get("containers") or ()]
    return sum(int(amount(each.get(GPU_RESOURCE, "0"), GPU_RESOURCE)) for each in limits)


def _takes(node: Doc, spec: KubernetesSpec) -> bool:
    """Whether a machine can run the job's pods: it is ready, labels match, taints are tolerated."""
    node_spec = node.get("spec") or {}
    ready = next((c for c in node["status"].get("conditions") or () if c.get("type") == "Ready"), None)
    if node_spec.get("unschedulable") or ready is None or ready.get("status") != "True":
        return False
    frame, labels = pod_frame(spec), node["metadata"].get("labels") or {}
    if not (frame.get("nodeSelector") or {}).items() <= labels.items():
        return False
    borne = [t for t in frame["tolerations"] if "tolerationSeconds" not in t]
    taints = [taint for taint in node_spec.get("taints") or () if taint["effect"] in _BORNE]
    return all(any(_bears(toleration, taint) for toleration in borne) for taint in taints)


def _bears(toleration: Doc, taint: Doc) -> bool:
    if toleration["key"] != taint["key"] or toleration.get("effect") not in {None, taint["effect"]}:
        return False
    return bool(toleration["operator"] == "Exists" or toleration.get("value", "") == taint.get("value", ""))


def _limit(quotas: Iterable[Doc], tenant: Tenant, *, of_free: bool) -> Amount | None:
    """Return what quotas leave for the job's nodes; None: none limits cores or memory.

    The quota counts the master too: it is subtracted from the total; the free amount excludes it.
    """
    bounds = [_bound(q, of_free=of_free) for q in quotas if _counts(q, tenant.spec)]
    if not any(value is not None for bound in bounds for value in bound):
        return None
    cpu = min((cpu for cpu, _ in bounds if cpu is not None), default=float(MOST_CPU))
    mib = min((mib for _, mib in bounds if mib is not None), default=float(MOST_MEMORY_MIB))
    if of_free:
        return cpu, mib
    return max(0.0, cpu - tenant.spec.master_cpu), max(0.0, mib - tenant.spec.master_memory_mib)


def _bound(quota: Doc, *, of_free: bool) -> tuple[float | None, float | None]:
    """Return the cores and the MiB that one quota allows, or leaves; None: it does not limit them."""
    hard = (quota.get("status") or {}).get("hard") or quota["spec"].get("hard") or {}
    used = ((quota.get("status") or {}).get("used") or {}) if of_free else {}
    amounts: list[float | None] = []
    for resource, unit in (("cpu", 1), ("memory", MIB)):
        names = [n for n in (resource, f"requests.{resource}", f"limits.{resource}") if n in hard]
        left = [float(amount(hard[n], n) - amount(used.get(n, "0"), n)) / unit for n in names]
        amounts.append(max(0.0, min(left)) if left else None)
    return amounts[0], amounts[1]


def _gpu_limit(quotas: Iterable[Doc], tenant: Tenant, *, of_free: bool) -> int | None:
    """Return the GPUs that quotas leave for the job's nodes; None: none limits them.

    Kubernetes counts extended resources by their requests alone, and the master has no GPU.
    """
    name, left = f"requests.{GPU_RESOURCE}", list[int]()
    for quota in quotas:
        status = quota.get("status") or {}
        hard = status.get("hard") or quota["spec"].get("hard") or {}
        if name in hard and _counts(quota, tenant.spec):
            used = (status.get("used") or {}).get(name, "0") if of_free else "0"
            left.append(max(0, int(amount(hard[name], name) - amount(used, name))))
    return min(left, default=None)


def _counts(quota: Doc, spec: KubernetesSpec) -> bool:
    """Whether a quota counts pods like ours."""
    quota_spec = quota["spec"]
    terms = (quota_spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return _OUR_SCOPES.issuperset(quota_spec.get("scopes") or ()) and all(
        _matches(term, spec) for term in terms
    )


def _matches(term: Doc, spec: KubernetesSpec) -> bool:
    if term["scopeName"] != "PriorityClass":
        return term["scopeName"] in _OUR_SCOPES
    match term["operator"]:
        case "In":
            return spec.priority_class in (term.get("values") or ())
        case "NotIn":
            return spec.priority_class not in (term.get("values") or ())
        case "DoesNotExist":
            return not spec.priority_class
    return bool(spec.priority_class)


def _stays(pod: Doc) -> bool:
    """Whether a pod belongs to its machine: a DaemonSet's, or the kubelet's own."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("kind") in {"DaemonSet", "Node"} for owner in owners)


def _is_of(pod: Doc, tenant: Tenant) -> bool:
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    return bool(meta.get("namespace") == tenant.namespace and labels.get(JOB_LABEL) == tenant.job)


def _is_master(pod: Doc, tenant: Tenant) -> bool:
    return _is_of(pod, tenant) and pod["metadata"]["labels"].get(ROLE_LABEL) == MASTER_ROLE


def _is_node_of(pod: Doc, tenant: Tenant) -> bool:
    return _is_of(pod, tenant) and not _is_master(pod, tenant)

"""Waits in the queues of Kueue and Volcano, read from the objects that a job's pods name.

Kueue holds a pod back by a scheduling gate and names the queue in a label; the reason stands in the
conditions of a ``Workload`` that owns, or is owned by, the pod's owner. Volcano names a ``PodGroup`` in an
annotation; the reason stands in its conditions, and its queue in its spec. Where the API server serves
neither kind, or this account may not read it, there is nothing to tell: a queue is a reason more, and no view
of it may cost a view of the jobs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import ApiError
from dlrover_nb.core.manifests.kinds import POD, Kind
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL
from dlrover_nb.core.structs.cluster.waits import QueueWait

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Doc

logger = logging.getLogger(__name__)

KUEUE, KUEUE_VERSIONS = "kueue.x-k8s.io", ("v1beta2", "v1beta1")  # the newest first
WORKLOADS = tuple(Kind("Workload", "workloads", KUEUE, version) for version in KUEUE_VERSIONS)
POD_GROUP = Kind("PodGroup", "podgroups", "scheduling.volcano.sh", "v1beta1")
QUEUE_NAME = "kueue.x-k8s.io/queue-name"  # label, once an annotation
GATE = "kueue.x-k8s.io/admission"
GROUP_NAMES = ("scheduling.k8s.io/group-name", "volcano.sh/group-name")  # annotations
UNREAD = "we do not know why, because its objects do not exist here or we may not read them"
QUEUE_OF_POD = "volcano.sh/queue-name"


def queue_waits(api: Api) -> tuple[QueueWait, ...]:
    """Return the jobs of a namespace that a queue holds back; none where no queue can be read."""
    try:
        pods = [pod for pod in api.list(POD, selector=JOB_LABEL).items if _is_pending(pod)]
    except ApiError as error:
        logger.info("queues of the cluster cannot be read: %s", error)
        return ()
    in_kueue, in_volcano = ([pod for pod in pods if of(pod)] for of in (_queue_of, _group_of))
    return (
        *(_of_kueue(in_kueue, _listed(api, WORKLOADS)) if in_kueue else ()),
        *(_of_volcano(in_volcano, _listed(api, (POD_GROUP,))) if in_volcano else ()),
    )


def _listed(api: Api, kinds: Iterable[Kind]) -> list[Doc] | None:
    """Return all objects of the first kind that is served; None where they cannot be read."""
    try:
        served = next((kind for kind in kinds if api.has(kind)), None)
        return None if served is None else api.list(served).items
    except ApiError as error:
        logger.info("the objects of a queue cannot be read: %s", error)
        return None


def _is_pending(pod: Doc) -> bool:
    is_placed = bool(pod.get("spec", {}).get("nodeName"))
    return pod.get("status", {}).get("phase", "Pending") == "Pending" and not is_placed


def _job_of(doc: Doc) -> str:
    return str(doc.get("metadata", {}).get("labels", {}).get(JOB_LABEL, ""))


def _queue_of(pod: Doc) -> str:
    """Return the queue of Kueue that a pod names, else the gate that it waits at; empty: neither."""
    meta = pod.get("metadata", {})
    gates = [gate.get("name") for gate in pod.get("spec", {}).get("schedulingGates") or ()]
    named = (meta.get("labels") or {}).get(QUEUE_NAME) or (meta.get("annotations") or {}).get(QUEUE_NAME)
    return str(named or (GATE if GATE in gates else ""))


def _group_of(pod: Doc) -> str:
    annotations = pod.get("metadata", {}).get("annotations") or {}
    return next((str(annotations[name]) for name in GROUP_NAMES if annotations.get(name)), "")


def _of_kueue(pods: list[Doc], workloads: list[Doc] | None) -> Iterator[QueueWait]:
    """Yield a wait for each job whose pods Kueue has not admitted."""
    by_owner = {
        owner["uid"]: workload
        for workload in workloads or ()
        for owner in workload["metadata"].get("ownerReferences") or ()
    }
    jobs = set[str]()
    for pod in pods:
        job, queue = _job_of(pod), _queue_of(pod)
        if not queue or job in jobs:
            continue
        owners = [o.get("uid", "") for o in pod["metadata"].get("ownerReferences") or ()]
        workload = next((by_owner[u] for u in (pod["metadata"].get("uid"), *owners) if u in by_owner), None)
        if workload is not None and is_true(workload, "Admitted"):
            continue
        jobs.add(job)
        name = queue if queue != GATE else str((workload or {}).get("spec", {}).get("queueName", ""))
        none = UNREAD if workloads is None else "it has no Workload yet"
        yield QueueWait(job, "Kueue", name, _why(workload, "QuotaReserved", "Admitted") if workload else none)


def _of_volcano(pods: list[Doc], groups: list[Doc] | None) -> Iterator[QueueWait]:
    """Yield a wait for each job whose group of pods Volcano has not scheduled."""
    by_name = {group["metadata"]["name"]: group for group in groups or ()}
    pairs = set[tuple[str, str]]()
    for pod in pods:
        name, job = _group_of(pod), _job_of(pod)
        if not name or (job, name) in pairs:
            continue
        pairs.add((job, name))
        group = by_name.get(name)
        if group is None:
            none = UNREAD if groups is None else f"there is no PodGroup {name} yet"
            yield QueueWait(job, "Volcano", _pod_queue(pod), none)
        elif not is_true(group, "Scheduled"):
            queue = str(group.get("spec", {}).get("queue", "")) or _pod_queue(pod)
            yield QueueWait(job, "Volcano", queue, _why(group, "Unschedulable", "Scheduled"))


def _pod_queue(pod: Doc) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(QUEUE_OF_POD, ""))


def conditions(doc: Doc) -> dict[str, Doc]:
    """Return the conditions of an object by their types."""
    entries = doc.get("status", {}).get("conditions") or ()
    return {each.get("type", ""): each for each in entries}


def is_true(doc: Doc, name: str) -> bool:
    """Whether a condition of an object holds."""
    return bool(conditions(doc).get(name, {}).get("status") == "True")


def _why(doc: Doc, *names: str) -> str:
    """Return the message of the first of some conditions that has one; else the phase."""
    by_type = conditions(doc)
    for name in names:
        if text := by_type.get(name, {}).get("message") or by_type.get(name, {}).get("reason"):
            return str(text)
    return str(doc.get("status", {}).get("phase", "")) or "it gives no reason"

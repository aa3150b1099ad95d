"""The quota of a queue of Kueue, from its LocalQueue, the ClusterQueues, and the Workloads of a job. Pure.

A ClusterQueue gives each resource a nominal quota per flavor. In a cohort it may borrow what others leave
unused, up to its borrowing limit and up to what they lend. So it can ever admit its nominal quota and what it
may borrow at best, and now that, less what is reserved. Flavors are added up: each pod gets one of its own.
A node that exceeds every single flavor is not told apart; Kueue's own words say that then. What preemption
would free is not counted as free.

Where a cohort has quota of its own, or a parent, what may be borrowed is not known here, and only a borrowing
limit bounds it. A limit that is not known never refuses a plan: Kueue has the last word.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.room.queue_waits import QUEUE_NAME, conditions, is_true
from dlrover_nb.core.export.quantities import MIB, amount
from dlrover_nb.core.structs.cluster.queue_quota import QueueQuota
from dlrover_nb.core.structs.job.kubernetes import GPU_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec

MANAGED = "kueue.x-k8s.io/managed"  # label that Kueue gives to the pods that it counts
UNREAD = "we may not read the quota of its ClusterQueue (needs: list clusterqueues.kueue.x-k8s.io)"
_UNITS = (("cpu", 1), ("memory", MIB))
_STATES = (("Finished", "ended"), ("Evicted", "evicted"), ("Admitted", "admitted"))


@dataclass(frozen=True, slots=True)
class QueueObjects:
    """What was read of Kueue.

    Parameters
    ----------
    local
        The LocalQueue; None: there is none of this name.
    cluster_queues, cohorts
        All of the cluster; None: they may not be read, or are not served.
    workloads
        Of the namespace; None likewise.
    """

    local: Doc | None
    cluster_queues: tuple[Doc, ...] | None = None
    cohorts: tuple[Doc, ...] | None = None
    workloads: tuple[Doc, ...] | None = None


def queue_of(spec: KubernetesSpec) -> str:
    """Return the queue that the labels of a job's pods name; empty: none."""
    named = dict(label.partition("=")[::2] for label in spec.labels)
    return named.get(QUEUE_NAME, "")


def quota_of(queue: str, objects: QueueObjects, owners: Iterable[str] = ()) -> QueueQuota:
    """Return what a queue admits, and what it decided.

    Parameters
    ----------
    owners
        Uids of the job's objects, which own its Workloads.
    """
    verdicts = tuple(_verdicts(objects.workloads or (), frozenset(owners)))
    if objects.local is None:
        closed = f"there is no LocalQueue {queue} in this namespace; nodes wait until it is created"
        return QueueQuota(queue, closed=closed, verdicts=verdicts)
    keeper = str(objects.local.get("spec", {}).get("clusterQueue", ""))
    own = next((q for q in objects.cluster_queues or () if q["metadata"]["name"] == keeper), None)
    words = f"ClusterQueue {keeper}"
    closed = _closed(objects.local, "LocalQueue") or (_closed(own, words) if own else "")
    if own is None:
        note = UNREAD if objects.cluster_queues is None else f"there is no {words}"
        return QueueQuota(queue, words, closed=closed, verdicts=verdicts, note=note)
    most, free = zip(*(_bounds(own, objects, resource, unit) for resource, unit in _UNITS), strict=True)
    most_gpu, free_gpu = _bounds(own, objects, GPU_RESOURCE, 1)
    free, free_gpu = ((0.0, 0.0), 0.0) if closed else (free, free_gpu)
    return QueueQuota(queue, words, most, free, closed, verdicts, most_gpu=most_gpu, free_gpu=free_gpu)


def is_managed(pod: Doc) -> bool:
    """Whether Kueue holds a pod back until it has quota, and counts it then."""
    return (pod["metadata"].get("labels") or {}).get(MANAGED) == "true"


def _closed(queue: Doc, name: str) -> str:
    policy = queue.get("spec", {}).get("stopPolicy") or "None"
    if policy != "None":
        return f"its {name} is stopped ({policy}): it admits nothing"
    active = conditions(queue).get("Active", {})
    if active.get("status") == "False":
        return (
            f"its {name} is not active: {active.get('message') or active.get('reason') or 'no reason given'}"
        )
    return ""


# quotas of one resource, in units


@dataclass(frozen=True, slots=True)
class _Share:
    """One flavor of one resource in one ClusterQueue."""

    nominal: float
    reserved: float
    borrowing: float | None
    lending: float | None

    @property
    def lent_at_most(self) -> float:
        """What others may borrow at best."""
        return self.nominal if self.lending is None else min(self.nominal, self.lending)

    @property
    def withheld(self) -> float:
        """What no queue uses and no other queue may borrow."""
        return max(0.0, self.nominal - self.lent_at_most - self.reserved)


def _bounds(own: Doc, objects: QueueObjects, resource: str, unit: int) -> tuple[float | None, float | None]:
    """Return what a ClusterQueue can ever admit of a resource, and what is free of that now."""
    shares = _shares(own, resource, unit)
    if not shares:
        return None, None
    cohort = _cohort(own)
    others = [q for q in objects.cluster_queues or () if cohort and _cohort(q) == cohort and q is not own]
    pairs = [
        _bound(share, [s for q in others if (s := _shares(q, resource, unit).get(flavor))], objects, cohort)
        for flavor, share in shares.items()
    ]
    most, free = zip(*pairs, strict=True)
    return _sum(most), _sum(free)


def _bound(
    own: _Share, others: list[_Share], objects: QueueObjects, cohort: str
) -> tuple[float | None, float | None]:
    if not cohort:
        return own.nominal, max(0.0, own.nominal - own.reserved)
    limit = None if own.borrowing is None else own.nominal + own.borrowing
    left = None if limit is None else max(0.0, limit - own.reserved)
    if _has_more(objects.cohorts, cohort):
        return limit, left
    most = own.nominal + sum(each.lent_at_most for each in others)
    unused = own.nominal - own.reserved + sum(s.nominal - s.reserved - s.withheld for s in others)
    unused = max(0.0, unused)
    return (most, unused) if limit is None or left is None else (min(limit, most), min(left, unused))


def _has_more(cohorts: Iterable[Doc] | None, name: str) -> bool:
    """Whether a cohort has quota beside that of its queues, or may have."""
    own = next((each for each in cohorts or () if each["metadata"]["name"] == name), None)
    spec = (own or {}).get("spec") or {}
    return cohorts is None or any(spec.get(key) for key in ("parentName", "parent", "resourceGroups"))


def _cohort(queue: Doc) -> str:
    spec = queue.get("spec", {})
    return str(spec.get("cohortName") or spec.get("cohort") or "")


def _shares(queue: Doc, resource: str, unit: int) -> dict[str, _Share]:
    """Return the share of each flavor."""
    reserved = {
        flavor["name"]: _quantity(each.get("total"), unit) or 0.0
        for flavor in queue.get("status", {}).get("flavorsReservation") or ()
        for each in flavor.get("resources") or ()
        if each["name"] == resource
    }
    return {
        flavor["name"]: _Share(
            _quantity(each.get("nominalQuota"), unit) or 0.0,
            reserved.get(flavor["name"], 0.0),
            _quantity(each.get("borrowingLimit"), unit),
            _quantity(each.get("lendingLimit"), unit),
        )
        for group in queue.get("spec", {}).get("resourceGroups") or ()
        for flavor in group.get("flavors") or ()
        for each in flavor.get("resources") or ()
        if each["name"] == resource
    }


def _quantity(text: object, unit: int) -> float | None:
    return None if text is None else round(float(amount(text, "quota")) / unit, 4)


def _sum(values: Iterable[float | None]) -> float | None:
    amounts = list(values)
    return (
        None
        if any(value is None for value in amounts)
        else round(sum(v for v in amounts if v is not None), 4)
    )


# verdicts


def _verdicts(workloads: Iterable[Doc], owners: frozenset[str]) -> Iterator[str]:
    """Yield what was decided on a job's Workloads, those of one verdict as one."""
    own = [
        w for w in workloads if owners & {o.get("uid") for o in w["metadata"].get("ownerReferences") or ()}
    ]
    for verdict, n in Counter(map(_verdict, own)).items():
        yield f"{n} Workload{'s' * (n > 1)} {verdict}"


def _verdict(workload: Doc) -> str:
    state = next((state for name, state in _STATES if is_true(workload, name)), "")
    if state == "admitted":
        return state
    name = next((name for name, state_name in _STATES if state_name == state), "QuotaReserved")
    if not state:
        state = "reserved, and its checks run" if is_true(workload, name) else "waiting"
    entry = conditions(workload).get(name, {})
    reason, message = entry.get("reason") or "", entry.get("message") or ""
    return f"{state}{f' ({reason})' if reason else ''}{f': {message}' if message else ''}"

"""Waits in the queues of Kueue and Volcano, from played answers of an API server."""

from __future__ import annotations

import copy

import pytest
from support.cases import for_each

from dlrover_nb.core.backends.kubernetes.client.api import Forbidden, Listing
from dlrover_nb.core.backends.kubernetes.client.api_errors import Operation, Status
from dlrover_nb.core.backends.kubernetes.room.queue_waits import POD_GROUP, UNREAD, WORKLOADS, queue_waits
from dlrover_nb.core.manifests.kinds import POD
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL
from dlrover_nb.core.structs.cluster.waits import QueueWait


def pod(job, *, labels=None, annotations=None, gates=(), phase="Pending", uid="u-pod", machine=""):
    return {
        "metadata": {
            "name": f"{job}-worker-0", "uid": uid, "labels": {JOB_LABEL: job, **(labels or {})},
            "annotations": annotations or {}, "ownerReferences": [{"uid": f"u-{job}", "kind": "Job"}],
        },
        "spec": {"schedulingGates": [{"name": gate} for gate in gates], **({"nodeName": machine} if machine else {})},
        "status": {"phase": phase},
    }  # fmt: skip


def workload(owner, *conditions, queue="team-a"):
    return {
        "metadata": {"name": "w", "ownerReferences": [{"uid": owner}]},
        "spec": {"queueName": queue},
        "status": {"conditions": list(conditions)},
    }


def condition(name, status, message=""):
    return {"type": name, "status": status, "message": message}


class Played:
    """An API server that serves these objects, by kind; a kind that is not given is not served."""

    def __init__(self, objects, *, forbidden=()):
        self._objects, self._forbidden = objects, forbidden

    def has(self, kind):
        return kind in self._objects

    def list(self, kind, *, selector=""):
        if kind in self._forbidden:
            raise Forbidden(
                f"may not list {kind.plural}", Status(403, "Forbidden", ""), Operation("list", kind)
            )
        assert selector in {"", JOB_LABEL}
        return Listing(copy.deepcopy(self._objects[kind]), "1")


KUEUE = pod("ads", labels={"kueue.x-k8s.io/queue-name": "team-a"}, gates=["kueue.x-k8s.io/admission"])
VOLCANO = pod("rank", annotations={"scheduling.k8s.io/group-name": "pg-1"})
RESERVED = condition("QuotaReserved", "False", "couldn't assign flavors: insufficient unused quota for cpu")


@for_each("kind", WORKLOADS)
@for_each("owner", ["u-pod", "u-ads"])
def test_kueue_tells_the_queue_and_the_condition_that_holds_a_job_back(kind, owner):
    api = Played({POD: [KUEUE, KUEUE], kind: [workload(owner, RESERVED)]})
    assert queue_waits(api) == (QueueWait("ads", "Kueue", "team-a", RESERVED["message"]),)


def test_the_queue_of_a_gated_pod_stands_in_its_workload():
    gated = pod("ads", gates=["kueue.x-k8s.io/admission"])
    api = Played({POD: [gated], WORKLOADS[0]: [workload("u-pod", RESERVED, queue="night")]})
    assert queue_waits(api)[0].queue == "night"


def test_an_admitted_job_and_a_job_without_a_queue_do_not_wait():
    admitted = workload("u-ads", condition("QuotaReserved", "True"), condition("Admitted", "True"))
    assert queue_waits(Played({POD: [KUEUE, pod("free")], WORKLOADS[0]: [admitted]})) == ()
    assert queue_waits(Played({POD: [pod("free")]})) == ()


def test_pods_that_have_a_machine_wait_for_no_queue():
    placed = pod("ads", labels={"kueue.x-k8s.io/queue-name": "team-a"}, machine="m-1")
    running = pod("ads", labels={"kueue.x-k8s.io/queue-name": "team-a"}, phase="Running")
    assert queue_waits(Played({POD: [placed, running], WORKLOADS[0]: []})) == ()


def test_a_job_whose_workload_is_not_there_yet_says_so(words):
    assert queue_waits(Played({POD: [KUEUE], WORKLOADS[0]: []}))[0].why == words


def test_volcano_tells_the_queue_and_the_condition_of_the_pod_group():
    group = {
        "metadata": {"name": "pg-1"},
        "spec": {"queue": "batch"},
        "status": {
            "phase": "Inqueue",
            "conditions": [condition("Unschedulable", "True", "3/4 tasks in gang")],
        },
    }
    assert queue_waits(Played({POD: [VOLCANO], POD_GROUP: [group]})) == (
        QueueWait("rank", "Volcano", "batch", "3/4 tasks in gang"),
    )
    group["status"]["conditions"] = []
    assert queue_waits(Played({POD: [VOLCANO], POD_GROUP: [group]}))[0].why == "Inqueue"
    group["status"]["conditions"] = [condition("Scheduled", "True")]
    assert queue_waits(Played({POD: [VOLCANO], POD_GROUP: [group]})) == ()


@pytest.mark.parametrize("forbidden", [(), (WORKLOADS[0], POD_GROUP)])
def test_where_the_kinds_cannot_be_read_the_pods_still_tell_that_they_are_queued(forbidden):
    served = {kind: [] for kind in forbidden}
    kueue, volcano = queue_waits(Played({POD: [KUEUE, VOLCANO], **served}, forbidden=forbidden))
    assert (kueue.system, kueue.queue, kueue.why) == ("Kueue", "team-a", UNREAD)
    assert (volcano.system, volcano.why) == ("Volcano", UNREAD)


def test_a_group_that_is_not_there_yet_is_named(words):
    assert queue_waits(Played({POD: [VOLCANO], POD_GROUP: []}))[0].why == words


def test_pods_that_may_not_be_listed_cost_no_view():
    assert queue_waits(Played({POD: [KUEUE]}, forbidden=(POD,))) == ()

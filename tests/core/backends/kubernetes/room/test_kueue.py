"""What Kueue's queue admits, asked before plans are made: its objects by their meaning, and on a real API server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kubernetes.kueue_crds import installed
from support.kubernetes.machines import ME, mine, node, shapes
from support.virtual_time import VirtualTime, as_shipped

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.client.api_errors import Forbidden, Operation, Status
from dlrover_nb.core.backends.kubernetes.room import kueue_reader
from dlrover_nb.core.backends.kubernetes.room.cluster_capacity import Looked, Tenant, capacity_of, room_of
from dlrover_nb.core.backends.kubernetes.room.kueue import MANAGED, UNREAD, QueueObjects, queue_of, quota_of
from dlrover_nb.core.backends.kubernetes.room.kueue_reader import KueueReader
from dlrover_nb.core.backends.kubernetes.room.queue_waits import KUEUE, QUEUE_NAME
from dlrover_nb.core.errors import CapacityError
from dlrover_nb.core.manifests.kinds import POD, Kind
from dlrover_nb.core.manifests.role_rules import OF_KUEUE, USER, master_rights
from dlrover_nb.core.structs.cluster.queue_quota import UNLIMITED, QueueQuota
from dlrover_nb.core.structs.job.kubernetes import GPU_RESOURCE, KubernetesSpec
from dlrover_nb.core.structs.plan.capacity import check_fits
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

LOCAL = {"metadata": {"name": "team-a"}, "spec": {"clusterQueue": "ml"}}
SPEC = KubernetesSpec(labels=(f"{QUEUE_NAME}=team-a",))
CORES = st.integers(0, 40)


def resource(name, nominal, borrowing=None, lending=None):
    limits = {"borrowingLimit": borrowing, "lendingLimit": lending}
    return {"name": name, "nominalQuota": nominal} | {k: v for k, v in limits.items() if v is not None}


def queue(name="ml", *, cpu=8, memory="16Gi", reserved=0, borrowing=None, lending=None, **spec):
    """A ClusterQueue of one flavor."""
    resources = [resource("cpu", str(cpu), borrowing, lending), resource("memory", memory)]
    used = [{"name": "cpu", "total": str(reserved)}, {"name": "memory", "total": "4Gi"}]
    return {
        "metadata": {"name": name},
        "spec": {"resourceGroups": [{"flavors": [{"name": "any", "resources": resources}]}], **spec},
        "status": {"flavorsReservation": [{"name": "any", "resources": used}]},
    }


def quota(*queues, local=LOCAL, cohorts=(), workloads=(), owners=()):
    return quota_of("team-a", QueueObjects(local, queues, cohorts, workloads), owners)


def test_a_queue_alone_admits_its_nominal_quota_and_what_is_not_reserved_is_free(words):
    found = quota(queue(reserved=3))
    assert (found.most, found.free) == ((8.0, 16384.0), (5.0, 12288.0))
    assert found.words == words


def test_flavors_are_added_up_and_a_resource_that_no_group_covers_is_not_limited():
    flavors = [{"name": name, "resources": [resource("cpu", "1500m")]} for name in ("spot", "fixed")]
    own = {"metadata": {"name": "ml"}, "spec": {"resourceGroups": [{"flavors": flavors}]}}
    assert quota(own).most == (3.0, None)


@pytest.mark.parametrize("key", ["cohort", "cohortName"])  # v1beta1 and v1beta2
def test_a_cohort_lends_what_others_leave_up_to_both_limits(key):
    other = queue("other", cpu=10, reserved=4, **{key: "all"})
    stranger = queue("stranger", cpu=100, **{key: "elsewhere"})
    assert quota(queue(reserved=3, **{key: "all"}), other, stranger).most[0] == 18
    assert quota(queue(reserved=3, **{key: "all"}), other, stranger).free[0] == 11
    own = queue(reserved=3, borrowing=2, **{key: "all"})
    assert (quota(own, other).most[0], quota(own, other).free[0]) == (10, 7)
    lends = queue("other", cpu=10, reserved=4, lending=5, **{key: "all"})
    found = quota(queue(reserved=3, **{key: "all"}), lends)
    assert (found.most[0], found.free[0]) == (13, 10)  # one core of its own quota it does not use, nor lend


@given(CORES, CORES, CORES, CORES, st.none() | CORES, st.none() | CORES)
def test_what_is_free_is_never_more_than_the_most_and_never_less_than_nothing(
    nominal, reserved, others, their_reserved, borrowing, lending
):
    own = queue(cpu=nominal, reserved=reserved, borrowing=borrowing, cohort="all")
    other = queue("other", cpu=others, reserved=their_reserved, lending=lending, cohort="all")
    found = quota(own, other)
    assert 0 <= found.free[0] <= found.most[0]
    assert nominal <= found.most[0] <= nominal + others
    assert borrowing is None or found.most[0] <= nominal + borrowing
    assert lending is None or found.most[0] <= nominal + lending


@pytest.mark.parametrize("spec", [{"parentName": "root"}, {"resourceGroups": [{"flavors": []}]}])
def test_a_cohort_with_more_than_its_queues_is_bounded_by_the_borrowing_limit_alone(spec):
    cohort = {"metadata": {"name": "all"}, "spec": spec}
    assert quota(queue(cohort="all"), cohorts=(cohort,)).most[0] is None
    assert quota(queue(cohort="all", borrowing=3), cohorts=(cohort,)).most[0] == 11
    unread = QueueObjects(LOCAL, (queue(cohort="all"),), None)
    assert quota_of("team-a", unread).most[0] is None


def test_a_queue_that_is_missing_stopped_or_not_active_says_so_and_leaves_nothing(words):
    assert "no LocalQueue team-a" in quota(local=None).closed
    stopped = quota(queue(stopPolicy="HoldAndDrain"))
    assert (stopped.free, stopped.most[0]) == ((0.0, 0.0), 8.0)
    assert stopped.words == words
    inactive = queue()
    inactive["status"]["conditions"] = [{"type": "Active", "status": "False", "message": "no such flavor"}]
    assert quota(inactive).closed == words
    held = LOCAL | {"spec": LOCAL["spec"] | {"stopPolicy": "Hold"}}
    assert "its LocalQueue is stopped" in quota(queue(), local=held).closed


def test_what_may_not_be_read_limits_nothing_and_is_named(words):
    found = quota_of("team-a", QueueObjects(LOCAL))
    assert (found.most, found.note) == (UNLIMITED, UNREAD)
    assert quota().note == words


def workload(owner, *conditions):
    told = [{"type": t, "status": s, "reason": r, "message": m} for t, s, r, m in conditions]
    meta = {"name": "w", "ownerReferences": [{"uid": owner}]}
    return {"metadata": meta, "status": {"conditions": told}}


ADMITTED = (("QuotaReserved", "True", "QuotaReserved", "ok"), ("Admitted", "True", "Admitted", "ok"))
WAITING = ("QuotaReserved", "False", "Pending", "couldn't assign flavors")
EVICTED = ("Evicted", "True", "Preempted", "to make room for team-b")


def test_verdicts_on_the_jobs_own_workloads_are_said_with_reason_and_message(words):
    workloads = (
        workload("u-1", *ADMITTED),
        workload("u-2", *ADMITTED),
        workload("u-3", WAITING),
        workload("u-4", WAITING, EVICTED),
        workload("u-5", ADMITTED[0]),
        workload("u-6", *ADMITTED, ("Finished", "True", "JobFinished", "done")),
        workload("u-other", WAITING),
    )
    owners = {f"u-{i}" for i in range(1, 7)}
    assert quota(queue(), workloads=workloads, owners=owners).verdicts == words


# what plans may take


def looked(quota, cpu="32"):
    return Looked((node(cpu=cpu, memory="64Gi"),), (), (), queue=quota)


def test_a_plan_that_the_queue_can_never_admit_is_refused_in_its_words(error_words):
    tenant = Tenant("quick-start", "team", SPEC)
    capacity = capacity_of(looked(quota(queue())), tenant, None)
    assert shapes(capacity) == [(7.75, 15616, 1)]  # its master's part is of the quota too
    plan = ResourcePlan(RolePlan(8, 1.0, 512), RolePlan(1, 1.0, 512))
    with error_words(CapacityError):
        check_fits(plan, capacity)
    assert capacity_of(looked(None), tenant, None).total_cpu == 32.0


def test_room_is_what_is_free_in_the_queue_and_what_the_jobs_admitted_pods_hold():
    admitted, gated = mine(cpu="2", memory="1Gi"), mine(cpu="1", memory="1Gi", at="")
    for pod in (admitted, gated):
        pod["metadata"]["labels"][MANAGED] = "true"
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    full = QueueQuota("team-a", "ClusterQueue ml", (8.0, None), (3.0, None))
    assert room_of(looked(full), ME, None, mine=(admitted, gated)).total_cpu == 5.0
    assert room_of(looked(full), ME, None).total_cpu == 3.0
    left_alone = mine(cpu="2", memory="1Gi")  # Kueue does not manage pods of this namespace
    assert room_of(looked(full), ME, None, mine=(left_alone,)).total_cpu == 32.0


def test_gpus_of_a_queue_are_counted_as_cores_are(words):
    of_gpus = queue()
    flavor = of_gpus["spec"]["resourceGroups"][0]["flavors"][0]
    flavor["resources"].append(resource(GPU_RESOURCE, "4"))
    reserved = of_gpus["status"]["flavorsReservation"][0]["resources"]
    reserved.append({"name": GPU_RESOURCE, "total": "3"})
    found = quota(of_gpus)
    assert (found.most_gpu, found.free_gpu) == (4.0, 1.0)
    assert found.words == words
    assert quota(queue()).most_gpu is None
    seen = Looked((node(cpu="32", memory="64Gi", gpu=8),), (), (), queue=found)
    assert capacity_of(seen, ME, None).total_gpu == 4
    admitted = mine(cpu="2", memory="1Gi")
    admitted["metadata"]["labels"][MANAGED] = "true"
    admitted["spec"]["containers"][0]["resources"]["limits"] = {GPU_RESOURCE: "2"}
    assert room_of(seen, ME, None).total_gpu == 1
    assert room_of(seen, ME, None, mine=(admitted,)).total_gpu == 3
    stopped = quota({**of_gpus, "spec": of_gpus["spec"] | {"stopPolicy": "Hold"}})
    assert stopped.free_gpu == 0.0


def test_a_master_reads_its_queue_only_where_its_user_may_grant_it():
    def resources(*, sees_queue):
        rights = master_rights("ads", sees_queue=sees_queue)
        return {(r.resource, verb) for r in rights if r.group == KUEUE for verb in r.verbs}

    assert resources(sees_queue=False) == set()
    assert resources(sees_queue=True) == {("localqueues", "get"), ("workloads", "list")}
    assert set(OF_KUEUE) <= set(USER)


def test_jobs_without_a_queue_ask_for_nothing():
    class Untouched:
        def __getattr__(self, name):
            raise AssertionError(name)

    assert queue_of(KubernetesSpec()) == ""
    assert KueueReader(Untouched(), KubernetesSpec()).read(()) is None


def test_a_queue_that_may_not_be_read_is_asked_for_again_after_half_an_hour():
    time, asked_s = VirtualTime(), []

    class Closed:
        def has(self, _):
            return True

        def get(self, kind, _):
            asked_s.append(time.now_s())
            raise Forbidden("no", Status(403), Operation("get", kind))

    reader = as_shipped("dlrover_nb.core.backends.kubernetes.room.kueue_reader", time).KueueReader(
        Closed(), SPEC
    )
    for wait_s in (0.0, 1799.9, 0.1, 1.0):
        time.advance(wait_s)
        assert reader.read(()).note == kueue_reader.UNREAD
    assert asked_s == pytest.approx([0.0, 1800.0])


# a real API server, which checks the objects


@pytest.fixture
def api(control_plane, namespace):
    return connect_api(namespace=namespace(control_plane), kubeconfig=control_plane.kubeconfig)


def made(api, name, document, *, status=None, namespaced=True, version="v1beta1"):
    kind = Kind(name, f"{name.lower()}s", KUEUE, version, namespaced=namespaced)
    head = {"apiVersion": kind.api_version, "kind": name}
    created = api.create(kind, head | document)
    if status:
        api.patch(kind, document["metadata"]["name"], {"status": status}, subresource="status")
    return created


@pytest.mark.more
@pytest.mark.kube
def test_a_cluster_without_kueue_is_asked_once(api):
    reader = KueueReader(api, SPEC)
    assert reader.read(()) is None
    n_request = api.n_request
    assert reader.read(()) is None
    assert api.n_request == n_request


@pytest.mark.more
@pytest.mark.kube
def test_quota_and_verdict_are_read_from_a_real_api_server(control_plane, api, words):
    with installed(api):
        reader = KueueReader(api, SPEC)
        assert "no LocalQueue team-a" in reader.read(()).closed
        own = queue(reserved=3, cohort="all")
        made(
            api,
            "ClusterQueue",
            {"metadata": own["metadata"], "spec": own["spec"]},
            namespaced=False,
            status=own["status"],
        )
        made(api, "LocalQueue", LOCAL)
        pod = {"metadata": {"name": "node"}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
        uid = api.create(POD, {"apiVersion": "v1", "kind": "Pod", **pod})["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "node", "uid": uid}
        since = {"lastTransitionTime": "2026-11-26T20:00:00Z"}
        waits = dict(zip(("type", "status", "reason", "message"), WAITING, strict=True)) | since
        head = {"metadata": {"name": "w", "ownerReferences": [owner]}, "spec": {"queueName": "team-a"}}
        made(api, "Workload", head, status={"conditions": [waits]})
        found = reader.read([api.get(POD, "node")])
        assert (found.most, found.free) == ((8.0, 16384.0), (5.0, 12288.0))
        assert found.verdicts == (words,)
        alice = KueueReader(connect_api(namespace=api.namespace, kubeconfig=control_plane.alice), SPEC)
        assert "may not read" in alice.read(()).words
        api.delete(Kind("ClusterQueue", "clusterqueues", KUEUE, "v1beta1", namespaced=False), "ml")

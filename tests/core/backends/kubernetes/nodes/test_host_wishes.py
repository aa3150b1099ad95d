"""Pods are wished on the machines with least to do: as documents, and by a real scheduler."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.kubernetes.job_of_pods import JOB, config
from support.kubernetes.kube import core_api
from support.kubernetes.machines import ME, mine, node, pod
from support.waiting import until

from dlrover_nb.core.backends.kubernetes.client.api import Listing, connect_api
from dlrover_nb.core.backends.kubernetes.client.api_errors import NotThere, Operation, Status
from dlrover_nb.core.backends.kubernetes.nodes.backend import KubernetesBackend
from dlrover_nb.core.backends.kubernetes.nodes.host_wishes import HostWishes
from dlrover_nb.core.backends.kubernetes.nodes.orders import Create, Delete
from dlrover_nb.core.backends.kubernetes.nodes.site import Site
from dlrover_nb.core.backends.kubernetes.room import capacity_informer
from dlrover_nb.core.backends.kubernetes.room.capacity_informer import CapacityInformer
from dlrover_nb.core.backends.kubernetes.room.cluster_capacity import Looked, hosts_of
from dlrover_nb.core.deadline.host_choice import Host
from dlrover_nb.core.manifests.kinds import NODE, POD, QUOTA
from dlrover_nb.core.manifests.pods import PodNode, node_pod
from dlrover_nb.core.structs.cluster.cluster_load import Amount
from dlrover_nb.core.structs.plan.resources import Role

LIGHT, BUSY = (
    Host(f"label-{name}", name, Amount(8, 8192), Amount(held, 1024)) for name, held in (("b", 1), ("a", 6))
)
RULE = "preferredDuringSchedulingIgnoredDuringExecution"


def document(name="worker-0", role=Role.WORKER, cpu=1.0):
    return node_pod(JOB, PodNode(name, role, cpu, 512), master="tcp://10.1.2.3:7070")


def standing(name, at, role=Role.WORKER):
    made = document(name, role)
    return {name: made | {"spec": made["spec"] | {"nodeName": at}, "status": {"phase": "Running"}}}


def placed(hosts, document, *, pods=None, avoid=(), is_on=True):
    wishes = HostWishes(lambda: hosts, is_on=is_on)
    name = document["metadata"]["labels"]["dlrover-nb/node"]
    wishes.avoid(name, avoid)
    (order,) = wishes.placed([Create(name, document)], pods or {})
    return order.pod


def terms(pod):
    preferred = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(RULE, [])
    return [
        (e["operator"], *e["values"], t["weight"])
        for t in preferred
        for e in t["preference"]["matchExpressions"]
    ]


def test_a_pod_prefers_the_light_machine_by_its_label_and_demands_nothing(words):
    made = placed([BUSY, LIGHT], document())
    assert terms(made)[0] == ("In", "label-b", 100)
    affinity = made["spec"]["affinity"]
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in affinity["nodeAffinity"]
    assert affinity["podAntiAffinity"] == document()["spec"]["affinity"]["podAntiAffinity"]
    (wish,) = HostWishes.by_node([made]).values()
    assert (wish.host, wish.got) == ("b", "")
    assert wish.why == words


def test_the_jobs_own_pods_of_now_count():
    pods = standing("worker-1", "b") | standing("worker-2", "b") | standing("worker-3", "b")
    pods |= {f"{name}b": pod for name, pod in pods.items()}
    made = placed([BUSY, LIGHT], document(), pods=pods)
    assert terms(made)[0] == ("In", "label-a", 100)


@pytest.mark.parametrize("hosts", [[], [LIGHT], [LIGHT, LIGHT]])
def test_without_a_choice_a_pod_is_as_it_was(hosts):
    assert placed(hosts, document()) == document()


def test_jobs_that_ask_not_to_be_spread_are_left_to_the_scheduler():
    assert placed([BUSY, LIGHT], document(), is_on=False) == document()


def test_the_machine_of_a_slow_node_is_avoided_even_where_no_load_is_known(words):
    pods = standing("worker-1", "b")
    assert terms(placed([BUSY, LIGHT], document(), pods=pods, avoid=("worker-1",)))[0][1] == "label-a"
    made = placed([], document(), pods=pods, avoid=("worker-1",))
    assert terms(made) == [("NotIn", "b", 100)]
    assert HostWishes.by_node([made])["worker-0"].words == words


def test_other_orders_stay_where_they_are():
    wishes = HostWishes(lambda: [BUSY, LIGHT], is_on=True)
    first, last = Delete("x", "uid", 1), Create("worker-0", document())
    found = wishes.placed([first, last], {})
    assert found[0] is first
    assert found[1].node == "worker-0"


def test_hosts_are_the_machines_that_take_the_job_with_what_others_hold_and_what_is_used():
    nodes = (
        node("a", labels={"kubernetes.io/hostname": "label-a"}),
        node("b"),
        node("c", ready="False"),
        node("d", unschedulable=True),
    )
    pods = (pod(cpu="2", at="a"), pod(cpu="1", at="a", phase="Succeeded"), mine(cpu="1", at="b"))
    usage = ({"metadata": {"name": "b"}, "usage": {"cpu": "500m", "memory": "1Gi"}},)
    found = hosts_of(Looked(nodes, (), pods, usage), ME)
    assert [(h.key, h.name, h.allocated.cpu, h.used) for h in found] == [
        ("label-a", "a", 2.0, None),
        ("b", "b", 0.0, Amount(0.5, 1024.0)),
    ]


@pytest.mark.parametrize("looked", [Looked(None, (), None), Looked((node(),), (), None)])
def test_without_pods_and_use_nothing_is_known_of_loads(looked):
    assert hosts_of(looked, ME) == ()


class Served:
    """An API server that serves some machines and pods, and no metrics."""

    namespace = "team"

    def __init__(self):
        self.objects = {NODE: [node("a"), node("b")], POD: [pod(at="a")], QUOTA: []}

    def within(self, _namespace):
        return self

    def list(self, kind, **_named):
        if kind not in self.objects:
            raise NotThere(f"no {kind.plural}", Status(404, "NotFound", ""), Operation("list", kind))
        return Listing(tuple(self.objects[kind]), "1")


def test_loads_that_are_old_are_not_used(monkeypatch):
    monkeypatch.setattr(capacity_informer, "LOOK_EVERY_S", 3600.0)
    informer = CapacityInformer(Served(), ME, None, lambda: ())
    try:
        informer.latest()
        assert [host.name for host in informer.hosts()] == ["a", "b"]
        monkeypatch.setattr(capacity_informer, "LOOK_EVERY_S", 0.0)  # any age is many intervals
        assert informer.hosts() == ()
    finally:
        informer.close()


# a real scheduler, of machines that nobody is behind


def machine(api, name, cpu="8"):
    room = {"cpu": cpu, "memory": "16Gi", "pods": "20"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    ready |= {"lastHeartbeatTime": "2099-01-01T00:00:00Z"}
    head = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    api.create(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": head})
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    api.patch(NODE, name, {"status": status}, subresource="status")
    api.patch(NODE, name, {"spec": {"taints": None}})


@pytest.fixture
def api(control_plane, namespace):
    return connect_api(namespace=namespace(control_plane), kubeconfig=control_plane.kubeconfig)


@pytest.fixture
def machines(control_plane, api):
    """Two machines: each has room, and on the first others hold most of the cores."""
    for name in ("wide", "narrow"):
        machine(api, name)
    hog = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "of-others"},
        "spec": {
            "nodeName": "wide",
            "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "6"}}}],
        },
    }
    api.create(POD, hog)
    yield "wide", "narrow"
    api.delete(POD, "of-others", grace_s=0)
    for name in ("wide", "narrow"):
        core_api(control_plane).delete_node(name)


def pods(api):
    found = api.list(POD, selector="dlrover-nb/node").items
    return {pod["metadata"]["labels"]["dlrover-nb/node"]: pod for pod in found}


@pytest.mark.more
@pytest.mark.kube
def test_a_real_scheduler_follows_a_wish_and_ignores_one_for_a_machine_that_is_full(
    api, machines, monkeypatch
):
    for every in ("SOON_S", "LOOK_EVERY_S"):  # what is read first stays
        monkeypatch.setattr(capacity_informer, every, 3600.0)
    busy, light = machines
    backend = KubernetesBackend(JOB, Site(api, None, "10.1.2.3:7070"))
    try:
        backend.capacity()  # it has read the machines
        backend.start_node(config("ps-0"))
        wish = until(lambda: backend.host_wishes().get("ps-0"))
        assert wish.host == light
        until(lambda: backend.host_wishes()["ps-0"].got, what="a machine for the pod")
        assert backend.host_wishes()["ps-0"].got == light
        assert pods(api)["ps-0"]["spec"]["nodeName"] == light
        full = {"requests": {"cpu": "7700m"}}  # beside ps-0, on the light machine
        taken = {"nodeName": light, "containers": [{"name": "c", "image": "none", "resources": full}]}
        meta = {"name": "filled-up"}
        api.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": taken})
        backend.start_node(replace(config("worker-0"), role=Role.WORKER))
        until(lambda: backend.host_wishes().get("worker-0"), what="a wish")
        until(lambda: backend.host_wishes()["worker-0"].got, what="a machine for the worker")
        told = backend.host_wishes()["worker-0"]
        assert (told.host, told.got) == (light, busy)
        assert f"the cluster placed it on {busy}" in told.words
    finally:
        api.delete(POD, "filled-up", grace_s=0)
        backend.close()

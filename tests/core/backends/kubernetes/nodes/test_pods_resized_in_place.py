"""Pods that are resized in place, against a played API server of 1.33; and a real one that offers nothing of the kind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.conformance.backend import FEATURES
from support.kubernetes.resizing_played import DEFERRED, INFEASIBLE, QUOTA, REFUSALS, Server
from support.waiting import until

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.nodes import pod_resizer
from dlrover_nb.core.backends.kubernetes.nodes.backend import KubernetesBackend
from dlrover_nb.core.backends.kubernetes.nodes.site import Site
from dlrover_nb.core.driver.backend import NodeAllotted, ResizingBackend
from dlrover_nb.core.manifests.pods import resources
from dlrover_nb.core.manifests.role_rules import RESIZE, USER, master_rights
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.node_config import NodeConfig
from dlrover_nb.core.structs.wire.pod_contract import PodJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SEEN = Capacity((NodeShape(4.0, 8192, 2),))
JOB = PodJob(JobSpec("conform"), FEATURES, "0a1b2c3d", "p" * 40, "s" * 40, "", capacity=SEEN)
POD = "conform-0a1b2c3d-ps-0"
MORE = (0.5, 512)


def config(node: str) -> NodeConfig:
    where = {"master": "tcp://10.1.2.3:7070", "listen": "tcp://10.1.2.3", "folder": "/nowhere"}
    size = {"cpu": 0.25, "memory_mib": 256}
    return NodeConfig(node, Role.PS, JOB.spec, FEATURES, **size, **where, public_key="", secret_key="")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., tuple[Server, KubernetesBackend]]]:
    open_: list[Any] = []

    def make(nodes: tuple[str, ...] = ("ps-0",), **said: bool) -> tuple[Server, KubernetesBackend]:
        server = Server(tmp_path, **said)
        api = connect_api(kubeconfig=str(server.kubeconfig))
        backend = KubernetesBackend(JOB, Site(api, None, "10.1.2.3:7070"))
        open_.extend([backend, server])
        for node in nodes:
            backend.start_node(config(node))
        until(lambda: len(server.pods) == len(nodes))
        return server, backend

    yield make
    for each in open_:
        each.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_resizer, "DEFERRED_LIMIT_S", 0.5)
    monkeypatch.setattr(pod_resizer, "AGAIN_S", 0.2)


def answer(backend: KubernetesBackend) -> NodeAllotted:
    (told,) = until(backend.allotted)
    return told


def test_a_pod_that_the_kubelet_resizes_is_told_and_stays(made):
    server, backend = made()
    uid = server.pods[POD]["metadata"]["uid"]
    until(backend.resizes_in_place)
    assert isinstance(backend, ResizingBackend)
    backend.resize_node("ps-0", MORE)
    assert answer(backend) == NodeAllotted("ps-0", MORE)
    assert server.patches == [
        (
            "application/strategic-merge-patch+json",
            {"spec": {"containers": [{"name": "node", "resources": resources(*MORE)}]}},
        )
    ]
    pod = server.pods[POD]
    assert pod["metadata"]["uid"] == uid
    assert pod["spec"]["containers"][0]["resources"] == {  # still of the class Guaranteed
        "requests": {"cpu": "500m", "memory": "512Mi"},
        "limits": {"cpu": "500m", "memory": "512Mi"},
    }
    assert backend.poll() == ()


def test_what_is_put_beside_our_container_keeps_its_size(made):
    server, backend = made()
    beside = {"name": "proxy", "resources": {"limits": {"cpu": "1"}}}
    pod = server.pods[POD]
    pod["spec"]["containers"].append(beside)
    pod["status"]["containerStatuses"].insert(0, {"name": "proxy", "state": {"running": {}}})
    pod["status"]["containerStatuses"].reverse()
    server.put(pod)
    until(backend.resizes_in_place)
    backend.resize_node("ps-0", MORE)
    assert answer(backend).why == ""
    assert server.pods[POD]["spec"]["containers"][1] == beside


def test_the_server_is_asked_once_what_it_offers(made):
    server, backend = made()
    until(backend.resizes_in_place)
    for need in (MORE, (0.25, 256), MORE):
        backend.resize_node("ps-0", need)
        assert answer(backend) == NodeAllotted("ps-0", need)
    assert server.asked.count(("GET", "/api/v1")) == 1


def test_a_server_that_does_not_serve_it_is_not_asked_to_resize(made):
    server, backend = made(serves_resize=False)
    until(lambda: ("GET", "/api/v1") in server.asked)
    backend.start_node(config("ps-1"))
    until(lambda: len(server.pods) == 2)  # the worker came by since
    assert backend.resizes_in_place() is False
    assert server.asked.count(("GET", "/api/v1")) == 1


def test_a_server_that_does_not_say_what_it_offers_is_asked_again(made):
    server, backend = made(is_upset=True)
    until(lambda: ("GET", "/api/v1") in server.asked)
    assert backend.resizes_in_place() is None
    server.is_upset = False
    until(backend.resizes_in_place)


def test_what_can_never_be_on_this_machine_is_told_at_once(made):
    server, backend = made()
    server.pends = ("Infeasible", INFEASIBLE)
    until(backend.resizes_in_place)
    backend.resize_node("ps-0", MORE)
    assert answer(backend) == NodeAllotted("ps-0", MORE, f"Infeasible: {INFEASIBLE}")
    assert backend.resizes_in_place()  # another machine may have room


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("pends", ("Deferred", DEFERRED)),
        ("puts_off", ("Error", "memory limit is below what is in use")),
    ],
)
def test_what_the_kubelet_puts_off_is_given_up_after_a_while_with_its_reason(made, impatient, field, said):
    server, backend = made()
    setattr(server, field, said)
    until(backend.resizes_in_place)
    backend.resize_node("ps-0", MORE)
    told = answer(backend)
    assert told.why.startswith(": ".join(said))
    assert "0.5 s" in told.why


def test_what_was_put_off_and_then_done_is_done(made):
    server, backend = made()
    server.pends = ("Deferred", DEFERRED)
    until(backend.resizes_in_place)
    backend.resize_node("ps-0", MORE)
    until(lambda: server.pods[POD]["status"].get("conditions"))
    server.pends = None
    server.let_kubelet_act(POD)
    assert answer(backend) == NodeAllotted("ps-0", MORE)


def test_a_kubelet_that_does_nothing_is_given_up_after_a_while(made, impatient):
    server, backend = made()
    server.let_kubelet_act = lambda _name: None
    until(backend.resizes_in_place)
    backend.resize_node("ps-0", MORE)
    assert "gives no reason" in answer(backend).why


@pytest.mark.parametrize("code", [404, 422])
def test_a_pod_that_the_server_does_not_resize_is_told_alone(made, code):
    server, backend = made()
    server.refuses = [(code, *REFUSALS[code])]
    until(backend.resizes_in_place)
    backend.resize_node("ps-0", MORE)
    told = answer(backend)
    assert REFUSALS[code][1] in told.why or "pods/resize" in told.why
    assert backend.resizes_in_place()
    backend.resize_node("ps-0", MORE)
    assert answer(backend).why == ""


def test_a_quota_without_room_is_no_missing_right(made, words):
    server, backend = made()
    server.refuses = [(403, "Forbidden", QUOTA)]
    until(backend.resizes_in_place)
    backend.resize_node("ps-0", MORE)
    assert answer(backend).why == words
    assert backend.resizes_in_place()


def test_without_the_right_no_node_is_tried_again(made):
    server, backend = made(nodes=("ps-0", "ps-1"))
    server.refuses = [(403, *REFUSALS[403])] * 2
    until(backend.resizes_in_place)
    backend.resize_node("ps-0", MORE)
    assert "pods/resize" in answer(backend).why
    assert not backend.resizes_in_place()
    assert len(server.patches) == 1


def test_a_pod_that_was_changed_meanwhile_is_asked_for_again(made, impatient):
    server, backend = made()
    server.refuses = [(409, *REFUSALS[409])]
    until(backend.resizes_in_place)
    backend.resize_node("ps-0", MORE)
    assert answer(backend) == NodeAllotted("ps-0", MORE)
    assert len(server.patches) == 2


def test_the_last_size_that_was_asked_for_counts(made):
    server, backend = made()
    server.pends = ("Deferred", DEFERRED)
    until(backend.resizes_in_place)
    backend.resize_node("ps-0", MORE)
    until(lambda: server.patches)
    server.pends = None
    backend.resize_node("ps-0", (0.25, 256))
    assert answer(backend) == NodeAllotted("ps-0", (0.25, 256))


def test_a_node_that_was_stopped_is_not_answered_for(made):
    server, backend = made(nodes=("ps-0", "ps-1"))
    server.pends = ("Deferred", DEFERRED)
    until(backend.resizes_in_place)
    backend.resize_node("ps-0", MORE)
    until(lambda: server.patches)
    backend.stop_node("ps-0")
    until(backend.poll)
    server.pends = None
    backend.resize_node("ps-1", MORE)
    assert answer(backend).node == "ps-1"


def test_another_master_asks_again_and_is_answered_though_nothing_is_left_to_do(made, tmp_path):
    server, backend = made()
    until(backend.resizes_in_place)
    backend.resize_node("ps-0", MORE)
    answer(backend)
    other = KubernetesBackend(
        JOB, Site(connect_api(kubeconfig=str(server.kubeconfig)), None, "10.1.2.3:7070")
    )
    try:
        other.adopt({"ps-0": (0.25, 256)})
        until(other.resizes_in_place)
        other.resize_node("ps-0", MORE)
        assert answer(other) == NodeAllotted("ps-0", MORE)
        assert len(server.patches) == 1
    finally:
        other.close()


def pod(need: tuple[float, int], has: tuple[float, int], **condition: object) -> dict[str, Any]:
    return {
        "metadata": {"generation": 3},
        "spec": {"containers": [{"name": "node", "resources": resources(*need)}]},
        "status": {
            "containerStatuses": [{"name": "node", "resources": resources(*has)}],
            "conditions": [{"status": "True", **condition}] if condition else [],
        },
    }


def settled(document: dict[str, Any], need: tuple[float, int] = MORE) -> tuple[NodeAllotted, ...]:
    resizer = pod_resizer.PodResizer()
    resizer.want("ps-0", "p", need)
    resizer.reconcile({"p": document}, 0.0)
    return resizer.allotted()


def test_what_the_kubelet_said_of_an_earlier_request_is_not_taken_for_this_one():
    said = {"type": "PodResizePending", "reason": "Infeasible", "message": INFEASIBLE}
    assert settled(pod(MORE, (0.25, 256), **said, observedGeneration=2)) == ()
    assert settled(pod(MORE, (0.25, 256), **said, observedGeneration=3))[0].why
    assert settled(pod(MORE, (0.25, 256), **said))[0].why  # 1.33 does not say of which request


def test_only_what_the_container_may_really_use_counts_as_done():
    assert settled(pod(MORE, (0.25, 256))) == ()
    assert settled(pod(MORE, (0.5, 256))) == ()
    assert settled(pod(MORE, MORE)) == (NodeAllotted("ps-0", MORE),)
    older = pod(MORE, MORE)
    del older["status"]["containerStatuses"][0]["resources"]  # a kubelet from before 1.27
    assert settled(older) == ()


def test_a_kubelet_that_finds_no_room_is_given_up_after_half_a_minute_with_its_reason(words):
    resizer = pod_resizer.PodResizer()
    resizer.want("ps-0", "p", MORE)
    deferred = pod(MORE, (0.25, 256), type="PodResizePending", reason="Deferred", message="no room")
    for at_s in (7.0, 36.9):
        assert resizer.reconcile({"p": deferred}, at_s) == ()
        assert resizer.allotted() == ()
    resizer.reconcile({"p": deferred}, 37.0)
    assert resizer.allotted() == (NodeAllotted("ps-0", MORE, words),)


def test_an_order_that_changed_nothing_is_given_again_after_a_while():
    resizer = pod_resizer.PodResizer()
    resizer.want("ps-0", "p", MORE)
    same = {"p": pod((0.25, 256), (0.25, 256))}
    assert [len(resizer.reconcile(same, at_s)) for at_s in (0.0, 4.9, 5.0, 9.9, 10.0)] == [1, 0, 1, 0, 1]


def test_a_step_of_a_plan_is_told_from_none():
    assert settled(pod((0.26, 512), (0.25, 512)), (0.26, 512)) == ()
    assert settled(pod((0.26, 512), (0.2601, 512)), (0.26, 512)) != ()


def test_a_master_gets_the_right_only_where_its_user_may_grant_it():
    def rules(*, may: bool) -> list[tuple[str, ...]]:
        return [
            right.verbs
            for right in master_rights("clicks", may_resize=may)
            if right.resource == "pods/resize"
        ]

    assert rules(may=False) == []
    assert rules(may=True) == [("patch",)]
    assert RESIZE in USER
    assert RESIZE.optional


@pytest.mark.more
@pytest.mark.kube
def test_a_real_server_of_1_20_offers_none(control_plane, namespace):
    api = connect_api(namespace=namespace(control_plane), kubeconfig=control_plane.kubeconfig)
    backend = KubernetesBackend(replace(JOB, run="1b2c3d4e"), Site(api, None, "10.1.2.3:7070"))
    try:
        until(lambda: backend.resizes_in_place() is not None)
        assert backend.resizes_in_place() is False
    finally:
        backend.close()

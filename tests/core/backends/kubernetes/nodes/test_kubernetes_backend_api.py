"""The Kubernetes backend and an API server that is away, refuses, or knows machines that are silent; no kubelet."""

from __future__ import annotations

import pytest
from support.kubernetes.job_of_pods import JOB, SEEN, config
from support.kubernetes.kube import await_rights, core_api, grant
from support.waiting import until

from dlrover_nb.core.backends.kubernetes.client import informer
from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.jobs.access import check_access
from dlrover_nb.core.backends.kubernetes.nodes import backend as module
from dlrover_nb.core.backends.kubernetes.nodes import missing_rights, pod_reconciler
from dlrover_nb.core.backends.kubernetes.nodes.backend import KubernetesBackend
from dlrover_nb.core.backends.kubernetes.nodes.site import Site
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.manifests.kinds import LIMIT_RANGE, NODE, POD, ROLE_BINDING
from dlrover_nb.core.manifests.role_rules import USER, binding, role
from dlrover_nb.core.structs.plan.capacity import Capacity

pytestmark = [pytest.mark.kube, pytest.mark.more]


def exit_of(backend):
    (exited,) = until(backend.poll)
    return exited


@pytest.fixture
def api(control_plane, namespace):
    return connect_api(namespace=namespace(control_plane), kubeconfig=control_plane.kubeconfig)


@pytest.fixture
def backend(api):
    backend = KubernetesBackend(JOB, Site(api, None, "10.1.2.3:7070"))
    yield backend
    backend.close()


def pods(api):
    return {pod["metadata"]["labels"]["dlrover-nb/node"]: pod for pod in api.list(POD).items}


@pytest.mark.release
def test_wishes_while_the_api_server_is_away_come_true_when_it_is_back(control_plane, api, backend):
    backend.start_node(config("ps-0"))
    until(lambda: "ps-0" in pods(api))
    assert backend.capacity() == Capacity(())  # there is no machine here
    control_plane.stop_api()
    try:
        backend.start_node(config("ps-1"))
        until(lambda: "API server" in backend.waiting().get("ps-1", ""))
        backend.stop_node("ps-0")
        assert backend.capacity() == Capacity(())  # as it was seen
        assert backend.poll() == ()
    finally:
        control_plane.start_api()
    assert exit_of(backend).node == "ps-0"
    until(lambda: list(pods(api)) == ["ps-1"])
    until(lambda: "no nodes" in backend.waiting().get("ps-1", ""))


def test_who_may_not_make_pods_is_told_so_and_nothing_is_tried_for_ever(
    control_plane, namespace, monkeypatch, words
):
    monkeypatch.setattr(missing_rights, "NEVER_RAN_S", 0.5)
    alice = connect_api(namespace=namespace(control_plane), kubeconfig=control_plane.alice)
    backend = KubernetesBackend(JOB, Site(alice, None, "10.1.2.3:7070"))
    try:
        assert backend.capacity() == SEEN
        backend.start_node(config("ps-0"))
        exited = exit_of(backend)
    finally:
        monkeypatch.setattr(module, "CLOSE_LIMIT_S", 0.1)
        backend.close()
    assert not exited.retryable
    assert exited.why == words


def run_on_paper(control_plane, api, backend, node):
    """Let the pod of a node run on a machine of which nobody is behind."""
    machine(control_plane, "silent")
    backend.start_node(config(node))
    until(lambda: pods(api).get(node, {}).get("spec", {}).get("nodeName") == "silent")
    running = {"phase": "Running", "containerStatuses": [container({"running": {}})]}
    api.patch(POD, f"conform-0a1b2c3d-{node}", {"status": running}, subresource="status")
    until(lambda: not backend.waiting())


def test_a_role_that_is_deleted_is_waited_for_while_a_node_runs(control_plane, api, monkeypatch, words):
    monkeypatch.setattr(missing_rights, "NEVER_RAN_S", 0.1)
    monkeypatch.setattr(missing_rights, "IDLE_S", 0.1)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.2)
    monkeypatch.setattr(informer, "REFUSED_PAUSE_S", 0.5)
    grant(api, USER, "alice")
    alice = connect_api(namespace=api.namespace, kubeconfig=control_plane.alice)
    await_rights(alice)
    backend = KubernetesBackend(JOB, Site(alice, None, "10.1.2.3:7070"))
    try:
        run_on_paper(control_plane, api, backend, "ps-0")
        assert backend.denied() == ""
        api.delete(ROLE_BINDING, "of-alice")
        until(lambda: check_access(alice, USER).missing, what="the loss of the rights")
        backend.start_node(config("ps-1"))
        until(lambda: "alice may not create pods" in backend.waiting().get("ps-1", ""))
        n_request = alice.n_request
        until(lambda: alice.n_request > n_request + 5, what="more tries")
        assert backend.denied() == words
        assert backend.poll() == ()
        api.create(ROLE_BINDING, binding(role("of-alice", USER, namespace=api.namespace), "alice"))
        until(lambda: "ps-1" in pods(api), what="the pod that was refused")
        until(lambda: backend.denied() == "", what="the end of the refusals")
        assert backend.poll() == ()
    finally:
        backend.close()
        core_api(control_plane).delete_node("silent")


@pytest.mark.release
def test_a_job_of_which_nothing_runs_any_more_fails_with_the_missing_right(control_plane, api, monkeypatch):
    monkeypatch.setattr(missing_rights, "IDLE_S", 0.5)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.2)
    grant(api, USER, "alice")
    alice = connect_api(namespace=api.namespace, kubeconfig=control_plane.alice)
    await_rights(alice)
    backend = KubernetesBackend(JOB, Site(alice, None, "10.1.2.3:7070"))
    try:
        run_on_paper(control_plane, api, backend, "ps-0")
        api.delete(ROLE_BINDING, "of-alice")
        until(lambda: check_access(alice, USER).missing, what="the loss of the rights")
        api.delete(POD, "conform-0a1b2c3d-ps-0", grace_s=0)
        assert exit_of(backend).node == "ps-0"
        backend.start_node(config("ps-1"))
        exited = exit_of(backend)
        assert (exited.node, exited.retryable) == ("ps-1", False)
        assert "alice may not" in exited.why
    finally:
        monkeypatch.setattr(module, "CLOSE_LIMIT_S", 0.1)
        backend.close()
        core_api(control_plane).delete_node("silent")


def test_a_limit_of_the_namespace_is_no_reason_to_try_again(api, backend, words):
    limits = [{"type": "Container", "max": {"memory": "128Mi"}}]
    document = {"metadata": {"name": "tiny"}, "spec": {"limits": limits}}
    api.create(LIMIT_RANGE, {"apiVersion": "v1", "kind": "LimitRange", **document})
    backend.start_node(config("ps-0"))
    exited = exit_of(backend)
    assert not exited.retryable
    assert exited.why == words
    assert exited.refused.most_memory_mib == 128
    assert backend.capacity().node_limits.most_memory_mib == 128, "plans keep to it from now on"
    assert backend.room().most_memory_mib <= 128
    api.delete(LIMIT_RANGE, "tiny")
    until(lambda: not api.list(LIMIT_RANGE).items)
    backend.start_node(config("ps-1"))
    until(lambda: pods(api).get("ps-1"), "a pod that the rule no longer refuses")


def test_a_strangers_pod_of_that_name_is_left_alone(api, backend, words):
    stranger = {
        "metadata": {"name": "conform-0a1b2c3d-ps-0"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    api.create(POD, {"apiVersion": "v1", "kind": "Pod", **stranger})
    backend.start_node(config("ps-0"))
    exited = exit_of(backend)
    assert not exited.retryable
    assert exited.why == words
    backend.close()
    assert api.get(POD, "conform-0a1b2c3d-ps-0")["metadata"].get("deletionTimestamp") is None


def test_a_pod_that_was_made_before_is_taken_for_what_it_is(api, backend, words):
    backend.start_node(config("ps-0"))
    first = until(lambda: pods(api).get("ps-0"))
    second = KubernetesBackend(JOB, Site(api, None, "10.1.2.3:7070"))
    try:
        second.start_node(config("ps-0"))
        until(second.waiting)
        assert pods(api)["ps-0"]["metadata"]["uid"] == first["metadata"]["uid"]
        assert second.poll() == ()
    finally:
        second.close()
    assert exit_of(backend).why == words


def test_a_node_on_a_silent_machine_is_given_up_and_its_pod_removed_by_force(
    control_plane, api, backend, monkeypatch, words
):
    monkeypatch.setattr(pod_reconciler, "LOST_AFTER_S", 0.5)
    machine(control_plane, "silent")
    try:
        backend.start_node(config("ps-0"))
        until(lambda: pods(api).get("ps-0", {}).get("spec", {}).get("nodeName") == "silent")
        running = {"phase": "Running", "containerStatuses": [container({"running": {}})]}
        api.patch(POD, "conform-0a1b2c3d-ps-0", {"status": running}, subresource="status")
        until(lambda: not backend.waiting())
        api.delete(POD, "conform-0a1b2c3d-ps-0", grace_s=1)  # as the taint manager does
        exited = exit_of(backend)
        assert exited.why == words
        assert exited.retryable
        until(lambda: not pods(api))
    finally:
        core_api(control_plane).delete_node("silent")


def container(state):
    return {"name": "node", "state": state, "image": "i", "imageID": "", "ready": True, "restartCount": 0}


def machine(control_plane, name):
    """Make a machine of which nobody is behind; the scheduler sends pods to it."""
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "lastHeartbeatTime": "2099-01-01T00:00:00Z",
    }
    everywhere = connect_api(kubeconfig=control_plane.kubeconfig)
    everywhere.create(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    status = {"capacity": room, "allocatable": room, "conditions": [ready]}
    everywhere.patch(NODE, name, {"status": status}, subresource="status")
    everywhere.patch(NODE, name, {"spec": {"taints": None}})


def test_what_was_asked_for_and_stopped_while_nothing_answered_leaves_nothing(control_plane, api, backend):
    control_plane.stop_api()
    told = []
    try:
        for n in range(50):
            backend.start_node(config(f"ps-{n}"))
            backend.stop_node(f"ps-{n}")
            backend.set_master_endpoint(f"tcp://10.0.0.{n}:1")
            told += backend.poll()
    finally:
        control_plane.start_api()
    until(lambda: told.extend(backend.poll()) or len(told) >= 50)
    assert sorted(exited.node for exited in told) == sorted(f"ps-{n}" for n in range(50))
    backend.close()
    with pytest.raises(BackendError, match="closed"):
        backend.start_node(config("ps-50"))
    assert pods(api) == {}

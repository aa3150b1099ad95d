"""A deleted Secret of a running job comes back, by rights that are bound to its name."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.kubernetes.kube import await_rights
from support.waiting import until

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    ApiError,
    Forbidden,
    NotThere,
    Operation,
    Status,
    Unreachable,
)
from dlrover_nb.core.backends.kubernetes.jobs.submission import create
from dlrover_nb.core.backends.kubernetes.nodes import own_secrets
from dlrover_nb.core.backends.kubernetes.nodes.backend import KubernetesBackend
from dlrover_nb.core.backends.kubernetes.nodes.own_secrets import LOOK_EVERY_S, SOON_S, OwnSecrets
from dlrover_nb.core.backends.kubernetes.nodes.site import Site
from dlrover_nb.core.manifests.kinds import SECRET
from dlrover_nb.core.manifests.role_rules import master_rights
from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.node_config import NodeConfig
from dlrover_nb.core.structs.wire.pod_contract import PodJob

if TYPE_CHECKING:
    from pathlib import Path

    from support.kubernetes.kube import TestCluster

    from dlrover_nb.core.manifests.kinds import Doc

JOB = PodJob(JobSpec("clicks"), None, "0a1b2c3d", "p" * 40, "s" * 40, "t" * 32)
FEATURES = FeatureSpec("label", (), (CategoricalColumn("c", 0, 64),), n_train=100, n_eval=10)
CODE = replace(JOB, spec=replace(JOB.spec, model=ModelSpec(name="custom", code="pickle:" + "0" * 64)))


class Server:
    """Plays the API of Secrets."""

    def __init__(self, *names: str) -> None:
        self.there = {name: secret(name, "old") for name in names}
        self.n_asked, self.error = 0, None

    def get(self, kind: object, name: str) -> Doc:
        assert kind is SECRET
        self.n_asked += 1
        if self.error:
            raise self.error
        if name not in self.there:
            raise error(NotThere, 404)
        return self.there[name]

    def apply(self, kind: object, name: str, doc: Doc) -> None:
        assert kind is SECRET
        self.there[name] = doc


def secret(name: str, content: str) -> Doc:
    head = {"name": name, "uid": "1-2-3", "resourceVersion": "7", "labels": {"a": "b"}}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": head, "data": {"k": content}}


def error(kind: type[ApiError], code: int) -> Any:
    return kind("no", Status(code, "", "no"), Operation("get", SECRET, "team"))


def follow(server: Server, job: PodJob = JOB) -> OwnSecrets:
    return OwnSecrets(server, job)  # type: ignore[arg-type]  # two calls of it are enough


def test_what_was_seen_last_is_restored_without_the_identity_that_it_had() -> None:
    server = Server("clicks-job")
    followed = follow(server)
    followed.follow(0.0, makes_pods=True)
    server.there["clicks-job"] = secret("clicks-job", "newer")
    followed.follow(LOOK_EVERY_S, makes_pods=False)
    server.there.clear()
    followed.follow(2 * LOOK_EVERY_S, makes_pods=False)
    made = server.there["clicks-job"]
    assert made["data"] == {"k": "newer"}
    assert made["metadata"] == {"name": "clicks-job", "labels": {"a": "b"}}


def test_pods_that_are_made_do_not_wait_for_the_next_minute() -> None:
    server = Server("clicks-job")
    followed = follow(server)
    followed.follow(0.0, makes_pods=False)
    server.there.clear()
    followed.follow(SOON_S, makes_pods=False)
    assert not server.there
    followed.follow(SOON_S, makes_pods=True)
    assert server.there


def test_pods_that_are_made_right_after_a_look_do_not_wait_for_the_next_minute_either() -> None:
    server = Server("clicks-job")
    followed = follow(server)
    followed.follow(0.0, makes_pods=True)
    server.there.clear()
    followed.follow(SOON_S / 2, makes_pods=True)
    assert not server.there
    followed.follow(SOON_S, makes_pods=False)
    assert server.there


def test_at_rest_one_request_a_minute_is_sent() -> None:
    server = Server("clicks-job")
    followed = follow(server)
    for at_s in range(600):
        followed.follow(float(at_s), makes_pods=False)
    assert server.n_asked == 600 / LOOK_EVERY_S


def test_the_secret_of_a_users_code_comes_back_too() -> None:
    server = Server("clicks-job", "clicks-code")
    followed = follow(server, CODE)
    followed.follow(0.0, makes_pods=True)
    server.there.clear()
    followed.follow(LOOK_EVERY_S, makes_pods=False)
    assert set(server.there) == {"clicks-job", "clicks-code"}


@pytest.mark.parametrize(("failure", "n_told"), [(Forbidden, 1), (Unreachable, 0)])
def test_a_master_that_cannot_look_goes_on_and_says_so_once(
    failure: type[ApiError], n_told: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = Server("clicks-job")
    server.error = error(failure, 403)
    followed = follow(server)
    for n in range(5):
        followed.follow(n * LOOK_EVERY_S, makes_pods=False)
    assert len(caplog.records) == n_told
    server.error = None
    followed.follow(5 * LOOK_EVERY_S, makes_pods=False)
    server.there.clear()
    followed.follow(6 * LOOK_EVERY_S, makes_pods=False)
    assert server.there


# on a real API server


def as_master(control_plane: TestCluster, namespace: str) -> tuple[Any, Any]:
    """Return the administrator's API of a namespace with a job in it, and that of the job's master."""
    admin = connect_api(namespace=namespace, kubeconfig=control_plane.kubeconfig)
    owner = create(admin, JOB, {})
    account = f"system:serviceaccount:{namespace}:clicks-master"
    master = connect_api(namespace=namespace, kubeconfig=control_plane.acting_as(account))
    rights = [right for right in master_rights("clicks") if right.resource == "pods"]
    await_rights(master, rights)
    return admin, (master, owner)


@pytest.mark.more
@pytest.mark.kube
def test_a_real_server_lets_a_master_restore_its_own_secret_and_make_no_other(
    control_plane: TestCluster, namespace: Any
) -> None:
    admin, (master, _) = as_master(control_plane, namespace(control_plane))
    before = admin.get(SECRET, "clicks-job")
    followed = OwnSecrets(master, JOB)
    followed.follow(0.0, makes_pods=True)
    admin.delete(SECRET, "clicks-job")
    followed.follow(LOOK_EVERY_S, makes_pods=True)
    after = admin.get(SECRET, "clicks-job")
    assert after["data"] == before["data"]
    for key in ("labels", "ownerReferences"):
        assert after["metadata"][key] == before["metadata"][key]
    other = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "other"},
        "type": "Opaque",
        "data": {},
    }
    with pytest.raises(Forbidden):
        master.apply(SECRET, "other", other)
    with pytest.raises(Forbidden):
        master.create(SECRET, other)


@pytest.mark.more
@pytest.mark.kube
def test_a_pod_that_is_made_finds_the_secret_that_was_deleted(
    control_plane: TestCluster, namespace: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_secrets, "SOON_S", 0.0)
    admin, (master, owner) = as_master(control_plane, namespace(control_plane))
    backend = KubernetesBackend(replace(JOB, features=FEATURES), Site(master, owner, "10.1.2.3:7070"))
    try:
        backend.start_node(config("ps-0", tmp_path))
        until(lambda: "no nodes" in backend.waiting().get("ps-0", ""), what="the first pod")
        admin.delete(SECRET, "clicks-job")
        backend.start_node(config("ps-1", tmp_path))
        until(lambda: is_there(admin), what="the Secret")
    finally:
        backend.close()


def is_there(api: Any) -> bool:
    try:
        api.get(SECRET, "clicks-job")
    except NotThere:
        return False
    return True


def config(node: str, folder: Path) -> NodeConfig:
    return NodeConfig(
        node=node,
        role=Role.PS,
        spec=JOB.spec,
        features=FEATURES,
        cpu=0.25,
        memory_mib=256,
        master="tcp://10.1.2.3:7070",
        listen="tcp://10.1.2.3",
        folder=str(folder),
        public_key="",
        secret_key="",
    )

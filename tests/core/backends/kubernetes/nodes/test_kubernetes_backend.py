"""The Kubernetes backend on real pods: the contract, and what only a cluster does to a node."""

from __future__ import annotations

import base64
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest
from support.conformance.backend import FEATURES, BackendConformance, Master
from support.kubernetes.kube import ROOT, host_files

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.nodes import pod_reconciler
from dlrover_nb.core.backends.kubernetes.nodes.backend import KubernetesBackend
from dlrover_nb.core.backends.kubernetes.nodes.site import Site
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.jobfile import job_from
from dlrover_nb.core.manifests.kinds import CONFIG_MAP, POD, QUOTA, SECRET
from dlrover_nb.core.structs.wire.pod_contract import PodJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.driver.backend import Backend
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.wire.messages import Hello
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

pytestmark = [pytest.mark.kube, pytest.mark.pods, pytest.mark.more]

RUN = "0a1b2c3d"
HERE = "10.213.7.1"  # this machine, as pods see it


class TestKubernetesBackend(BackendConformance):
    api: Api

    @pytest.fixture(autouse=True)
    def place(self, nodes, namespace) -> None:  # type: ignore[no-untyped-def]
        self.api = connect_api(namespace=namespace(nodes), kubeconfig=nodes.kubeconfig)

    def make(self, folder: Path) -> KubernetesBackend:  # noqa: ARG002 - pods have their own
        return KubernetesBackend(self.job(), Site(self.api, None, HERE))

    def spec(self) -> JobSpec:
        return job_from({"name": "conform", "kubernetes": host_files()})

    def job(self, public: str = "", secret: str = "") -> PodJob:
        return PodJob(self.spec(), FEATURES, RUN, public, secret, "")

    def config(self, master: Master, listen: str, node: str = "ps-0") -> NodeConfig:
        return replace(super().config(master, listen, node), cpu=0.5)  # it begins in half the time

    def prepare(self, master: Master) -> None:
        told = to_json(self.job(master.keys.public, master.keys.secret))
        data = {"job.json": base64.b64encode(told).decode()}
        document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "conform-job"}, "data": data}
        self.api.create(SECRET, document)

    def pid_of(self, hello: Hello) -> int:
        """Find the process by what its pod was told: it has another id in there."""
        ip = hello.endpoint.removeprefix("tcp://").rpartition(":")[0]  # its status may tell it later
        told = {"DLROVER_NB_NODE": hello.node, "POD_IP": ip}
        found = [p.pid for p in psutil.process_iter() if told.items() <= variables(p).items()]
        assert len(found) == 1
        return found[0]

    def pods(self) -> list[dict]:  # type: ignore[type-arg]
        return self.api.list(POD).items

    def until(self, holds: Callable[[], object]) -> None:
        end = time.monotonic() + self.start_limit_s
        while not holds():
            assert time.monotonic() < end, [pod["status"] for pod in self.pods()]
            time.sleep(0.05)

    @contextmanager
    def another(self, **kube: object) -> Iterator[KubernetesBackend]:
        """Make a backend of another run, whose pods differ."""
        spec = job_from({"name": "conform", "kubernetes": kube})
        other = KubernetesBackend(replace(self.job(), spec=spec, run="99999999"), Site(self.api, None, HERE))
        try:
            yield other
        finally:
            other.close()

    def test_a_node_that_takes_more_memory_than_its_limit_is_told_as_such(
        self, backend: Backend, master: Master
    ) -> None:
        greedy = {"sitecustomize.py": "held = [bytearray(1 << 20) for _ in range(400)]"}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "greedy"}, "data": greedy}
        self.api.create(CONFIG_MAP, document)
        own = host_files()
        own["volumes"] = [*own["volumes"], {"mount": "/dlrover-nb/greedy", "config_map": "greedy"}]  # type: ignore[misc]
        own["env"] = [f"PYTHONPATH=/dlrover-nb/greedy:{ROOT}"]
        with self.another(**own) as other:
            other.start_node(self.config(master, backend.listen()))
            (exited,) = self.exits(other)
            assert other.waiting() == {}
        assert exited.out_of_memory
        assert exited.was_killed
        assert exited.retryable
        assert "OOMKilled" in exited.why
        (pod,) = self.pods()
        assert pod["status"]["phase"] == "Failed"  # it stays for its log

    def test_a_node_too_large_for_now_waits_with_the_clusters_reason_and_can_be_stopped(
        self, backend: Backend, master: Master
    ) -> None:
        backend.start_node(replace(self.config(master, backend.listen()), cpu=500.0))
        self.until(lambda: "Insufficient cpu" in backend.waiting().get("ps-0", ""))
        assert backend.poll() == ()
        backend.stop_node("ps-0")
        assert [exited.node for exited in self.exits(backend)] == ["ps-0"]
        assert backend.waiting() == {}

    def test_a_quota_is_waited_for_and_the_node_begins_when_it_is_raised(
        self, backend: Backend, master: Master, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("dlrover_nb.core.backends.kubernetes.nodes.backend.QUOTA_RETRY_S", 1.0)
        quota = {"metadata": {"name": "small"}, "spec": {"hard": {"limits.cpu": "100m"}}}
        self.api.create(QUOTA, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
        self.until(lambda: self.api.get(QUOTA, "small").get("status", {}).get("hard"))
        backend.start_node(self.config(master, backend.listen()))
        self.until(lambda: "exceeded quota: small" in backend.waiting().get("ps-0", ""))
        self.api.patch(QUOTA, "small", {"spec": {"hard": {"limits.cpu": "1"}}})
        assert master.hello(self.start_limit_s).node == "ps-0"
        self.until(lambda: not backend.waiting())
        assert backend.poll() == ()

    def test_a_pod_that_somebody_deletes_is_told_as_such(self, backend: Backend, master: Master) -> None:
        self.start(backend, master)
        self.api.delete(POD, f"conform-{RUN}-ps-0", grace_s=1)
        (exited,) = self.exits(backend)
        assert "a user or program deleted" in exited.why
        assert exited.retryable
        assert not exited.was_killed

    def test_a_second_backend_takes_over_what_it_is_told_and_removes_the_rest(
        self, backend: Backend, master: Master, folder: Path
    ) -> None:
        for node in ("ps-0", "ps-1"):
            self.start(backend, master, node)
        stranger = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "conform-stranger", "labels": {"dlrover-nb/job": "conform"}},
            "spec": {
                "containers": [{"name": "c", "image": "docker.io/local/host:1"}],
                "schedulerName": "nobody",
            },
        }
        self.api.create(POD, stranger)
        second = self.make(folder)
        try:
            second.adopt(dict.fromkeys(["ps-0", "ps-7"], (0.5, 512)))
            (exited,) = self.exits(second)
            assert (exited.node, exited.why) == ("ps-7", "it ended while its master was away")
            assert [exited.node for exited in self.exits(backend)] == ["ps-1"]
            assert second.poll() == ()
        finally:
            second.close()
        assert [exited.node for exited in self.exits(backend)] == ["ps-0"]
        self.api.get(POD, "conform-stranger")

    def test_a_master_that_moved_is_found_by_its_nodes(
        self, backend: Backend, master: Master, folder: Path
    ) -> None:
        self.start(backend, master)
        master.router.close(linger=0)
        moved = Master(backend.listen(), folder / "again", master.keys)
        try:
            backend.set_master_endpoint(moved.endpoint)
            assert moved.hello(self.start_limit_s).node == "ps-0"
        finally:
            moved.close()

    def test_what_a_machine_misses_to_make_a_container_is_told_from_its_events(
        self, backend: Backend, master: Master, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pod_reconciler, "SLOW_S", 0.5)
        monkeypatch.setattr(pod_reconciler, "ASK_EVERY_S", 1.0)
        own = host_files()
        own["volumes"] = [*own["volumes"], {"mount": "/dlrover-nb/keys", "secret": "forgotten"}]  # type: ignore[misc]
        with self.another(**own) as other:
            other.start_node(self.config(master, backend.listen()))
            missing = 'secret "forgotten" not found'  # after a busy kubelet's word that it could not ask
            self.until(lambda: missing in other.waiting().get("ps-0", ""))
            assert "FailedMount" in other.waiting()["ps-0"]
            assert other.poll() == ()

    def test_an_image_that_is_not_there_is_not_tried_again(self, master: Master, backend: Backend) -> None:
        with self.another(**host_files() | {"image": "docker.io/local/missing:1"}) as other:
            other.start_node(self.config(master, backend.listen()))
            (exited,) = self.exits(other)
        assert not exited.retryable
        assert "ErrImageNeverPull" in exited.why
        assert "docker.io/local/missing:1" in exited.why


def variables(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}

"""A real job of processes whose sizes a played API server of Kubernetes 1.33 decides about."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest
from real_job import Job, plan, succeeded
from resizing_played import INFEASIBLE, REFUSALS, Server

from dlrover_nb.core.backends.kubernetes.api import connect_api
from dlrover_nb.core.backends.kubernetes.backend import KubernetesBackend
from dlrover_nb.core.backends.kubernetes.site import Site
from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.structs.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.job import JobSpec
from dlrover_nb.core.structs.pods import PodJob
from dlrover_nb.core.structs.resources import ResourcePlan, Role, RolePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dlrover_nb.core.driver.backend import NodeAllotted, NodeExited
    from dlrover_nb.core.structs.capacity import Need
    from dlrover_nb.core.structs.features import FeatureSpec
    from dlrover_nb.core.structs.node_config import NodeConfig
    from dlrover_nb.core.structs.snapshot import JobSnapshot

BEFORE = plan(2, 2, worker_cpu=0.4, ps_cpu=0.2)
AFTER = ResourcePlan(RolePlan(2, 0.6, 512), RolePlan(2, 0.4, 512))


class PlayedPods(LocalBackend):
    """Each node is a process here, and a pod there; its size is the pod's."""

    server: ClassVar[Server]
    features: ClassVar[FeatureSpec]

    def __init__(self, folder: Path, *, cpus: float) -> None:
        super().__init__(folder, cpus=cpus)
        seen = Capacity((NodeShape(cpus, 8192),))
        job = PodJob(JobSpec("real"), self.features, "0a1b2c3d", "p" * 40, "s" * 40, "", capacity=seen)
        api = connect_api(kubeconfig=str(self.server.kubeconfig))
        self.pods = KubernetesBackend(job, Site(api, None, "10.1.2.3:7070"))

    def start_node(self, config: NodeConfig) -> None:
        super().start_node(config)
        self.pods.start_node(config)

    def stop_node(self, node: str) -> None:
        super().stop_node(node)
        self.pods.stop_node(node)

    def poll(self) -> tuple[NodeExited, ...]:
        self.pods.poll()
        return super().poll()

    def resizes_in_place(self) -> bool:
        return self.pods.resizes_in_place()

    def resize_node(self, node: str, need: Need) -> None:
        self.pods.resize_node(node, need)

    def allotted(self) -> tuple[NodeAllotted, ...]:
        return self.pods.allotted()

    def close(self) -> None:
        super().close()
        self.pods.close()


@pytest.fixture
def server(tmp_path: Path, features: FeatureSpec) -> Iterator[Server]:
    PlayedPods.server, PlayedPods.features = Server(tmp_path), features
    yield PlayedPods.server
    PlayedPods.server.close()


def running(job: Job, wanted: ResourcePlan) -> JobSnapshot:
    return job.until(lambda now: now.running == wanted)


def names(now: JobSnapshot) -> set[str]:
    return {node.id for node in now.nodes}


def asks(server: Server, node: str) -> str:
    limits = server.pods[f"real-0a1b2c3d-{node}"]["spec"]["containers"][0]["resources"]["limits"]
    return f"{limits['cpu']} {limits['memory']}"


def test_pods_that_are_resized_keep_their_processes_and_every_row_counts_once(
    server: Server, start: Callable[..., Job]
) -> None:
    job = start(plan=BEFORE, n_epoch=8, backend=PlayedPods)
    before = running(job, BEFORE)
    job.scale(AFTER)
    after = running(job, AFTER)
    assert {node.pid for node in after.nodes} == {node.pid for node in before.nodes}
    assert {asks(server, node.id) for node in after.nodes if node.role is Role.PS} == {"400m 512Mi"}
    assert {asks(server, node.id) for node in after.nodes if node.role is Role.WORKER} == {"600m 512Mi"}
    succeeded(job)


def test_a_machine_without_room_has_its_parameter_server_replaced_and_the_story_says_why(
    server: Server, start: Callable[..., Job]
) -> None:
    job = start(plan=BEFORE, n_epoch=8, backend=PlayedPods)
    running(job, BEFORE)
    server.cannot_hold = {"real-0a1b2c3d-ps-0"}
    target = ResourcePlan(BEFORE.worker, AFTER.ps)
    job.scale(target)
    after = running(job, target)
    assert names(after) == {"ps-1", "ps-2", "worker-0", "worker-1"}
    assert job.story_has("ps-0 cannot be resized in place", f"Infeasible: {INFEASIBLE}")
    succeeded(job)


def test_without_the_right_all_nodes_are_replaced_as_ever(server: Server, start: Callable[..., Job]) -> None:
    job = start(plan=BEFORE, n_epoch=8, backend=PlayedPods)
    running(job, BEFORE)
    server.refuses = [(403, *REFUSALS[403])]
    job.scale(AFTER)
    after = running(job, AFTER)
    assert names(after) == {"ps-2", "ps-3", "worker-2", "worker-3"}
    assert len(server.patches) == 1
    assert job.story_has("ps-0 cannot be resized in place", "pods/resize")
    job.driver.stop("ada")

"""A job of played nodes whose sizes a played API server of Kubernetes 1.33 decides about."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest
from support.driver.driver_world import DriverWorld, PlayedBackend, features, plan, succeeded
from support.kubernetes.resizing_played import INFEASIBLE, REFUSALS, Server
from support.waiting import until

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.nodes.backend import KubernetesBackend
from dlrover_nb.core.backends.kubernetes.nodes.site import Site
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.wire.pod_contract import PodJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dlrover_nb.core.driver.backend import NodeAllotted, NodeExited
    from dlrover_nb.core.structs.plan.capacity import Need
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.core.structs.wire.node_config import NodeConfig


BEFORE = plan(2, 2, worker_cpu=0.4, ps_cpu=0.2)
AFTER = ResourcePlan(RolePlan(2, 0.6, 512), RolePlan(2, 0.4, 512))


class PlayedPods(PlayedBackend):
    """Each node is played here, and a pod there; its size is the pod's."""

    server: ClassVar[Server]

    def __init__(self, world: DriverWorld) -> None:
        super().__init__(world)
        self.unanswered: set[str] = set()
        seen = Capacity((NodeShape(3.0, 8192),))
        job = PodJob(JobSpec("real"), features(), "0a1b2c3d", "p" * 40, "s" * 40, "", capacity=seen)
        api = connect_api(kubeconfig=str(self.server.kubeconfig))
        self.pods = KubernetesBackend(job, Site(api, None, "10.1.2.3:7070"))

    def start_node(self, config: NodeConfig) -> None:
        super().start_node(config)
        self.pods.start_node(config)

    def stop_node(self, node: str) -> None:
        super().stop_node(node)
        self.unanswered.discard(node)
        self.pods.stop_node(node)

    def poll(self) -> tuple[NodeExited, ...]:
        self.pods.poll()
        return super().poll()

    def resizes_in_place(self) -> bool:
        return self.pods.resizes_in_place()

    def resize_node(self, node: str, need: Need) -> None:
        self.unanswered.add(node)
        self.pods.resize_node(node, need)

    def allotted(self) -> tuple[NodeAllotted, ...]:
        """Return the server's answers; virtual time stands still until all of them are there."""
        answers: list[NodeAllotted] = []

        def are_all_there() -> bool:
            self.pods.poll()
            answers.extend(self.pods.allotted())
            return self.unanswered <= {each.node for each in answers}

        until(are_all_there, "the server's answers")
        self.unanswered.clear()
        return tuple(answers)

    def close(self) -> None:
        super().close()
        self.pods.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    PlayedPods.server = Server(tmp_path)
    yield PlayedPods.server
    PlayedPods.server.close()


def running(job: DriverWorld, wanted: ResourcePlan) -> JobSnapshot:
    return job.until(lambda now: now.running == wanted)


def names(now: JobSnapshot) -> set[str]:
    return {node.id for node in now.nodes}


def asks(server: Server, node: str) -> str:
    limits = server.pods[f"real-0a1b2c3d-{node}"]["spec"]["containers"][0]["resources"]["limits"]
    return f"{limits['cpu']} {limits['memory']}"


def test_pods_that_are_resized_keep_their_processes_and_every_row_counts_once(
    server: Server, play: Callable[..., DriverWorld]
) -> None:
    job = play(plan=BEFORE, n_epoch=8, backend=PlayedPods)
    before = running(job, BEFORE)
    job.scale(AFTER)
    after = running(job, AFTER)
    assert {node.pid for node in after.nodes} == {node.pid for node in before.nodes}
    assert {asks(server, node.id) for node in after.nodes if node.role is Role.PS} == {"400m 512Mi"}
    assert {asks(server, node.id) for node in after.nodes if node.role is Role.WORKER} == {"600m 512Mi"}
    succeeded(job)


def test_a_machine_without_room_has_its_parameter_server_replaced_and_the_story_says_why(
    server: Server, play: Callable[..., DriverWorld]
) -> None:
    job = play(plan=BEFORE, n_epoch=8, backend=PlayedPods)
    running(job, BEFORE)
    server.cannot_hold = {"real-0a1b2c3d-ps-0"}
    target = ResourcePlan(BEFORE.worker, AFTER.ps)
    job.scale(target)
    after = running(job, target)
    assert names(after) == {"ps-1", "ps-2", "worker-0", "worker-1"}
    assert job.story_has("ps-0 cannot be resized in place", f"Infeasible: {INFEASIBLE}")
    succeeded(job)


def test_without_the_right_all_nodes_are_replaced_as_ever(
    server: Server, play: Callable[..., DriverWorld]
) -> None:
    job = play(plan=BEFORE, n_epoch=8, backend=PlayedPods)
    running(job, BEFORE)
    server.refuses = [(403, *REFUSALS[403])] * 2  # both PS may be asked for before the first answer is there
    job.scale(AFTER)
    after = running(job, AFTER)
    assert names(after) == {"ps-2", "ps-3", "worker-2", "worker-3"}
    assert len(server.patches) <= 2, "once it is known, no worker is asked for"
    assert job.story_has("ps-0 cannot be resized in place", "pods/resize")
    job.driver.stop("ada")

"""External programs as processes, whose sizes a played API server of Kubernetes 1.33 decides about."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from support.driver import external_pods_double
from support.driver.external_pods_double import ForeignJob, LocalPods, lines_of, plan
from support.kubernetes.resizing_played import INFEASIBLE, Server
from support.waiting import until

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.nodes.backend import KubernetesBackend
from dlrover_nb.core.backends.kubernetes.nodes.site import Site
from dlrover_nb.core.manifests.objects import companions
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.resources import RolePlan
from dlrover_nb.core.structs.wire.pod_contract import PodJob

PROGRAM = """
import json, os, time
from dlrover_nb.report import step
print(json.dumps(json.loads(os.environ["TF_CONFIG"])["task"] | {"pid": os.getpid()}), flush=True)
while True:
    step(samples=16, loss=0.5)
    time.sleep(0.05)
"""
ROLE = ExternalRole((sys.executable, "-c", PROGRAM))
FOREIGN = ExternalSpec(ROLE, 10**6, ps=ROLE)
LARGER = replace(plan(), worker=RolePlan(2, 1.0, 512))


@pytest.fixture
def server(tmp_path):
    played = Server(tmp_path)
    yield played
    played.close()


@pytest.fixture
def job(tmp_path, server, features, monkeypatch):
    pod_job = PodJob(JobSpec("foreign"), features, "0a1b2c3d", "p" * 40, "s" * 40, "", capacity=None)

    class PlayedPods(LocalPods):
        """Each program is a process here, and a pod there; its size is the pod's."""

        def __init__(self, *arguments):
            super().__init__(*arguments)
            api = connect_api(kubeconfig=str(server.kubeconfig))
            there = KubernetesBackend(pod_job, Site(api, None, "10.1.2.3:7070"))
            self.there = there
            self.resizes_in_place, self.resize_node = there.resizes_in_place, there.resize_node
            self.allotted = there.allotted

        def start_node(self, config):
            super().start_node(config)
            self.there.start_node(config)

        def stop_node(self, node):
            super().stop_node(node)
            self.there.stop_node(node)

        def close(self):
            super().close()
            self.there.close()

    monkeypatch.setattr(external_pods_double, "LocalPods", PlayedPods)
    made = ForeignJob(tmp_path, FOREIGN, plan=plan())
    made.driver.start()
    yield made
    made.close()


def limits(server):
    return {
        name.rpartition("0a1b2c3d-")[2]: pod["spec"]["containers"][0]["resources"]["limits"]["cpu"]
        for name, pod in server.pods.items()
    }


def test_programs_go_on_while_their_pods_are_resized(job, server):
    job.until(lambda now: now.running == plan() and len(lines_of(job)) == 3)
    before = {each["pid"] for each in lines_of(job)}
    job.scale(LARGER)
    now = job.until(lambda now: now.running == LARGER)
    assert {node.cpu for node in now.nodes if str(node.role) == "worker"} == {1.0}
    assert {each["pid"] for each in lines_of(job)} == before, "no program restarts"
    assert limits(server) == {"worker-0": "1000m", "worker-1": "1000m", "ps-0": "250m"}


@pytest.mark.release
def test_programs_whose_pods_cannot_be_resized_get_other_pods(job, server):
    job.until(lambda now: now.running == plan())
    server.pends = ("Infeasible", INFEASIBLE)
    job.scale(LARGER)
    now = job.until(lambda now: now.running == LARGER)
    assert {n.id for n in now.nodes} == {"ps-0", "worker-2", "worker-3"}
    until(lambda: len({each["pid"] for each in lines_of(job)}) >= 5, what="programs of the new pods")


@pytest.mark.parametrize("operator", ["", "dlrover"])
def test_the_master_may_resize_its_own_pods_and_not_those_of_an_operator(features, operator):
    spec = JobSpec("x", foreign=FOREIGN)
    spec = replace(spec, kubernetes=replace(spec.kubernetes, operator=operator))
    of_job = PodJob(spec, features, "0a1b2c3d", "p" * 40, "s" * 40, "", capacity=None)
    documents = companions(of_job, code=None, namespace="team", has_budget=True, may_resize=True)
    rules = [rule for each in documents if each.get("kind") == "Role" for rule in each["rules"]]
    assert any("pods/resize" in rule["resources"] for rule in rules) == (not operator)

"""A foreign job under DLRover's operator with all of it in real pods but the operator, which is played."""

from __future__ import annotations

import contextlib
import sys
import time

import pytest
from support.kubernetes.dlrover_crds import OLDER, installed
from support.kubernetes.kube import host_files
from support.operators.dlrover_played import Dlrover
from support.waiting import LIMIT_S, until

from dlrover_nb.core.backends.kubernetes.client.api import NotThere, connect_api
from dlrover_nb.core.backends.kubernetes.cluster import KubernetesCluster
from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.jobfile import job_from
from dlrover_nb.core.manifests.kinds import ELASTIC_JOB, JOB, POD, ROLE, SCALE_PLAN
from dlrover_nb.core.manifests.pod_parts import NODE_LABEL
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

pytestmark = [pytest.mark.kube, pytest.mark.pods, pytest.mark.release]

# One role reports, the other one is read.
PROGRAM = """
import json, os, time
from dlrover_nb.report import step
task = json.loads(os.environ["TF_CONFIG"])["task"]
print("I am", task["type"], task["index"], flush=True)
while task["type"] == "ps":
    time.sleep(1)
while True:
    step(samples=16, loss=0.5)
    time.sleep(0.05)
"""


@pytest.fixture
def api(nodes, namespace):
    """A namespace of a cluster whose operator takes ElasticJobs and ScalePlans."""
    api = connect_api(namespace=namespace(nodes), kubeconfig=nodes.kubeconfig)
    for _ in installed(api, OLDER):
        yield api


def plan(n_worker: int) -> ResourcePlan:
    return ResourcePlan(worker=RolePlan(n_worker, 0.1, 256), ps=RolePlan(1, 0.1, 256))


def spec():
    role = {"command": [sys.executable, "-c", PROGRAM]}
    return job_from(
        {
            "name": "foreign",
            "mode": "manual",
            "batch_size": 16,
            "external": {"n_sample": 100_000, "worker": role, "ps": role},
            "kubernetes": host_files() | {"linger_s": 60, "operator": "dlrover", "master_cpu": 0.1},
            "plan": {
                "worker": {"count": 1, "cpu": 0.1, "memory_mib": 256},
                "ps": {"count": 1, "cpu": 0.1, "memory_mib": 256},
            },
        }
    )


def test_a_job_is_submitted_followed_measured_scaled_and_ended_by_the_operator(api):
    cluster = KubernetesCluster(api)
    job = cluster.submit(spec())

    def until(holds):
        end = time.monotonic() + LIMIT_S
        while not holds(now := job.snapshot()):
            assert time.monotonic() < end, f"{now.phase}: {now.message} {now.nodes} {now.story}"
            time.sleep(0.2)
        return now

    operator = Dlrover(api, "foreign")
    (rules,) = [role["rules"] for role in api.list(ROLE).items]
    assert not any("pods" in rule["resources"] and "create" in rule["verbs"] for rule in rules)
    operator.make("ps", 0)
    operator.make("worker", 0)
    operator.says("Running", "The job master is running.")
    now = until(lambda now: now.running == plan(1) and now.train.n_sample_done > 0)
    assert now.phase is JobPhase.TRAINING
    assert [node.id for node in now.nodes] == ["ps-0", "worker-0"]
    until(lambda now: any(node.last and node.last.memory_mib > 1 for node in now.nodes))
    until(lambda _: [line.text for line in job.logs("worker-0", n_line=9)] == ["I am worker 0"])
    assert not api.list(POD, selector=NODE_LABEL).items, "no pods of our own"

    job.decide(Scale.to(plan(2), why="more"))
    until(lambda now: now.phase is JobPhase.RESCALING and operator.plans())
    (scale,) = operator.plans()
    assert scale["spec"]["replicaResourceSpecs"]["worker"]["replicas"] == 2
    assert scale["metadata"]["annotations"]["dlrover-nb/decision"] == "d1"
    operator.take_up(scale)
    operator.make("worker", 1, scale["spec"]["replicaResourceSpecs"]["worker"]["resource"])
    now = until(lambda now: now.running == plan(2) and sum(n.last is not None for n in now.nodes) == 2)
    assert any("d1 is applied" in line for line in now.story)
    assert len(operator.plans()) == 1, "what was asked is not asked again"

    says = "The job master is succeeded."
    operator.says("Succeeded", says)
    end = job.wait(LIMIT_S)
    assert (end.phase, end.message) == (JobPhase.SUCCEEDED, says)
    assert api.get(ELASTIC_JOB, "foreign")["status"]["phase"] == "Succeeded"
    cluster.delete("foreign")
    end_s = time.monotonic() + 2 * LIMIT_S  # the collector learns new kinds late
    while any(api.list(kind).items for kind in (JOB, ELASTIC_JOB, SCALE_PLAN, POD)):
        assert time.monotonic() < end_s, "something is left"
        time.sleep(0.5)


def test_a_job_that_is_stopped_takes_its_elasticjob_with_it(api):
    job = KubernetesCluster(api).submit(spec())
    operator = Dlrover(api, "foreign")
    operator.make("ps", 0)
    operator.says("Running", "The job master is running.")
    end_s = time.monotonic() + LIMIT_S
    while not job.snapshot().nodes:
        assert time.monotonic() < end_s, job.snapshot()
        time.sleep(0.2)
    job.stop(why="enough")
    assert job.wait(LIMIT_S).phase is JobPhase.STOPPED

    def is_gone():
        with contextlib.suppress(NotThere):
            api.get(ELASTIC_JOB, "foreign")
            return False
        return True

    until(is_gone, "the end of the ElasticJob")  # the phase is known a moment before

"""Jobs under DLRover's operator on a real API server with its real definitions; the operator is played."""

from __future__ import annotations

import base64
import queue
from dataclasses import replace

import pytest
from support.jobs.exports import JOB, PLAN, TENSORFLOW
from support.kubernetes.dlrover_crds import OLDER, PRESENT, installed
from support.operators.dlrover_played import Dlrover
from support.waiting import LIMIT_S, until

from dlrover_nb.core.backends.kubernetes.client.api import Api, NotThere, connect_api
from dlrover_nb.core.backends.kubernetes.cluster import KubernetesCluster
from dlrover_nb.core.backends.kubernetes.nodes.site import Site
from dlrover_nb.core.backends.kubernetes.operator.operator_jobs import Operator, operator_of, settled
from dlrover_nb.core.backends.kubernetes.operator.operator_managed_pods import OperatorManagedPods
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.driver.external import operator_managed_job
from dlrover_nb.core.driver.external.external_job import Surroundings
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.manifests.kinds import ELASTIC_JOB, POD, SCALE_PLAN, SECRET
from dlrover_nb.core.manifests.kinds import JOB as KIND_JOB
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.external import StepsDone
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import RolePlan
from dlrover_nb.core.structs.wire.pod_contract import PodJob

pytestmark = [pytest.mark.kube, pytest.mark.more]
OPERATED = KubernetesSpec(operator="dlrover", env=("API_TOKEN=t",))
FOREIGN = replace(JOB, foreign=TENSORFLOW, plan=PLAN, kubernetes=OPERATED, mode=Mode.MANUAL)
MORE = replace(PLAN, worker=RolePlan(3, 0.5, 1024), ps=RolePlan(1, 0.4, 2048))
ROOM = Capacity((NodeShape(64, 1 << 18),))
URL = "http://10.0.0.7:8080/v1/report"


@pytest.fixture
def api(control_plane, namespace):
    return connect_api(kubeconfig=control_plane.kubeconfig, namespace=namespace(control_plane))


@pytest.fixture
def older(api):
    yield from installed(api, OLDER)


@pytest.fixture
def submitted(api, monkeypatch):
    """Submit a job to a cluster of which nothing is known: the control plane has no machines."""
    cluster = KubernetesCluster(api)
    monkeypatch.setattr(cluster, "_read_capacity", lambda _: ROOM)
    yield cluster.submit
    cluster.shutdown()


class OnPaper(OperatorManagedPods):
    """The control plane has no machines; all else is as in a master's pod."""

    def capacity(self) -> Capacity:
        return ROOM

    room = capacity


@pytest.fixture
def master(api, tmp_path):
    """Drive a submitted job as its master's pod does."""
    made = []

    def drive():
        told = base64.b64decode(api.get(SECRET, f"{JOB.name}-job")["data"]["job.json"])
        job = from_json(told, PodJob)
        backend = OnPaper(job, Site(api, api.get(KIND_JOB, JOB.name), "10.0.0.7:7070"), URL)
        history, reports = f"sqlite:///{tmp_path / 'history.db'}", queue.SimpleQueue()
        around = Surroundings(tmp_path / "run", history, SystemClock(), URL, reports)
        driver = operator_managed_job.begin(job.spec, backend, around)
        made.append(driver)
        driver.start()
        return driver, reports

    yield drive
    for driver in made:
        driver.close()


def test_a_cluster_without_the_operator_says_so_and_jobs_are_plain_pods(api) -> None:
    assert operator_of(api) is Operator.NONE
    assert "DLRover's operator" not in dict(KubernetesCluster(api).standing().facts)
    with pytest.raises(NotFoundError, match=r"leave kubernetes\.operator out"):
        KubernetesCluster(api).submit(FOREIGN)
    assert settled(_wants("auto"), api).kubernetes.operator == "none"
    assert settled(_wants(""), api).kubernetes.operator == "none"
    assert not api.list(KIND_JOB).items


def _wants(operator: str):
    return replace(FOREIGN, kubernetes=KubernetesSpec(operator=operator))


@pytest.mark.parametrize("file", [OLDER, PRESENT])
def test_each_generation_gets_the_document_that_it_knows_whole(api, submitted, file, words) -> None:
    for _ in installed(api, file):
        is_older = file == OLDER
        assert dict(KubernetesCluster(api).standing().facts)["DLRover's operator"] == words
        assert operator_of(api) is (Operator.OLDER if is_older else Operator.PRESENT)
        submitted(FOREIGN)
        stored = api.get(ELASTIC_JOB, JOB.name)
        assert ("enableElasticScheduling" in stored["spec"]) is is_older
        replicas = stored["spec"]["replicaSpecs"]
        assert {role: spec["replicas"] for role, spec in replicas.items()} == {"worker": 2, "ps": 1}
        pod = replicas["worker"]["template"]["spec"]
        (main,) = pod["containers"]
        assert (main["image"], main["name"]) == ("registry/deepctr:3", "main")
        env = {each["name"]: each for each in main["env"]}
        assert env["DLROVER_NB_NODE"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
        assert env["DLROVER_NB_REPORT_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == "ctr-daily-job"
        assert env["API_TOKEN"]["value"] == "t", "what an export leaves out, a job needs"
        assert [volume["name"] for volume in pod["volumes"] if "downwardAPI" in volume] == ["pod"]
        (owner,) = stored["metadata"]["ownerReferences"]
        assert owner["uid"] == api.get(KIND_JOB, JOB.name)["metadata"]["uid"]
        KubernetesCluster(api).delete(JOB.name, force=True)


@pytest.mark.release
def test_an_elasticjob_of_others_is_left_alone_and_nothing_of_the_job_stays(
    api, older, submitted, error_words
) -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "x"}]}}
    worker = {"replicas": 1, "template": template}
    spec = {"distributionStrategy": "ParameterServerStrategy", "replicaSpecs": {"worker": worker}}
    head = {"apiVersion": ELASTIC_JOB.api_version, "kind": "ElasticJob", "metadata": {"name": JOB.name}}
    api.create(ELASTIC_JOB, {**head, "spec": spec})
    with error_words(InvalidValueError):
        submitted(FOREIGN)
    until(lambda: not api.list(KIND_JOB).items)
    assert api.get(ELASTIC_JOB, JOB.name)["spec"]["replicaSpecs"].keys() == {"worker"}


def _running(api: Api, driver) -> Dlrover:
    """Bring the job to its first plan."""
    operator = Dlrover(api, JOB.name)
    names = [operator.make("ps", 4), operator.make("worker", 0), operator.make("worker", 3)]
    operator.says("Pending", "it waits")
    until(lambda: len(driver.snapshot().nodes) == 3)
    assert driver.snapshot().phase is JobPhase.STARTING
    operator.runs(*names)
    operator.says("Running", "The job master is running.")
    until(lambda: driver.snapshot().running == PLAN)
    return operator


def _scale(driver, plan) -> None:
    driver.decide(Decision(Verdict.SCALE, "ada", 0.0, plan=plan))


def test_a_plan_is_a_scaleplan_that_is_followed_until_the_pods_are_there(
    api, older, submitted, master
) -> None:
    submitted(FOREIGN)
    driver, reports = master()
    operator = _running(api, driver)
    for at_s in (1.0, 2.0):
        told = StepsDone(
            "ctr-daily-edljob-worker-3", "p", at_s=at_s, n_iter=int(at_s), n_sample=8 * int(at_s)
        )
        reports.put(told)
    until(lambda: any(node.last for node in driver.snapshot().nodes if node.id == "worker-3"))
    until(
        lambda: (
            api.get(POD, "ctr-daily-edljob-ps-4")["metadata"].get("annotations", {}).get("dlrover-nb/master")
            == URL
        )
    )

    _scale(driver, MORE)
    (scale,) = until(operator.plans)
    until(lambda: driver.snapshot().phase is JobPhase.RESCALING)
    # the parameter server stays and gets more: it is called by the name that it has now
    assert scale["spec"]["migratePods"] == [
        {"name": "ctr-daily-edljob-ps-4", "resource": {"cpu": "400m", "memory": "2048Mi"}}
    ]
    (reference,) = scale["metadata"]["ownerReferences"]
    job = api.get(ELASTIC_JOB, JOB.name)
    assert (reference["uid"], "blockOwnerDeletion" in reference) == (job["metadata"]["uid"], False)
    operator.take_up(scale)
    api.delete(POD, "ctr-daily-edljob-ps-4", grace_s=0)
    operator.runs(operator.make("worker", 5), operator.make("ps", 5, {"cpu": "400m", "memory": "2048Mi"}))
    until(lambda: driver.snapshot().running == MORE)
    assert {node.id for node in driver.snapshot().nodes} == {"ps-5", "worker-0", "worker-3", "worker-5"}
    assert any("is applied" in line for line in driver.snapshot().story)

    _scale(driver, PLAN)  # a plan that it had before is another ScalePlan: DLRover acts on each name once
    assert len(until(lambda: len(operator.plans()) == 2 and operator.plans())) == 2
    operator.says("Failed", "The job master failed.")
    assert driver.join(LIMIT_S)
    assert (driver.snapshot().phase, driver.snapshot().message) == (
        JobPhase.FAILED,
        "The job master failed.",
    )


@pytest.mark.release
def test_a_scaleplan_that_failed_is_left_for_the_plan_before(api, older, submitted, master) -> None:
    submitted(FOREIGN)
    driver, _ = master()
    operator = _running(api, driver)
    _scale(driver, MORE)
    (scale,) = until(operator.plans)
    failed = {"status": {"phase": "Failed"}}
    api.patch(SCALE_PLAN, scale["metadata"]["name"], failed, subresource="status")
    back = until(lambda: len(operator.plans()) == 2 and operator.plans()[-1])
    assert back["spec"]["replicaResourceSpecs"]["worker"]["replicas"] == 2
    until(lambda: driver.snapshot().running == PLAN)
    assert any("did not take it" in line for line in driver.snapshot().story)
    api.delete(ELASTIC_JOB, JOB.name)
    assert driver.join(LIMIT_S)
    last = driver.snapshot()
    assert (last.phase, last.message) == (JobPhase.STOPPED, "its ElasticJob was deleted")


def test_where_no_scaleplans_are_served_a_plan_is_refused_with_the_reason(api, submitted, master) -> None:
    for _ in installed(api, PRESENT):
        submitted(FOREIGN)
        driver, _ = master()
        _running(api, driver)
        _scale(driver, MORE)
        until(
            lambda driver=driver: any(
                "ScalePlans are not installed here" in line for line in driver.snapshot().story
            )
        )
        until(lambda driver=driver: driver.snapshot().running == PLAN)
        driver.stop("ada")
        assert driver.join(LIMIT_S)
        with pytest.raises(NotThere):
            api.get(ELASTIC_JOB, JOB.name)

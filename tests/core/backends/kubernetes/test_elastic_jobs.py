"""ElasticJobs on a real API server with DLRover's real definitions.

DLRover's operator is not here: the tests write what it and its master write, at the places where their code
does (the operator: the status of an ElasticJob by the phase of its master's pod; the master: pods named
``JOB-edljob-ROLE-NUMBER`` with its labels, and an owner in each ScalePlan that it takes up). What is ours runs
as it does in front of them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
import yaml
from exports import CRDS, JOB, PLAN, TENSORFLOW, TOLD

from dlrover_nb.core.backends.kubernetes import elastic
from dlrover_nb.core.backends.kubernetes.api import Api, Forbidden, NotThere, connect_api
from dlrover_nb.core.backends.kubernetes.cluster import KubernetesCluster
from dlrover_nb.core.backends.kubernetes.elastic import ElasticJob, Operator, create, operator_of
from dlrover_nb.core.backends.kubernetes.elastic_state import Applied
from dlrover_nb.core.backends.kubernetes.kinds import CRD, ELASTIC_JOB, POD, SCALE_PLAN
from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError
from dlrover_nb.core.structs.job import JobPhase
from dlrover_nb.core.structs.resources import RolePlan
from dlrover_nb.core.structs.snapshot import NodePhase

pytestmark = pytest.mark.kube
FOREIGN = replace(JOB, foreign=TENSORFLOW, plan=PLAN)
LIMIT_S = 20.0


def _install(api: Api, file: str) -> list[str]:
    """Install the definitions of a file of the real ones, and wait until they are served."""
    documents = yaml.load_all((CRDS / "dlrover" / file).read_text("utf-8"), yaml.CSafeLoader)
    wanted = [d for d in documents if d and d["kind"] == "CustomResourceDefinition"]
    for document in wanted:
        api.create(CRD, document)
    names = [document["metadata"]["name"] for document in wanted]
    _until(lambda: all(_is_served(api, name) for name in names))
    return names


def _is_served(api: Api, name: str) -> bool:
    conditions = api.get(CRD, name)["status"].get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _until(holds: Any) -> None:
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, "it never held"
        time.sleep(0.02)


@pytest.fixture
def api(control_plane, namespace):
    return connect_api(kubeconfig=control_plane.kubeconfig, namespace=namespace(control_plane))


@pytest.fixture(params=["manifests_bases_crd.HEAD.yaml", "elasticjobs.HEAD.yaml"])
def operator(request, api):
    """One generation of the operator's definitions after the other."""
    yield from _installed(api, request.param)


@pytest.fixture(scope="module")
def older(control_plane):
    api = connect_api(kubeconfig=control_plane.kubeconfig, namespace="default")
    yield from _installed(api, "manifests_bases_crd.HEAD.yaml")


def _installed(api, file):
    names = _install(api, file)
    yield file
    for name in names:
        api.delete(CRD, name)
    _until(lambda: not any(_there(api, name) for name in names))


def _there(api: Api, name: str) -> bool:
    try:
        api.get(CRD, name)
    except NotThere:
        return False
    return True


def _pod(
    job: str, role: str, number: int, *, rank: int | None = None, cpu: str = "500m", memory: str = "1024Mi"
):
    """Return a pod as DLRover's master makes it."""
    limits = {"cpu": cpu, "memory": memory}
    return {
        "metadata": {
            "name": f"{job}-edljob-{role}-{number}",
            "labels": {
                "app": "dlrover",
                "elasticjob.dlrover/name": job,
                "elasticjob.dlrover/replica-type": role,
                "elasticjob.dlrover/replica-index": str(number),
                "elasticjob.dlrover/rank-index": str(number if rank is None else rank),
            },
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "main", "image": "x", "resources": {"requests": limits, "limits": limits}}
            ],
        },
    }


def _runs(api: Api, *pods: Any, phase: str = "Running") -> None:
    for pod in pods:
        api.create(POD, pod)
        api.patch(POD, pod["metadata"]["name"], {"status": {"phase": phase}}, subresource="status")


def _operator_says(api: Api, phase: str, message: str, **replicas: Any) -> None:
    inner = {
        "conditions": [{"type": phase, "status": "True", "message": message}],
        "replicaStatuses": replicas,
    }
    api.patch(ELASTIC_JOB, JOB.name, {"status": {"phase": phase, "status": inner}}, subresource="status")


def test_a_cluster_without_the_operator_says_so(api) -> None:
    assert operator_of(api) is Operator.NONE
    assert "DLRover's operator" not in dict(KubernetesCluster(api).standing().facts)
    with pytest.raises(NotFoundError, match="submit the job as plain pods"):
        create(api, FOREIGN)


def test_each_generation_gets_the_document_that_it_knows_whole(api, operator) -> None:
    is_older = operator.startswith("manifests")
    assert dict(KubernetesCluster(api).standing().facts)["DLRover's operator"] == (
        "is there and takes ScalePlans; export --kind elasticjob-0 fits it"
        if is_older
        else "is there and takes no ScalePlans; export --kind elasticjob fits it"
    )
    assert operator_of(api) is (Operator.OLDER if is_older else Operator.PRESENT)
    stored = create(api, FOREIGN, TOLD)
    assert ("enableElasticScheduling" in stored["spec"]) is is_older
    assert {role: spec["replicas"] for role, spec in stored["spec"]["replicaSpecs"].items()} == {
        "worker": 2,
        "ps": 1,
    }
    (main,) = stored["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]
    assert (main["image"], main["name"]) == ("registry/deepctr:3", "main")
    with pytest.raises(InvalidValueError, match="is there already"):
        create(api, FOREIGN)
    elastic.delete(api, JOB.name)


@pytest.mark.parametrize(
    ("file", "error", "told"),
    [
        ("elasticjobs.HEAD.yaml", BackendError, "serves no scaleplans"),
        ("manifests_bases_crd.HEAD.yaml", NotFoundError, "no ElasticJob ctr-daily"),
    ],
)
def test_where_no_scaleplans_are_served_or_no_job_is_there_nothing_is_made(api, file, error, told) -> None:
    for _ in _installed(api, file):
        with ElasticJob(api, FOREIGN) as job, pytest.raises(error, match=told):
            job.apply(replace(PLAN, worker=RolePlan(3, 0.5, 1024)), TOLD)


def test_who_may_not_read_definitions_gets_a_document_for_both(
    api, older, control_plane, monkeypatch
) -> None:
    alice = connect_api(kubeconfig=control_plane.alice, namespace=api.namespace)
    with pytest.raises(Forbidden):
        alice.get(CRD, "elasticjobs.elastic.iml.github.io")
    assert operator_of(alice) is Operator.PRESENT


def test_a_job_of_our_own_runtime_is_refused_with_the_reason(api, older) -> None:
    with pytest.raises(InvalidValueError, match="image and a command"):
        create(api, JOB)


def test_a_job_is_followed_from_its_start_to_its_end(api, older) -> None:
    create(api, FOREIGN)
    with ElasticJob(api, FOREIGN) as job:
        assert job.view().phase is JobPhase.STARTING
        _operator_says(api, "Pending", "it waits", **{"dlrover-master": {"pending": 1}})
        _runs(api, _pod(JOB.name, "ps", 0, cpu="400m"), _pod(JOB.name, "worker", 0))
        _runs(api, _pod(JOB.name, "worker", 3, rank=1), phase="Pending")
        _operator_says(api, "Running", "The job master is running.", worker={"active": 1, "pending": 1})
        _until(lambda: job.view().phase is JobPhase.TRAINING and len(job.view().nodes) == 3)
        seen = job.view()
        assert seen.why == "The job master is running."
        assert seen.counts["worker"] == {"active": 1, "pending": 1}
        assert [(n.id, n.phase, n.cpu, n.memory_mib) for n in seen.nodes] == [
            ("ps-0", NodePhase.READY, 0.4, 1024),
            ("worker-0", NodePhase.READY, 0.5, 1024),
            ("worker-1", NodePhase.PENDING, 0.5, 1024),
        ]
        _operator_says(api, "Succeeded", "The job master is succeeded.")
        _until(lambda: job.view().phase is JobPhase.SUCCEEDED)
        elastic.delete(api, JOB.name)
        _until(lambda: job.view().phase is JobPhase.STOPPED)
        assert job.view().why == "its ElasticJob was deleted"


def test_an_accepted_plan_is_a_scaleplan_that_is_followed_until_the_pods_are_there(api, older) -> None:
    owner = create(api, FOREIGN)
    ps, worker = _pod(JOB.name, "ps", 4, rank=0, cpu="200m", memory="512Mi"), _pod(JOB.name, "worker", 0)
    _runs(api, ps, worker)
    _operator_says(api, "Running", "The job master is running.")
    with ElasticJob(api, FOREIGN) as job:
        _until(lambda: len(job.view().nodes) == 2)
        done = job.apply(PLAN, TOLD)
        assert (done.name, done.state) == ("ctr-daily-d4", Applied.WAITING)
        assert job.apply(PLAN, TOLD) == done  # it is there: nothing is asked twice
        assert len(api.list(SCALE_PLAN).items) == 1
        stored = api.get(SCALE_PLAN, "ctr-daily-d4")
        # what DLRover's master selects by, and whose it is
        assert api.list(SCALE_PLAN, selector="elasticjob.dlrover/name=ctr-daily,scale-type=manual").items
        (reference,) = stored["metadata"]["ownerReferences"]
        assert (reference["uid"], "blockOwnerDeletion" in reference) == (owner["metadata"]["uid"], False)
        # the parameter server stays and gets more: it is called by the name that it has now
        assert stored["spec"]["migratePods"] == [
            {"name": "ctr-daily-edljob-ps-4", "resource": {"cpu": "400m", "memory": "1024Mi"}}
        ]
        _until(lambda: job.view().phase is JobPhase.RESCALING)

        taken = {**reference, "kind": "elasticjob", "blockOwnerDeletion": True}
        api.patch(SCALE_PLAN, "ctr-daily-d4", {"metadata": {"ownerReferences": [taken]}})
        assert [each.state for each in job.scaled()] == [Applied.SCALING]
        api.delete(POD, ps["metadata"]["name"], grace_s=0)
        _runs(api, _pod(JOB.name, "ps", 5, rank=0, cpu="400m"), _pod(JOB.name, "worker", 1))
        _until(lambda: [each.state for each in job.scaled()] == [Applied.DONE])
        _until(lambda: job.view().phase is JobPhase.TRAINING)

        api.delete(SCALE_PLAN, "ctr-daily-d4")
        _other_of_that_name(api)
        with pytest.raises(InvalidValueError, match="asks for something else"):
            job.apply(PLAN, TOLD)
    elastic.delete(api, JOB.name)


def _other_of_that_name(api: Api) -> None:
    spec = {"ownerJob": JOB.name, "replicaResourceSpecs": {"worker": {"replicas": 9}}}
    document = {
        "apiVersion": SCALE_PLAN.api_version,
        "kind": "ScalePlan",
        "metadata": {"name": "ctr-daily-d4"},
        "spec": spec,
    }
    api.create(SCALE_PLAN, document)

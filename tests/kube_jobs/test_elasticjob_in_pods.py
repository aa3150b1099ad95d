"""An exported ElasticJob of our own job, applied as it stands where DLRover's operator (played) keeps its master."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.kubernetes.dlrover_crds import OLDER, PRESENT, SCALE_PLANS, installed
from support.kubernetes.jobs_in_pods import FOREVER, SMALL, assert_exact, job, names_of, trained
from support.operators.operator_played import PlayedOperator
from support.waiting import LIMIT_S, until

from dlrover_nb.core.backends.kubernetes.jobs.submission import namespaced
from dlrover_nb.core.errors import BackendError, NotFoundError
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.gathering import documents_in
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.provenance import Provenance
from dlrover_nb.core.export.schemas import check
from dlrover_nb.core.manifests.kinds import (
    CONFIG_MAP,
    ELASTIC_JOB,
    POD,
    ROLE,
    ROLE_BINDING,
    SCALE_PLAN,
    SECRET,
    SERVICE_ACCOUNT,
)
from dlrover_nb.core.structs.job.job import DataSpec, JobPhase
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.yamltext import to_yaml

pytestmark = [pytest.mark.kube, pytest.mark.pods]
KINDS = {k.name: k for k in (CONFIG_MAP, SECRET, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, ELASTIC_JOB)}
SILENT_S = 30.0  # so long a node may be silent before it is given up, on a loaded machine too
MASTER_0, MASTER_1 = (f"elasticjob-filed-dlrover-master-{index}" for index in (0, 1))


@pytest.fixture
def definitions():
    """Name the older definitions, which `kubectl apply -k` of DLRover's repository installs."""
    return (OLDER,)


@pytest.fixture
def operator(place, definitions):
    """Run the operator in the namespace, with one generation of the real definitions."""
    api = place.cluster.api
    for _ in installed(api, *definitions):
        played = PlayedOperator(api)
        yield played
        for each in api.list(ELASTIC_JOB).items:
            api.delete(ELASTIC_JOB, each["metadata"]["name"], propagation="Background")
        played.close()


@pytest.fixture
def applied(place, operator):
    """Export a job and create the file's objects as they stand; return a handle once it has begun."""

    def apply(spec, change=lambda text: text):
        spec = namespaced(spec, place.cluster.api)
        options = Options(namespace=place.namespace)
        text = to_yaml(*EXPORTERS["elasticjob"](spec, spec.plan, Provenance(), options))
        documents = documents_in(change(text))
        assert check(documents) == ()
        for document in documents:
            place.cluster.api.create(KINDS[document["kind"]], document)
        return until(lambda: _found(place.cluster, spec.name), what="the keys of the job")

    return apply


def _found(cluster, name):
    try:
        return cluster.job(name)
    except (BackendError, NotFoundError):
        return None


def filed(**changes):
    spec = job("filed", **{"plan": SMALL} | changes)
    return replace(spec, kubernetes=replace(spec.kubernetes, linger_s=2.0))


def scaled(place, plan, name="", **spec):
    """Create a ScalePlan as it is exported, with other fields of its spec; return its name."""
    (document,) = EXPORTERS["scaleplan"](filed(), plan, Provenance(), Options(namespace=place.namespace))
    document["metadata"]["name"] = name or document["metadata"]["name"]
    made = place.cluster.api.create(SCALE_PLAN, document | {"spec": document["spec"] | spec})
    return made["metadata"]["name"]


def said_of(place, name):
    """Return the phase of a ScalePlan, and the reason of its refusal."""
    found = place.cluster.api.get(SCALE_PLAN, name)
    notes = found["metadata"].get("annotations", {})
    return found.get("status", {}).get("phase"), notes.get("dlrover-nb/refused", "")


def phase_of(place):
    return place.cluster.api.get(ELASTIC_JOB, "filed").get("status", {}).get("phase")


@pytest.mark.release_variants("older")
@pytest.mark.more
@pytest.mark.parametrize(
    "definitions",
    [(PRESENT, SCALE_PLANS), (OLDER,)],
    ids=["present", "older"],
)
def test_one_applied_file_trains_to_the_end_and_goes_with_its_elasticjob(place, applied):
    spec = filed(n_epoch=4)
    handle = applied(spec)
    trained(handle, 1_000)
    (line,) = place.cluster.jobs()
    assert (line.name, line.live) == ("filed", True)
    end = handle.wait(LIMIT_S)
    assert_exact(spec, end)
    until(lambda: phase_of(place) == "Succeeded", what="the operator's word")
    assert [pod.metadata.name for pod in place.pods("dlrover-nb/role=master")] == [MASTER_0]
    assert place.cluster.job("filed").snapshot().evaluation == end.evaluation
    place.cluster.delete("filed")
    until(lambda: not place.cluster.api.list(POD).items, what="no pod of the job")


TWO, THREE, ONE = (ResourcePlan(worker=RolePlan(n, 0.4, 512), ps=SMALL.ps) for n in (2, 3, 1))


@pytest.mark.release
def test_scale_plans_and_edits_of_the_elasticjob_are_decisions_of_the_job(place, applied):
    handle = applied(filed(plan=TWO, n_epoch=FOREVER, heartbeat_timeout_s=SILENT_S))
    trained(handle, 1)
    name = scaled(place, THREE)
    until(lambda: said_of(place, name) == ("Succeeded", ""), what=lambda: f"{said_of(place, name)}")
    (decision,) = handle.snapshot().decisions
    assert (decision.by, decision.plan) == (f"ScalePlan {name}", THREE)
    until(lambda: handle.snapshot().running == THREE, what=lambda: f"{handle.snapshot().running}")
    told = place.cluster.api.get(SCALE_PLAN, name)
    assert told["metadata"]["annotations"]["dlrover-nb/decision"] == decision.id
    assert [owner["kind"] for owner in told["metadata"]["ownerReferences"]] == ["ElasticJob"]
    assert told["status"]["finishTime"] >= told["status"]["createTime"]

    wrong = scaled(place, TWO, "wrong", removePods=[{"name": "filed-worker-0"}])
    until(lambda: said_of(place, wrong)[0] == "Failed", what="a refusal")
    assert "removePods names single pods" in said_of(place, wrong)[1]

    fewer = {"spec": {"replicaSpecs": {"worker": {"replicas": 1}}}}
    place.cluster.api.patch(ELASTIC_JOB, "filed", fewer)
    until(lambda: handle.snapshot().running == ONE, what=lambda: f"{handle.snapshot().target}")
    assert handle.snapshot().decisions[-1].by == "ElasticJob filed"
    assert handle.stop().phase is JobPhase.STOPPED
    until(lambda: phase_of(place) == "Succeeded", what="the operator's word")


@pytest.mark.release
def test_a_job_goes_on_with_its_nodes_after_the_loss_of_its_master(place, applied):
    spec = filed(n_epoch=4, heartbeat_timeout_s=SILENT_S)
    handle = applied(spec)
    before = trained(handle, 5_000)
    assert place.master("filed") == MASTER_0
    place.delete_pod(MASTER_0)
    until(lambda: place.master("filed") == MASTER_1, what="the next master")
    after = trained(handle, before.train.n_sample_done + 2_000)
    assert names_of(after) == names_of(before)
    assert after.started_at_s == before.started_at_s
    end = handle.wait(LIMIT_S)
    assert_exact(spec, end)
    assert not any("was lost" in line for line in end.story), end.story
    until(lambda: phase_of(place) == "Succeeded", what="the operator's word")


@pytest.mark.release
def test_a_job_that_fails_fails_its_elasticjob_and_is_not_begun_again(place, applied):
    spec = filed(data=DataSpec(DataFormat.CSV, "/nowhere.csv"))
    handle = applied(spec)
    end = handle.wait(LIMIT_S)
    assert end.phase is JobPhase.FAILED
    assert "/nowhere.csv" in end.message
    until(lambda: phase_of(place) == "Failed", what="the operator's word")
    assert [pod.metadata.name for pod in place.pods("dlrover-nb/role=master")] == [MASTER_0]
    assert place.cluster.job("filed").snapshot().message == end.message

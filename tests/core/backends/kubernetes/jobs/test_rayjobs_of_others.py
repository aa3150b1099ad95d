"""RayJobs on a real API server with KubeRay's own definition, whose operator is played: read, and never changed."""

from __future__ import annotations

import contextlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from suite.missing import shared
from support.jobs.exports import readable
from support.waiting import until

from dlrover_nb.api.cluster import Cluster
from dlrover_nb.core.backends.kubernetes.client.api import Conflict, connect_api
from dlrover_nb.core.backends.kubernetes.client.api_errors import Forbidden, NotThere, Operation, Status
from dlrover_nb.core.backends.kubernetes.cluster import KubernetesCluster
from dlrover_nb.core.backends.kubernetes.jobs.ray_jobs import SeesRayJobs, job_of
from dlrover_nb.core.errors import NotFoundError, UnmanagedJobError
from dlrover_nb.core.manifests.kinds import CRD, POD, RAY_JOB

EXAMPLE = "kuberay/example_ray-job.sample.yaml"
plain = st.none() | st.text(max_size=20)


@given(
    st.fixed_dictionaries(
        {"metadata": st.fixed_dictionaries({"name": st.text(min_size=1)}, optional={"namespace": st.text()})},
        optional={
            "spec": st.fixed_dictionaries({}, optional={"entrypoint": plain, "submissionMode": plain}),
            "status": st.dictionaries(
                st.sampled_from(
                    ["jobDeploymentStatus", "jobStatus", "startTime", "endTime", "message", "reason", "jobId"]
                ),
                plain,
            ),
        },
    )
)
def test_whatever_an_object_lacks_it_is_a_job(document):
    job = job_of(document)
    assert job.name == document["metadata"]["name"]
    assert job.state
    assert job.is_final == (document.get("status", {}).get("jobDeploymentStatus") in {"Complete", "Failed"})


class Closed(SeesRayJobs):
    """A namespace whose API server does not list RayJobs."""

    def __init__(self, error):
        self.api, self.error = self, error

    def has(self, kind):
        return kind is RAY_JOB

    def list(self, kind):
        raise self.error("no", Status(403, "Forbidden", "no"), Operation("list", kind))


@pytest.mark.more
@pytest.mark.parametrize("error", [Forbidden, NotThere])
def test_who_may_not_list_rayjobs_sees_none(error):
    assert Closed(error).unmanaged_jobs() == ()


@pytest.fixture
def api(control_plane, namespace):
    crds = shared("crds")
    api = connect_api(kubeconfig=control_plane.kubeconfig, namespace=namespace(control_plane))
    definition = readable(
        yaml.load((crds / "kuberay/ray.io_rayjobs.v1.7.0.yaml").read_text("utf-8"), yaml.CSafeLoader)
    )
    with contextlib.suppress(Conflict):
        api.create(CRD, definition)
    until(lambda: api.has(RAY_JOB), what="the definition of RayJobs")
    until(lambda: listed(api), what="RayJobs")
    return api


def listed(api):
    try:
        api.list(RAY_JOB)
    except NotFoundError:
        return False
    return True


def create(api, name):
    document = next(
        each
        for each in yaml.safe_load_all(shared("crds", EXAMPLE).read_text("utf-8"))
        if each["kind"] == "RayJob"
    )
    document["metadata"] = {"name": name}
    return api.create(RAY_JOB, document)


@pytest.mark.more
@pytest.mark.kube
def test_a_namespace_shows_rayjobs_beside_ours_and_refuses_to_change_them(api, error_words):
    cluster = Cluster(KubernetesCluster(api))
    assert "Jobs of others" not in str(cluster.jobs())
    created = create(api, "theirs")
    assert cluster.unmanaged_job("theirs").job.state == "New"
    status = {
        "jobDeploymentStatus": "Running",
        "jobStatus": "RUNNING",
        "jobId": "theirs-x7",
        "rayClusterName": "theirs-raycluster-a",
        "startTime": "2026-01-01T00:00:00Z",
    }
    api.patch(RAY_JOB, "theirs", {"status": status}, subresource="status")
    told = cluster.unmanaged_job("theirs").job
    assert (told.kind, told.state, told.is_final) == ("RayJob", "Running, RUNNING", False)
    assert told.entrypoint == created["spec"]["entrypoint"]
    assert (told.started_at_s, told.ended_at_s) == (1767225600.0, None)
    assert ("Ray cluster", "theirs-raycluster-a") in told.facts
    shown = str(cluster.jobs())
    assert "Jobs of others" in shown
    assert "theirs" in shown

    before = api.get(RAY_JOB, "theirs")["metadata"]["resourceVersion"]
    for change in (cluster.job, cluster.delete):
        with error_words(UnmanagedJobError):
            change("theirs")
    assert api.get(RAY_JOB, "theirs")["metadata"]["resourceVersion"] == before

    failed = {
        "jobDeploymentStatus": "Failed",
        "jobStatus": "FAILED",
        "reason": "AppFailed",
        "message": "exit 1",
    }
    api.patch(
        RAY_JOB, "theirs", {"status": failed | {"endTime": "2026-01-01T00:01:00Z"}}, subresource="status"
    )
    told = cluster.unmanaged_job("theirs").job
    assert (told.is_final, told.ended_at_s, told.message) == (True, 1767225660.0, "AppFailed: exit 1")


@pytest.mark.more
@pytest.mark.kube
def test_output_is_looked_for_in_the_pod_that_submits(api, error_words):
    cluster = Cluster(KubernetesCluster(api))
    create(api, "theirs")
    with error_words(NotFoundError):
        cluster.logs("theirs")
    pod = {
        "metadata": {"name": "theirs-abcde", "labels": {"job-name": "theirs"}},
        "spec": {"containers": [{"name": "ray-job-submitter", "image": "none"}]},
    }
    api.create(POD, pod)
    assert cluster.logs("theirs").text == "", "no machine runs it"

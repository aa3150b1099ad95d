"""No run trains beside an earlier one of its name that lost its Job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.cases import for_each
from support.kubernetes.kube import grant
from support.waiting import until

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.cluster import KubernetesCluster
from dlrover_nb.core.backends.kubernetes.jobs import strays as module
from dlrover_nb.core.backends.kubernetes.jobs.link import read_job
from dlrover_nb.core.backends.kubernetes.jobs.strays import is_stray, left_on_volume, remove, strays
from dlrover_nb.core.backends.kubernetes.master import PodMaster
from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError
from dlrover_nb.core.manifests.kinds import JOB, POD, SECRET
from dlrover_nb.core.manifests.objects import master_job, with_owner
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL, MASTER_ROLE, labels
from dlrover_nb.core.manifests.pods import PodNode, node_pod
from dlrover_nb.core.manifests.role_rules import USER
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec, Volume
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.pod_contract import PodJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.manifests.kinds import Doc

SPEC = JobSpec("clicks", owner="ann")
PRESENT, GONE = "1-2-3", "9-9-9"


def pod(*owners: tuple[str, str, str], phase: str = "Running") -> Doc:
    refs = [{"kind": kind, "name": name, "uid": uid} for kind, name, uid in owners]
    head = {"name": "p", "labels": labels("clicks", "0a1b2c3d", "ps", "ps-0"), "ownerReferences": refs}
    return {"metadata": head, "status": {"phase": phase}}


@for_each(
    ("found", "alone", "beside"),
    [
        (pod(), True, True),
        (pod(phase="Pending"), True, True),
        (pod(phase="Failed"), False, False),
        (pod(("Job", "clicks", PRESENT)), False, False),
        (
            pod(("Job", "clicks", GONE)),
            False,
            True,
        ),  # the cluster deletes it, but a new run does not wait for that
        (pod(("ElasticJob", "clicks", GONE)), False, True),
        (pod(("Job", "clicks-worker-0", GONE)), False, False),  # of an exported JobSet
        (pod(("TFJob", "clicks", GONE)), False, False),
    ],
)
def test_what_runs_without_the_job_of_its_name_is_a_stray(found: Doc, alone: bool, beside: bool) -> None:  # noqa: FBT001 - two columns of the table
    assert is_stray(found, "") is alone
    assert is_stray(found, PRESENT) is beside


@pytest.mark.parametrize(
    "volume",
    [
        Volume("/dlrover-nb/state", claim="runs"),
        Volume("/dlrover-nb/state", host_path="/mnt/runs"),
        Volume("/data", claim="rows"),  # not of the run folder, so that there is nothing to tell
    ],
    ids=["on a claim", "on a machine", "of data"],
)
def test_a_run_folder_on_a_volume_is_told_when_its_job_is_deleted(volume: Volume, words) -> None:
    job = PodJob(
        JobSpec("clicks", kubernetes=KubernetesSpec(volumes=(volume,))), None, "0a1b2c3d", "", "", ""
    )
    assert left_on_volume(master_job(job, namespace="n"), job.run) == words


def test_a_master_removes_earlier_runs_before_it_begins(monkeypatch: pytest.MonkeyPatch, error_words) -> None:
    def removed(_api: Any, name: str, *, uid: str) -> int:
        raise BackendError(f"asked to remove all of {name} but {uid}")

    monkeypatch.setattr(module, "remove", removed)
    job = PodJob(SPEC, None, "0a1b2c3d", "public", "secret-key", "the-token")
    with error_words(BackendError):
        PodMaster(job, None, ip="10.0.0.1")._driver({"metadata": {"uid": PRESENT}})  # type: ignore[arg-type]  # not asked


# on a real API server


@pytest.fixture
def admin(control_plane: Any, namespace: Any) -> Any:
    api = connect_api(namespace=namespace(control_plane), kubeconfig=control_plane.kubeconfig)
    grant(api, USER, "alice")
    return api


@pytest.fixture
def cluster(control_plane: Any, admin: Any) -> Iterator[KubernetesCluster]:
    cluster = KubernetesCluster(connect_api(namespace=admin.namespace, kubeconfig=control_plane.alice))
    yield cluster
    cluster.shutdown()


def orphan(admin: Any, cluster: KubernetesCluster) -> None:
    """Start a job with a node, and delete its Job without all that it owns."""
    cluster.submit(SPEC)
    owner = admin.get(JOB, "clicks")
    document = node_pod(read_job(admin, "clicks"), PodNode("ps-0", Role.PS, 0.2, 256), master="")
    admin.create(POD, with_owner(document, owner))
    until(lambda: len(pods(admin)) == 2, what="the pod of the master")
    admin.delete(JOB, "clicks", propagation="Orphan")
    until(lambda: len(strays(admin, "clicks")) == 2, what="pods without an owner")
    until(lambda: not admin.list(JOB).items, what="the end of the Job")


def pods(admin: Any) -> list[Doc]:
    found: list[Doc] = admin.list(POD, selector=JOB_LABEL).items
    return found


@pytest.mark.more
@pytest.mark.kube
def test_a_name_whose_earlier_run_lost_its_job_is_refused_until_that_is_deleted(
    admin: Any, cluster: KubernetesCluster, words, error_words
) -> None:
    orphan(admin, cluster)
    assert strays(admin, "clicks")[0]["metadata"]["labels"]["dlrover-nb/role"] == MASTER_ROLE
    with error_words(InvalidValueError):
        cluster.submit(SPEC)
    with error_words(InvalidValueError):
        cluster.delete("clicks")
    assert len(pods(admin)) == 2
    told = cluster.delete("clicks", force=True)
    assert told == words
    assert "could not" not in told
    assert pods(admin) == admin.list(SECRET, selector=JOB_LABEL).items == []
    with pytest.raises(NotFoundError):
        cluster.delete("clicks", force=True)
    assert cluster.submit(SPEC)


@pytest.mark.more
@pytest.mark.kube
def test_the_pods_of_the_present_job_stay(admin: Any, cluster: KubernetesCluster) -> None:
    orphan(admin, cluster)
    admin.create(JOB, {**master_job(read_job(admin, "clicks"), namespace=admin.namespace)})
    present = admin.get(JOB, "clicks")
    mine = node_pod(read_job(admin, "clicks"), PodNode("ps-1", Role.PS, 0.2, 256), master="")
    admin.create(POD, with_owner(mine, present))
    assert remove(admin, "clicks", uid=present["metadata"]["uid"]) == 2
    assert [each["metadata"]["labels"]["dlrover-nb/node"] for each in pods(admin)] == ["ps-1"]

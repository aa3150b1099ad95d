"""Jobs are put into a namespace of a real API server, all of each or nothing; no pod runs there."""

from __future__ import annotations

import base64
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from support.jobs import builders
from support.kubernetes.kube import await_rights, grant
from support.waiting import LIMIT_S

from dlrover_nb.core.backends.kubernetes.client.api import Api, connect_api
from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    Forbidden,
    Inadmissible,
    NotThere,
    Operation,
    Status,
    Unreachable,
)
from dlrover_nb.core.backends.kubernetes.cluster import KubernetesCluster
from dlrover_nb.core.backends.kubernetes.exported_master import founded
from dlrover_nb.core.backends.kubernetes.jobs import submission
from dlrover_nb.core.backends.kubernetes.jobs.halt import leave_end
from dlrover_nb.core.backends.kubernetes.jobs.last_snapshot import end_document, end_of
from dlrover_nb.core.backends.kubernetes.jobs.link import read_job
from dlrover_nb.core.backends.kubernetes.jobs.master_status import BEGUN_NOTE
from dlrover_nb.core.backends.kubernetes.jobs.submission import Prepared, new_pod_job
from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError
from dlrover_nb.core.manifests.kinds import (
    CONFIG_MAP,
    JOB,
    POD,
    QUOTA,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
)
from dlrover_nb.core.manifests.objects import companions, master_job
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL, VIEW_NOTE, end_name, run_of, view_token
from dlrover_nb.core.manifests.pods import PodNode, node_pod
from dlrover_nb.core.manifests.role_rules import USER, VIEWER
from dlrover_nb.core.structs.decisions.call_rights import CallRight, access_token
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec, Volume
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.pod_contract import PodJob

pytestmark = [pytest.mark.kube, pytest.mark.more]
SPEC = JobSpec("clicks", owner="ann")
STRONG = (CallRight.STEER, CallRight.END)
COMPANIONS = (SECRET, SERVICE_ACCOUNT, ROLE, ROLE_BINDING)


@pytest.fixture
def admin(control_plane, namespace):
    """The administrator's view of a fresh namespace, in which alice may do what users of jobs may."""
    api = connect_api(namespace=namespace(control_plane), kubeconfig=control_plane.kubeconfig)
    grant(api, USER, "alice")
    return api


@pytest.fixture
def cluster(control_plane, admin):
    """The namespace as alice has it: she may see no machines, so that none are missing here."""
    cluster = KubernetesCluster(connect_api(namespace=admin.namespace, kubeconfig=control_plane.alice))
    yield cluster
    cluster.shutdown()


def left(admin: Api) -> set[str]:
    """Return what there is of jobs in the namespace."""
    kinds = (JOB, POD, CONFIG_MAP, *COMPANIONS)
    return {
        f"{kind.name}/{doc['metadata']['name']}"
        for kind in kinds
        for doc in admin.list(kind, selector=JOB_LABEL).items
    }


def until_nothing_is_left(admin: Api) -> None:
    end = time.monotonic() + LIMIT_S
    while there := left(admin):
        assert time.monotonic() < end, there
        for pod in (name.partition("/")[2] for name in there if name.startswith("Pod/")):
            admin.delete(POD, pod, grace_s=0)  # no kubelet ends it here
        time.sleep(0.1)


def test_a_job_is_put_together_and_deleted_with_all_that_belongs_to_it(admin, cluster):
    job = cluster.submit(SPEC)
    made = cluster.api.get(JOB, "clicks")
    assert made["spec"]["parallelism"] == 1
    for kind, name in zip(COMPANIONS, ["clicks-job", *["clicks-master"] * 3], strict=True):
        (owner,) = cluster.api.get(kind, name)["metadata"]["ownerReferences"]
        assert owner["uid"] == made["metadata"]["uid"]
    now = job.snapshot()
    assert (now.phase, now.spec.owner) == (JobPhase.STARTING, "ann")
    (line,) = cluster.jobs()
    assert (line.name, line.phase, line.owner, line.live) == ("clicks", JobPhase.STARTING, "ann", False)
    assert cluster.live_jobs() == ()
    with pytest.raises(InvalidValueError, match="job clicks runs"):
        cluster.delete("clicks")
    assert "is deleted" in cluster.delete("clicks", force=True)
    until_nothing_is_left(admin)


def test_a_cluster_that_went_away_while_a_job_is_put_together_is_not_asked_again_and_again(
    cluster, monkeypatch
):
    tried = []

    def no_answer(kind, document, **_):
        tried.append(document["metadata"]["name"])
        raise Unreachable("the API server cannot be reached", Status(0), Operation("create", kind))

    job, _ = new_pod_job(Prepared(SPEC), None)
    owner = cluster.api.create(JOB, master_job(job, namespace=cluster.api.namespace))
    monkeypatch.setattr(cluster.api, "create", no_answer)
    with pytest.raises(Unreachable):
        submission._try_pods(cluster.api, job, owner)
    assert tried == ["clicks-try"]


def test_why_a_master_gets_no_machine_is_what_its_job_says(cluster):
    job = cluster.submit(SPEC)
    end = time.monotonic() + LIMIT_S
    while "waits for a machine: Unschedulable: no nodes available" not in (told := job.snapshot().message):
        assert time.monotonic() < end, told
        time.sleep(0.1)


def test_a_quota_that_is_used_up_is_what_a_job_waits_for(admin, cluster):
    admin.create(QUOTA, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    end = time.monotonic() + LIMIT_S
    while not admin.get(QUOTA, "none").get("status", {}).get("hard"):
        assert time.monotonic() < end
    job = cluster.submit(SPEC)
    while "exceeded quota: none" not in (told := job.snapshot().message):
        assert time.monotonic() < end, told
        time.sleep(0.1)
    assert job.snapshot().phase is JobPhase.STARTING


def test_a_job_that_never_began_is_stopped_and_its_name_is_free(admin, cluster, words):
    job = cluster.submit(SPEC)
    last = job.stop(why="a mistake")
    assert last.phase is JobPhase.STOPPED
    assert last.message == words
    assert admin.get(JOB, "clicks")["spec"]["parallelism"] == 0
    assert [(line.phase, line.live) for line in cluster.jobs()] == [(JobPhase.STOPPED, False)]
    assert cluster.job("clicks").snapshot().message == last.message
    assert cluster.submit(SPEC).snapshot().phase is JobPhase.STARTING


def test_of_those_who_submit_one_name_at_once_one_wins(cluster):
    def submit(_: int) -> str:
        try:
            cluster.submit(SPEC)
        except InvalidValueError as error:
            return str(error)
        return "won"

    with ThreadPoolExecutor(6) as pool:
        told = list(pool.map(submit, range(6)))
    assert told.count("won") == 1, told
    assert all("a job named clicks" in each for each in told if each != "won")
    assert cluster.job("clicks").snapshot().spec == read_job(cluster.api, "clicks").spec


def test_what_the_cluster_refuses_leaves_nothing_behind(admin, cluster):
    spec = replace(SPEC, kubernetes=KubernetesSpec(priority_class="not-there"))
    with pytest.raises(Inadmissible, match="not-there"):
        cluster.submit(spec)
    until_nothing_is_left(admin)
    assert cluster.submit(SPEC).snapshot().phase is JobPhase.STARTING


def test_a_user_without_rights_is_told_what_he_may_not_and_changes_nothing(control_plane, admin, error_words):
    admin.delete(ROLE_BINDING, "of-alice")
    alice = KubernetesCluster(connect_api(namespace=admin.namespace, kubeconfig=control_plane.alice))
    with error_words(Forbidden):
        alice.submit(SPEC)
    with error_words(Forbidden):
        alice.jobs()
    with error_words(BackendError):
        alice.capacity()
    assert "neither its machines" in alice.description
    assert not left(admin)
    alice.shutdown()


def test_a_name_that_runs_is_refused_and_one_that_a_dead_client_left_is_free(
    cluster, monkeypatch, error_words
):
    job, _ = new_pod_job(Prepared(SPEC), None)
    cluster.api.create(JOB, master_job(job, namespace=cluster.api.namespace))
    with error_words(InvalidValueError):
        cluster.submit(SPEC)
    monkeypatch.setattr(submission, "GIVEN_UP_S", -60.0)
    cluster.submit(SPEC)
    with error_words(InvalidValueError):
        cluster.submit(SPEC)


def test_a_job_that_is_stopped_under_a_name_just_freed_keeps_its_own_end(admin, cluster):
    before = replace(builders.snapshot(), spec=SPEC)
    admin.create(CONFIG_MAP, end_document(before, run="99999999", namespace=admin.namespace))
    job = cluster.submit(SPEC)
    assert "a mistake" in job.stop(why="a mistake").message
    assert "a mistake" in end_of(admin.get(CONFIG_MAP, end_name("clicks"))).message


def test_a_master_leaves_its_end_over_one_that_is_there_with_no_more_rights_than_it_has(
    control_plane, admin, cluster, tmp_path
):
    before = replace(builders.snapshot(), spec=SPEC)
    admin.create(CONFIG_MAP, end_document(before, run="99999999", namespace=admin.namespace))
    cluster.submit(SPEC)
    config = yaml.safe_load(Path(control_plane.kubeconfig).read_text())
    config["users"][0]["user"]["as"] = f"system:serviceaccount:{admin.namespace}:clicks-master"
    (mine := tmp_path / "master").write_text(yaml.safe_dump(config))
    master, run = connect_api(namespace=admin.namespace, kubeconfig=str(mine)), read_job(admin, "clicks").run
    last = replace(before, message="mine")
    for _ in range(2):  # as when the first answer was lost
        leave_end(master, last, run=run, owner=admin.get(JOB, "clicks"))
    end = admin.get(CONFIG_MAP, end_name("clicks"))
    assert (end_of(end), run_of(end)) == (last, run)
    assert [owner["name"] for owner in end["metadata"]["ownerReferences"]] == ["clicks"]


def test_somebody_elses_object_in_the_place_of_a_jobs_end_says_nothing(admin, cluster, error_words):
    admin.create(CONFIG_MAP, {"metadata": {"name": end_name("clicks")}})
    cluster.submit(SPEC)
    with error_words(InvalidValueError):
        cluster.submit(SPEC)


def test_a_job_from_a_file_has_no_keys_at_first_and_can_be_deleted_by_force_alone(
    admin, cluster, error_words
):
    job, _ = new_pod_job(Prepared(SPEC), None)
    admin.create(JOB, master_job(job, namespace=admin.namespace))
    admin.create(SECRET, {"metadata": {"name": "clicks-job"}})
    for ask in (cluster.job, cluster.delete):
        with error_words(BackendError):
            ask("clicks")
    assert [line.phase for line in cluster.jobs()] == [JobPhase.STARTING]
    assert "is deleted" in cluster.delete("clicks", force=True)
    until_nothing_is_left(admin)


def test_a_job_that_trains_is_not_deleted_by_mistake_when_its_secret_is_gone(
    control_plane, admin, cluster, error_words
):
    cluster.submit(SPEC)
    admin.patch(JOB, "clicks", {"metadata": {"annotations": {BEGUN_NOTE: "1.0"}}})
    read = read_job(admin, "clicks")
    admin.delete(SECRET, "clicks-job")
    other = KubernetesCluster(connect_api(namespace=admin.namespace, kubeconfig=control_plane.alice))
    assert other.job("clicks").snapshot().phase is JobPhase.STARTING  # its master's pod is not up here
    assert [line.phase for line in other.jobs()] == [JobPhase.STARTING]
    with pytest.raises(InvalidValueError, match="job clicks runs"):
        other.delete("clicks")
    admin.patch(JOB, "clicks", {"metadata": {"annotations": {VIEW_NOTE: None}}})  # of an earlier release
    for ask in (other.job, other.delete):
        with error_words(BackendError):
            ask("clicks")
    admin.patch(
        JOB, "clicks", {"metadata": {"annotations": {BEGUN_NOTE: None}}}
    )  # its master may not note it
    admin.create(POD, node_pod(read, PodNode("ps-0", Role.PS, 0.2, 256), master=""))
    with error_words(BackendError):
        other.delete("clicks")
    assert admin.get(JOB, "clicks")
    assert "is deleted" in other.delete("clicks", force=True)
    other.shutdown()
    until_nothing_is_left(admin)


def test_a_job_of_somebody_elses_kind_keeps_its_name(cluster, error_words):
    job, _ = new_pod_job(Prepared(SPEC), None)
    document = master_job(job, namespace=cluster.api.namespace)
    document["metadata"] = {"name": "clicks", "labels": {"app": "theirs"}}
    cluster.api.create(JOB, document)
    with error_words(InvalidValueError):
        cluster.submit(SPEC)
    with pytest.raises(NotFoundError):
        cluster.delete("clicks", force=True)
    assert cluster.api.get(JOB, "clicks")


def test_the_namespace_says_what_holds_for_all_jobs(admin, cluster):
    text = "image: team/train:3\nenv: [LEVEL=info]"
    document = {"metadata": {"name": "dlrover-nb"}, "data": {"defaults.yaml": text}}
    admin.create(CONFIG_MAP, {"apiVersion": "v1", "kind": "ConfigMap", **document})
    cluster.submit(SPEC)
    (container,) = admin.get(JOB, "clicks")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "team/train:3"
    assert {"name": "LEVEL", "value": "info"} in container["env"]


def test_data_on_a_volume_of_the_pods_are_left_to_the_master(cluster, tmp_path):
    kube = KubernetesSpec(volumes=(Volume("/data", claim="rows"),))
    data = replace(SPEC.data, format="parquet", path="/data/rows.parquet")
    cluster.submit(replace(SPEC, data=data, kubernetes=kube))
    assert read_job(cluster.api, "clicks").features is None
    mine = tmp_path / "rows.parquet"
    mine.touch()
    with pytest.raises(InvalidValueError, match="pods cannot read"):
        cluster.submit(replace(SPEC, name="other", data=replace(data, path=str(mine)), kubernetes=kube))


def test_secrets_stand_in_secrets_alone(admin, cluster):
    cluster.submit(SPEC)
    job = read_job(cluster.api, "clicks")
    words = [job.secret_key, job.access, *(access_token(job.access, right) for right in STRONG)]
    words += [base64.b64encode(word.encode()).decode() for word in words]
    shown = [admin.list(kind).items for kind in (JOB, POD, CONFIG_MAP, ROLE, ROLE_BINDING)]
    text = json.dumps(shown) + repr(job) + repr(cluster.job("clicks")) + repr(cluster.jobs())
    assert not [word for word in words if word in text]


def test_a_job_that_is_not_there_names_the_nearest(cluster, error_words):
    cluster.submit(SPEC)
    with error_words(NotFoundError):
        cluster.job("click")
    with pytest.raises(NotThere):
        cluster.api.get(CONFIG_MAP, end_name("clicks"))


def test_who_submits_without_a_name_is_who_the_api_server_knows(cluster):
    job = cluster.submit(replace(SPEC, owner=""))
    assert job.snapshot().spec.owner == cluster.user == "alice"
    assert cluster.jobs()[0].owner == "alice"


def test_a_viewer_sees_a_job_that_has_not_begun_without_its_secret(
    control_plane, admin, cluster, error_words
):
    cluster.submit(SPEC)
    grant(admin, VIEWER, "vic")
    vic = KubernetesCluster(connect_api(namespace=admin.namespace, kubeconfig=control_plane.acting_as("vic")))
    await_rights(vic.api, VIEWER)
    job = vic.job("clicks")
    assert (job.snapshot().phase, job.snapshot().spec.owner) == (JobPhase.STARTING, "ann")
    assert vic.jobs()[0].phase is JobPhase.STARTING
    assert dict(vic.standing().facts)["your role"] == "dlrover-nb-viewer, to view jobs"
    with error_words(Forbidden):
        read_job(vic.api, "clicks")
    with error_words(Forbidden):
        job.stop()
    assert cluster.job("clicks").snapshot().phase is JobPhase.STARTING
    vic.shutdown()


def test_the_master_of_an_exported_job_notes_the_token_of_viewers(admin):
    bare = PodJob(SPEC, None, "", "", "", "")
    document = master_job(bare, namespace=admin.namespace)
    assert VIEW_NOTE not in document["metadata"]["annotations"]
    admin.create(JOB, document)
    admin.create(SECRET, companions(bare, code={}, namespace=admin.namespace)[0] | {"data": {}})
    job = founded(admin, SPEC)
    assert read_job(admin, "clicks") == job
    assert admin.get(JOB, "clicks")["metadata"]["annotations"][VIEW_NOTE] == view_token(job)

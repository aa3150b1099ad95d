"""Every kind of export is applied as it stands and trains: on a real API server with the real definitions, in real pods.

Of Kubeflow and JobSet the controllers are played (`played`), and for TrainJobs the definition of runtimes too; DLRover's kinds have tests of their own.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.kubernetes.cluster_names import HOST, served_names
from support.kubernetes.external_programs import losses, tensorflow, torch
from support.kubernetes.kube import ROOT, host_files
from support.operators.jobset_played import JobSetController
from support.operators.kubeflow_played import TfOperator, TorchOperator
from support.operators.played import SUCCEEDED, Controller, install, install_definition
from support.operators.status_server_played import status_server
from support.operators.trainer_played import RUNTIMES, ReportedTrainJobController, TrainJobController
from support.waiting import until

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.client.api_errors import NotThere
from dlrover_nb.core.backends.kubernetes.cluster import KubernetesCluster
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.gathering import documents_in
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.provenance import Provenance
from dlrover_nb.core.export.schemas import check
from dlrover_nb.core.jobfile import job_from
from dlrover_nb.core.manifests.kinds import (
    CONFIG_MAP,
    JOB,
    JOB_SET,
    POD,
    PYTORCH_JOB,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    TF_JOB,
    TRAIN_JOB,
    TRAINING_RUNTIME,
)
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.kubernetes import STATE
from dlrover_nb.core.yamltext import to_yaml

pytestmark = [pytest.mark.kube, pytest.mark.pods]

STEP_LOG = r"step (?P<step>\d+) loss (?P<loss>\S+)"
SMALL = {
    "worker": {"count": 1, "cpu": 0.5, "memory_mib": 512},
    "ps": {"count": 1, "cpu": 0.2, "memory_mib": 384},
}
PROGRAMS = {
    "worker": {"count": 3, "cpu": 0.2, "memory_mib": 256},
    "ps": {"count": 2, "cpu": 0.1, "memory_mib": 128},
}
TORCH = {
    "worker": {"count": 2, "cpu": 0.4, "memory_mib": 768},
    "ps": {"count": 1, "cpu": 0.4, "memory_mib": 512},
}
PLAYED = {
    "tfjob": (TF_JOB, "kubeflow/kubeflow.org_tfjobs.v1.9.0.yaml", TfOperator),
    "pytorchjob": (PYTORCH_JOB, "kubeflow/kubeflow.org_pytorchjobs.v1.9.0.yaml", TorchOperator),
    "trainjob": (
        TRAIN_JOB,
        "kubeflow/trainer.kubeflow.org_trainjobs.a55f03a8.yaml",
        TrainJobController,
    ),
    "jobset": (JOB_SET, "jobset/jobset.x-k8s.io_jobsets.v0.12.0.yaml", JobSetController),
}
CORE = (CONFIG_MAP, SECRET, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, JOB)
KINDS = {kind.name: kind for kind in (*CORE, TRAINING_RUNTIME, *(kind for kind, *_ in PLAYED.values()))}


@pytest.fixture
def api(nodes, namespace):
    api = connect_api(kubeconfig=nodes.kubeconfig, namespace=namespace(nodes))
    with served_names(api):
        yield api


def exported(api, kind: str, hidden: Any = None, **job: Any) -> list[dict[str, Any]]:
    """Return the documents of an export, read from its text as a user's file has it."""
    files: Any = {**host_files(), "linger_s": 1.0}
    if hidden:
        path = f"PYTHONPATH={hidden['mount']}:{ROOT}"
        files |= {"volumes": [*files["volumes"], hidden], "env": [path, *files["env"][1:]]}
    spec = job_from({"name": "exported", **job, "kubernetes": files})
    documents = documents_in(
        to_yaml(*EXPORTERS[kind](spec, spec.plan, Provenance(), Options(namespace=api.namespace)))
    )
    assert check(documents) == ()
    return documents


def apply(api, documents: list[dict[str, Any]]) -> None:
    """Create the objects of a file, in its order."""
    for document in documents:
        api.create(KINDS[document["kind"]], document)


def played(
    api, kind: str, documents: list[dict[str, Any]], by: type[Controller] | None = None
) -> tuple[str, dict[str, str]]:
    """Apply documents and play the controller to the end; return how it ended, and the logs of all pods."""
    resource, file, controller = PLAYED[kind]
    install(api, resource, file)
    if kind == "trainjob":
        install_definition(api, TRAINING_RUNTIME, RUNTIMES)
    apply(api, documents)
    player = (by or controller)(api, resource, "exported")
    player.begin()
    return player.run()


@pytest.fixture
def no_ray(shared_state):
    """Return a volume that hides Ray from Python: the image of a job's pods has none."""
    (shared_state / "ray.py").write_text("raise ImportError('this image has no ray')")
    return {"mount": "/no-ray", "host_path": str(shared_state), "read_only": True}


@pytest.mark.release
@pytest.mark.parametrize(
    "kind",
    ["tfjob", "pytorchjob", "trainjob", "jobset"],
)
def test_the_one_pod_of_a_job_of_ours_trains_all_of_it(api, kind, no_ray) -> None:
    how, logs = played(api, kind, exported(api, kind, plan=SMALL, hidden=no_ray))
    assert how == SUCCEEDED, logs
    (told,) = logs.values()
    assert "succeeded" in told


@pytest.mark.release
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is needed to make a certificate")
def test_a_job_of_ours_sends_its_progress_to_kubeflow_trainer(api, no_ray, tmp_path) -> None:
    with status_server(tmp_path, HOST) as (server, env):

        class Reported(ReportedTrainJobController):
            url = env["KUBEFLOW_TRAINER_SERVER_URL"]
            certificate = Path(env["KUBEFLOW_TRAINER_SERVER_CA_CERT"]).read_text()

        server.audience = Reported.AUDIENCE
        how, logs = played(api, "trainjob", exported(api, "trainjob", plan=SMALL, hidden=no_ray), Reported)
    assert how == SUCCEEDED, logs
    told = [each.get("progressPercentage") for each in server.statuses]
    assert told == sorted(told)
    assert told[-1] == 100, logs
    assert len(told) > 1, "not its end alone"
    assert {"loss", "workers", "auc"} <= {each["name"] for each in server.statuses[-1]["metrics"]}


@pytest.mark.release_variants(
    "jobset-no-chief",
    "jobset",
    "pytorchjob",
    "tfjob",
    "torchrun",
    "trainjob-torch",
    "trainjob-torchrun",
    "trainjob",
)
@pytest.mark.more
@pytest.mark.parametrize(
    ("kind", "program", "plan", "n_worker", "n_end"),
    [
        ("tfjob", tensorflow(), PROGRAMS, 3, 1),
        ("tfjob", tensorflow(chief=False), PROGRAMS, 3, 3),
        ("pytorchjob", torch(), TORCH, 2, 1),
        ("pytorchjob", torch(launcher=True), TORCH, 2, 1),
        ("trainjob", tensorflow(), PROGRAMS, 3, 1),
        ("trainjob", torch(), TORCH, 2, 1),
        ("trainjob", torch(launcher=True), TORCH, 2, 1),
        ("jobset", tensorflow(), PROGRAMS, 3, 1),
        ("jobset", tensorflow(chief=False), PROGRAMS, 3, 3),
        ("jobset", torch(launcher=True), TORCH, 2, 1),
    ],
    ids=[
        "tfjob",
        "tfjob-no-chief",
        "pytorchjob",
        "torchrun",
        "trainjob",
        "trainjob-torch",
        "trainjob-torchrun",
        "jobset",
        "jobset-no-chief",
        "jobset-torchrun",
    ],
)
def test_programs_of_others_meet_and_train(api, kind, program, plan, n_worker, n_end) -> None:
    how, logs = played(api, kind, exported(api, kind, plan=plan, external=program))
    assert how == SUCCEEDED, logs
    ended = [losses(text) for text in logs.values() if "last loss" in text]
    assert len(ended) >= n_end, logs
    assert {n for *_, n in ended} == {n_worker}
    assert max(first for first, *_ in ended) > 1  # that of the first one to begin
    assert max(last for _, last, _ in ended) < 0.001


@pytest.mark.release
def test_the_objects_of_pods_alone_start_a_job_of_ours_with_keys_of_its_own(api, no_ray) -> None:
    apply(api, exported(api, "pods", plan=SMALL, hidden=no_ray))
    until(lambda: api.get(JOB, "exported")["status"].get("succeeded"), what=lambda: in_pods(api))
    secret = api.get(SECRET, "exported-job")
    assert secret["data"]["job.json"]
    assert secret["metadata"]["ownerReferences"][0]["name"] == "exported"
    end = KubernetesCluster(api).job("exported").snapshot()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.train.done == end.train.total > 0
    assert end.evaluation.auc > 0.9


@pytest.mark.release
def test_a_file_that_is_applied_again_trains_again_beside_the_run_folder_of_before(api, shared_state) -> None:
    documents = exported(api, "pods", {"mount": STATE, "host_path": str(shared_state)}, plan=SMALL)
    for n_run in (1, 2):
        apply(api, documents)
        until(lambda: api.get(JOB, "exported")["status"].get("succeeded"), what=lambda: in_pods(api))
        end = KubernetesCluster(api).job("exported").snapshot()
        assert (end.phase, end.train.done) == (JobPhase.SUCCEEDED, end.train.total), end.message
        folders = {path.parent for path in shared_state.glob("exported-*/journal*")}
        assert len(folders) == n_run, folders
        for document in reversed(documents):
            api.delete(KINDS[document["kind"]], document["metadata"]["name"], propagation="Foreground")
        until(lambda: _are_gone(api), what="the end of the file's objects")


def _are_gone(api) -> bool:
    try:
        api.get(JOB, "exported")
    except NotThere:
        return not api.list(POD).items
    return False


@pytest.mark.release
@pytest.mark.parametrize(
    ("program", "plan"),
    [
        (tensorflow(), PROGRAMS),
        (torch(launcher=True), TORCH),
    ],
    ids=["tensorflow", "torch"],
)
def test_the_objects_of_pods_alone_start_programs_of_others(api, program, plan) -> None:
    apply(api, exported(api, "pods", plan=plan, external={**program, "step_log": STEP_LOG}))
    until(lambda: api.get(JOB, "exported")["status"].get("succeeded"), what=lambda: in_pods(api))
    end = KubernetesCluster(api).job("exported").snapshot()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.train.n_sample_done > 0
    assert end.loss < 1


def in_pods(api) -> str:
    """Return what the pods are and say, for the message of a failure."""
    pods = api.list(POD).items
    logs = {pod["metadata"]["name"]: list(api.log(pod["metadata"]["name"])) for pod in pods}
    return f"the end of the job; {[pod['status'] for pod in pods]} {logs}"

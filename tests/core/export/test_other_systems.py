"""Jobs for Kubeflow, KubeRay and JobSet: roles where they run programs of others, else the whole job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.cases import for_each
from support.jobs.exports import JOB, OPTIONS, PLAN, TENSORFLOW, TOLD, TORCH

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.gathering import documents_in
from dlrover_nb.core.export.imported import read_export
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.schemas import check
from dlrover_nb.core.jobfile import parse_job
from dlrover_nb.core.structs.job.external import Framework
from dlrover_nb.core.structs.job.job import DataSpec
from dlrover_nb.core.structs.job.kubernetes import STATE, KubernetesSpec, Volume
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Mode, Sync
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.yamltext import to_yaml

TF_JOB, TORCH_JOB = replace(JOB, foreign=TENSORFLOW), replace(JOB, foreign=TORCH)
DDP_JOB = replace(JOB, foreign=replace(TORCH, framework=Framework.DDP))
THREE = replace(PLAN, worker=replace(PLAN.worker, count=3))
WHOLE = ("tfjob", "pytorchjob", "jobset", "trainjob")
RAYJOB_OF_0_1 = Path(__file__).with_name(
    "rayjob_of_0_1.yaml"
)  # of `JOB` on `THREE`; none is written any more


def _exported(kind: str, job: Any = JOB, plan: ResourcePlan = THREE, options: Options = OPTIONS) -> Any:
    documents = EXPORTERS[kind](job, plan, TOLD, options)
    assert check(documents) == ()
    return documents


def _file_of(kind: str) -> Any:
    return documents_in(RAYJOB_OF_0_1.read_text("utf-8")) if kind == "rayjob" else _exported(kind)


def _edited(documents: Any, **changes: str) -> str:
    text = to_yaml(*documents)
    for before, after in changes.values():
        assert before in text
        text = text.replace(before, after, 1)
    return text


def test_a_tfjob_runs_each_role_of_a_tensorflow_job_and_its_first_worker_is_the_chief() -> None:
    (document,) = _exported("tfjob", TF_JOB)
    replicas = document["spec"]["tfReplicaSpecs"]
    assert {name: replica["replicas"] for name, replica in replicas.items()} == {
        "PS": 1,
        "Chief": 1,
        "Worker": 2,
    }
    (main,) = replicas["Worker"]["template"]["spec"]["containers"]
    assert main == {
        "name": "tensorflow",
        "image": "registry/deepctr:3",
        "command": ["python", "/app/train.py", "--step", "$$(STEP)"],
        "env": [{"name": "STEP", "value": "8"}],
        "resources": {
            "requests": {"cpu": "500m", "memory": "1024Mi"},
            "limits": {"cpu": "500m", "memory": "1024Mi"},
        },
        "ports": [{"name": "tfjob-port", "containerPort": 2222}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    (ps,) = replicas["PS"]["template"]["spec"]["containers"]
    assert (ps["image"], ps["resources"]["limits"]["cpu"]) == (OPTIONS.image, "400m")


def test_without_a_chief_all_workers_are_workers() -> None:
    job = replace(JOB, foreign=replace(TENSORFLOW, chief=False))
    (document,) = _exported("tfjob", job)
    assert list(document["spec"]["tfReplicaSpecs"]) == ["PS", "Worker"]
    assert document["spec"]["successPolicy"] == "AllWorkers"
    one = replace(PLAN, worker=replace(PLAN.worker, count=1))
    (document,) = _exported("tfjob", TF_JOB, one)
    assert list(document["spec"]["tfReplicaSpecs"]) == ["PS", "Chief"]


def test_a_pytorchjob_has_a_master_and_workers_and_no_parameter_servers() -> None:
    (document,) = _exported("pytorchjob", TORCH_JOB)
    replicas = document["spec"]["pytorchReplicaSpecs"]
    assert {name: replica["replicas"] for name, replica in replicas.items()} == {"Master": 1, "Worker": 2}
    assert document["spec"]["nprocPerNode"] == "2"
    (main,) = replicas["Master"]["template"]["spec"]["containers"]
    assert (main["name"], main["command"]) == ("pytorch", ["torchrun", "/app/train.py"])
    assert main["ports"] == [{"name": "pytorchjob-port", "containerPort": 29500}]
    (elastic,) = _exported("elasticjob", TORCH_JOB)
    assert elastic["spec"]["distributionStrategy"] == "AllreduceStrategy"
    assert list(elastic["spec"]["replicaSpecs"]) == ["worker"]


@for_each(
    ("kind", "job", "told"),
    [
        ("tfjob", TORCH_JOB, "started by torch, which a TFJob does not do; export a pytorchjob"),
        ("pytorchjob", TF_JOB, "started by tensorflow, which a PyTorchJob does not do; export a tfjob"),
        ("rayjob", JOB, "Ray's dashboard, which is not in the images of this package; export pods"),
        ("jobset", replace(JOB, name="a" * 50), "a job name of at most 49 characters, got aaa"),
        ("jobset", replace(TF_JOB, name="a" * 48), "a job name of at most 46 characters, got aaa"),
        ("tfjob", DDP_JOB, "for their peers (framework: ddp), and a TFJob starts none; export pods"),
        ("pytorchjob", DDP_JOB, "a PyTorchJob starts none; export pods"),
        ("jobset", DDP_JOB, "a JobSet starts none; export pods"),
        ("elasticjob", DDP_JOB, "an ElasticJob starts none; export pods"),
        ("trainjob", DDP_JOB, "a TrainJob starts none; export pods"),
        ("rayjob", TF_JOB, "runs images of its own, which Ray cannot start; export a tfjob"),
        (
            "jobset",
            replace(JOB, data=DataSpec(DataFormat.OWN, "pickle:aa")),
            "the user's own data of job ctr-daily is only in the notebook that made it",
        ),
    ],
)
def test_what_a_kind_cannot_run_is_refused_with_what_can(kind: str, job: Any, told: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        EXPORTERS[kind](job, PLAN, TOLD, OPTIONS)
    assert told in str(caught.value)


def test_programs_of_a_jobset_find_each_other_by_names_that_do_not_change() -> None:
    (document,) = _exported("jobset", TF_JOB)
    jobs = {job["name"]: job["template"]["spec"] for job in document["spec"]["replicatedJobs"]}
    assert {name: job["completions"] for name, job in jobs.items()} == {"ps": 1, "chief": 1, "worker": 2}
    assert document["spec"]["successPolicy"]["targetReplicatedJobs"] == ["chief"]
    for name, job in jobs.items():
        (main,) = job["template"]["spec"]["containers"]
        index, config = main["env"][-2:]
        assert index["valueFrom"]["fieldRef"]["fieldPath"].endswith("job-completion-index']")
        told = json.loads(config["value"].replace(f"$({index['name']})", "1"))
        assert told["task"] == {"type": name, "index": 1}
        assert told["cluster"] == {
            "ps": ["ctr-daily-ps-0-0.ctr-daily:2222"],
            "chief": ["ctr-daily-chief-0-0.ctr-daily:2222"],
            "worker": ["ctr-daily-worker-0-0.ctr-daily:2222", "ctr-daily-worker-0-1.ctr-daily:2222"],
        }


def test_torch_in_a_jobset_meets_at_its_first_worker() -> None:
    (document,) = _exported("jobset", TORCH_JOB)
    (job,) = document["spec"]["replicatedJobs"]
    (main,) = job["template"]["spec"]["template"]["spec"]["containers"]
    env = {variable["name"]: variable.get("value") for variable in main["env"]}
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("ctr-daily-worker-0-0.ctr-daily", "29500")
    assert (env["PET_NNODES"], env["PET_NODE_RANK"]) == ("3", "$(DLROVER_NB_INDEX)")
    assert "RANK" not in env  # two processes on each: torchrun numbers them


@for_each("kind", WHOLE)
def test_a_job_of_ours_is_its_job_file_and_what_submits_it(kind: str) -> None:
    file, *documents = _exported(kind, replace(JOB, mode=Mode.AUTO, warm_start=True))
    found = parse_job(file["data"]["job.yaml"])
    assert (found.plan, found.mode, found.warm_start) == (THREE, Mode.SUGGEST, False)
    text = to_yaml(*documents)
    words = ["python", "-m", "dlrover_nb.cli", "submit", "--file", "/dlrover-nb/file/job.yaml", "--wait"]
    assert [each["command"] for each in _containers(documents)] == [words]
    assert text.count("configMap") == 1
    assert f"name: {file['metadata']['name']}" in text


@for_each("kind", WHOLE)
def test_an_all_reduce_job_of_ours_is_one_with_its_programs_too(kind: str) -> None:
    job = replace(JOB, sync=Sync.ALLREDUCE)
    running = replace(DDP_JOB, sync=Sync.ALLREDUCE)  # as its master runs it
    assert _exported(kind, running) == _exported(kind, job)
    assert read_export(to_yaml(*_exported(kind, running))).job == job


@for_each("kind", WHOLE)
def test_the_one_pod_holds_the_whole_plan(kind: str) -> None:
    _, *documents = _exported(kind)
    text = to_yaml(*documents)
    # 3 x 0.5 + 0.4 cores, the master's 0.25 and the client's 0.1; 4 x 1024 MiB, the master's 768 and the client's 512
    assert text.count("cpu: 2250m") == 2
    assert text.count(f"memory: {4 * 1024 + 768 + 512}Mi") == 2


def test_the_pod_of_a_job_of_ours_needs_no_ray() -> None:
    _, document = _exported("tfjob")
    (main,) = _containers(document)
    assert {"name": "DLROVER_NB_ADDRESS", "value": "local"} in main["env"]


def test_a_rayjob_that_0_1_wrote_is_read() -> None:
    found = read_export(to_yaml(*_file_of("rayjob")))
    assert (found.kind, found.job, found.plan, found.provenance) == ("rayjob", JOB, THREE, TOLD)
    assert (found.differs, found.unknown) == ((), ())


KUBERNETES = KubernetesSpec(
    image="registry/ours:1",
    pull_policy="Never",
    pull_secrets=("pull",),
    python="/opt/python",
    volumes=(Volume("/data", claim="rows", read_only=True), Volume(STATE, claim="runs")),
    env=("A=1", "A=2"),
    env_secrets=("storage",),
    node_selector=("disk=ssd",),
    tolerations=("gpu=yes:NoSchedule", "spot:NoExecute", "old"),
    priority_class="high",
)


@for_each("kind", WHOLE)
def test_pods_are_made_as_the_job_says(kind: str) -> None:
    documents = _exported(kind, replace(JOB, kubernetes=KUBERNETES), THREE, Options())
    text = to_yaml(*documents[1:])
    for words in (
        "image: registry/ours:1",
        "imagePullPolicy: Never",
        "claimName: rows",
        "mountPath: /data",
        "disk: ssd",
        "priorityClassName: high",
        f"value: {STATE}",  # where jobs' folders lie
    ):
        assert words in text
    assert "/opt/python" in text
    assert {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"} in _tolerations(
        documents[1]
    )
    assert {"key": "old", "operator": "Exists"} in _tolerations(documents[1])
    assert text.count("name: A\n") == text.count("value: '2'\n") > 0


def _containers(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        inner = [each for part in tree.values() for each in _containers(part)]
        return [*tree.get("containers", ()), *inner]
    return [each for part in tree for each in _containers(part)] if isinstance(tree, list) else []


def _tolerations(tree: Any) -> list[Any]:
    if isinstance(tree, list):
        return [each for part in tree for each in _tolerations(part)]
    if not isinstance(tree, dict):
        return []
    return [*tree.get("tolerations", ()), *(each for part in tree.values() for each in _tolerations(part))]


@for_each("kind", [*WHOLE, "rayjob"])
def test_what_was_edited_in_the_job_file_wins_and_is_told(kind: str, words) -> None:
    text = _edited(
        _file_of(kind),
        plan=("      count: 3\n", "      count: 5\n"),
        training=("    epochs: 1\n", "    epochs: 7\n"),
        model=("      embedding_dim: 16\n", "      embedding_dim: 8\n"),
    )
    found = read_export(text)
    assert found.plan == replace(THREE, worker=replace(THREE.worker, count=5))
    assert found.job == replace(JOB, n_epoch=7, model=replace(JOB.model, embedding_dim=8))
    assert found.provenance == TOLD
    assert found.differs == words


def test_a_pod_that_was_made_smaller_than_its_job_is_told(words) -> None:
    found = read_export(
        _edited(
            _exported("tfjob"), pod=("limits:\n                cpu: 2250m", "limits:\n                cpu: 1")
        )
    )
    assert found.plan == THREE
    assert found.differs == (words,)
    found = read_export(_edited(_file_of("rayjob"), group=("replicas: 4", "replicas: 2")))
    assert found.differs == (words,)


def test_a_job_file_that_was_damaged_is_told_where(error_words) -> None:
    with error_words(InvalidValueError):
        read_export(_edited(_exported("jobset"), job=("epochs: 1", "epochs: many")))


def test_a_renamed_job_is_told(words) -> None:
    found = read_export(_edited(_file_of("rayjob"), job=("    name: ctr-daily\n", "    name: ctr-weekly\n")))
    assert found.name == "ctr-weekly"
    assert found.job == replace(JOB, name="ctr-weekly")
    assert found.differs == (words,)


def test_replicas_of_programs_of_others_that_were_edited_win(words) -> None:
    found = read_export(_edited(_exported("tfjob", TF_JOB), worker=("replicas: 2", "replicas: 6")))
    assert found.plan == replace(THREE, worker=replace(THREE.worker, count=7))
    assert found.differs == words
    found = read_export(_edited(_exported("pytorchjob", TORCH_JOB), worker=("cpu: 500m", "cpu: 700m")))
    assert found.differs == words


FOREIGN_TFJOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: a}
spec:
  tfReplicaSpecs:
    Evaluator: {replicas: 1}
    Chief: {replicas: 1, template: {spec: {containers: [{resources: {limits: {cpu: 2, memory: 1Gi}}}]}}}
    Worker: {replicas: 3, template: {spec: {containers: [{resources: {limits: {cpu: 1, memory: 1Gi}}}]}}}
"""


def test_a_tfjob_of_somebody_else_gives_what_it_says(words) -> None:
    found = read_export(FOREIGN_TFJOB)
    assert (found.kind, found.name) == ("tfjob", "a")
    assert found.parts == Pins(workers=4, worker_cpu=1.0, worker_memory_mib=1024)
    assert found.unknown == words
    assert found.differs == words


def test_a_job_file_alone_is_a_job() -> None:
    file, _ = _exported("tfjob", plan=ResourcePlan(worker=RolePlan(2, 1, 512), ps=RolePlan(1, 1, 512)))
    found = read_export(to_yaml(file))
    assert (found.kind, found.name) == ("tfjob", "ctr-daily")
    del file["metadata"]["annotations"]
    assert read_export(to_yaml(file)).kind == "job file"

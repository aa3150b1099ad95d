"""TrainJobs: what the operator makes of them, and what those of others give."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each
from support.jobs.exports import (
    JOB,
    OPTIONS,
    PLAN,
    TENSORFLOW,
    TOLD,
    TORCH,
    foreigners,
    jobs_of,
    names,
    no_resource_warnings,
    real_schemas,
    small_plans,
)
from support.operators.trainer_rules import cluster_runtime, set_of

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.imported import read_export
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.schemas import check
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec, Volume
from dlrover_nb.core.structs.job.spec_choices import Admission, Device, RateScaling, StaleSteps, Sync
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.yamltext import to_yaml

if TYPE_CHECKING:
    from pathlib import Path

TORCH_JOB, TF_JOB = replace(JOB, foreign=TORCH), replace(JOB, foreign=TENSORFLOW)
RUNTIME_KINDS = ("TrainingRuntime", "TrainJob")
THREE = replace(PLAN, worker=replace(PLAN.worker, count=3))


def _exported(job: JobSpec, plan: ResourcePlan = THREE, options: Options = OPTIONS) -> Any:
    documents = EXPORTERS["trainjob"](job, plan, TOLD, options)
    assert check(documents) == ()
    return documents


def _of_others(documents: Any) -> str:
    """Return an export as if it were not ours."""
    for document in documents:
        document["metadata"].pop("annotations", None)
    return to_yaml(*documents)


@pytest.mark.more
@settings(deadline=None, max_examples=20)
@given(jobs_of("trainjob"), small_plans)
def test_roles_with_tf_config_are_the_jobset_of_the_same_job(job: JobSpec, plan: ResourcePlan) -> None:
    ps = ExternalRole(("serve",))
    kubernetes = replace(job.kubernetes, priority_class="")
    foreign = replace(TENSORFLOW, ps=ps)
    own = {"admission": Admission.AT_ONCE, "sync": Sync.BSP, "device": Device.AUTO}  # of jobs of ours
    own |= {
        "stale_steps": StaleSteps.PLAIN,
        "learning_rate_scaling": RateScaling.NONE,
        "deterministic": False,
    }
    job = replace(job, foreign=foreign, kubernetes=kubernetes, **own)
    runtime, train_job = _exported(job, plan)
    (jobset,) = EXPORTERS["jobset"](job, plan, TOLD, OPTIONS)
    assert set_of(train_job, runtime) == jobset["spec"]


def test_a_torch_job_runs_under_the_runtime_that_comes_with_the_operator() -> None:
    one = replace(TORCH_JOB, foreign=replace(TORCH, n_process=1))
    (document,) = _exported(one)
    assert document["spec"]["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "ClusterTrainingRuntime",
        "name": "torch-distributed",
    }
    field = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert document["spec"]["trainer"] == {
        "image": "registry/ctr:7",
        "command": ["torchrun", "/app/train.py"],
        "env": [
            {"name": "MASTER_ADDR", "value": "ctr-daily-node-0-0.ctr-daily"},
            {"name": "MASTER_PORT", "value": "29500"},
            {"name": "WORLD_SIZE", "value": "3"},
            {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": field}}},
        ],
        "numNodes": 3,
        "numProcPerNode": 1,
        "resourcesPerNode": {
            "requests": {"cpu": "500m", "memory": "1024Mi"},
            "limits": {"cpu": "500m", "memory": "1024Mi"},
        },
    }
    (two,) = _exported(TORCH_JOB)
    assert [each["name"] for each in two["spec"]["trainer"]["env"]] == ["MASTER_ADDR", "MASTER_PORT"]
    assert two["spec"]["trainer"]["numProcPerNode"] == 2


def test_a_users_own_variables_win() -> None:
    worker = replace(TORCH.worker, env=("MASTER_PORT=1234", "A=b"))
    (document,) = _exported(replace(JOB, foreign=replace(TORCH, worker=worker)))
    env = document["spec"]["trainer"]["env"]
    assert {"name": "MASTER_PORT", "value": "1234"} in env
    assert len({each["name"] for each in env}) == len(env)


@for_each(
    "setting",
    [
        {"volumes": (Volume("/data", claim="rows"),)},
        {"env_secrets": ("storage",)},
        {"node_selector": ("disk=ssd",)},
        {"tolerations": ("gpu",)},
        {"priority_class": "high"},
        {"pull_policy": "Always"},
        {"pull_secrets": ("pull",)},
        {"labels": ("team=ads",)},
        {"annotations": ("note=x",)},
        {"run_as_user": 7},
        {"ttl_s": 60},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_settings_of_pods_come_in_a_runtime_of_the_jobs_own(setting: dict[str, Any]) -> None:
    (plain,) = _exported(TORCH_JOB)
    runtime, document = _exported(replace(TORCH_JOB, kubernetes=replace(JOB.kubernetes, **setting)))
    assert document["spec"]["runtimeRef"]["kind"] == runtime["kind"] == "TrainingRuntime"
    assert document["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"] == "ctr-daily"
    assert document["spec"]["trainer"] == plain["spec"]["trainer"]
    (job,), (usual,) = (
        set_of(*each)["replicatedJobs"] for each in ((document, runtime), (plain, cluster_runtime()))
    )
    mine, theirs = (each["template"]["spec"] for each in (job, usual))
    assert mine["completions"] == theirs["completions"] == 3
    (main,), (other,) = (each["template"]["spec"]["containers"] for each in (mine, theirs))
    assert {key: main[key] for key in other} == other
    assert {"name": "PET_NPROC_PER_NODE", "value": "2"} in main["env"]


@for_each("release", ["8c0f5059", "v2.3.0"])
def test_a_runtime_is_valid_for_the_operator_of_each_release(release: str, tmp_path: Path) -> None:
    """The processes of a node left a runtime's policy with 2.2; a TrainJob says them itself."""
    validate = real_schemas()
    job = replace(
        TORCH_JOB, kubernetes=replace(TORCH_JOB.kubernetes, volumes=(Volume("/data", claim="rows"),))
    )
    documents = _exported(job)
    assert {each["kind"] for each in documents} >= {"TrainingRuntime", "TrainJob"}
    (tmp_path / "job.yaml").write_text(to_yaml(*documents))
    with no_resource_warnings():
        found = validate.check(str(tmp_path / "job.yaml"), validate.load(release))
    assert not [(kind, errors) for _, (_, kind), _, errors in found if errors and kind in RUNTIME_KINDS]


def test_settings_that_no_pod_gets_need_no_runtime() -> None:
    kubernetes = KubernetesSpec(image="a", env=("A=1",), master_cpu=2.0, linger_s=1.0, spread=False)
    (document,) = _exported(replace(TORCH_JOB, kubernetes=kubernetes), options=Options())
    trainer = document["spec"]["trainer"]
    assert trainer["image"] == "a"
    assert {"name": "A", "value": "1"} in trainer["env"]


def test_an_ended_job_goes_away_with_its_pods() -> None:
    kubernetes = replace(JOB.kubernetes, ttl_s=60)
    for job in (JOB, TF_JOB, TORCH_JOB):
        *_, runtime, _ = _exported(replace(job, kubernetes=kubernetes))
        assert runtime["spec"]["template"]["spec"]["ttlSecondsAfterFinished"] == 60


@pytest.mark.release
@settings(deadline=None, max_examples=10)
@given(jobs_of("trainjob"), small_plans)
def test_the_template_of_a_runtime_is_a_real_jobset(
    tmp_path_factory: pytest.TempPathFactory, job: JobSpec, plan: ResourcePlan
) -> None:
    real = real_schemas()
    job = replace(job, kubernetes=replace(job.kubernetes, ttl_s=1))
    *_, runtime, _ = _exported(job, plan)
    made = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "a"},
        "spec": runtime["spec"]["template"]["spec"],
    }
    path = tmp_path_factory.mktemp("runtime") / "jobset.yaml"
    path.write_text(to_yaml(made), encoding="utf-8")
    with no_resource_warnings():
        assert [errors for *_, errors in real.check(str(path), real.load("jobsets"))] == [[]]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (("mlPolicy", "torsh"), "'torsh' was unexpected"),
        (("template", "spec", "replicas"), "'replicas' was unexpected"),
        (("templates",), "'templates' was unexpected"),
    ],
)
def test_a_wrong_runtime_is_told(path: tuple[str, ...], told: str) -> None:
    runtime, _ = _exported(TF_JOB)
    part = runtime["spec"]
    for key in path[:-1]:
        part = part.setdefault(key, {})
    part[path[-1]] = 1
    (problem,) = check([runtime])
    assert problem.startswith("TrainingRuntime ctr-daily: spec")
    assert told in problem


@for_each(
    ("job", "told"),
    [
        (
            replace(TORCH_JOB, kubernetes=KubernetesSpec(env=("PET_NNODES=1:2",))),
            "a TrainJob sets PET_NNODES itself",
        ),
        (
            replace(TF_JOB, kubernetes=KubernetesSpec(priority_class="high")),
            "several roles cannot have a priority class, got high",
        ),
        (replace(TORCH_JOB, name="a" * 51), "a job name of at most 48 characters"),
        (replace(JOB, name="a" * 51), "a job name of at most 48 characters"),
    ],
)
def test_what_the_operator_would_refuse_is_refused(job: JobSpec, told: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        EXPORTERS["trainjob"](job, THREE, TOLD, OPTIONS)
    assert told in str(caught.value)


def test_nodes_that_were_edited_win_and_are_told(words) -> None:
    for job in (TORCH_JOB, replace(TORCH_JOB, kubernetes=KubernetesSpec(ttl_s=1))):
        *_, document = documents = _exported(job)
        document["spec"]["trainer"] |= {"numNodes": 5, "resourcesPerNode": {"limits": {"cpu": 2}}}
        found = read_export(to_yaml(*documents))
        assert found.job == job
        assert found.plan == replace(THREE, worker=RolePlan(5, 2, 1024))
        assert found.differs == words
    runtime, document = _exported(TF_JOB)
    text = to_yaml(runtime, document).replace("parallelism: 2", "parallelism: 4")
    assert read_export(text).differs == words


programs = foreigners.filter(
    lambda spec: spec.framework is Framework.TORCH and not (spec.roles or spec.placed)
)


@pytest.mark.more
@settings(deadline=None, max_examples=30)
@given(names.filter(lambda name: len(name) <= 44), programs, small_plans, st.none() | st.just(1))
def test_a_torch_job_comes_back_from_what_everybody_can_read(
    name: str, external: ExternalSpec, plan: ResourcePlan, ttl_s: int | None
) -> None:
    job = JobSpec(name, foreign=external, kubernetes=KubernetesSpec(ttl_s=ttl_s))
    found = read_export(_of_others(_exported(job, plan)))
    assert (found.kind, found.name) == ("trainjob", name)
    assert found.job is not None
    assert found.plan is not None
    assert found.plan.worker == plan.worker
    theirs = found.job.foreign
    assert theirs is not None
    env, given_env = theirs.worker.env, external.worker.env
    assert (theirs.framework, theirs.n_process) == (Framework.TORCH, external.n_process)
    assert theirs.worker.command == external.worker.command
    assert theirs.worker.image == (external.worker.image or OPTIONS.image)
    assert dict(each.split("=", 1) for each in env) == dict(each.split("=", 1) for each in given_env)
    assert found.to_submit == replace(found.job, plan=found.plan)


OF_OTHERS = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: digits, namespace: ml}
spec:
  runtimeRef: {name: torch-distributed}
  suspend: true
  initializer: {dataset: {storageUri: "s3://rows"}}
  trainer:
    image: registry/digits:2
    command: [torchrun, train.py]
    args: ["--lr", "$(RATE)", "--name", "$$(X)"]
    env:
    - {name: RATE, value: "0.1"}
    - {name: KEY, valueFrom: {secretKeyRef: {name: s, key: k}}}
    - {name: MASTER_PORT, value: "1"}
    numNodes: 3
    resourcesPerNode: {requests: {cpu: 2, memory: 4Gi, nvidia.com/gpu: 1, amd.com/gpu: 1}}
"""


def test_a_trainjob_of_others_is_an_external_job(words) -> None:
    found = read_export(OF_OTHERS)
    worker = ExternalRole(
        ("torchrun", "train.py", "--lr", "$(RATE)", "--name", "$(X)"), "registry/digits:2", ("RATE=0.1",)
    )
    external = ExternalSpec(worker, 1, framework=Framework.TORCH, port=29500)
    plan = ResourcePlan(worker=RolePlan(3, 2, 4096, 1), ps=RolePlan(1, 0.25, 512))
    assert found.job == JobSpec("digits", foreign=external, plan=plan)
    assert (found.kind, found.plan, found.differs, found.version) == ("trainjob", plan, (), "")
    assert found.parts == Pins(workers=3, worker_cpu=2.0, worker_memory_mib=4096)
    assert found.unknown == (
        words,
        words,
        words,
        words,
        "spec.suspend: not taken over",
        "spec.initializer: not taken over",
        words,
        words,
        words,
        words,
        words,
        words,
    )


def test_what_a_trainjob_leaves_to_its_runtime_is_read_there(words) -> None:
    document = yaml.safe_load(OF_OTHERS)
    document["spec"]["trainer"] = {"numProcPerNode": 4}
    runtime = cluster_runtime()
    runtime["spec"]["mlPolicy"]["numNodes"] = 6
    found = read_export(to_yaml(runtime, document))
    assert found.job is not None
    assert found.job.foreign is not None
    assert found.job.foreign.worker == ExternalRole(("echo",), "the-runtimes-own")
    assert found.job.foreign.n_process == 4
    assert found.job.plan.worker == RolePlan(6, 0.5, 1024)
    assert found.unknown == words


def test_a_runtime_of_no_trainjob_is_told(words) -> None:
    other = cluster_runtime() | {"metadata": {"name": "other"}}
    assert read_export(to_yaml(other, yaml.safe_load(OF_OTHERS))).unknown == words


@for_each(
    "edit",
    [
        ("torch-distributed", "deepspeed-distributed"),
        ("    command: [torchrun, train.py]\n", ""),
        ("name: digits", "name: digits.of.others"),
        ("numNodes: 3", "numNodes: 3\n    numProcPerNode: 0"),
    ],
)
def test_what_is_no_job_of_ours_gives_its_plan_alone(edit: tuple[str, str], words) -> None:
    assert edit[0] in OF_OTHERS
    found = read_export(OF_OTHERS.replace(*edit))
    assert found.job is None
    assert found.parts == Pins(workers=3, worker_cpu=2.0, worker_memory_mib=4096)
    assert found.unknown == words


@for_each(
    ("edit", "told"),
    [
        (("numNodes: 3", "numNodes: many"), "worker replicas must be a whole number, got 'many'"),
        (("runtimeRef: {name: torch-distributed}", "runtimeRef: 7"), "runtimeRef must be a group"),
        (("command: [torchrun, train.py]", "command: torchrun"), "command must be a list"),
        (("cpu: 2,", "cpu: two,"), "worker cpu must be a quantity"),
    ],
)
def test_a_value_of_another_kind_is_told(edit: tuple[str, str], told: str) -> None:
    assert edit[0] in OF_OTHERS
    try:
        said = " ".join(read_export(OF_OTHERS.replace(*edit)).unknown)
    except InvalidValueError as error:
        said = str(error)
    assert told in said

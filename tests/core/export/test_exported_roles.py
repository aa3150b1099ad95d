"""Exports of external jobs with roles beside worker and PS."""

import json
from dataclasses import replace

import pytest
from support.cases import for_each
from support.jobs.exports import JOB, OPTIONS, PLAN, TENSORFLOW, TOLD, TORCH

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.imported import read_export
from dlrover_nb.core.structs.job.external import FixedRole
from dlrover_nb.core.yamltext import to_yaml

CHIEF, EVAL = (
    FixedRole("chief", ("lead",), cpu=2, image="registry/lead:1"),
    FixedRole("evaluator", ("evaluate",)),
)
READER = FixedRole("reader", ("read",), count=2, ends_job=True)


def exported(kind, external, *roles):
    job = replace(JOB, foreign=replace(external, roles=roles))
    return job, EXPORTERS[kind](job, PLAN, TOLD, OPTIONS)


def test_a_tfjob_has_a_chief_of_its_own_and_an_evaluator():
    job, documents = exported("tfjob", TENSORFLOW, CHIEF, EVAL)
    replicas = documents[-1]["spec"]["tfReplicaSpecs"]
    assert {name: each["replicas"] for name, each in replicas.items()} == {
        "PS": 1,
        "Chief": 1,
        "Worker": 2,
        "Evaluator": 1,
    }
    (main,) = replicas["Chief"]["template"]["spec"]["containers"]
    assert (main["image"], main["command"]) == ("registry/lead:1", ["lead"])
    assert main["resources"]["limits"]["cpu"] == "2000m"
    found = read_export(to_yaml(*documents))
    assert (found.job, found.plan, found.differs) == (job, PLAN, ())


def test_a_pytorchjob_is_led_by_the_chief():
    _, documents = exported("pytorchjob", TORCH, CHIEF)
    replicas = documents[-1]["spec"]["pytorchReplicaSpecs"]
    assert {name: each["replicas"] for name, each in replicas.items()} == {"Master": 1, "Worker": 2}
    assert read_export(to_yaml(*documents)).plan == PLAN


def test_a_jobset_has_a_replicated_job_for_each_role_and_waits_for_those_that_the_job_waits_for():
    job, documents = exported("jobset", TENSORFLOW, CHIEF, EVAL, READER)
    spec = documents[-1]["spec"]
    jobs = {each["name"]: each["template"]["spec"] for each in spec["replicatedJobs"]}
    assert {name: each["parallelism"] for name, each in jobs.items()} == {
        "ps": 1,
        "chief": 1,
        "evaluator": 1,
        "reader": 2,
        "worker": 2,
    }
    assert spec["successPolicy"]["targetReplicatedJobs"] == ["chief", "reader"]
    told = {
        name: {v["name"]: v.get("value", "") for v in each["template"]["spec"]["containers"][0]["env"]}
        for name, each in jobs.items()
    }
    config = json.loads(told["evaluator"]["TF_CONFIG"].replace("$(DLROVER_NB_INDEX)", "0"))
    assert config["task"]["type"] == "evaluator"
    assert sorted(config["cluster"]) == ["chief", "ps", "worker"]
    assert "TF_CONFIG" not in told["reader"]
    assert '"reader": [' in told["reader"]["DLROVER_NB_ROLES"]
    assert read_export(to_yaml(*documents)).job == job


@for_each(
    ("kind", "external", "role"),
    [
        ("elasticjob", TENSORFLOW, EVAL),
        ("tfjob", TENSORFLOW, READER),
        ("pytorchjob", TORCH, EVAL),
        ("trainjob", TORCH, EVAL),
        ("jobset", TORCH, CHIEF),
    ],
)
def test_what_a_kind_cannot_say_is_refused(kind, external, role, error_words):
    with error_words(InvalidValueError):
        exported(kind, external, role)


def templates(kind, document):
    """Return the pods' templates of a document by role."""
    spec = document["spec"]
    if kind == "tfjob":
        return {name.lower(): each["template"] for name, each in spec["tfReplicaSpecs"].items()}
    jobs = (spec["template"]["spec"] if kind == "trainjob" else spec)["replicatedJobs"]
    return {each["name"]: each["template"]["spec"]["template"] for each in jobs}


@pytest.mark.parametrize("kind", ["tfjob", "jobset", "trainjob"])
def test_where_roles_run_is_an_affinity_to_labels_that_their_pods_have(kind):
    worker = replace(TENSORFLOW.worker, apart_from=("ps",))
    near = replace(EVAL, together_with=("ps",))
    job, documents = exported(kind, replace(TENSORFLOW, worker=worker), near)
    found = templates(kind, documents[0 if kind == "trainjob" else -1])
    labels = {role: each["metadata"]["labels"] for role, each in found.items()}

    def asked(role, how):
        (rule,) = found[role]["spec"]["affinity"][how]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert rule["topologyKey"] == "kubernetes.io/hostname"
        wanted = rule["labelSelector"]["matchLabels"].items()
        assert ("dlrover-nb/job", job.name) in wanted
        return {role for role, own in labels.items() if wanted <= own.items()}

    assert asked("worker", "podAntiAffinity") == {"ps"}
    assert asked("chief", "podAntiAffinity") == {"ps"}, "the first worker"
    assert asked("evaluator", "podAffinity") == {"ps"}
    assert "affinity" not in found["ps"]["spec"]


def test_an_elasticjob_does_not_say_where_roles_run_and_refuses_it(error_words):
    placed = replace(TENSORFLOW, worker=replace(TENSORFLOW.worker, apart_from=("ps",)))
    with error_words(InvalidValueError):
        exported("elasticjob", placed)
    assert exported("pods", placed)[1]


def test_a_tfjob_says_that_workers_are_dynamic():
    _, documents = exported("tfjob", replace(TENSORFLOW, dynamic_workers=True))
    assert documents[-1]["spec"]["enableDynamicWorker"] is True
    assert "enableDynamicWorker" not in exported("tfjob", TENSORFLOW)[1][-1]["spec"]

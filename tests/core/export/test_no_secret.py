"""A known secret is put wherever a job can hold one, and looked for in all that leaves: documents and views."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.cases import for_each
from support.jobs.exports import JOB, PLAN, TENSORFLOW, TOLD, TORCH, WRITTEN, fits

from dlrover_nb.core.backends.kubernetes.operator.elastic_desired import elastic_job
from dlrover_nb.core.basics.redaction import PLACEHOLDER
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.gathering import documents_in
from dlrover_nb.core.export.imported import read_export
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.schemas import check
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.job.secrets import check_complete
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.wire.pod_contract import PodJob
from dlrover_nb.core.yamltext import to_yaml

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec

SECRET = "hunter2hunter2"
VARIABLES = (
    f"AWS_SECRET_ACCESS_KEY={SECRET}",
    f"HF_TOKEN={SECRET}",
    f"DB_PASSWORD={SECRET}",
    f"DLROVER_NB_HISTORY=postgresql://ada:{SECRET}@db/runs",
    f"FEED=https://feed.example/rows?sig={SECRET}&x=1",
    f"GREETING=ghp_{SECRET}{SECRET}",  # by the form of its value
    "LEVEL=debug",
)
LEAKY = replace(
    JOB,
    data=DataSpec(DataFormat.PARQUET, f"s3://KEY:{SECRET}@bucket/day1.parquet"),
    checkpoint_url=f"s3://KEY:{SECRET}@bucket/run?token={SECRET}",
    kubernetes=KubernetesSpec(
        env=VARIABLES,
        env_secrets=("storage",),
        code_url=f"gs://u:{SECRET}@code/here?key={SECRET}",
        annotations=(f"example.org/api-token={SECRET}", f"example.org/feed=https://ada:{SECRET}@host/x"),
        labels=(f"webhook-secret={SECRET}", "team=ads"),
    ),
)


def _leaky(foreign: ExternalSpec) -> JobSpec:
    def leak(role: ExternalRole) -> ExternalRole:
        words = (
            *role.command,
            f"--data=https://ada:{SECRET}@host/x",
            f"https://host/y?password={SECRET}",
            f"--api-key={SECRET}",
            "--token",
            SECRET,
            "-p",
            SECRET,
        )
        return replace(role, command=words, env=VARIABLES)

    return replace(LEAKY, foreign=replace(foreign, worker=leak(foreign.worker), ps=leak(foreign.ps)))


JOBS = (LEAKY, _leaky(TENSORFLOW), _leaky(TORCH))
CASES = [(kind, job) for kind in WRITTEN for job in JOBS if fits(kind, job)]


@for_each(("kind", "job"), CASES)
def test_no_secret_leaves_in_any_export(kind: str, job: JobSpec) -> None:
    documents = EXPORTERS[kind](job, PLAN, TOLD, Options())
    text = to_yaml(*documents)
    assert SECRET not in text
    assert check(documents) == ()
    found = read_export(text)
    assert SECRET not in repr(found)
    assert found.job is not None
    assert "LEVEL=debug" in found.job.kubernetes.env  # what is none stays
    assert found.job.kubernetes.env_secrets == ("storage",)
    left = "; ".join(found.unknown)
    for what in (
        "checkpoint_url",
        "data.path",
        "kubernetes.code_url",
        "AWS_SECRET_ACCESS_KEY",
        "HF_TOKEN",
        "FEED",
        "GREETING",
        "example.org/api-token in kubernetes.annotations",
        "webhook-secret in kubernetes.labels",
    ):
        assert what in left


@for_each(("kind", "job"), CASES)
def test_a_placeholder_stands_for_a_secret_and_no_job_starts_with_it(kind: str, job: JobSpec) -> None:
    found = read_export(to_yaml(*EXPORTERS[kind](job, PLAN, TOLD, Options()))).job
    assert found is not None
    assert {f"HF_TOKEN={PLACEHOLDER}", f"GREETING={PLACEHOLDER}"} <= {*found.kubernetes.env}
    with pytest.raises(InvalidValueError, match=r"kubernetes\.env HF_TOKEN"):
        check_complete(found)


@for_each(("kind", "job"), CASES)
def test_a_user_who_asks_for_them_gets_the_secrets_and_nothing_to_fill_in(kind: str, job: JobSpec) -> None:
    documents = EXPORTERS[kind](job, PLAN, TOLD, Options(with_secrets=True))
    assert check(documents) == ()
    found = read_export(to_yaml(*documents))
    assert found.job is not None
    assert {*VARIABLES} <= {*found.job.kubernetes.env}
    assert "never written" not in "; ".join(found.unknown)


@for_each("kind", ["elasticjob", "elasticjob-0"])
def test_an_elasticjob_that_runs_has_the_command_and_the_variables_of_its_user(kind: str) -> None:
    job = JOBS[1]
    assert job.foreign is not None
    made = elastic_job(
        PodJob(job, None, "0a1b2c3d", "p" * 40, "s" * 40, "t" * 32),
        kind,
        {"metadata": {"name": job.name, "uid": "1"}},
    )
    replicas = made["spec"]["replicaSpecs"]
    (main,) = replicas["worker"]["template"]["spec"]["containers"]
    values = {each["name"]: each.get("value") for each in main["env"]}
    assert len(values) == len(main["env"]), "each variable once"
    assert {*VARIABLES} <= {f"{name}={value}" for name, value in values.items()}
    assert main["command"] == [word.replace("$(", "$$(") for word in job.foreign.worker.command]
    ours = {
        key: note for key, note in made["metadata"]["annotations"].items() if key.startswith("dlrover-nb/")
    }
    assert ours, "beside those of the user"
    assert SECRET not in str(ours)


@for_each("kind", WRITTEN)
def test_the_reason_of_a_decision_holds_no_secret(kind: str) -> None:
    assert TOLD.decision is not None
    why = replace(TOLD.decision, why=f"the login with {SECRET} works, and hf_{SECRET * 3} too")
    text = to_yaml(*EXPORTERS[kind](LEAKY, PLAN, replace(TOLD, decision=why), Options()))
    assert "the login with" in text
    assert SECRET not in text


@pytest.mark.more
@for_each(("kind", "job"), CASES)
def test_no_value_of_a_secret_is_in_any_export(kind: str, job: JobSpec) -> None:
    documents = documents_in(to_yaml(*EXPORTERS[kind](job, PLAN, TOLD, Options())))
    for document in documents:
        if document["kind"] == "Secret":
            assert document.keys() <= {"apiVersion", "kind", "metadata", "type"}
    assert not any(key in to_yaml(*documents) for key in ("secret_key", "public_key"))

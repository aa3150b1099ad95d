"""A known secret is put wherever a job can hold one, and looked for in all that leaves: documents and views."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from cases import for_each
from exports import JOB, PLAN, TENSORFLOW, TOLD, TORCH, WRITTEN, fits

from dlrover_nb.core.export import EXPORTERS, Options, check, documents_in, read_export, to_yaml
from dlrover_nb.core.structs.job import DataFormat, DataSpec, JobSpec
from dlrover_nb.core.structs.kubernetes import KubernetesSpec

if TYPE_CHECKING:
    from dlrover_nb.core.structs.external import ExternalRole, ExternalSpec

SECRET = "hunter2hunter2"
VARIABLES = (
    f"AWS_SECRET_ACCESS_KEY={SECRET}",
    f"HF_TOKEN={SECRET}",
    f"DB_PASSWORD={SECRET}",
    f"DLROVER_NB_HISTORY=postgresql://ada:{SECRET}@db/runs",
    f"FEED=https://feed.example/rows?sig={SECRET}&x=1",
    "LEVEL=debug",
)
LEAKY = replace(
    JOB,
    data=DataSpec(DataFormat.PARQUET, f"s3://KEY:{SECRET}@bucket/day1.parquet"),
    checkpoint_url=f"s3://KEY:{SECRET}@bucket/run?token={SECRET}",
    kubernetes=KubernetesSpec(
        env=VARIABLES, env_secrets=("storage",), code_url=f"gs://u:{SECRET}@code/here?key={SECRET}"
    ),
)


def _leaky(foreign: ExternalSpec) -> JobSpec:
    def leak(role: ExternalRole) -> ExternalRole:
        words = (*role.command, f"--data=https://ada:{SECRET}@host/x", f"https://host/y?password={SECRET}")
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
    ):
        assert what in left


@pytest.mark.more
@for_each(("kind", "job"), CASES)
def test_no_value_of_a_secret_is_in_any_export(kind: str, job: JobSpec) -> None:
    documents = documents_in(to_yaml(*EXPORTERS[kind](job, PLAN, TOLD, Options())))
    for document in documents:
        if document["kind"] == "Secret":
            assert document.keys() <= {"apiVersion", "kind", "metadata", "type"}
    assert not any(key in to_yaml(*documents) for key in ("secret_key", "public_key"))

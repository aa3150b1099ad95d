"""`kubernetes.ttl_s`: ended jobs are deleted by the cluster, where a kind has a field for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.cases import for_each
from support.jobs.exports import JOB, OPTIONS, PLAN, TENSORFLOW, TOLD, TORCH, WRITTEN, fits

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.schemas import check
from dlrover_nb.core.jobfile import dump_job, parse_job
from dlrover_nb.core.manifests.objects import master_job, with_defaults
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.wire.pod_contract import PodJob

HOUR = replace(JOB, kubernetes=replace(JOB.kubernetes, ttl_s=3600))
JOBS = {"own": HOUR, "tensorflow": replace(HOUR, foreign=TENSORFLOW), "torch": replace(HOUR, foreign=TORCH)}
KINDS = {
    "pods": "",
    "jobset": "",
    "tfjob": "runPolicy",
    "pytorchjob": "runPolicy",
}  # kind -> group of the spec
CASES = [(kind, name) for kind in KINDS for name, job in JOBS.items() if fits(kind, job)]


def _spec(kind: str, job: Any) -> dict[str, Any]:
    documents: Any = EXPORTERS[kind](job, PLAN, TOLD, OPTIONS)
    assert check(documents) == ()
    spec: dict[str, Any] = documents[-1]["spec"]
    return spec[KINDS[kind]] if KINDS[kind] else spec


@for_each(("kind", "job"), CASES)
def test_an_export_says_when_it_goes_away(kind: str, job: str) -> None:
    assert _spec(kind, JOBS[job])["ttlSecondsAfterFinished"] == 3600
    assert "ttlSecondsAfterFinished" not in _spec(kind, replace(JOBS[job], kubernetes=JOB.kubernetes))


@for_each("kind", [kind for kind in WRITTEN if kind not in KINDS])
def test_a_kind_without_the_field_is_as_before(kind: str) -> None:
    assert "ttlSecondsAfterFinished" not in str(EXPORTERS[kind](HOUR, PLAN, TOLD, OPTIONS)[-1]["spec"])


def test_the_job_of_a_master_goes_away_and_by_default_stays() -> None:
    job = PodJob(HOUR, None, "0a1b2c3d", "p" * 40, "s" * 40, "t" * 32)
    assert master_job(job, namespace="team")["spec"]["ttlSecondsAfterFinished"] == 3600
    at_once = replace(job, spec=replace(HOUR, kubernetes=replace(JOB.kubernetes, ttl_s=0)))
    assert master_job(at_once, namespace="team")["spec"]["ttlSecondsAfterFinished"] == 0
    assert "ttlSecondsAfterFinished" not in master_job(replace(job, spec=JOB), namespace="team")["spec"]


def test_a_job_file_and_the_namespace_say_it() -> None:
    job = parse_job("name: a\nkubernetes: {ttl_s: 86400}\n")
    assert job.kubernetes.ttl_s == 86400
    assert parse_job(dump_job(job)) == job
    assert with_defaults(KubernetesSpec(), "ttl_s: 60").ttl_s == 60
    assert with_defaults(KubernetesSpec(ttl_s=5), "ttl_s: 60").ttl_s == 5


@pytest.mark.parametrize("text", ["-1", "2147483648"])
def test_a_time_that_the_api_has_not_is_refused(text: str, error_words) -> None:
    with error_words(InvalidValueError):
        parse_job(f"name: a\nkubernetes: {{ttl_s: {text}}}\n")

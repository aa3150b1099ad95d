"""Labels and annotations that a job says stand on the object that is the job, and on all its pods."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.cases import for_each
from support.jobs.exports import JOB, OPTIONS, PLAN, TENSORFLOW, TOLD, TORCH, WRITTEN, fits

from dlrover_nb.core.backends.kubernetes.jobs.submission import _of_template
from dlrover_nb.core.backends.kubernetes.operator.elastic_desired import elastic_job
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.imported import read_export
from dlrover_nb.core.export.schemas import check
from dlrover_nb.core.manifests.objects import OWNER_NOTE, master_job
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL
from dlrover_nb.core.manifests.pods import MASTER_NOTE, PodNode, node_pod
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.pod_contract import PodJob
from dlrover_nb.core.yamltext import to_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.structs.job.job import JobSpec

LABELS = {"kueue.x-k8s.io/queue-name": "ads", "empty": ""}
NOTES = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "note": "a=b c"}
KUBE = replace(
    JOB.kubernetes,
    labels=tuple(f"{key}={value}" for key, value in LABELS.items()),
    annotations=tuple(f"{key}={value}" for key, value in NOTES.items()),
)
OWN = replace(JOB, kubernetes=KUBE)
JOBS = {"own": OWN, "tensorflow": replace(OWN, foreign=TENSORFLOW), "torch": replace(OWN, foreign=TORCH)}
WITH_PODS = [kind for kind in WRITTEN if kind != "scaleplan"]  # which changes the plan of pods that are there
CASES = [(kind, name) for kind in WITH_PODS for name, job in JOBS.items() if fits(kind, job)]


def _exported(kind: str, job: JobSpec) -> list[dict[str, Any]]:
    documents = EXPORTERS[kind](job, PLAN, TOLD, OPTIONS)
    assert check(documents) == ()
    return [dict(document) for document in documents]


def _templates(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield the templates of pods that their operator makes by themselves."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == "template" and "containers" in value["spec"]:
                yield value
            yield from _templates(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _templates(value)


def _assert_told(metadata: dict[str, Any]) -> None:
    assert LABELS.items() <= metadata["labels"].items()
    assert NOTES.items() <= metadata["annotations"].items()


@for_each(("kind", "job"), CASES)
def test_they_stand_on_the_object_that_a_queue_reads(kind: str, job: str) -> None:
    *_, document = _exported(kind, JOBS[job])
    _assert_told(document["metadata"])
    assert "dlrover-nb/context" in document["metadata"]["annotations"]


@for_each(("kind", "job"), CASES)
def test_they_stand_on_the_templates_that_keep_them(kind: str, job: str) -> None:
    templates = list(_templates(_exported(kind, JOBS[job])))
    assert templates
    prunes = kind == "elasticjob-0" or (kind == "elasticjob" and job == "own")
    for template in templates:
        if prunes:
            assert "metadata" not in template  # the operator copies those of the ElasticJob
        else:
            _assert_told(template["metadata"])


@for_each("kind", WITH_PODS)
def test_a_job_that_says_none_has_templates_without_metadata_as_before(kind: str) -> None:
    documents = _exported(kind, JOB)
    assert kind == "pods" or all("metadata" not in each for each in _templates(documents))


def test_a_job_of_ours_and_all_its_pods_have_them_beside_ours() -> None:
    job = PodJob(OWN, None, "0a1b2c3d", "p" * 40, "s" * 40, "t" * 32)
    made = master_job(job, namespace="team")
    _assert_told(made["metadata"])
    assert made["metadata"]["annotations"][OWNER_NOTE] == OWN.owner
    _assert_told(made["spec"]["template"]["metadata"])
    tried = _of_template(made)["metadata"]
    _assert_told(tried)  # what an admission rule would say of them is known at submission
    assert tried["name"] == f"{OWN.name}-try"
    for role in Role:
        node = node_pod(job, PodNode(f"{role}-0", role, 1.0, 512), master="tcp://10.0.0.1:7070")["metadata"]
        _assert_told(node)
        assert node["labels"][JOB_LABEL] == OWN.name
        assert node["annotations"][MASTER_NOTE] == "tcp://10.0.0.1:7070"


@pytest.mark.parametrize("kind", ["elasticjob", "elasticjob-0"])
def test_an_external_job_has_them_under_dlrovers_operator_and_without_it(kind: str) -> None:
    job = PodJob(JOBS["tensorflow"], None, "0a1b2c3d", "p" * 40, "s" * 40, "t" * 32)
    _assert_told(node_pod(job, PodNode("ps-0", Role.PS, 1.0, 512), master="")["metadata"])
    owner = {"metadata": {"name": OWN.name, "uid": "1"}}
    made = elastic_job(job, kind, owner)["metadata"]
    _assert_told(made)
    assert made["labels"]["dlrover-nb/run"] == "0a1b2c3d"


@for_each("kind", WITH_PODS)
def test_they_come_back_with_an_import(kind: str) -> None:
    found = read_export(to_yaml(*_exported(kind, OWN)))
    assert found.job == OWN
    assert found.differs == ()

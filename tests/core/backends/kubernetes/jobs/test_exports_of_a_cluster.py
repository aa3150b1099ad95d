"""An export of a job on Kubernetes goes to its namespace, and is refused where its operator cannot run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.cases import for_each
from support.jobs import builders

from dlrover_nb.api.exports import export
from dlrover_nb.core.backends.kubernetes.client.api_errors import Forbidden, Operation, Status
from dlrover_nb.core.backends.kubernetes.jobs.link import KubernetesLink
from dlrover_nb.core.backends.kubernetes.operator.operator_jobs import operator_version
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.gathering import documents_in
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.manifests.kinds import DEPLOYMENT, ELASTIC_JOB, Kind
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.wire.pod_contract import PodJob

if TYPE_CHECKING:
    from dlrover_nb.core.manifests.kinds import Doc

SNAPSHOT = builders.snapshot(
    spec=JobSpec("clicks", data=DataSpec(DataFormat.PARQUET, "s3://bucket/day.parquet"))
)
KINDS = ("pods", "elasticjob", "elasticjob-0", "tfjob", "pytorchjob", "trainjob", "jobset")


class Api:
    """An API server with these images in Deployments; None: they may not be read."""

    namespace = "ads"

    def __init__(self, *images: str, may: bool = True) -> None:
        self.images, self.may = images, may

    def within(self, _namespace: str) -> Api:
        return self

    def has(self, kind: Kind) -> bool:
        return kind is ELASTIC_JOB

    def list(self, kind: Kind) -> Any:
        assert kind is DEPLOYMENT
        if not self.may:
            raise Forbidden("no", Status(403, "Forbidden", "no"), Operation("list", kind))
        return type("Listing", (), {"items": [deployment(image) for image in self.images]})


def deployment(image: str) -> Doc:
    return {"spec": {"template": {"spec": {"containers": [{"image": image}]}}}}


def link(api: Api) -> KubernetesLink:
    return KubernetesLink(api, PodJob(SNAPSHOT.spec, None, "0a1b2c3d", "", "", ""))  # type: ignore[arg-type]  # it reads alone


@for_each("kind", KINDS)
def test_without_a_namespace_all_objects_go_to_that_of_the_job(kind: str) -> None:
    for options, namespace in ((Options(), "ads"), (Options(namespace="team"), "team")):
        shown = export(SNAPSHOT, kind, SNAPSHOT.target, options, server=link(Api()))
        assert {doc["metadata"]["namespace"] for doc in documents_in(shown.text)} == {namespace}


@for_each(
    ("image", "version"),
    [
        ("easydl/elasticjob-controller:v0.4.9", (0, 4, 9)),
        ("registry.example:5000/dlrover/elasticjob-controller:0.5.0-rc1", (0, 5, 0)),
        ("registry.example:5000/dlrover/operator:v0.10.2", (0, 10, 2)),
        ("easydl/elasticjob-controller:master", ()),
        ("registry.example:5000/dlrover/operator", ()),
        ("postgres:16.1.2", ()),
    ],
)
def test_the_release_of_the_operator_is_the_tag_of_its_image(image: str, version: tuple[int, ...]) -> None:
    assert operator_version(Api("nginx:1.2.3", image)) == version  # type: ignore[arg-type]  # it lists alone
    assert operator_version(Api(image, may=False)) == ()  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("kind", ["elasticjob", "elasticjob-0"])
def test_an_operator_that_ignores_the_masters_command_is_refused_where_it_is_known(
    kind: str, error_words
) -> None:
    old = link(Api("easydl/elasticjob-controller:v0.4.9"))
    with error_words(InvalidValueError):
        export(SNAPSHOT, kind, SNAPSHOT.target, Options(), server=old)
    assert export(SNAPSHOT, "pods", SNAPSHOT.target, Options(), server=old)
    assert export(SNAPSHOT, kind, SNAPSHOT.target, Options(namespace="elsewhere"), server=old)


@pytest.mark.parametrize("api", [Api("easydl/elasticjob-controller:v0.5.0"), Api(may=False), Api()])
def test_where_it_is_not_known_to_be_too_old_the_file_says_what_it_needs(api: Api) -> None:
    shown = export(SNAPSHOT, "elasticjob", SNAPSHOT.target, Options(), server=link(api))
    assert "DLRover's operator 0.5.0 or later" in " ".join(shown.text.replace("''", "'").split())

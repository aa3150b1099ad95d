"""All that we give a Kubernetes is valid by the schemas of its releases, unknown fields refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.jobs.exports import (
    OPTIONS,
    WRITTEN,
    jobs,
    jobs_of,
    no_resource_warnings,
    provenances,
    small_plans,
)

from dlrover_nb.core.backends.kubernetes.nodes.disruption_budget import budget
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.manifests.kinds import BUDGET
from dlrover_nb.core.manifests.objects import companions, master_job
from dlrover_nb.core.manifests.pods import PodNode, check_pod, node_pod
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.pod_contract import PodJob

if TYPE_CHECKING:
    from collections.abc import Iterable

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
options = st.sampled_from([Options(), OPTIONS])
RELEASES = ("1.30", "1.31", "1.32", "1.33", "1.34", "1.35")
OF_KUSTOMIZE = {"Kustomization", "Component"}


def problems(documents: Iterable[dict[str, Any]], releases: Iterable[str] = RELEASES) -> list[str]:
    """Return what releases refuse; of resources that others define, nothing."""
    refused = []
    for document in documents:
        for release in releases:
            try:
                with no_resource_warnings():
                    kubernetes_validate.validate(document, release, strict=True)
            except kubernetes_validate.ValidationError as error:
                refused.append(f"{document['kind']} by {release}: {error}")
            except kubernetes_validate.SchemaNotFoundError:
                assert "." in document["apiVersion"].partition("/")[0], f"{document['kind']} is no resource"
    return refused


@pytest.mark.more
@settings(deadline=None, max_examples=12)
@given(jobs, st.booleans())
def test_what_a_job_creates_is_valid_in_every_release(job, has_code) -> None:
    run = PodJob(job, None, "0a1b2c3d", "public", "secret-key", "the-token")
    code = {"code.zip": b"x"} if has_code else {}
    rights = {"has_budget": True, "may_resize": True, "sees_queue": True}
    made = [
        *companions(run, code=code, namespace="n", **rights),
        master_job(run, namespace="n"),
        *(node_pod(run, PodNode(f"{role}-0", role, 1.0, 512), master="http://10.0.0.1/") for role in Role),
        *([] if job.foreign else [check_pod(run, mark="m", report_to="http://10.0.0.1/")]),
        budget(job.name, run.run, 2, BUDGET),
    ]
    assert problems(made) == []


@pytest.mark.more
@pytest.mark.parametrize("kind", WRITTEN)
@settings(deadline=None, max_examples=3)
@given(st.data())
def test_exports_are_valid_in_every_release(kind: str, data: st.DataObject) -> None:
    exported = data.draw(st.tuples(jobs_of(kind), small_plans, provenances, options))
    assert problems(EXPORTERS[kind](*exported)) == []


@pytest.mark.parametrize(
    "path", sorted(DEPLOY.rglob("*.yaml")), ids=lambda path: str(path.relative_to(DEPLOY))
)
def test_files_for_administrators_are_valid_in_every_release(path: Path) -> None:
    documents = [each for each in yaml.safe_load_all(path.read_text()) if each and "kind" in each]
    assert problems(each for each in documents if each["kind"] not in OF_KUSTOMIZE) == []


def test_a_field_that_no_release_knows_is_found() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "a"}]},
    }
    assert problems([pod]) == []
    pod["spec"]["containers"][0]["memory"] = 1
    assert len(problems([pod])) == len(RELEASES)

"""Every export is valid by the real schemas, strictly; what ships with the package says the same."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from suite.missing import shared
from support.cases import for_each
from support.jobs.exports import (
    JOB,
    OPTIONS,
    PLAN,
    TOLD,
    WRITTEN,
    decisions,
    jobs,
    jobs_of,
    no_resource_warnings,
    plan_for,
    plans,
    provenances,
    real_schemas,
    small_plans,
)

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.client.api_errors import Operation
from dlrover_nb.core.backends.kubernetes.client.http_transport import Request
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.provenance import Provenance
from dlrover_nb.core.export.schemas import KINDS, check
from dlrover_nb.core.yamltext import to_yaml

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

TOOL = Path(__file__).resolve().parents[3] / "tools" / "trim_crds.py"
# kind of export -> the CRDs that it must pass, beside which nothing else is looked at
FITS = {
    "elasticjob": ("elasticjobs.HEAD", "elasticjobs.v0.6.1", "manifests_bases_crd.HEAD"),
    "elasticjob-0": ("manifests_bases_crd.HEAD",),
    "scaleplan": ("manifests_bases_crd.HEAD", "scaleplans.v0.4.0"),
    "tfjob": ("kubeflow.org_tfjobs",),
    "pytorchjob": ("kubeflow.org_pytorchjobs",),
    "trainjob": ("trainer.kubeflow.org_trainjobs",),
    "rayjob": ("ray.io_rayjobs",),
    "jobset": ("jobset.x-k8s.io_jobsets",),
}
OF_A_KIND = [(kind, crd) for kind, crds in FITS.items() for crd in crds]
options = st.sampled_from([Options(), Options(namespace="ads"), OPTIONS])


@pytest.fixture(scope="module")
def real() -> dict[str, Any]:
    with no_resource_warnings():
        module = real_schemas()
        return {"module": module} | {crd: module.load(crd) for _, crd in OF_A_KIND}


def _problems(real: dict[str, Any], crd: str, path: Path, text: str) -> list[str]:
    path.write_text(text, encoding="utf-8")
    with no_resource_warnings():
        found = real["module"].check(str(path), real[crd])
    return [error for _, _, _, errors in found for error in errors]


@pytest.mark.release_variants("elasticjob-elasticjobs.HEAD", "elasticjob-elasticjobs.v0.6.1")
@pytest.mark.more
@pytest.mark.parametrize(("kind", "crd"), [each for each in OF_A_KIND if each[0] in WRITTEN])
@settings(deadline=None, max_examples=6)
@given(st.data())
def test_every_export_is_valid_by_the_real_crds(
    real: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    crd: str,
    data: st.DataObject,
) -> None:
    job, plan, *others = data.draw(st.tuples(jobs_of(kind), plans, provenances, options))
    exported = job, plan_for(job, plan), *others
    path = tmp_path_factory.mktemp("export") / "export.yaml"
    assert _problems(real, crd, path, to_yaml(EXPORTERS[kind](*exported)[-1])) == []


@pytest.mark.more
@settings(deadline=None, max_examples=6)
@given(jobs, small_plans)
def test_the_masters_pod_is_one_that_the_real_job_template_takes(
    real: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, job: JobSpec, plan: ResourcePlan
) -> None:
    own: Any = EXPORTERS["pods"](job, plan, TOLD, Options())[-1]
    spec = {"replicatedJobs": [{"name": "job", "template": {"spec": own["spec"]}}]}
    whole = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "a"},
        "spec": spec,
    }
    path = tmp_path_factory.mktemp("export") / "job.yaml"
    assert _problems(real, "jobset.x-k8s.io_jobsets", path, to_yaml(whole)) == []


def test_the_present_operator_does_not_know_the_older_switches(real: dict[str, Any], tmp_path: Path) -> None:
    text = to_yaml(EXPORTERS["elasticjob-0"](JOB, PLAN, TOLD, OPTIONS)[-1])
    problems = _problems(real, "elasticjobs.HEAD", tmp_path / "job.yaml", text)
    assert "enableElasticScheduling" in str(problems)
    renamed = yaml.safe_load(text.replace("kind: elasticjob-0", "kind: elasticjob"))
    assert "enableElasticScheduling" in str(check([renamed]))


@pytest.mark.more
@pytest.mark.parametrize("kind", WRITTEN)
@settings(deadline=None, max_examples=6)
@given(st.data(), small_plans, provenances, options)
def test_every_export_is_valid_by_the_schemas_that_ship(
    kind: str, data: st.DataObject, plan: ResourcePlan, told: Provenance, given_options: Options
) -> None:
    documents = EXPORTERS[kind](data.draw(jobs_of(kind)), plan, told, given_options)
    assert check(documents) == ()
    assert tuple(yaml.safe_load_all(to_yaml(*documents))) == documents


@pytest.mark.more
@pytest.mark.parametrize("kind", FITS)
def test_the_schemas_that_ship_are_those_of_the_real_crds(kind: str) -> None:
    real_schemas()  # skips where they are not at hand
    tool = _tool()
    assert (tool.SCHEMAS / f"{kind}.schema.json").read_text("utf-8") == tool.made(shared("crds"), kind)


@pytest.mark.more
@pytest.mark.kube
def test_the_schemas_of_kubernetes_own_kinds_are_those_of_a_real_api_server(control_plane: Any) -> None:
    api = connect_api(kubeconfig=control_plane.kubeconfig, namespace="default")
    openapi = json.loads(
        api._connection.send(Request("GET", "/openapi/v2", Operation("get", None), (), None, (), 20)).body
    )
    tool = _tool()
    assert (tool.SCHEMAS / "core.schema.json").read_text("utf-8") == tool.made_core(openapi)


def _tool() -> Any:
    spec = importlib.util.spec_from_file_location("trim_crds", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def _changed(document: Any, path: str, value: object) -> Any:
    """Return a document with one value set; a path is like spec/replicaSpecs/ps/replicas."""
    key, _, rest = path.partition("/")
    inner = _changed(document.get(key, {}), rest, value) if rest else value
    return {**document, key: inner}


REPLICA = "spec/replicaSpecs/ps"
RESOURCE = "spec/replicaResourceSpecs/ps"


@for_each(
    ("kind", "path", "value", "told"),
    [
        ("elasticjob", f"{REPLICA}/replica", 1, f"ElasticJob ctr-daily: {REPLICA}: Additional properties"),
        ("elasticjob", f"{REPLICA}/replicas", "1", f"ElasticJob ctr-daily: {REPLICA}/replicas: '1' is not"),
        ("elasticjob", f"{REPLICA}/template/spec/container", [], "('container' was unexpected)"),
        ("elasticjob", "spec/enableDynamicSharding", True, "('enableDynamicSharding' was unexpected)"),
        ("elasticjob", "metadata/name", "Not_A_Name", "metadata/name: 'Not_A_Name' does not match"),
        ("elasticjob", "metadata/annotations/a", 1, "metadata/annotations/a: 1 is not of type 'string'"),
        ("elasticjob", "apiVersion", "v1", "apiVersion: 'elastic.iml.github.io/v1alpha1' was expected"),
        ("elasticjob", "kind", "ScalePlan", "ScalePlan ctr-daily: spec: Additional properties"),
        ("elasticjob", "kind", "MPIJob", "kind must be one of ElasticJob, ScalePlan, TFJob, "),
        ("elasticjob-0", "spec/suspend", False, "('suspend' was unexpected)"),
        ("elasticjob-0", f"{REPLICA}/template/metadata", {"labels": {}}, "('labels' was unexpected)"),
        ("scaleplan", "spec/manualScaling", True, "('manualScaling' was unexpected)"),
        ("scaleplan", f"{RESOURCE}/resource/cpu", 0.5, f"{RESOURCE}/resource/cpu: 0.5 is not"),
        (
            "scaleplan",
            "metadata/labels/scale-type",
            "a b",
            "metadata/labels/scale-type: 'a b' does not match",
        ),
        ("pods", "spec/container", [], "Job ctr-daily: spec: Additional properties"),
        ("pods", "metadata/annotations/big", "x" * (256 << 10), "must be at most 256 KiB together, got 25"),
    ],
)
def test_a_wrong_document_is_told_where(kind: str, path: str, value: object, told: str) -> None:
    document = EXPORTERS[kind](JOB, PLAN, TOLD, OPTIONS)[-1]
    assert check([document]) == ()
    problems = check([_changed(document, path, value)])
    assert [problem for problem in problems if told in problem], problems


def test_something_else_than_documents_is_told() -> None:
    assert check(["text", None]) == (
        f"document 1: kind must be one of {', '.join(KINDS)}, got nothing",
        f"document 2: kind must be one of {', '.join(KINDS)}, got nothing",
    )


def test_an_elasticjob_that_does_not_say_which_fits_either_generation() -> None:
    for kind in ("elasticjob", "elasticjob-0"):
        document = EXPORTERS[kind](JOB, PLAN, TOLD, OPTIONS)[-1]
        assert check([_changed(document, "metadata/annotations", {})]) == ()


@settings(deadline=None, max_examples=10)
@given(decisions)
def test_annotations_stay_in_what_kubernetes_takes(decision: Any) -> None:
    told = Provenance(replace(decision, why="x" * 10_000_000))
    for exporter in map(EXPORTERS.__getitem__, WRITTEN):
        assert check(exporter(JOB, PLAN, told, OPTIONS)) == ()


def test_a_job_that_no_pod_could_be_told_is_refused() -> None:
    data = replace(JOB.data, categorical=tuple(f"column_{i}" for i in range(10_000)))
    for exporter in map(EXPORTERS.__getitem__, WRITTEN):
        with pytest.raises(InvalidValueError, match="must be described in 96 KiB to be exported, got 1"):
            exporter(replace(JOB, data=data), PLAN, TOLD, OPTIONS)

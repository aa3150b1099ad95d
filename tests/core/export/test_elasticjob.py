"""Any plan exports to an ElasticJob that the real schemas take, strictly."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.export.elasticjob import Pod, Provenance, elasticjob, to_yaml, validate
from dlrover_nb.core.structs.decisions import Decision, Prediction, Verdict
from dlrover_nb.core.structs.job import DataFormat, DataSpec, JobSpec
from dlrover_nb.core.structs.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

CRDS = Path(__file__).resolve().parents[4] / "shared" / "crds"
GENERATIONS = ("elasticjobs.HEAD", "manifests_bases_crd.HEAD")


@contextmanager
def _no_resource_warnings() -> Iterator[None]:
    """Let the validator leave the closing of its files to the collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield


roles = st.builds(RolePlan, st.integers(1, 1000), st.floats(0.01, 512), st.integers(64, 4 << 20))
plans = st.builds(ResourcePlan, worker=roles, ps=roles)
predictions = st.builds(Prediction, *[st.floats(0.1, 1e9)] * 3, st.booleans())
decisions = st.builds(
    Decision,
    st.sampled_from(Verdict),
    st.text(max_size=20),
    st.floats(0, 4e9),
    proposal=st.none() | st.just("p3"),
    why=st.text(max_size=2000),
    id=st.just("d1"),
)
provenances = st.builds(Provenance, st.none() | decisions, st.none() | predictions)

JOB = JobSpec("ctr-daily", owner="ada", data=DataSpec(DataFormat.PARQUET, "/data/day1.parquet"))
PLAN = ResourcePlan(worker=RolePlan(2, 0.5, 1024), ps=RolePlan(1, 0.25, 512))
GOLDEN = """\
apiVersion: elastic.iml.github.io/v1alpha1
kind: ElasticJob
metadata:
  name: ctr-daily
  annotations:
    dlrover-nb/plan: workers 2 x 0.5 cpu, 1024 MiB; ps 1 x 0.25 cpu, 512 MiB
    dlrover-nb/job-spec-sha256: SHA256
    dlrover-nb/decision: d4 accept
    dlrover-nb/decided-by: ada
    dlrover-nb/decided-at: '2025-06-15T15:06:40+00:00'
    dlrover-nb/why: faster
    dlrover-nb/proposal: p2
    dlrover-nb/predicted-samples-per-s: 21000 (19500 to 23000, 90 % band), extrapolated
spec:
  distributionStrategy: ParameterServerStrategy
  replicaSpecs:
    worker:
      replicas: 2
      autoScale: false
      restartCount: 3
      template:
        spec:
          restartPolicy: Never
          containers:
          - name: main
            image: registry/ctr:7
            command:
            - run-node
            env:
            - name: DLROVER_NB_ROLE
              value: worker
            - name: DLROVER_NB_JOB
              value: 'JSON'
            resources:
              requests:
                cpu: 500m
                memory: 1024Mi
              limits:
                cpu: 500m
                memory: 1024Mi
"""


@pytest.fixture(scope="module", params=GENERATIONS)
def generation(request: pytest.FixtureRequest) -> tuple[ModuleType, dict[Any, Any]]:
    if not (CRDS / "validate.py").is_file():
        if os.environ.get("CI"):
            pytest.fail(f"CI needs the CRDs at {CRDS}")
        pytest.skip(f"no CRDs at {CRDS}")
    spec = importlib.util.spec_from_file_location("crd_validate", CRDS / "validate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.warns(ResourceWarning) if False else _no_resource_warnings():
        spec.loader.exec_module(module)
        return module, module.load(request.param)


@settings(deadline=None, max_examples=25)
@given(plans, provenances)
def test_every_plan_is_valid_by_the_real_schemas(
    generation: tuple[ModuleType, dict[Any, Any]],
    tmp_path_factory: pytest.TempPathFactory,
    plan: ResourcePlan,
    provenance: Provenance,
) -> None:
    module, table = generation
    path = tmp_path_factory.mktemp("export") / "job.yaml"
    path.write_text(to_yaml(elasticjob(JOB, plan, provenance, Pod(namespace="ads"))), encoding="utf-8")
    with _no_resource_warnings():
        ((_, key, _, errors),) = module.check(str(path), table)
    assert key == ("elastic.iml.github.io/v1alpha1", "ElasticJob")
    assert errors == []


@settings(deadline=None, max_examples=40)
@given(plans, provenances)
def test_every_export_is_valid_by_the_schema_that_ships(plan: ResourcePlan, provenance: Provenance) -> None:
    document = elasticjob(JOB, plan, provenance)
    assert validate(document) == ()
    assert yaml.safe_load(to_yaml(document)) == document


@settings(deadline=None, max_examples=40)
@given(plans)
def test_the_plan_can_be_read_back_from_the_document(plan: ResourcePlan) -> None:
    replicas: Any = elasticjob(JOB, plan)["spec"]

    def read(role: str) -> RolePlan:
        replica = replicas["replicaSpecs"][role]
        limits = replica["template"]["spec"]["containers"][0]["resources"]["limits"]
        return RolePlan(
            replica["replicas"], int(limits["cpu"].removesuffix("m")) / 1000, int(limits["memory"][:-2])
        )

    assert ResourcePlan(read("worker"), read("ps")) == plan


def test_the_document_says_what_was_decided_and_by_whom() -> None:
    decision = Decision(Verdict.ACCEPT, "ada", 1_750_000_000.0, proposal="p2", why="faster", id="d4")
    told = Provenance(decision, Prediction(21_000, 19_500.4, 23_000, extrapolates=True))
    text = to_yaml(elasticjob(JOB, PLAN, told, Pod("registry/ctr:7", ("run-node",))))
    job = to_json(replace(JOB, plan=PLAN)).decode()
    asked = hashlib.sha256(to_json(JOB)).hexdigest()
    text = text.replace(job, "JSON").replace(asked, "SHA256")
    assert text.startswith(GOLDEN)


def test_nodes_get_the_job_with_the_exported_plan_and_nothing_in_it_is_expanded() -> None:
    job = replace(JOB, data=DataSpec(DataFormat.PARQUET, "/data/$(HOME).parquet"))
    specs: Any = elasticjob(job, PLAN)["spec"]
    for role in ("worker", "ps"):
        container = specs["replicaSpecs"][role]["template"]["spec"]["containers"][0]
        env = {e["name"]: e["value"] for e in container["env"]}
        assert env["DLROVER_NB_ROLE"] == role
        assert "$$(HOME)" in env["DLROVER_NB_JOB"]
        assert from_json(env["DLROVER_NB_JOB"].replace("$$(", "$("), JobSpec) == replace(job, plan=PLAN)


def test_nothing_suspends_or_scales_the_job_by_itself() -> None:
    text = to_yaml(elasticjob(JOB, PLAN))
    assert "suspend" not in text
    assert text.count("autoScale: false") == 2


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"spec": {"replicaSpecs": {"ps": {"replica": 1}}}}, "spec/replicaSpecs/ps"),
        ({"spec": {"replicaSpecs": {"ps": {"replicas": "1"}}}}, "spec/replicaSpecs/ps/replicas"),
        ({"metadata": {"name": "Not_A_Name"}}, "metadata/name"),
        ({"metadata": {"name": "x", "annotations": {"a": 1}}}, "metadata/annotations/a"),
        ({"kind": "ScalePlan"}, "kind"),
    ],
)
def test_a_wrong_document_is_told_where(change: dict[str, Any], where: str) -> None:
    (problem,) = validate(elasticjob(JOB, PLAN) | change)
    assert problem.startswith(where + ":")


def test_the_digest_changes_with_the_job() -> None:
    def digest(job: JobSpec) -> str:
        metadata: Any = elasticjob(job, PLAN)["metadata"]
        return str(metadata["annotations"]["dlrover-nb/job-spec-sha256"])

    assert digest(JOB) == digest(replace(JOB)) != digest(replace(JOB, seed=1))

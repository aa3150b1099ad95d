"""What an export says: the plan fixed, who decided and why, nothing secret."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from support.cases import for_each
from support.jobs.exports import BEFORE, DECISION, JOB, OPTIONS, PLAN, TENSORFLOW, TOLD, WRITTEN
from support.words import lines_with

from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.provenance import Context, Provenance
from dlrover_nb.core.export.schemas import check
from dlrover_nb.core.jobfile import parse_job
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.resources import RolePlan
from dlrover_nb.core.structs.views.fit import Coefficient, FitReport, FormWeight
from dlrover_nb.core.yamltext import to_yaml

NOTES = """\
    dlrover-nb/kind: KIND
    dlrover-nb/version: VERSION
    dlrover-nb/owner: ada
    dlrover-nb/plan: workers 2 x 0.5 cpu, 1024 MiB; ps 1 x 0.4 cpu, 1024 MiB
    dlrover-nb/plan-before: workers 1 x 0.5 cpu, 1024 MiB; ps 1 x 0.2 cpu, 512 MiB
    dlrover-nb/decision: d4 accept
    dlrover-nb/decided-by: ada
    dlrover-nb/decided-at: '2025-06-15T15:06:40+00:00'
    dlrover-nb/why: faster
    dlrover-nb/proposal: p2
    dlrover-nb/predicted-samples-per-s: 21000 (19500 to 23000, 90 % band), extrapolated
    dlrover-nb/context: 'CONTEXT'
"""
REPLICA = """\
    worker:
      replicas: 2
      autoScale: false
      template:
        spec:
          containers:
          - name: main
            resources:
              requests:
                cpu: 500m
                memory: 1024Mi
              limits:
                cpu: 500m
                memory: 1024Mi
"""
ELASTICJOB = f"""\
{NOTES}spec:
  distributionStrategy: ParameterServerStrategy
  replicaSpecs:
{REPLICA}    ps:
"""
SCALEPLAN = f"""\
apiVersion: elastic.iml.github.io/v1alpha1
kind: ScalePlan
metadata:
  name: ctr-daily-d4
  labels:
    elasticjob.dlrover/name: ctr-daily
    elasticjob-name: ctr-daily
    scale-type: manual
  annotations:
{NOTES}spec:
  ownerJob: ctr-daily
  replicaResourceSpecs:
    worker:
      replicas: 2
      resource:
        cpu: 500m
        memory: 1024Mi
    ps:
      replicas: 1
      resource:
        cpu: 400m
        memory: 1024Mi
  migratePods:
  - name: ctr-daily-edljob-ps-0
    resource:
      cpu: 400m
      memory: 1024Mi
"""


def _notes(document: Any) -> dict[str, str]:
    found: dict[str, str] = document["metadata"]["annotations"]
    return found


def _shown(kind: str) -> str:
    """Return the resource of an export with what is long by its name."""
    documents = EXPORTERS[kind](JOB, PLAN, TOLD, OPTIONS)
    notes = _notes(documents[-1])
    text = to_yaml(documents[-1])
    for long, name in (
        (notes["dlrover-nb/context"], "CONTEXT"),
        (f"version: {notes['dlrover-nb/version']}", "version: VERSION"),
        (f"kind: {kind}", "kind: KIND"),
    ):
        text = text.replace(long, name)
    return text


def test_an_elasticjob_is_what_dlrovers_operator_reads() -> None:
    assert ELASTICJOB in _shown("elasticjob")


def test_an_elasticjob_comes_with_all_that_its_master_needs_and_no_key() -> None:
    *rest, job = _any(EXPORTERS["elasticjob"](JOB, PLAN, TOLD, Options("registry/ctr:7", namespace="ads")))
    file, secret, account, role, binding = rest
    assert [d["kind"] for d in rest] == ["ConfigMap", "Secret", "ServiceAccount", "Role", "RoleBinding"]
    assert {d["metadata"]["namespace"] for d in (*rest, job)} == {"ads"}
    assert not {"data", "stringData"} & secret.keys()
    assert {rule["resources"][0] for rule in role["rules"]} >= {"pods", "elasticjobs", "scaleplans/status"}
    assert binding["subjects"][0]["name"] == account["metadata"]["name"]
    assert job["metadata"]["labels"]["dlrover-nb/role"] == "master", "the operator copies them to the pod"
    master = job["spec"]["replicaSpecs"]["dlrover-master"]
    pod = master["template"]["spec"]
    assert (master["restartCount"], pod["restartPolicy"]) == (20, "Never")
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    (main,) = pod["containers"]
    assert main["image"] == "registry/ctr:7"
    assert main["command"][-2:] == ["dlrover_nb.core.backends.kubernetes.exported_master", "ElasticJob"]
    filed = parse_job(file["data"]["job.yaml"])
    assert (filed.plan, filed.mode) == (PLAN, JOB.mode)


def _any(documents: Any) -> Any:
    return documents


def test_an_elasticjob_says_the_job_once_and_its_context_in_one_short_line() -> None:
    documents = EXPORTERS["elasticjob"](JOB, PLAN, TOLD, OPTIONS)
    text = to_yaml(*documents)
    context = _notes(documents[-1])["dlrover-nb/context"]
    assert text.count("/data/day1.parquet") == 2, "in the job file, and in the annotation"
    assert text.count('{"') == 1 + context.count(":{"), "no other JSON"
    assert len(context) < 700
    assert max(len(line) for line in text.splitlines() if context not in line) <= 130


def test_a_scaleplan_is_what_dlrovers_master_reads() -> None:
    assert _shown("scaleplan") == SCALEPLAN


def test_the_older_elasticjob_switches_off_what_plans_there() -> None:
    old, new = (EXPORTERS[kind](JOB, PLAN, TOLD, OPTIONS)[-1] for kind in ("elasticjob-0", "elasticjob"))
    spec: Any = old["spec"]
    switches = {"enableElasticScheduling": False, "enableDynamicSharding": False}
    assert spec == switches | new["spec"]  # type: ignore[operator]  # a group


@pytest.mark.parametrize("kind", ["elasticjob", "elasticjob-0"])
def test_who_may_change_the_plan_is_said_and_annotated(kind: str, words) -> None:
    fixed, free = (to_yaml(*EXPORTERS[kind](JOB, PLAN, TOLD, Options(auto_scale=on))) for on in (False, True))
    assert (fixed.count("autoScale: false"), fixed.count("autoScale: true")) == (2, 0)
    assert (free.count("autoScale: false"), free.count("autoScale: true")) == (0, 2)
    assert lines_with(fixed, "auto-scale:") == words
    assert lines_with(free, "auto-scale:") == words
    assert ("mode: suggest" in fixed, "mode: auto" in free) == (True, True)
    assert "suspend" not in fixed + free


def test_where_dlrover_plans_it_keeps_to_the_quota() -> None:
    quota = PlanBounds(quota_cpu=15, quota_memory_mib=30_000)
    job = replace(JOB, bounds=quota, foreign=TENSORFLOW)
    free: Any = EXPORTERS["elasticjob"](job, PLAN, TOLD, Options(auto_scale=True))[0]
    assert free["spec"]["resourceLimits"] == {"cpu": "15", "memory": "30000Mi"}
    fixed: Any = EXPORTERS["elasticjob"](job, PLAN, TOLD, Options())[0]
    assert "resourceLimits" not in fixed["spec"]


@for_each("kind", ["scaleplan", "tfjob", "pytorchjob", "rayjob", "jobset", "pods"])
def test_what_nobody_scales_cannot_be_left_to_scale(kind: str) -> None:
    with pytest.raises(InvalidValueError, match="export an elasticjob"):
        EXPORTERS[kind](JOB, PLAN, TOLD, Options(auto_scale=True))


def test_plain_pods_are_all_objects_of_a_job_and_no_key() -> None:
    documents: Any = EXPORTERS["pods"](JOB, PLAN, TOLD, Options("registry/ctr:7", namespace="ads"))
    file, secret, account, role, binding, job = documents
    assert [d["kind"] for d in documents] == [
        "ConfigMap",
        "Secret",
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "Job",
    ]
    assert {d["metadata"]["namespace"] for d in documents} == {"ads"}
    assert not {"data", "stringData"} & secret.keys()
    assert binding["subjects"][0]["name"] == account["metadata"]["name"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert job["spec"]["parallelism"] == 1  # nobody is there to let it go
    pod = job["spec"]["template"]["spec"]
    (main,) = pod["containers"]
    assert main["image"] == "registry/ctr:7"
    mounted = next(v for v in pod["volumes"] if v.get("configMap"))
    assert mounted["configMap"]["name"] == file["metadata"]["name"]
    assert mounted["name"] in {mount["name"] for mount in main["volumeMounts"]}
    assert pod["serviceAccountName"] == account["metadata"]["name"]


def test_an_account_that_is_there_already_is_taken() -> None:
    job = replace(JOB, kubernetes=KubernetesSpec(service_account="trainer"))
    documents: Any = EXPORTERS["pods"](job, PLAN, TOLD, OPTIONS)
    assert [d["kind"] for d in documents] == ["ConfigMap", "Secret", "Job"]
    assert documents[-1]["spec"]["template"]["spec"]["serviceAccountName"] == "trainer"


@for_each("kind", WRITTEN)
@for_each(
    ("url", "bare"),
    [
        ("s3://KEY:SECRET@bucket/run", "s3://bucket/run"),
        ("https://host/run?sig=SECRET&x=1", "https://host/run"),
        ("ftp://ada:SECRET@host/run#part", "ftp://host/run#part"),
    ],
)
def test_no_export_holds_a_secret(kind: str, url: str, bare: str) -> None:
    documents = EXPORTERS[kind](replace(JOB, checkpoint_url=url), PLAN, TOLD, OPTIONS)
    text = to_yaml(*documents)
    assert "SECRET" not in text
    assert bare in text
    assert _notes(documents[-1])["dlrover-nb/left-out"] == "the credentials of checkpoint_url"


def test_a_scaleplan_has_a_name_of_its_own_each_time() -> None:
    def name(told: Provenance, plan: Any = PLAN) -> str:
        metadata: Any = EXPORTERS["scaleplan"](JOB, plan, told, OPTIONS)[0]["metadata"]
        return str(metadata["name"])

    assert name(TOLD) == "ctr-daily-d4"
    assert name(Provenance(replace(DECISION, id="d5"))) == "ctr-daily-d5"
    assert len({name(Provenance()), name(Provenance(), BEFORE), name(TOLD)}) == 3


def test_a_scaleplan_moves_the_pods_that_stay_and_get_something_else() -> None:
    def moved(before: Any, plan: Any) -> list[str]:
        spec: Any = EXPORTERS["scaleplan"](JOB, plan, Provenance(before=before), OPTIONS)[0]["spec"]
        return [pod["name"].removeprefix("ctr-daily-edljob-") for pod in spec.get("migratePods", ())]

    assert moved(None, PLAN) == []
    assert moved(PLAN, PLAN) == []
    assert moved(PLAN, replace(PLAN, worker=replace(PLAN.worker, count=9))) == []
    bigger = replace(PLAN, worker=RolePlan(1, 2.0, 2048))
    assert moved(PLAN, bigger) == ["worker-0"]
    assert moved(bigger, PLAN) == ["worker-0"]
    assert moved(PLAN, replace(PLAN, worker=RolePlan(5, 2.0, 2048))) == ["worker-0", "worker-1"]


def test_a_scaleplan_says_where_dlrover_rounds_cores(words) -> None:
    plan = replace(PLAN, worker=RolePlan(2, 0.25, 1024))
    assert _notes(EXPORTERS["scaleplan"](JOB, plan, TOLD, OPTIONS)[0])["dlrover-nb/rounding"] == words
    assert "dlrover-nb/rounding" not in _notes(EXPORTERS["scaleplan"](JOB, PLAN, TOLD, OPTIONS)[0])


FIT = FitReport(
    (Coefficient("sync", 0.1, math.inf, identified=False),),
    12,
    3,
    0.04,
    0.035,
    "ok",
    (FormWeight("ernest", 1.0, None),),
)


def test_the_model_behind_a_prediction_goes_along_unless_it_is_large(words) -> None:
    told = replace(TOLD, fit=FIT)
    notes = _notes(EXPORTERS["elasticjob"](JOB, PLAN, told, OPTIONS)[-1])
    assert notes["dlrover-nb/predicted-by"] == words
    kept = from_json(notes["dlrover-nb/context"], Context).provenance.fit
    assert kept is not None
    assert kept.coefficients[0].std_error > 1e300
    large = replace(told, fit=replace(FIT, note="x" * 100_000))
    documents = EXPORTERS["elasticjob"](JOB, PLAN, large, OPTIONS)
    assert check(documents) == ()
    assert from_json(_notes(documents[-1])["dlrover-nb/context"], Context).provenance.fit is None

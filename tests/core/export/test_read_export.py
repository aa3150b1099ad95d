"""An export comes back whole; what was edited wins and is told; a foreign one gives what it has."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

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
    external_jobs_of,
    jobs_of,
    own_jobs_of,
    provenances,
    real_schemas,
    small_plans,
)

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export import gathering
from dlrover_nb.core.export.alone import fixed
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.imported import read_export
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.provenance import Provenance
from dlrover_nb.core.export.quantities import resources_of
from dlrover_nb.core.structs.job.external import Framework
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.yamltext import to_yaml


@pytest.mark.more
@pytest.mark.parametrize("kind", WRITTEN)
@settings(deadline=None, max_examples=6)
@given(st.data(), small_plans, provenances, st.sampled_from([Options(), Options(auto_scale=True)]))
def test_an_import_gives_back_what_was_exported(
    kind: str, data: st.DataObject, plan: ResourcePlan, told: Provenance, options: Options
) -> None:
    job = data.draw(jobs_of(kind))
    scales = kind.startswith("elasticjob")
    options = options if scales else Options()
    found = read_export(to_yaml(*EXPORTERS[kind](job, plan, told, options)))
    assert (found.kind, found.name, found.job, found.plan) == (kind, job.name, job, plan)
    assert found.provenance == told
    assert found.auto_scale == (options.auto_scale if scales else None)
    assert found.to_submit == replace(job, plan=plan)
    assert (found.differs, found.unknown) == ((), _never_there(kind, job, plan))


def _never_there(kind: str, job: JobSpec, plan: ResourcePlan) -> tuple[str, ...]:
    """Return what an import misses: jobs of torch have no parameter servers anywhere but with us."""
    if kind in {"scaleplan", "pods"} or job.foreign is None or job.foreign.framework is not Framework.TORCH:
        return ()
    ps = plan.ps
    return (
        f"ps replicas: not in the document, {ps.count:g} as exported",
        f"ps cpu: not in the document, {ps.cpu:g} as exported",
        f"ps memory (MiB): not in the document, {ps.memory_mib:g} as exported",
    )


@pytest.mark.more
@pytest.mark.parametrize("kind", WRITTEN)
@settings(deadline=None, max_examples=6)
@given(st.data(), small_plans)
def test_the_plan_comes_back_without_annotations_too(
    kind: str, data: st.DataObject, plan: ResourcePlan
) -> None:
    job = data.draw(own_jobs_of(kind))
    documents: Any = EXPORTERS[kind](job, plan, TOLD, Options())
    for document in documents:
        document["metadata"].pop("annotations", None)
    found = read_export(to_yaml(*documents))
    assert (found.plan, found.name) == (plan, job.name)
    assert found.provenance == Provenance()
    assert "who decided, and on which prediction" in found.unknown
    assert found.job == (None if kind == "scaleplan" else fixed(job, plan))


@pytest.mark.more
@pytest.mark.parametrize("kind", ["elasticjob", "tfjob", "jobset"])
@settings(deadline=None, max_examples=6)
@given(st.data(), small_plans)
def test_the_plan_of_programs_of_others_comes_back_too(
    kind: str, data: st.DataObject, plan: ResourcePlan
) -> None:
    """Of workers and PS alone: without annotations a chief is the first worker."""
    job = data.draw(external_jobs_of(kind))
    (document,) = EXPORTERS[kind](job, plan, TOLD, Options())
    del document["metadata"]["annotations"]  # type: ignore[attr-defined]
    found = read_export(to_yaml(document))
    assert (found.plan, found.name, found.job) == (plan, job.name, None)


def _text(kind: str = "elasticjob", **options: Any) -> str:
    return to_yaml(*EXPORTERS[kind](JOB, PLAN, TOLD, replace(OPTIONS, **options)))


@pytest.mark.parametrize("kind", ["elasticjob", "elasticjob-0", "scaleplan"])
def test_what_was_edited_by_hand_wins_and_is_told(kind: str, words) -> None:
    text = _text(kind).replace("replicas: 2", "replicas: 3").replace("cpu: 400m", "cpu: 1")
    found = read_export(text.replace("memory: 1024Mi", 'memory: "1.5Gi"'))
    assert found.plan == ResourcePlan(worker=RolePlan(3, 0.5, 1536), ps=RolePlan(1, 1.0, 1536))
    assert found.job == JOB
    assert found.provenance == TOLD
    assert found.differs == words


def test_a_name_and_a_choice_that_were_edited_win_and_are_told(words) -> None:
    found = read_export(
        _text().replace("  name: ctr-daily\n", "  name: ctr-weekly\n").replace("Scale: false", "Scale: true")
    )
    assert (found.name, found.auto_scale) == ("ctr-weekly", True)
    assert found.job == replace(JOB, name="ctr-weekly")
    assert found.differs == words


def test_a_part_that_was_deleted_is_taken_as_exported_and_told(words) -> None:
    document: Any = EXPORTERS["elasticjob"](JOB, PLAN, TOLD, OPTIONS)[-1]
    del document["spec"]["replicaSpecs"]["worker"]["replicas"]
    found = read_export(to_yaml(document))
    assert found.plan == PLAN
    assert found.parts.workers is None
    assert found.unknown == (words,)


def _node_pods(plan: ResourcePlan = PLAN) -> list[Any]:
    """Return the pods of a job's nodes as they stand on a cluster, with what an export noted on its job."""
    job = EXPORTERS["elasticjob"](JOB, PLAN, TOLD, OPTIONS)[-1]
    notes = job["metadata"]["annotations"]  # type: ignore[index]
    return [
        {
            "kind": "Pod",
            "metadata": {
                "name": f"{JOB.name}-{role}-{i}",
                "labels": {"dlrover-nb/job": JOB.name, "dlrover-nb/role": str(role)},
                "annotations": notes,
            },
            "spec": {"containers": [{"resources": {"limits": resources_of(plan.role(role))}}]},
        }
        for role in Role
        for i in range(plan.role(role).count)
    ]


def test_a_pod_more_is_a_node_more(words) -> None:
    documents = sorted(_node_pods(), key=lambda pod: pod["metadata"]["name"])
    found = read_export(to_yaml(*documents, documents[-1]))
    assert found.plan == replace(PLAN, worker=replace(PLAN.worker, count=3))
    assert found.differs == words


def test_pods_that_differ_count_by_what_most_of_them_have(words) -> None:
    plan = replace(PLAN, worker=RolePlan(3, 0.5, 1024))
    documents = sorted(_node_pods(plan), key=lambda pod: pod["metadata"]["name"])
    text = to_yaml(*documents[:-1]) + "---\n" + to_yaml(documents[-1]).replace("500m", "2")
    found = read_export(text)
    assert found.plan == replace(PLAN, worker=RolePlan(3, 0.5, 1024))
    assert found.differs == words


def test_a_scaleplan_beside_its_job_is_the_newer_word() -> None:
    later = replace(PLAN, worker=replace(PLAN.worker, count=7))
    told = replace(TOLD, proposal="p9")
    plan = to_yaml(*EXPORTERS["scaleplan"](JOB, later, told, OPTIONS))
    found = read_export(_text() + "---\n" + plan)
    assert (found.kind, found.job, found.plan) == ("elasticjob", JOB, later)
    assert found.provenance.proposal == "p9"
    assert found.differs == ()


def test_a_list_as_kubectl_prints_it_is_opened_and_its_marks_do_not_matter(words) -> None:
    documents: Any = EXPORTERS["elasticjob"](JOB, PLAN, TOLD, OPTIONS)
    documents[-1]["metadata"] |= {
        "uid": "1-2",
        "managedFields": [{}],
        "creationTimestamp": "2025-06-15T15:06:40Z",
    }
    documents[-1]["status"] = {"phase": "Running"}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "notes"}}
    found = read_export(to_yaml({"kind": "List", "items": [*documents, config]}))
    assert (found.job, found.plan) == (JOB, PLAN)
    assert found.unknown == (words,)


def test_an_annotation_that_was_damaged_is_told_and_the_job_file_is_read(words) -> None:
    found = read_export(_text().replace('{"kind":"elasticjob"', '{"kind":7'))
    assert found.job == replace(JOB, plan=PLAN)
    assert found.plan == PLAN
    assert found.unknown[0] == words


def test_the_job_that_release_0_1_gave_to_each_node_is_read() -> None:
    given = {"name": "DLROVER_NB_JOB", "value": to_json(replace(JOB, plan=PLAN)).decode()}

    def replica(role: Role) -> dict[str, Any]:
        limits = {"limits": resources_of(PLAN.role(role))}
        main = {"name": "main", "env": [given], "resources": limits}
        return {"replicas": PLAN.role(role).count, "template": {"spec": {"containers": [main]}}}

    spec = {"replicaSpecs": {str(role): replica(role) for role in Role}}
    found = read_export(to_yaml({"kind": "ElasticJob", "metadata": {"name": JOB.name}, "spec": spec}))
    assert (found.job, found.plan) == (replace(JOB, plan=PLAN), PLAN)


def test_what_no_file_holds_is_told(words) -> None:
    data = DataSpec(DataFormat.OWN, "pickle:aa")
    job = replace(JOB, data=data, checkpoint_url="s3://KEY:SECRET@bucket/run")
    found = read_export(to_yaml(*EXPORTERS["scaleplan"](job, PLAN, TOLD, OPTIONS)))
    assert found.job == replace(job, checkpoint_url="s3://bucket/run")
    assert found.unknown == words


FOREIGN = {
    "example_criteo_manual_job": (
        ("elasticjob", "deepctr-manual-scale", False),
        ResourcePlan(worker=RolePlan(2, 2, 4096), ps=RolePlan(1, 2, 3072)),
    ),
    "example_criteo_autoscale_job": (("elasticjob", "deepctr-auto-scale", True), None),
    "example_elasticjob_sample": (("elasticjob", "elasticjob-sample", None), None),
    "example_scale_plan": (("scaleplan", "deepctr-manual-scale", None), None),
    "example_scaleplan_sample": (
        ("scaleplan", "elasticjob-sample", None),
        ResourcePlan(worker=RolePlan(2, 0.5, 256), ps=RolePlan(1, 0.5, 256)),
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_dlrovers_own_examples_give_the_plan_that_they_have(name: str, words) -> None:
    real_schemas()  # skips where they are not at hand
    found = read_export(shared("crds", "dlrover", f"{name}.yaml").read_text("utf-8"))
    head, plan = FOREIGN[name]
    assert ((found.kind, found.name, found.auto_scale), found.plan) == (head, plan)
    assert found.job is None
    assert found.to_submit is None
    assert found.unknown == words


def test_a_foreign_part_of_a_plan_is_to_be_set_on_the_one_that_runs(words) -> None:
    text = "{kind: ScalePlan, spec: {ownerJob: a, replicaResourceSpecs: {worker: {replicas: 2}, chief: {}}}}"
    found = read_export(text)
    assert found.plan is None
    assert found.parts == Pins(workers=2)
    assert found.parts.applied(PLAN).worker == RolePlan(2, 0.5, 1024)
    assert found.unknown == words


def test_limits_count_before_requests_and_odd_amounts_are_told(words) -> None:
    pod = {
        "kind": "Pod",
        "metadata": {
            "name": "x",
            "labels": {"elasticjob.dlrover/replica-type": "worker", "elasticjob-name": "a"},
        },
        "spec": {
            "containers": [{"resources": {"limits": {"cpu": "333m"}, "requests": {"cpu": 1, "memory": "1G"}}}]
        },
    }
    found = read_export(yaml.safe_dump(pod))
    assert found.parts == Pins(workers=1, worker_cpu=0.33, worker_memory_mib=953)
    assert found.differs == words


KINDS = ", ".join(gathering.KINDS)
BOMB = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
JOBS = "kind: ElasticJob\nmetadata: {name: %s}\n"
ROLE = "kind: ElasticJob\nmetadata: {name: a}\nspec: {replicaSpecs: {worker: %s}}\n"
CPU = ROLE % "{template: {spec: {containers: [{resources: {limits: {%s}}}]}}}"


@pytest.mark.more
@for_each(
    ("text", "told"),
    [
        ("", f"an import reads {KINDS}, got nothing"),
        ("# nothing\n---\n", "got nothing"),
        ("name: clicks\n", f"an import reads {KINDS}, got a document without kind"),
        ("kind: MPIJob\n", f"an import reads {KINDS}, got MPIJob"),
        ("kind: ElasticJob\nspec: {a: [1}\n", "malformed YAML in line 2, column 13: "),
        ("kind: ElasticJob\nkind: Pod\n", "malformed YAML in line 2, column 1: duplicate key 'kind'"),
        ("kind: Pod\n---\n- 1\n", "document 2 must be a group of keys and values, got a list"),
        ("text", "document 1 must be a group of keys and values, got 'text'"),
        ("\0", "malformed YAML"),
        ("[" * 5000, "malformed YAML"),
        ("kind: ElasticJob\nspec: 7\n", "spec must be a group of keys and values, got 7"),
        ("kind: List\nitems: &a [{kind: List, items: *a}]\n", "its aliases contain themselves"),
        (BOMB, "YAML must hold at most 1,000,000 values, got more"),
        ("kind: List\nitems: 7\n", "items must be a list, got 7"),
        (
            JOBS % "a" + "---\n" + JOBS % "b",
            "an import reads one ElasticJob at a time, got a, b; split the file",
        ),
        (
            JOBS % "a" + "---\nkind: ScalePlan\nspec: {ownerJob: b}\n",
            "one job at a time, got a, b; split the file",
        ),
        (ROLE % "{replicas: two}", "worker replicas must be a whole number, got 'two'"),
        (ROLE % "{replicas: true}", "worker replicas must be a whole number, got True"),
        (CPU % "cpu: abc", "worker cpu must be a quantity such as 500m, 2 or 3Gi, got 'abc'"),
        (CPU % "cpu: -1", "worker cpu must be > 0, got -1"),
        (CPU % "memory: 1Mi", "worker memory in MiB must be >= 64, got 1"),
        (CPU % "memory: {}", "worker memory must be a quantity such as 500m, 2 or 3Gi, got a group"),
        (CPU % "memory: 1e999", "worker memory must be at most 2^63, as Kubernetes counts, got 1e999"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_says_where(text: str, told: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        read_export(text)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.release
@settings(deadline=None, max_examples=200)
@given(st.text(max_size=200) | st.binary(max_size=100).map(lambda data: data.decode("latin-1")))
def test_no_text_makes_it_fail_otherwise(text: str) -> None:
    for whole in (text, "kind: ElasticJob\n" + text, _text()[:-50] + text):
        with suppress(InvalidValueError):
            read_export(whole)

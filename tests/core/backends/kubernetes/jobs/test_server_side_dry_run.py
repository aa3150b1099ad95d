"""Every kind of export is taken by a real API server, in a dry run, with the real definitions installed."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
import yaml
from suite.missing import shared
from support.jobs.exports import JOB, PLAN, TENSORFLOW, TOLD, TORCH, WRITTEN, readable
from support.waiting import LIMIT_S
from support.words import lines_with

from dlrover_nb.api.cluster import Cluster
from dlrover_nb.api.exports import check_file
from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.cluster import KubernetesCluster
from dlrover_nb.core.backends.kubernetes.jobs.dryrun import judge
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.provenance import Provenance
from dlrover_nb.core.manifests.kinds import CONFIG_MAP, CRD, JOB_SET, POD, QUOTA
from dlrover_nb.core.structs.job.kubernetes import STATE, KubernetesSpec, Volume
from dlrover_nb.core.yamltext import to_yaml

pytestmark = [pytest.mark.kube, pytest.mark.more]
FILES = (
    "dlrover/manifests_bases_crd.HEAD.yaml",
    "kubeflow/kubeflow.org_tfjobs.v1.9.0.yaml",
    "kubeflow/kubeflow.org_pytorchjobs.v1.9.0.yaml",
    "kubeflow/trainer.kubeflow.org_trainjobs.a55f03a8.yaml",
    "jobset/jobset.x-k8s.io_jobsets.v0.12.0.yaml",
)
EVERYTHING = KubernetesSpec(
    pull_policy="Never",
    pull_secrets=("pull",),
    volumes=(Volume("/data", claim="rows", read_only=True), Volume(STATE, claim="runs")),
    env=("A=1",),
    env_secrets=("storage",),
    node_selector=("disk=ssd",),
    tolerations=("gpu=yes:NoSchedule",),
    labels=("kueue.x-k8s.io/queue-name=ads", "team=ads"),
    annotations=("cluster-autoscaler.kubernetes.io/safe-to-evict=false",),
)
OURS = replace(JOB, kubernetes=EVERYTHING)
CASES = [
    *((kind, OURS) for kind in WRITTEN if kind != "elasticjob"),
    *((kind, replace(OURS, foreign=TENSORFLOW)) for kind in ("tfjob", "trainjob", "jobset", "elasticjob-0")),
    *((kind, replace(OURS, foreign=TORCH)) for kind in ("pytorchjob", "trainjob", "jobset", "elasticjob-0")),
]


@pytest.fixture(scope="module")
def installed(control_plane):
    api = connect_api(kubeconfig=control_plane.kubeconfig, namespace="default")
    names = []
    for file in FILES:
        for document in yaml.load_all(shared("crds", file).read_text("utf-8"), yaml.CSafeLoader):
            if document and document["kind"] == "CustomResourceDefinition":
                names.append(document["metadata"]["name"])
                api.create(CRD, readable(document))
    end = time.monotonic() + LIMIT_S
    while not all(_is_served(api, name) for name in names):
        assert time.monotonic() < end, names
        time.sleep(0.05)
    yield
    of_dlrover = [name for name in names if "iml" in name]  # other tests find a cluster without its operator
    for name in of_dlrover:
        api.delete(CRD, name)
    while {doc["metadata"]["name"] for doc in api.list(CRD).items}.intersection(of_dlrover):
        time.sleep(0.05)


def _is_served(api: Any, name: str) -> bool:
    conditions = api.get(CRD, name)["status"].get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


@pytest.fixture
def api(control_plane, namespace):
    return connect_api(kubeconfig=control_plane.kubeconfig, namespace=namespace(control_plane))


def _documents(kind: str, job: Any, api: Any) -> Any:
    return EXPORTERS[kind](job, PLAN, TOLD, Options(namespace=api.namespace))


def test_without_its_definition_a_kind_is_not_judged_and_that_is_no_mistake(api) -> None:
    file, document = judge(api, _documents("tfjob", JOB, api))
    assert (file.is_wrong, file.words) == (False, "")
    assert (document.what, document.is_wrong) == ("TFJob ctr-daily", False)
    assert "not installed" in document.words


def test_export_and_import_ask_the_server_where_one_is_connected(api, tmp_path, words) -> None:
    cluster = Cluster(KubernetesCluster(api))
    documents = _documents("pods", JOB, api)
    path = tmp_path / "job.yaml"
    path.write_text(to_yaml(*documents), encoding="utf-8")
    shown = str(check_file(path, cluster.core))
    assert "the cluster's API server" in shown
    assert lines_with(shown, "dry run") == words
    path.write_text(to_yaml(*documents).replace("completions: 1", "completions: -1"), encoding="utf-8")
    with pytest.raises(InvalidValueError, match=r"Job ctr-daily: .*completions"):
        check_file(path, cluster.core)
    tfjob = EXPORTERS["tfjob"](JOB, PLAN, Provenance(), Options(namespace=api.namespace))
    path.write_text(to_yaml(*tfjob), encoding="utf-8")
    assert "TFJob is not installed" in str(check_file(path, cluster.core))


def _judgeable(document: Any) -> Any:
    """Return a document; of a runtime, whose definition is not at hand, the JobSet of its template."""
    if document["kind"] != "TrainingRuntime":
        return document
    spec = document["spec"]["template"]["spec"]
    return {**document, "apiVersion": JOB_SET.api_version, "kind": JOB_SET.name, "spec": spec}


@pytest.mark.parametrize(("kind", "job"), CASES)
def test_a_real_server_takes_every_export_whole(installed, api, kind: str, job: Any) -> None:
    documents = [_judgeable(each) for each in _documents(kind, job, api)]
    assert [judged for judged in judge(api, documents) if judged.words] == []


def test_that_1_20_keeps_ended_jobs_is_told_and_is_no_mistake(installed, api, words) -> None:
    job = replace(JOB, kubernetes=KubernetesSpec(ttl_s=3600))
    *others, made = judge(api, _documents("pods", job, api))
    assert not [judged for judged in others if judged.words]
    assert (made.is_wrong, made.words) == (
        False,
        words,
    )
    for kind in ("tfjob", "pytorchjob", "jobset"):  # their operators do it
        assert [judged for judged in judge(api, _documents(kind, job, api)) if judged.words] == []


def test_nothing_was_made(installed, api) -> None:
    judge(api, _documents("jobset", JOB, api))
    assert api.list(JOB_SET).items == []
    assert "ctr-daily-job" not in {each["metadata"]["name"] for each in api.list(CONFIG_MAP).items}


def test_what_a_schema_of_ours_cannot_know_is_told(api, words) -> None:
    file, secret, *_, job = _documents("pods", JOB, api)
    api.create(CONFIG_MAP, file)
    (there,) = judge(api, [file])
    assert (there.is_wrong, "exists already" in there.words) == (False, True)
    (missing,) = judge(api, [{**secret, "metadata": {**secret["metadata"], "namespace": "nowhere"}}])
    assert (missing.is_wrong, missing.words) == (False, words)
    broken = {**job, "spec": {**job["spec"], "parallelism": -1}}
    (refused,) = judge(api, [broken])
    assert refused.is_wrong
    assert "parallelism" in refused.words
    (dropped,) = judge(api, [{**job, "spec": {**job["spec"], "parallel": 1}}])
    assert dropped.words == words


def test_a_full_quota_and_missing_rights_are_told_and_are_no_mistake(api, control_plane) -> None:
    alice = connect_api(kubeconfig=control_plane.alice, namespace=api.namespace)
    (file, *_) = _documents("pods", JOB, api)
    (told,) = judge(alice, [file])
    assert not told.is_wrong
    assert "may not" in told.words or "cannot" in told.words
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    api.create(QUOTA, quota)
    end = time.monotonic() + LIMIT_S
    while not (api.get(QUOTA, "none").get("status") or {}).get("hard"):
        assert time.monotonic() < end
        time.sleep(0.05)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    (full,) = judge(api, [pod])
    assert (full.is_wrong, "quota" in full.words) == (False, True)
    assert api.list(POD).items == []

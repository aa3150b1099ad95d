"""The pod of a job's master on real machines: what it leaves when it ends, and what is lost with it."""

from __future__ import annotations

import time

import pytest
from support.kubernetes import kube
from support.kubernetes.kube import core_api
from support.waiting import LIMIT_S

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.backends.kubernetes.cluster import KubernetesCluster
from dlrover_nb.core.jobfile import job_from
from dlrover_nb.core.manifests.kinds import CONFIG_MAP, JOB, POD, SECRET
from dlrover_nb.core.manifests.pod_parts import JOB_LABEL, MASTER_ROLE, NODE_LABEL, ROLE_LABEL
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec

pytestmark = [pytest.mark.kube, pytest.mark.pods, pytest.mark.release]


@pytest.fixture
def cluster(nodes, namespace):
    cluster = KubernetesCluster(connect_api(namespace=namespace(nodes), kubeconfig=nodes.kubeconfig))
    yield cluster
    cluster.shutdown()


def spec(**changes: object) -> JobSpec:
    kubernetes = kube.host_files() | {"linger_s": 0.1, "master_memory_mib": 512}
    plan = {
        "worker": {"count": 1, "cpu": 0.8, "memory_mib": 768},
        "ps": {"count": 1, "cpu": 0.25, "memory_mib": 512},
    }
    return job_from({"name": "rows", "mode": "manual", "kubernetes": kubernetes, "plan": plan, **changes})


def until(condition, *, told=lambda: None) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, told()
        time.sleep(0.2)


def is_complete(cluster: KubernetesCluster) -> bool:
    conditions = cluster.api.get(JOB, "rows").get("status", {}).get("conditions") or ()
    return any(each["type"] == "Complete" for each in conditions)


def test_a_job_on_rows_that_pods_alone_see_ends_and_leaves_its_last_picture(cluster):
    (rows,) = (kube.ROOT / "dlrover_nb/core/data/census").glob("*.parquet")
    job = cluster.submit(spec(data={"path": str(rows), "label": "label"}))
    last = job.wait(LIMIT_S)
    assert last.phase is JobPhase.SUCCEEDED, last.message
    assert last.evaluation.auc > 0.85
    until(lambda: is_complete(cluster))
    until(lambda: not cluster.live_jobs())
    kept = KubernetesCluster(cluster.api).job("rows").snapshot()
    assert (kept.phase, kept.evaluation, kept.train) == (last.phase, last.evaluation, last.train)
    assert kept.story[: len(last.story)] == last.story
    (line,) = cluster.jobs()
    assert (line.phase, line.done, line.live) == (JobPhase.SUCCEEDED, 1.0, False)
    until(lambda: not cluster.api.list(POD, selector=NODE_LABEL).items)
    again = cluster.submit(spec())
    assert again.snapshot().phase is JobPhase.STARTING
    cluster.delete("rows", force=True)
    until(
        lambda: (
            not any(
                cluster.api.list(kind, selector=JOB_LABEL).items for kind in (SECRET, CONFIG_MAP, JOB, POD)
            )
        )
    )


def test_a_job_whose_run_folder_went_with_its_masters_pod_has_failed_and_says_how_to_keep_it(cluster, nodes):
    job = cluster.submit(spec(epochs=200))
    until(lambda: job.snapshot().train.done > 0, told=job.snapshot)
    (master,) = cluster.api.list(POD, selector=f"{ROLE_LABEL}={MASTER_ROLE}").items
    core_api(nodes).delete_namespaced_pod(
        master["metadata"]["name"], cluster.api.namespace, grace_period_seconds=0
    )
    last = job.wait(LIMIT_S)
    assert last.phase is JobPhase.FAILED
    assert "mount a volume that outlives pods at /dlrover-nb/state" in last.message
    until(lambda: not cluster.api.list(POD, selector=NODE_LABEL).items)

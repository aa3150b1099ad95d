"""A job in real pods that carries its user's labels, and of which a drain takes one parameter server at a time."""

from __future__ import annotations

import pytest
from kubernetes.client.exceptions import ApiException
from support.kubernetes.jobs_in_pods import FOREVER, job, trained
from support.waiting import until

from dlrover_nb.core.manifests.kinds import BUDGET_1_20
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec

pytestmark = [pytest.mark.kube, pytest.mark.pods]


def _evict(place, pod) -> int:
    """Ask for an eviction as a drain does; return the code of the answer."""
    body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": pod}}
    try:
        place.core.create_namespaced_pod_eviction(pod, place.namespace, body, _preload_content=False)
    except ApiException as refused:
        return refused.status
    return 201


@pytest.mark.release
def test_a_drain_takes_one_parameter_server_and_waits_until_it_is_back(place):
    told = KubernetesSpec(linger_s=30.0, labels=("team=ads",), annotations=("note=a b",))
    handle = place.cluster.submit(job("guarded", kubernetes=told, n_epoch=FOREVER))
    trained(handle, 1_000)
    pods = place.pods("dlrover-nb/job=guarded,team=ads")
    assert sorted(pod.metadata.labels["dlrover-nb/role"] for pod in pods) == [
        "master",
        *("ps", "ps"),
        *("worker", "worker"),
    ]
    assert {pod.metadata.annotations["note"] for pod in pods} == {"a b"}

    def budget():
        return place.cluster.api.get(BUDGET_1_20, "guarded-budget")

    until(lambda: budget().get("status", {}).get("disruptionsAllowed") == 1)
    assert budget()["spec"]["minAvailable"] == 2
    first, second = [pod.metadata.name for pod in place.pods("dlrover-nb/job=guarded,dlrover-nb/role=ps")]
    assert (_evict(place, first), _evict(place, second)) == (201, 429)
    until(lambda: budget()["status"]["disruptionsAllowed"] == 1, what="another parameter server")
    assert budget()["spec"]["minAvailable"] == 2
    listed = place.core.list_namespaced_pod(place.namespace, field_selector=f"metadata.name={first}").items
    assert not [pod for pod in listed if pod.status.phase == "Running"], "the first has not moved yet"
    now = handle.snapshot()
    assert now.train.returned == now.train.refused == 0
    assert not any("was lost" in line or "was loaded from" in line for line in now.story), now.story
    assert handle.stop().phase is JobPhase.STOPPED
    until(lambda: budget()["spec"]["minAvailable"] == 0, what="a master that may be evicted")
    place.batch.delete_namespaced_job("guarded", place.namespace, propagation_policy="Background")
    until(lambda: not place.cluster.api.list(BUDGET_1_20).items, what="no budget")

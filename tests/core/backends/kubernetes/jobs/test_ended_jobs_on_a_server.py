"""A real server deletes an ended Job by its `ttl_s`, and what belongs to it; 1.20 has that behind a gate."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from support.kubernetes.kube import started
from support.waiting import until

from dlrover_nb.core.backends.kubernetes.client.api import connect_api
from dlrover_nb.core.manifests.kinds import CONFIG_MAP, JOB
from dlrover_nb.core.manifests.objects import master_job, with_owner
from dlrover_nb.core.manifests.pod_parts import end_name
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.wire.pod_contract import PodJob

pytestmark = pytest.mark.kube


@pytest.fixture
def api() -> Any:
    with started("cp", TESTKUBE_FEATURE_GATES="TTLAfterFinished=true") as cluster:
        yield connect_api(kubeconfig=cluster.kubeconfig, namespace="default")


@pytest.mark.release
def test_an_ended_job_goes_with_how_it_ended_and_a_job_without_a_time_stays(api: Any) -> None:
    for name, ttl_s in (("brief", 1), ("kept", None)):
        spec = JobSpec(name, kubernetes=KubernetesSpec(ttl_s=ttl_s))
        job = PodJob(spec, None, "0a1b2c3d", "p" * 40, "s" * 40, "t" * 32)
        owner = api.create(JOB, master_job(job, namespace=api.namespace))
        api.create(CONFIG_MAP, with_owner({"metadata": {"name": end_name(name)}}, owner))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        done = {"type": "Complete", "status": "True", "lastTransitionTime": now, "lastProbeTime": now}
        status = {"conditions": [done], "startTime": now, "completionTime": now, "succeeded": 1}
        api.patch(JOB, name, {"status": status}, subresource="status")

    def left(kind: Any) -> set[str]:
        return {each["metadata"]["name"] for each in api.list(kind).items} & {
            "brief",
            "kept",
            "brief-end",
            "kept-end",
        }

    until(lambda: left(JOB) == {"kept"}, what="the end of the Job")
    until(lambda: left(CONFIG_MAP) == {"kept-end"}, what="the end of what belongs to it")

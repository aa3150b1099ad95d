"""Every pod that a job makes by itself on a cluster meets the standard ``restricted``, as those of exports do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from support.cases import for_each
from support.kubernetes.restricted import VOLUMES, check_restricted
from test_closed_pods import JOBS

from dlrover_nb.core.backends.kubernetes.client.api_errors import Inadmissible, Operation, error_of
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.manifests.kinds import POD
from dlrover_nb.core.manifests.objects import master_job
from dlrover_nb.core.manifests.pods import PodNode, check_pod, node_pod
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec, Volume
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.pod_contract import PodJob

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import JobSpec

VOLUME = Volume("/data", claim="rows")


def pods_of(job: JobSpec) -> list[dict[str, Any]]:
    """Return the specifications of all pods of a job."""
    run = PodJob(job, None, "0a1b2c3d", "p" * 40, "s" * 40, "t" * 32)
    roles = [*Role, *(each.role for each in job.foreign.roles)] if job.foreign else [*Role]
    nodes = [node_pod(run, PodNode(f"{role}-0", role, 1.0, 512), master="http://10.0.0.1/") for role in roles]
    check = [] if job.foreign else [check_pod(run, mark="m", report_to="http://10.0.0.1/")]
    master = master_job(run, namespace="ads")["spec"]["template"]["spec"]
    return [master, *(pod["spec"] for pod in (*nodes, *check))]


def test_a_namespace_that_refuses_a_pod_by_the_standard_says_which_field_and_what_to_do(words) -> None:
    words = (  # of the admission plug-in of Kubernetes 1.23 and later
        'pods "clicks-ps-0" is forbidden: violates PodSecurity "restricted:latest": restricted volume types '
        '(volume "volume-0" uses restricted volume type "hostPath")'
    )
    body = to_json({"kind": "Status", "code": 403, "reason": "Forbidden", "message": words})
    error = error_of(Operation("create", POD, "ads", "clicks-ps-0"), 403, body)
    assert type(error) is Inadmissible, "no right is missing"
    assert str(error) == words
    assert 'restricted volume type "hostPath"' in str(error)
    assert "mount a claim" in str(error)
    assert "PodSecurity" in error.message


@for_each("name", JOBS)
def test_each_pod_of_a_job_is_restricted(name: str) -> None:
    job = JOBS[name]
    for kube in (KubernetesSpec(), replace(job.kubernetes, volumes=(VOLUME,), run_as_user=1000)):
        pods = pods_of(replace(job, kubernetes=kube))
        assert len(pods) >= 3
        for pod in pods:
            check_restricted(pod)
            assert set().union(*(volume.keys() - {"name"} for volume in pod.get("volumes", ()))) <= VOLUMES

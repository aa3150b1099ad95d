"""Every pod of every export, and every one that a job makes by itself, meets the standard ``restricted`` of PodSecurity.

A ``host_path`` of the user's own is left as it stands.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from support.cases import for_each
from support.jobs.exports import JOB, OPTIONS, PLAN, TENSORFLOW, TOLD, TORCH, WRITTEN, fits
from support.kubernetes.restricted import VOLUMES, check_restricted

from dlrover_nb.core.backends.kubernetes.client.api_errors import Inadmissible, Operation, error_of
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.manifests.kinds import POD
from dlrover_nb.core.manifests.objects import master_job
from dlrover_nb.core.manifests.pods import PodNode, check_pod, node_pod
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec, Volume
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.pod_contract import PodJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.structs.job.job import JobSpec

JOBS = {
    "own": JOB,
    "tensorflow": replace(JOB, foreign=TENSORFLOW),
    "torch": replace(JOB, foreign=TORCH),
    "torch-on-ssd": replace(
        JOB, foreign=TORCH, kubernetes=replace(JOB.kubernetes, node_selector=("disk=ssd",))
    ),
}
WITH_PODS = [kind for kind in WRITTEN if kind != "scaleplan"]  # which changes the plan of pods that are there
CASES = [(kind, name) for kind in WITH_PODS for name, job in JOBS.items() if fits(kind, job)]
VOLUME = Volume("/data", claim="rows")
OF_A_RUNTIME = ("trainjob", "torch")  # its pods are those of the cluster's runtime


def pods_in(document: Any) -> Iterator[dict[str, Any]]:
    """Yield the specs of pods; those of an ElasticJob's roles without a program are never made."""
    if isinstance(document, dict):
        if "containers" in document and any("image" in each for each in document["containers"]):
            yield document
        for value in document.values():
            yield from pods_in(value)
    elif isinstance(document, (list, tuple)):
        for value in document:
            yield from pods_in(value)


@for_each(("kind", "job"), CASES)
def test_each_volume_but_a_users_host_path_is_of_a_kind_that_restricted_allows(kind: str, job: str) -> None:
    for pod in pods_in(EXPORTERS[kind](JOBS[job], PLAN, TOLD, OPTIONS)):
        own = [volume.keys() - {"name"} for volume in pod.get("volumes", ())]
        assert all(len(source) == 1 for source in own)
        assert set().union(*own) - {"hostPath"} <= VOLUMES
        assert sum("hostPath" in source for source in own) <= sum(
            bool(volume.host_path) for volume in JOBS[job].kubernetes.volumes
        )


@for_each(("kind", "job"), [case for case in CASES if case != OF_A_RUNTIME])
def test_each_pod_is_restricted(kind: str, job: str) -> None:
    pods = list(pods_in(EXPORTERS[kind](JOBS[job], PLAN, TOLD, OPTIONS)))
    assert pods
    for pod in pods:
        check_restricted(pod)


@for_each("kind", WITH_PODS)
def test_our_own_programs_run_by_the_python_that_the_job_names(kind: str) -> None:
    job = replace(JOB, kubernetes=replace(JOB.kubernetes, python="/opt/conda/bin/python"))
    commands = [
        container["command"]
        for pod in pods_in(EXPORTERS[kind](job, PLAN, TOLD, OPTIONS))
        for container in pod["containers"]
    ]
    assert commands
    assert all(command[0] == "/opt/conda/bin/python" for command in commands)


@for_each(("kind", "job"), CASES)
def test_all_objects_go_to_the_namespace_that_was_asked_for(kind: str, job: str) -> None:
    documents = EXPORTERS[kind](JOBS[job], PLAN, TOLD, replace(OPTIONS, namespace="ads"))
    assert {document["metadata"]["namespace"] for document in documents} == {"ads"}


# pods that a job makes by itself on a cluster


def pods_of(job: JobSpec) -> list[dict[str, Any]]:
    """Return the specifications of all pods of a job."""
    run = PodJob(job, None, "0a1b2c3d", "p" * 40, "s" * 40, "t" * 32)
    roles = [*Role, *(each.role for each in job.foreign.roles)] if job.foreign else [*Role]
    nodes = [node_pod(run, PodNode(f"{role}-0", role, 1.0, 512), master="http://10.0.0.1/") for role in roles]
    check = [] if job.foreign else [check_pod(run, mark="m", report_to="http://10.0.0.1/")]
    master = master_job(run, namespace="ads")["spec"]["template"]["spec"]
    return [master, *(pod["spec"] for pod in (*nodes, *check))]


def test_a_namespace_that_refuses_a_pod_by_the_standard_says_which_field_and_what_to_do(words) -> None:
    refusal = (  # of the admission plug-in of Kubernetes 1.23 and later
        'pods "clicks-ps-0" is forbidden: violates PodSecurity "restricted:latest": restricted volume types '
        '(volume "volume-0" uses restricted volume type "hostPath")'
    )
    body = to_json({"kind": "Status", "code": 403, "reason": "Forbidden", "message": refusal})
    error = error_of(Operation("create", POD, "ads", "clicks-ps-0"), 403, body)
    assert type(error) is Inadmissible, "no right is missing"
    assert str(error) == words
    assert 'restricted volume type "hostPath"' in str(error)
    assert "mount a claim" in str(error)
    assert "PodSecurity" in error.message


@for_each("name", JOBS)
def test_each_pod_that_a_job_makes_is_restricted(name: str) -> None:
    job = JOBS[name]
    for kube in (KubernetesSpec(), replace(job.kubernetes, volumes=(VOLUME,), run_as_user=1000)):
        pods = pods_of(replace(job, kubernetes=kube))
        assert len(pods) >= 3
        for pod in pods:
            check_restricted(pod)
            assert set().union(*(volume.keys() - {"name"} for volume in pod.get("volumes", ()))) <= VOLUMES

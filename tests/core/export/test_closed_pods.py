"""Every pod of every export meets the standard ``restricted`` of Kubernetes' PodSecurity.

A ``host_path`` of the user's own is left as it stands.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from support.cases import for_each
from support.jobs.exports import JOB, OPTIONS, PLAN, TENSORFLOW, TOLD, TORCH, WRITTEN, fits
from support.kubernetes.restricted import VOLUMES, check_restricted

from dlrover_nb.core.export.exporters import EXPORTERS

if TYPE_CHECKING:
    from collections.abc import Iterator

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

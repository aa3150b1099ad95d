"""A job with a plan as RayJob, for clusters that run KubeRay.

KubeRay starts a Ray of the size of the plan, and in it the command line: it submits the job file from the
ConfigMap beside it and waits for the end, after which the Ray is deleted. The plan is not changed
automatically (a job in auto mode only proposes there); a plan that a user makes larger than the Ray waits for
room.

The head offers no cores, so that all nodes run in the pods of one group: as many as the plan has nodes,
each large enough for any of them. Ray places nodes where they fit, without regard to roles. With pods sized
per role, a parameter server could occupy the pod of a worker that then fits nowhere. With equal pods, an
unplaced node always finds an empty one.
"""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.alone import (
    RAY_CPU,
    RAY_MIB,
    command,
    environment,
    job_file,
    secured,
    submitter,
    volumes,
)
from dlrover_nb.core.export.groups import child, group, items
from dlrover_nb.core.export.nodes import Options, fixed_plan, guaranteed, head
from dlrover_nb.core.export.provenance import Context, Provenance, context, notes_of
from dlrover_nb.core.export.quantities import MIB
from dlrover_nb.core.manifests.podspec import container_of, image_of, pod_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.export.groups import Group, Replicas
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.resources import ResourcePlan

API_VERSION = "ray.io/v1"
GROUP = "nodes"
RAYLET_MIB = 1024  # of Ray's own processes in a pod beside one node
_STORE = {"object-store-memory": str(100 * MIB)}  # parameters do not travel through it
_ADDRESS = {"name": "DLROVER_NB_ADDRESS", "value": "auto"}  # of the Ray that the command line is in
_SHM: dict[str, object] = {"name": "shm", "emptyDir": {"medium": "Memory"}}
_TMP: dict[str, object] = {"name": "tmp", "emptyDir": {}}
_PLACES: tuple[dict[str, object], ...] = (
    {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of the pod alone
    {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - as above
)


def rayjob(
    job: JobSpec, plan: ResourcePlan, provenance: Provenance, options: Options
) -> tuple[dict[str, object], ...]:
    """Return the RayJob that runs `job` on `plan`, after the ConfigMap that it needs.

    Raises
    ------
    InvalidValueError
        When the job runs external programs, auto-scaling is set, or its code is in a notebook.
    """
    fixed_plan("a RayJob", options)
    if job.foreign is not None:
        raise InvalidValueError(
            f"job {job.name} runs images of its own, which Ray cannot start; export a tfjob, pytorchjob, "
            "jobset or pods"
        )
    told = context("rayjob", job, plan, provenance, auto_scale=False)
    document: dict[str, object] = {
        "apiVersion": API_VERSION,
        "kind": "RayJob",
        "metadata": {**head(job.name, options), "annotations": notes_of(told)},
        "spec": {
            "entrypoint": shlex.join(command(told.job)),
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": round(told.job.kubernetes.linger_s),
            "rayClusterSpec": {
                "headGroupSpec": _head(told, options),
                "workerGroupSpecs": [_nodes(told, options)],
            },
        },
    }
    return job_file(told, options), document


def _head(told: Context, options: Options) -> dict[str, object]:
    said = told.job.kubernetes
    memory_mib = said.master_memory_mib + RAY_MIB
    quantities = {"cpu": f"{round((said.master_cpu + RAY_CPU) * 1000)}m", "memory": f"{memory_mib}Mi"}
    main = submitter(told, options, name="ray-head", quantities=quantities, starts=False)
    env = [_ADDRESS, *environment(told.job)]
    main = container_of(told.job, {**main, "env": env}, mounts=()) | {"volumeMounts": main["volumeMounts"]}
    return {
        "rayStartParams": {"num-cpus": "0", **_STORE},
        "template": _template(told.job, main, volumes(told.job)),
    }


def _nodes(told: Context, options: Options) -> dict[str, object]:
    n_pod, cpu, memory_mib = size(told.plan)
    main = container_of(
        told.job,
        {
            "name": "ray-worker",
            "image": image_of(told.job, options.image),
            "env": environment(told.job),
            "resources": guaranteed({"cpu": str(cpu), "memory": f"{memory_mib + RAYLET_MIB}Mi"}),
        },
        mounts=_PLACES,
    )
    return {
        "groupName": GROUP,
        "replicas": n_pod,
        "minReplicas": n_pod,
        "maxReplicas": n_pod,
        "rayStartParams": {"num-cpus": str(cpu), "memory": str(memory_mib * MIB), **_STORE},
        "template": _template(told.job, main, [_TMP, _SHM]),
    }


def replicas(document: Group) -> Iterator[Replicas]:
    """Yield the groups of a RayJob's pods."""
    cluster = child(child(document, "spec"), "rayClusterSpec")
    for each in items(cluster, "workerGroupSpecs"):
        replica = group(each, "worker group")
        yield str(replica.get("groupName")), replica, child(replica, "template")


def size(plan: ResourcePlan) -> tuple[int, int, int]:
    """Return the pods that a plan needs, and the cores and MiB that each offers; Ray counts whole cores."""
    roles = (plan.worker, plan.ps)
    return (
        sum(role.count for role in roles),
        max(math.ceil(role.cpu) for role in roles),
        max(role.memory_mib for role in roles),
    )


def _template(job: JobSpec, main: dict[str, object], beside: list[dict[str, object]]) -> dict[str, object]:
    pod = secured(job, pod_spec(job, main, beside=beside))
    return {"spec": {key: value for key, value in pod.items() if key != "restartPolicy"}}

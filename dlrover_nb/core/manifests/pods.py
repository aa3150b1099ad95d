"""The pod of a node as a document; pure, so that an exporter writes exactly what a master creates.

Requests equal limits, so that the machine reserves and the kernel enforces the amounts of the plan. The
kubelet does not restart a pod: the job's master alone decides that. It holds no token of a service account.

The master's endpoint is an annotation, which the kubelet writes into a file of the pod within a second of a
change. A Service with a name was rejected: clusters without DNS for jobs exist, and nodes find a restarted
master without waiting for a cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.manifests.external_pod import as_external
from dlrover_nb.core.manifests.pod_parts import (
    JOB_LABEL,
    NODE_LABEL,
    PREFIX,
    ROLE_LABEL,
    RUN_LABEL,
    container_frame,
    labels,
    pod_frame,
    variables,
    volumes,
)
from dlrover_nb.core.manifests.podspec import HOSTNAME, with_own
from dlrover_nb.core.runtime.process.limits import thread_variables
from dlrover_nb.core.structs.job.kubernetes import gpu_resource
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.pod_contract import (
    CPU_VAR,
    END_FILE,
    FOLDER_VAR,
    MASTER_FILE,
    MEMORY_VAR,
    NODE_VAR,
    POD_FOLDER,
    ROLE_VAR,
    run_name,
    state_folder,
)

if TYPE_CHECKING:
    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

MASTER_NOTE = f"{PREFIX}master"  # annotation: the endpoint of the job's master
NODE_MODULE = "dlrover_nb.core.runtime.pod"
CHECK_MODULE, CHECK_ROLE = "dlrover_nb.core.runtime.pod.check", "check"
CONTAINER = "node"
ZONE = "topology.kubernetes.io/zone"
SELF_END_S = 5  # grace period of a pod that others delete
PS_END_S = 60  # of one with a parameter server: its parameters move to another meanwhile


@dataclass(frozen=True, slots=True)
class PodNode:
    """The fields in which the pods of a job's nodes differ."""

    id: str
    role: Role
    cpu: float
    memory_mib: int


def pod_name(job: str, run: str, node: str) -> str:
    """Return the name of a node's pod."""
    return f"{run_name(job, run)}-{node}"


def node_selector(job: str, run: str) -> str:
    """Return the label selector of the pods of a run's nodes."""
    return f"{JOB_LABEL}={job},{RUN_LABEL}={run},{NODE_LABEL}"


def check_selector(job: str, run: str) -> str:
    """Return the label selector of the pods that try the code of a run."""
    return f"{JOB_LABEL}={job},{RUN_LABEL}={run},{ROLE_LABEL}={CHECK_ROLE}"


def node_pod(job: PodJob, node: PodNode, *, master: str) -> Doc:
    """Return the pod of a node; the caller adds the owner.

    Parameters
    ----------
    job
        Configuration of the job's pods.
    node
        The node of this pod, with its resources.
    master
        The endpoint of the job's master.
    """
    head = {
        "name": pod_name(job.spec.name, job.run, node.id),
        "labels": labels(job.spec.name, job.run, str(node.role), node.id),
        "annotations": {MASTER_NOTE: master},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": with_own(head, job.spec.kubernetes),
        "spec": _pod_spec(job, node),
    }


def check_pod(job: PodJob, *, mark: str, report_to: str) -> Doc:
    """Return the pod in which a user's code is tried: a worker's, but for its program and its labels.

    Parameters
    ----------
    mark
        What tells it from those of other tries.
    report_to
        URL of the master that takes the result.
    """
    worker = job.spec.plan.worker
    pod = node_pod(job, PodNode(CHECK_ROLE, Role.WORKER, worker.cpu, worker.memory_mib), master=report_to)
    (program,) = pod["spec"]["containers"]
    program = program | {"command": [*program["command"][:-1], CHECK_MODULE]}
    head = {
        "name": pod_name(job.spec.name, job.run, f"{CHECK_ROLE}-{mark}"),
        "labels": labels(job.spec.name, job.run, CHECK_ROLE),
        "annotations": {MASTER_NOTE: report_to},
    }
    kube = job.spec.kubernetes
    return pod | {"metadata": with_own(head, kube), "spec": pod["spec"] | {"containers": [program]}}


def _pod_spec(job: PodJob, node: PodNode) -> Doc:
    kube = job.spec.kubernetes
    shared, mounts = volumes(job)
    n_gpu = 0 if node.id == CHECK_ROLE else job.spec.gpu_of(node.role)  # code is tried on cores
    program = container_frame(kube, CONTAINER, NODE_MODULE) | {
        "env": variables(kube, _node_variables(job, node)),
        "resources": resources(node.cpu, node.memory_mib, n_gpu),
        "volumeMounts": [*mounts, {"name": "pod", "mountPath": POD_FOLDER, "readOnly": True}],
        "terminationMessagePath": END_FILE,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    spec = pod_frame(kube) | {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": PS_END_S if node.role is Role.PS else SELF_END_S,
        "containers": [program],
        "volumes": [*shared, {"name": "pod", "downwardAPI": {"items": [_master_file()]}}],
    }
    spec |= _apart(job, str(node.role)) if kube.spread else {}
    return spec if job.spec.foreign is None else as_external(spec, job, job.spec.foreign, node.role)


def resources(cpu: float, memory_mib: int, gpu: int = 0) -> Doc:
    """Return requests and limits, which are equal: the reserved amount is enforced."""
    amounts = {"cpu": f"{round(cpu * 1000)}m", "memory": f"{memory_mib}Mi", **gpu_resource(gpu)}
    return {"requests": amounts, "limits": dict(amounts)}


def _node_variables(job: PodJob, node: PodNode) -> dict[str, str]:
    return {
        NODE_VAR: node.id,
        ROLE_VAR: str(node.role),
        CPU_VAR: f"{node.cpu:g}",
        MEMORY_VAR: str(node.memory_mib),
        FOLDER_VAR: state_folder(job.spec.name, job.run),
        **thread_variables(node.cpu),
    }


def _master_file() -> Doc:
    where = {"fieldPath": f"metadata.annotations['{MASTER_NOTE}']"}
    return {"path": MASTER_FILE.rpartition("/")[2], "fieldRef": where}


def _apart(job: PodJob, role: str) -> Doc:
    """Return the preference that pods of a role run on different machines, and evenly in all zones.

    Machines without a zone are as good as others, and no pod waits for either.
    """
    own = {JOB_LABEL: job.spec.name, RUN_LABEL: job.run, ROLE_LABEL: role}
    term = {"labelSelector": {"matchLabels": own}, "topologyKey": HOSTNAME}
    rather = [{"weight": 100, "podAffinityTerm": term}]
    evenly = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": own},
    }
    return {
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": rather}},
        "topologySpreadConstraints": [evenly],
    }

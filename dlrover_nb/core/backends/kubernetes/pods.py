"""The pods of a job as documents; pure, so that an exporter writes just what a master creates.

A pod is as little as it can be: no root, no privilege, a root file system that it cannot write to, no token
of a service account. It is asked for with requests equal to limits, so that what the plan says is what the
machine keeps free and what the kernel enforces. Nobody restarts it: that is decided once, by the job's
master.

Where the master is stands in an annotation, which the kubelet writes into a file of the pod within a second
of a change. A Service with a name was rejected: clusters without DNS for jobs exist, and a master that comes
back is known to its nodes without waiting for a cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.provenance import PREFIX
from dlrover_nb.core.structs.kubernetes import DEFAULT_IMAGE, STATE
from dlrover_nb.core.structs.pods import (
    CODE_FOLDER,
    CPU_VAR,
    END_FILE,
    FOLDER_VAR,
    IP_VAR,
    JOB_FOLDER,
    MASTER_FILE,
    MEMORY_VAR,
    NODE_VAR,
    POD_ENV,
    POD_FOLDER,
    ROLE_VAR,
    run_name,
    state_folder,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.kubernetes import KubernetesSpec, Volume
    from dlrover_nb.core.structs.resources import Role

Doc = dict[str, Any]  # an object as the API writes it

JOB_LABEL, RUN_LABEL = f"{PREFIX}job", f"{PREFIX}run"
ROLE_LABEL, NODE_LABEL = f"{PREFIX}role", f"{PREFIX}node"
MASTER_NOTE = f"{PREFIX}master"  # annotation: the endpoint of the job's master
MANAGED_BY, PART_OF = "app.kubernetes.io/managed-by", "app.kubernetes.io/part-of"
MASTER_ROLE = "master"
HOSTNAME = "kubernetes.io/hostname"
NODE_MODULE = "dlrover_nb.core.runtime.pod"
PYTHON = "python"
SELF_END_S = 5  # a pod that is asked to end may take so long
AWAY_S = 10  # a machine may be silent for so long before its pods are given up
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OURS = (JOB_FOLDER, CODE_FOLDER, POD_FOLDER)


@dataclass(frozen=True, slots=True)
class Owner:
    """The batch Job that owns all objects of a job: what is deleted with it.

    Parameters
    ----------
    job, run
        Name of the job, and the 8 digits that tell its runs apart.
    uid
        The Job's id, which the cluster gave; empty: there is no Job yet, and the objects have no owner.
    """

    job: str
    run: str
    uid: str = ""

    @property
    def references(self) -> list[Doc]:
        """As ``ownerReferences``; no controller: the Job is to count its master's pod alone."""
        if not self.uid:
            return []
        return [{"apiVersion": "batch/v1", "kind": "Job", "name": self.job, "uid": self.uid}]


@dataclass(frozen=True, slots=True)
class PodNode:
    """What a pod of a node differs in from its job's others."""

    id: str
    role: Role
    cpu: float
    memory_mib: int


def pod_name(job: str, run: str, node: str) -> str:
    """Return the name of a node's pod."""
    return f"{run_name(job, run)}-{node}"


def labels(job: str, run: str, role: str, node: str = "") -> dict[str, str]:
    """Return what an object of a job is found by."""
    told = {MANAGED_BY: "dlrover-nb", PART_OF: job, JOB_LABEL: job, RUN_LABEL: run, ROLE_LABEL: role}
    return told | ({NODE_LABEL: node} if node else {})


def node_selector(job: str, run: str) -> str:
    """Return the label selector of a run's node pods."""
    return f"{JOB_LABEL}={job},{RUN_LABEL}={run},{NODE_LABEL}"


def secret_name(job: str) -> str:
    """Return the name of the Secret that says what a job is."""
    return f"{job}-job"


def code_name(job: str) -> str:
    """Return the name of the Secret with the user's own code; it need not be there."""
    return f"{job}-code"


def node_pod(spec: KubernetesSpec, owner: Owner, node: PodNode, *, master: str) -> Doc:
    """Return the pod of a node.

    Parameters
    ----------
    spec
        How the job's pods are made.
    owner
        Whose it is.
    node
        What it runs, and with how much.
    master
        The endpoint of the job's master.

    Raises
    ------
    InvalidValueError
        For a toleration that is none, and for a volume in the place of what the job itself mounts.
    """
    program = {
        "name": "node",
        **_image(spec),
        "command": [spec.python or PYTHON, "-u", "-m", NODE_MODULE],
        **environment(spec, _told(owner, node)),
        "resources": resources(node.cpu, node.memory_mib),
    }
    document = pod_spec(spec, owner, program) | {"automountServiceAccountToken": False}
    if spec.spread:
        document["affinity"] = _apart(owner, str(node.role))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(owner.job, owner.run, node.id),
            "labels": labels(owner.job, owner.run, str(node.role), node.id),
            "annotations": {MASTER_NOTE: master},
            **({"ownerReferences": owner.references} if owner.uid else {}),
        },
        "spec": document,
    }


def pod_spec(spec: KubernetesSpec, owner: Owner, program: Doc) -> Doc:
    """Return the ``spec`` of any pod of a job around its one container.

    It adds to the container what is mounted and what it may not; the caller adds service account and
    affinity, and overrides what differs.
    """
    volumes, mounts = _volumes(spec, owner.job)
    container = {
        **program,
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePath": END_FILE,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    made: Doc = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": SELF_END_S,
        "enableServiceLinks": False,
        "securityContext": security_context(spec),
        "tolerations": tolerations(spec),
        "containers": [container],
        "volumes": volumes,
    }
    if spec.node_selector:
        made["nodeSelector"] = dict(_pair(item) for item in spec.node_selector)
    if spec.priority_class:
        made["priorityClassName"] = spec.priority_class
    if spec.pull_secrets:
        made["imagePullSecrets"] = [{"name": name} for name in spec.pull_secrets]
    return made


def security_context(spec: KubernetesSpec) -> Doc:
    """Return who a pod's processes are: one user, who owns what is mounted for it, and never root."""
    return {
        "runAsNonRoot": True,
        "runAsUser": spec.run_as_user,
        "runAsGroup": spec.run_as_user,
        "fsGroup": spec.run_as_user,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def resources(cpu: float, memory_mib: int) -> Doc:
    """Return requests and limits, which are the same: what is promised is what is enforced."""
    amounts = {"cpu": f"{round(cpu * 1000)}m", "memory": f"{memory_mib}Mi"}
    return {"requests": amounts, "limits": dict(amounts)}


def environment(spec: KubernetesSpec, told: dict[str, str]) -> Doc:
    """Return ``env`` and ``envFrom`` of a container; what we tell it wins over what the user sets."""
    values = POD_ENV | dict(_pair(item) for item in spec.env) | told
    env: list[Doc] = [{"name": name, "value": value} for name, value in values.items()]
    env.append({"name": IP_VAR, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    if not spec.env_secrets:
        return {"env": env}
    return {"env": env, "envFrom": [{"secretRef": {"name": name}} for name in spec.env_secrets]}


def tolerations(spec: KubernetesSpec) -> list[Doc]:
    """Return the taints that a pod bears: the user's, and for a short time a machine that is away.

    Raises
    ------
    InvalidValueError
        For one that `kubectl taint` would not write.
    """
    away = [
        {
            "key": f"node.kubernetes.io/{state}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": AWAY_S,
        }
        for state in ("not-ready", "unreachable")
    ]
    return [*map(_toleration, spec.tolerations), *away]


def _toleration(text: str) -> Doc:
    taint, colon, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    if not key or (colon and effect not in _EFFECTS):
        raise InvalidValueError(
            f"a toleration must be KEY=VALUE:EFFECT, KEY:EFFECT or KEY, with one of {', '.join(_EFFECTS)}, "
            f"got {text!r}"
        )
    match: Doc = {"key": key, **({"operator": "Equal", "value": value} if equals else {"operator": "Exists"})}
    return match | ({"effect": effect} if colon else {})


def _told(owner: Owner, node: PodNode) -> dict[str, str]:
    return {
        NODE_VAR: node.id,
        ROLE_VAR: str(node.role),
        CPU_VAR: f"{node.cpu:g}",
        MEMORY_VAR: str(node.memory_mib),
        FOLDER_VAR: state_folder(owner.job, owner.run),
    }


def _image(spec: KubernetesSpec) -> Doc:
    image = {"image": spec.image or DEFAULT_IMAGE}
    return image | ({"imagePullPolicy": spec.pull_policy} if spec.pull_policy else {})


def _apart(owner: Owner, role: str) -> Doc:
    """Return that pods of a role rather stand on machines of their own."""
    own = {JOB_LABEL: owner.job, RUN_LABEL: owner.run, ROLE_LABEL: role}
    term = {"labelSelector": {"matchLabels": own}, "topologyKey": HOSTNAME}
    rather = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": rather}}


def _volumes(spec: KubernetesSpec, job: str) -> tuple[list[Doc], list[Doc]]:
    """Return what is mounted, and where: the user's first, then ours where the user has nothing."""
    taken = {volume.mount.rstrip("/") for volume in spec.volumes}
    if clash := sorted(taken.intersection(_OURS)):
        raise InvalidValueError(
            f"a volume may not be at {clash[0]}, where the job's own is; choose another path"
        )
    pairs = [
        (
            {"name": f"user-{n}", **_source(volume)},
            _mount(f"user-{n}", volume.mount, read_only=volume.read_only),
        )
        for n, volume in enumerate(spec.volumes)
    ]
    pairs += [
        ({"name": name, **source}, _mount(name, path, read_only=path in _OURS))
        for name, path, source in _own_volumes(job)
        if path not in taken
    ]
    return [volume for volume, _ in pairs], [mount for _, mount in pairs]


def _own_volumes(job: str) -> Iterable[tuple[str, str, Doc]]:
    """Return name, path and source of what every pod of a job mounts.

    Secrets are for the pod's user alone. A job without code of its own has no such Secret.
    """
    note = {
        "path": MASTER_FILE.rpartition("/")[2],
        "fieldRef": {"fieldPath": f"metadata.annotations['{MASTER_NOTE}']"},
    }
    return (
        ("job", JOB_FOLDER, {"secret": {"secretName": secret_name(job), "defaultMode": 0o440}}),
        (
            "code",
            CODE_FOLDER,
            {"secret": {"secretName": code_name(job), "defaultMode": 0o440, "optional": True}},
        ),
        ("pod", POD_FOLDER, {"downwardAPI": {"items": [note]}}),
        ("tmp", "/tmp", {"emptyDir": {}}),  # noqa: S108 - its own, in a pod
        ("shm", "/dev/shm", {"emptyDir": {"medium": "Memory"}}),  # noqa: S108 - as above; counts as its memory
        ("state", STATE, {"emptyDir": {}}),
    )


def _source(volume: Volume) -> Doc:
    if volume.claim:
        return {"persistentVolumeClaim": {"claimName": volume.claim, "readOnly": volume.read_only}}
    if volume.host_path:
        return {"hostPath": {"path": volume.host_path}}
    if volume.config_map:
        return {"configMap": {"name": volume.config_map}}
    return {"secret": {"secretName": volume.secret}}


def _mount(name: str, path: str, *, read_only: bool) -> Doc:
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}


def _pair(item: str) -> tuple[str, str]:
    name, _, value = item.partition("=")
    return name, value

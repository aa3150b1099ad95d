"""Common parts of all pods of a job: labels, security settings, mounts.

Every pod is closed by default: no root, a read-only root file system, no capabilities, the runtime's own
seccomp profile, no token of a service account. Writable paths are volumes.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.manifests.podspec import closed_container, closed_pod, source_of, toleration
from dlrover_nb.core.structs.decisions.call_rights import CallRight, access_token
from dlrover_nb.core.structs.job.kubernetes import DEFAULT_IMAGE, DLROVER, STATE
from dlrover_nb.core.structs.wire.pod_contract import (
    CODE_FOLDER,
    JOB_FOLDER,
    MACHINE_VAR,
    POD_ENV,
    POD_FOLDER,
    REPORT_FOLDER,
    PodJob,
)
from dlrover_nb.core.usercode import file_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec, Volume

PREFIX = "dlrover-nb/"
JOB_LABEL, RUN_LABEL = f"{PREFIX}job", f"{PREFIX}run"
ROLE_LABEL, NODE_LABEL = f"{PREFIX}role", f"{PREFIX}node"
MASTER_ROLE = "master"
RUN_LETTERS = 8  # of the name of a run

VIEW_NOTE = f"{PREFIX}view"  # annotation of a Job or an ElasticJob: the token of `view_token`
HTTPS_PORT = 8443  # of a master in a pod, for the programs of its job
REPORT_KEY = "report"  # of a job's Secret: the token of `report_token`
CERTIFICATE_KEY = "certificate"  # the same, of its master's HTTPS, which writes it there

GONE_S = 10  # a pod on an unreachable machine is evicted after so long; default: 300 s
READ_BY_GROUP = 0o440
_OURS = (JOB_FOLDER, CODE_FOLDER, POD_FOLDER, REPORT_FOLDER)
_SCRATCH: tuple[tuple[str, str, Doc], ...] = (
    ("tmp", "/tmp", {}),  # noqa: S108 - of the pod alone
    ("shm", "/dev/shm", {"medium": "Memory"}),  # noqa: S108 - as above; it counts as the pod's memory
    ("state", STATE, {}),
)


def secret_name(job: str) -> str:
    """Return the name of the Secret that holds a job."""
    return f"{job}-job"


def report_token(job: PodJob) -> str:
    """Return the token with which external programs report their steps; it allows nothing else."""
    return hmac.new(job.access.encode(), REPORT_KEY.encode(), "sha256").hexdigest()


def view_token(job: PodJob) -> str:
    """Return the token with which the job's master shows itself; it allows nothing else.

    It lies in an annotation of the object that owns the job, since a viewer may not read the Secret: a user
    who may read Jobs learns the job's state, which RBAC already guards by ``pods/proxy``. A ConfigMap of its
    own was rejected: the same people may read it, and it is one object more to write, to own and to lose.
    """
    return access_token(job.access, CallRight.VIEW)


def is_operated(spec: JobSpec) -> bool:
    """Whether DLRover's operator runs the pods of a job, as decided at its submission."""
    return spec.foreign is not None and spec.kubernetes.operator == DLROVER


def code_name(job: str) -> str:
    """Return the name of the Secret with a user's own code."""
    return f"{job}-code"


def master_name(job: str) -> str:
    """Return the name of the master's service account, its Role and its RoleBinding."""
    return f"{job}-master"


def end_name(job: str) -> str:
    """Return the name of the ConfigMap with a job's last snapshot."""
    return f"{job}-end"


def budget_name(job: str) -> str:
    """Return the name of the PodDisruptionBudget of a job's master and parameter servers."""
    return f"{job}-budget"


def run_of(document: Mapping[str, Any]) -> str:
    """Return the run of an object; empty: of none of ours, whatever its name is.

    An exported file names no run, since it is another one each time that the file is applied: there it is
    the identity that the API server gave the Job or ElasticJob, which owns all else. A hash of the file was
    rejected: applied again, it found the run folder of the time before and had ended at once.
    """
    head = document["metadata"]
    labels = head.get("labels") or {}
    if RUN_LABEL in labels or JOB_LABEL not in labels:
        return str(labels.get(RUN_LABEL, ""))
    uids = [owner["uid"] for owner in head.get("ownerReferences") or ()] or [head.get("uid", "")]
    return hashlib.sha256(uids[0].encode()).hexdigest()[:RUN_LETTERS] if uids[0] else ""


def labels(job: str, run: str, role: str = "", node: str = "") -> dict[str, str]:
    """Return the labels of an object of a job; of an exported file, `run` is empty (`run_of`)."""
    optional = {RUN_LABEL: run, ROLE_LABEL: role, NODE_LABEL: node}
    return {
        "app.kubernetes.io/managed-by": "dlrover-nb",
        "app.kubernetes.io/part-of": job,
        JOB_LABEL: job,
        **{key: value for key, value in optional.items() if value},
    }


def owned_by(owner: Mapping[str, Any]) -> list[Doc]:
    """Return the owner references of objects that are deleted with a Job or an ElasticJob.

    It is no controller: the Job controller counts the pods that it controls.
    """
    head = owner["metadata"]
    version, kind = owner.get("apiVersion", "batch/v1"), owner.get("kind", "Job")  # lists leave them out
    return [{"apiVersion": version, "kind": kind, "name": head["name"], "uid": head["uid"]}]


def pod_frame(kube: KubernetesSpec) -> Doc:
    """Return the common part of a job's pod specs; containers and volumes are added to it."""
    frame: Doc = {
        **closed_pod(kube),
        "enableServiceLinks": False,
        "tolerations": [
            *(_gone(taint) for taint in ("not-ready", "unreachable")),
            *map(toleration, kube.tolerations),
        ],
    }
    if kube.node_selector:
        frame["nodeSelector"] = dict(_pair(item) for item in kube.node_selector)
    if kube.priority_class:
        frame["priorityClassName"] = kube.priority_class
    if kube.pull_secrets:
        frame["imagePullSecrets"] = [{"name": name} for name in kube.pull_secrets]
    return frame


def container_frame(kube: KubernetesSpec, name: str, module: str) -> Doc:
    """Return the common part of a job's containers; resources, variables and mounts are added to it."""
    frame: Doc = {
        "name": name,
        "image": kube.image or DEFAULT_IMAGE,
        "command": [kube.python or "python", "-m", module],
        "securityContext": {**closed_container(), "readOnlyRootFilesystem": True},
    }
    if kube.pull_policy:
        frame["imagePullPolicy"] = kube.pull_policy
    if kube.env_secrets:
        frame["envFrom"] = [{"secretRef": {"name": name}} for name in kube.env_secrets]
    return frame


def variables(kube: KubernetesSpec, own: Mapping[str, str]) -> list[Doc]:
    """Return a container's variables: ours, the user's, and those that the kubelet fills in."""
    user = dict(_pair(item) for item in kube.env)
    values = POD_ENV | user | dict(own)
    given = [{"name": name, "value": value} for name, value in values.items()]
    filled = {"POD_IP": "status.podIP", MACHINE_VAR: "spec.nodeName"}
    fields = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in filled.items()]
    return [*given, *fields]


def volumes(job: PodJob) -> tuple[list[Doc], list[Doc]]:
    """Return the volumes that every pod of a job has, and where a container mounts them.

    Raises
    ------
    InvalidValueError
        When the user's collide with the job's own; they may replace scratch folders.
    """
    kube, documents, mounts = job.spec.kubernetes, [], []

    def add(name: str, mount: str, *, read_only: bool, **source: object) -> None:
        documents.append({"name": name, **source})
        mounts.append({"name": name, "mountPath": mount, **({"readOnly": True} if read_only else {})})

    user_mounts = {volume.mount.rstrip("/") for volume in kube.volumes}
    if clash := sorted(user_mounts.intersection(_OURS)):
        raise InvalidValueError(
            f"a volume may not be at {clash[0]}, where the job's own is; choose another path"
        )
    add("job", JOB_FOLDER, read_only=True, secret=_secret(secret_name(job.spec.name)))
    if has_code(job):
        add("code", CODE_FOLDER, read_only=True, secret=_secret(code_name(job.spec.name)))
    for name, mount, medium in _SCRATCH:
        if mount not in user_mounts:
            add(name, mount, read_only=False, emptyDir=medium)
    for index, volume in enumerate(kube.volumes):
        add(f"user-{index}", volume.mount, read_only=volume.read_only, **_source(volume))
    return documents, mounts


def has_code(job: PodJob) -> bool:
    """Whether the job has a Secret with a user's own code."""
    return not job.code_url and any(map(file_of, (job.spec.model.code, job.spec.data.path)))


def _secret(name: str) -> Doc:
    return {"secretName": name, "defaultMode": READ_BY_GROUP}


def _source(volume: Volume) -> Doc:
    """Return a volume's source; the pod's group may read a Secret, a claim is attached as it is mounted."""
    if volume.secret:
        return {"secret": _secret(volume.secret)}
    ((kind, fields),) = source_of(volume).items()
    return {kind: fields | ({"readOnly": volume.read_only} if volume.claim else {})}


def _gone(taint: str) -> Doc:
    return {
        "key": f"node.kubernetes.io/{taint}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": GONE_S,
    }


def _pair(item: str) -> tuple[str, str]:
    name, _, value = item.partition("=")
    return name, value

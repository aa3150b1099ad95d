"""The objects of one job as documents: no cluster is contacted, so an export writes the same ones.

All are owned by the Job, so deleting it deletes them. For that it must exist first, and it is created paused
(parallelism 0): its pod would not begin without its Secret and its service account. Releasing it is the last
step, so a Job that is still paused after a while was left by a client that died.

The master has no liveness probe: a master that waits for a slow disk must not be killed, and a failed one
ends its job by itself. It is ready when it answers.
"""

from __future__ import annotations

import base64
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import job_from, load_mapping
from dlrover_nb.core.manifests.pod_parts import (
    HTTPS_PORT,
    MASTER_ROLE,
    PREFIX,
    REPORT_KEY,
    VIEW_NOTE,
    code_name,
    container_frame,
    is_operated,
    labels,
    master_name,
    owned_by,
    pod_frame,
    report_token,
    secret_name,
    variables,
    view_token,
    volumes,
)
from dlrover_nb.core.manifests.podspec import ttl, with_own
from dlrover_nb.core.manifests.role_rules import master_rights, role
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

DEFAULTS = "dlrover-nb"  # ConfigMap of a namespace with settings for all jobs in it
DEFAULTS_KEY = "defaults.yaml"
OWNER_NOTE = f"{PREFIX}owner"
MASTER_MODULE = "dlrover_nb.core.backends.kubernetes.master"
HTTP_PORT, WIRE_PORT = 8080, 7070
READY_PATH = "/ready"
BEGIN_CPU = 1.0  # cores that a master may use where free: its start is a second of imports
# Failed pods and restarts of the master before its Job is given up: drained pods count on newer servers, and
# a long job is drained often; a program that never begins is tried for an hour or two. A podFailurePolicy
# that counts no disruptions (Kubernetes 1.26) was rejected: it demands pods that are never restarted, and the
# program of a master that fails begins again in its pod, where the run folder of a job without a volume is.
N_RETRY = 20
END_GRACE_S = 10
POD_VAR, NAMESPACE_VAR = "POD_NAME", "POD_NAMESPACE"


def companions(
    job: PodJob,
    *,
    code: Mapping[str, bytes],
    namespace: str,
    has_budget: bool = False,
    may_resize: bool = False,
    sees_queue: bool = False,
) -> tuple[Doc, ...]:
    """Return the objects that a job's master needs before it may begin, in order of creation.

    Parameters
    ----------
    code
        Files of the user's own code, by name.
    has_budget, may_resize, sees_queue
        Whether its master may keep a disruption budget, resize pods in place, and read its queue of Kueue.
    """
    name = job.spec.name
    reports = {REPORT_KEY: report_token(job).encode()} if job.spec.foreign else {}
    secrets = [_secret(job, secret_name(name), {"job.json": to_json(job)} | reports, namespace)]
    if code:
        secrets.append(_secret(job, code_name(name), code, namespace))
    if job.spec.kubernetes.service_account:
        return tuple(secrets)
    optional = {"has_budget": has_budget, "may_resize": may_resize, "sees_queue": sees_queue}
    return (*secrets, *_rights(job, namespace, optional))


def with_owner(document: Doc, owner: Mapping[str, Any]) -> Doc:
    """Return the document with the Job `owner` as its owner."""
    return document | {"metadata": document["metadata"] | {"ownerReferences": owned_by(owner)}}


def master_job(job: PodJob, *, namespace: str) -> Doc:
    """Return the Job that keeps a master's pod running, paused."""
    kube = job.spec.kubernetes
    notes = {OWNER_NOTE: job.spec.owner} | ({VIEW_NOTE: view_token(job)} if job.access else {})
    head = _head(job, job.spec.name, namespace) | {"annotations": notes}
    pod = {"labels": labels(job.spec.name, job.run, MASTER_ROLE)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": with_own(head, kube),
        "spec": {
            "parallelism": 0,
            "completions": 1,
            "backoffLimit": N_RETRY,
            **ttl(kube),
            "template": {"metadata": with_own(pod, kube), "spec": master_pod(job)},
        },
    }


def with_defaults(own: KubernetesSpec, text: str) -> KubernetesSpec:
    """Return the pod settings of the job's `own` and the namespace's ConfigMap `text`.

    The job's settings win; volumes, variables and other lists are joined.

    Raises
    ------
    InvalidValueError
        When the namespace's text is invalid.
    """
    try:
        given = job_from({"name": "defaults", "kubernetes": load_mapping(text)}).kubernetes
        return replace(own, **_merged(own, given))
    except InvalidValueError as error:
        raise InvalidValueError(
            f"{DEFAULTS_KEY} of the ConfigMap {DEFAULTS} is invalid: {error}; ask the cluster's administrator"
        ) from error


def _merged(own: KubernetesSpec, given: KubernetesSpec) -> dict[str, Any]:
    initial, merged = KubernetesSpec(), {}
    for name in (field.name for field in fields(KubernetesSpec)):
        mine, theirs = getattr(own, name), getattr(given, name)
        if isinstance(mine, tuple):
            own_keys = {_key(item) for item in mine}
            merged[name] = (*(item for item in theirs if _key(item) not in own_keys), *mine)
        else:
            merged[name] = theirs if mine == getattr(initial, name) else mine
    return merged


def _key(item: Any) -> str:  # noqa: ANN401 - a text or a `Volume`
    """Return the unique key of an item: a mount, or a variable's name."""
    return item.partition("=")[0] if isinstance(item, str) else item.mount.rstrip("/")


def _head(job: PodJob, name: str, namespace: str) -> Doc:
    return {"name": name, "namespace": namespace, "labels": labels(job.spec.name, job.run)}


def _secret(job: PodJob, name: str, files: Mapping[str, bytes], namespace: str) -> Doc:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _head(job, name, namespace),
        "type": "Opaque",
        "data": {key: base64.b64encode(content).decode() for key, content in files.items()},
    }


def _rights(job: PodJob, namespace: str, optional: Mapping[str, bool]) -> tuple[Doc, ...]:
    name = master_name(job.spec.name)
    head = _head(job, name, namespace)
    rights = master_rights(
        job.spec.name,
        reads_logs=job.spec.foreign is not None,
        is_operated=is_operated(job.spec),
        **{name: is_given and not is_operated(job.spec) for name, is_given in optional.items()},
        owner=job.owner,
    )
    given = role(name, rights)
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": head},
        given | {"metadata": head},
        {
            "apiVersion": given["apiVersion"],
            "kind": "RoleBinding",
            "metadata": head,
            "roleRef": {"apiGroup": given["apiVersion"].partition("/")[0], "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    )


HISTORY_SECRET = "dlrover-nb-history"  # noqa: S105 - a name; of a namespace: its keys are variables of masters


def master_pod(job: PodJob) -> Doc:
    """Return the ``spec`` of the pod of a job's master."""
    kube = job.spec.kubernetes
    documents, mounts = volumes(job)
    container = container_frame(kube, MASTER_ROLE, MASTER_MODULE)
    shared = {"secretRef": {"name": HISTORY_SECRET, "optional": True}}  # before the job's own, which win
    container |= {
        "envFrom": [shared, *container.get("envFrom", ())],
        "env": [
            *variables(kube, {}),
            _field(POD_VAR, "metadata.name"),
            _field(NAMESPACE_VAR, "metadata.namespace"),
        ],
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT},
            {"name": "https", "containerPort": HTTPS_PORT},
            {"name": "wire", "containerPort": WIRE_PORT},
        ],
        "readinessProbe": {"httpGet": {"path": READY_PATH, "port": HTTP_PORT}, "periodSeconds": 1},
        "resources": _resources(kube),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    return pod_frame(kube) | {
        "automountServiceAccountToken": True,
        "serviceAccountName": kube.service_account or master_name(job.spec.name),
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": END_GRACE_S,
        "containers": [container],
        "volumes": documents,
    }


def _field(name: str, path: str) -> Doc:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _resources(kube: KubernetesSpec) -> Doc:
    memory = f"{kube.master_memory_mib}Mi"
    return {
        "requests": {"cpu": _milli(kube.master_cpu), "memory": memory},
        "limits": {"cpu": _milli(max(BEGIN_CPU, kube.master_cpu)), "memory": memory},
    }


def _milli(cpu: float) -> str:
    return f"{max(1, round(cpu * 1000))}m"

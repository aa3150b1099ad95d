"""Pods of an earlier run that its Job does not keep any more: found, and removed.

A Job that is deleted with ``--cascade=orphan`` leaves its master and its nodes, which go on training. A new
run of the name would train beside them, on the same data and on the same machines. So a submit refuses
the name, `delete` removes them, and a new master removes them before it begins: it may have been started from
a file, which no client of ours sees.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import ApiError
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.manifests.kinds import (
    CONFIG_MAP,
    OWNERS,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
)
from dlrover_nb.core.manifests.pod_parts import (
    JOB_LABEL,
    MASTER_ROLE,
    ROLE_LABEL,
    code_name,
    end_name,
    master_name,
    secret_name,
)
from dlrover_nb.core.structs.job.kubernetes import STATE
from dlrover_nb.core.structs.wire.pod_contract import run_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Doc, Kind

GRACE_S, FORCE_AFTER_S, GONE_LIMIT_S = 1, 15, 60
_ENDED = {"Succeeded", "Failed"}


def strays(api: Api, name: str, *, uid: str = "") -> tuple[Doc, ...]:
    """Return the pods of a job's name that run without a Job, masters first.

    Parameters
    ----------
    uid
        Of the present Job or ElasticJob; empty: there is none, or what the cluster deletes by itself does not
        count.
    """
    pods = api.list(POD, selector=f"{JOB_LABEL}={name},{ROLE_LABEL}").items
    return tuple(sorted((pod for pod in pods if is_stray(pod, uid)), key=lambda pod: not _is_master(pod)))


def is_stray(pod: Doc, uid: str) -> bool:
    """Whether a pod runs and no Job keeps it, or, where the present one is known by `uid`, another one."""
    head = pod["metadata"]
    owners, job = head.get("ownerReferences") or (), head["labels"][JOB_LABEL]
    is_ours = all(owner["kind"] in OWNERS and owner["name"] == job for owner in owners)
    if not is_ours or pod.get("status", {}).get("phase") in _ENDED:
        return False
    return not owners or bool(uid and all(owner["uid"] != uid for owner in owners))


def remove(api: Api, name: str, *, uid: str = "") -> int:
    """Delete the pods that `strays` finds, and wait until none is left; return how many there were.

    Raises
    ------
    BackendError
        When they do not end, or may not be deleted.
    """
    n_pod = 0
    for second in range(GONE_LIMIT_S):
        left = strays(api, name, uid=uid)
        if not left:
            return n_pod
        n_pod = max(n_pod, len(left))
        for pod in left:
            if second in {0, FORCE_AFTER_S} or "deletionTimestamp" not in pod["metadata"]:
                grace_s = 0 if second >= FORCE_AFTER_S else GRACE_S
                api.delete(POD, pod["metadata"]["name"], grace_s=grace_s, uid=pod["metadata"]["uid"])
        time.sleep(1.0)
    names = ", ".join(pod["metadata"]["name"] for pod in left)
    raise BackendError(f"pods of an earlier run of job {name} do not end: {names}; delete them with kubectl")


def remove_all(api: Api, name: str) -> str:
    """Remove what a Job that is gone left: pods, and the objects of its name; return what was done."""
    n_pod, left = 0, list[str]()
    try:
        n_pod = remove(api, name)
    except BackendError as error:
        left.append(str(error))
    for kind, each in _objects(name):
        try:
            if is_without_owner(api.get(kind, each), name):
                api.delete(kind, each)
        except ApiError as error:
            left += [] if error.status == 404 else [f"{kind.name} {each}: {error}"]
    remains = f"; what could not be removed: {'; '.join(left)}" if left else ""
    return (
        f"{n_pod} pod(s) of job {name} that ran without its Job are deleted, and its other objects{remains}"
    )


def is_without_owner(document: Doc, name: str) -> bool:
    """Whether an object is of a job of that name, and nothing deletes it with that."""
    head = document["metadata"]
    return (head.get("labels") or {}).get(JOB_LABEL) == name and not head.get("ownerReferences")


def left_on_volume(job: Doc, run: str) -> str:
    """Return which run folder stays on a volume after a Job is deleted; empty: none."""
    spec = job["spec"].get("template", {}).get("spec") or {}
    mounts = [m for c in spec.get("containers") or () for m in c.get("volumeMounts") or ()]
    names = {mount["name"] for mount in mounts if mount["mountPath"].rstrip("/") == STATE}
    where = [_place(volume) for volume in spec.get("volumes") or () if volume["name"] in names]
    folder = run_name(job["metadata"]["name"], run)
    return f"its run folder {folder} stays on {where[0]}" if where and where[0] else ""


def _place(volume: Doc) -> str:
    if claim := volume.get("persistentVolumeClaim"):
        return f"the claim {claim['claimName']}"
    path = volume.get("hostPath")
    return f"its machine in {path['path']}" if path else ""


def _objects(name: str) -> Iterable[tuple[Kind, str]]:
    """Return what users may delete; a disruption budget without pods holds nothing up, and is taken over."""
    account = ((kind, master_name(name)) for kind in (ROLE_BINDING, ROLE, SERVICE_ACCOUNT))
    secrets = ((SECRET, each(name)) for each in (secret_name, code_name))
    return (*secrets, *account, (CONFIG_MAP, end_name(name)))


def _is_master(pod: Doc) -> bool:
    return bool(pod["metadata"]["labels"].get(ROLE_LABEL) == MASTER_ROLE)

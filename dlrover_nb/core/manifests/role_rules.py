"""Required rights in a namespace, by role and reason: the one table for Roles, checks and documents.

Kubernetes lets users grant only rights that they have. Each job creates a Role for its master, so `USER` must
contain all of `master_rights`, and none of these is optional but `BUDGETS` and `RESIZE`, which a master gets
only where its user may grant them; tests check that. `deploy/` and the output of `connect` are made of this.

A verb on ``pods/proxy`` is a right to jobs: to view, to steer, to end them (`structs.call_rights`).
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.yamltext import to_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

NOBODY = "NAME-OF-THE-USER"  # where the user's name in the cluster is unknown
_RBAC = "rbac.authorization.k8s.io"
_DLROVER = "elastic.iml.github.io"
_KUEUE = "kueue.x-k8s.io"
_VOLCANO = "scheduling.volcano.sh"
_RAY = "ray.io"


@dataclass(frozen=True, slots=True)
class Right:
    """Rights on one kind of objects.

    Parameters
    ----------
    resource
        In the form of Roles: ``pods``, ``pods/log``.
    verbs
        Allowed verbs.
    why
        What a job, or a person, cannot do without it; a clause.
    group
        Of the API; the group of pods and the like is empty.
    names
        Of the only objects it covers; empty: all of the namespace.
    cluster
        Whether it is of the cluster as a whole, which a Role of a namespace cannot give.
    optional
        Whether jobs work without it, with less shown.
    """

    resource: str
    verbs: tuple[str, ...]
    why: str
    group: str = ""
    names: tuple[str, ...] = ()
    cluster: bool = False
    optional: bool = False

    @property
    def rule(self) -> dict[str, Any]:
        """As a rule of a Role."""
        named = {"resourceNames": [*self.names]} if self.names else {}
        return {"apiGroups": [self.group], "resources": [self.resource], "verbs": [*self.verbs]} | named


SEE_NODES = Right(
    "nodes",
    ("get", "list"),
    "see the machines and what they offer; else a job plans with the namespace's quota alone",
    cluster=True,
    optional=True,
)
SEE_USE = Right(
    "nodes",
    ("list",),
    "see what machines use, so that new nodes go where there is least to do; else what is held there counts",
    "metrics.k8s.io",
    cluster=True,
    optional=True,
)
BUDGETS = Right(
    "poddisruptionbudgets",
    ("create", "patch"),
    "let a drain evict one parameter server at a time; else it may take all of a job at once",
    "policy",
    optional=True,
)
RESIZE = Right(
    "pods/resize",
    ("patch",),
    "change the size of a job's pods in place (Kubernetes 1.33); else they are replaced",
    optional=True,
)
QUEUES = (
    Right("workloads", ("list",), "say what a job of a Kueue queue waits for", _KUEUE, optional=True),
    Right("localqueues", ("get",), "plan within the quota of a Kueue queue", _KUEUE, optional=True),
    Right("podgroups", ("list",), "say what a job of a Volcano queue waits for", _VOLCANO, optional=True),
)
OF_KUEUE = tuple(right for right in QUEUES if right.group == _KUEUE)  # for masters of jobs that name a queue
SEE_QUOTAS = tuple(
    Right(resource, ("list",), why, _KUEUE, cluster=True, optional=True)
    for resource, why in (
        ("clusterqueues", "see what a Kueue queue admits; else no plan is held to its quota before it waits"),
        ("cohorts", "see what a Kueue queue may borrow; else only its borrowing limit counts"),
    )
)
_VIEW = Right("pods/proxy", ("get",), "view jobs: status, proposals, logs")
_STEER = Right("pods/proxy", ("create",), "steer jobs: answer proposals, change plans, take the model")
_END = Right("pods/proxy", ("delete",), "end jobs: stop and finish them")
CALLS = (_VIEW, _STEER, _END)  # in the order of the roles
SEE_RAY_JOBS = Right("rayjobs", ("get", "list"), "show jobs of KubeRay beside ours", _RAY, optional=True)
USER = (
    Right("jobs", ("create", "delete", "get", "list", "patch", "watch"), "start, list and end jobs", "batch"),
    Right(
        "secrets",
        ("create", "delete", "get", "patch"),
        "give a job its keys and code, and communicate with it",
    ),
    Right("configmaps", ("create", "delete", "get", "list", "patch"), "read defaults and how a job ended"),
    Right("serviceaccounts", ("create", "delete", "get"), "give a job's master an account of its own"),
    Right("roles", ("create", "delete", "get"), "give that account its few rights", _RBAC),
    Right("rolebindings", ("create", "delete", "get"), "bind them to it", _RBAC),
    *CALLS,
    Right(
        "pods",
        ("create", "delete", "get", "list", "patch", "watch"),
        "see a job's pods, and let its master make and end them",
    ),
    Right("pods/log", ("get",), "read what pods wrote"),
    Right("events", ("get", "list", "watch"), "say why a pod waits"),
    Right("resourcequotas", ("get", "list"), "let a job plan within the namespace's quota"),
    Right("persistentvolumeclaims", ("get", "list"), "check a job's volumes before it starts", optional=True),
    BUDGETS,
    RESIZE,
    Right(
        "elasticjobs",
        ("create", "delete", "get", "list", "patch", "watch"),
        "start jobs of DLRover's operator and follow them",
        _DLROVER,
        optional=True,
    ),
    Right(
        "scaleplans",
        ("create", "delete", "get", "list", "patch", "watch"),
        "apply accepted plans to them",
        _DLROVER,
        optional=True,
    ),
    Right(
        "scaleplans/status",
        ("patch",),
        "let the master of an exported ElasticJob say what became of them",
        _DLROVER,
        optional=True,
    ),
    SEE_RAY_JOBS,
    *QUEUES,
)
VIEWER = (
    Right("jobs", ("get", "list", "watch"), "list jobs", "batch"),
    Right("configmaps", ("get", "list"), "read how a job ended"),
    _VIEW,
    Right("pods", ("get", "list", "watch"), "see which pods a job has"),
    Right("pods/log", ("get",), "read what pods wrote"),
    Right("events", ("get", "list", "watch"), "say why a pod waits"),
    Right("resourcequotas", ("get", "list"), "show the namespace's quota", optional=True),
    Right(
        "elasticjobs", ("get", "list", "watch"), "list jobs of DLRover's operator", _DLROVER, optional=True
    ),
    Right("scaleplans", ("get", "list", "watch"), "show which plan they have", _DLROVER, optional=True),
    SEE_RAY_JOBS,
    *QUEUES,
)
OPERATOR = (
    *VIEWER,
    _STEER,
    Right("secrets", ("get",), "steer a job: the token for that lies in its Secret"),
)
SHIPPED = {"dlrover-nb-viewer": VIEWER, "dlrover-nb-operator": OPERATOR, "dlrover-nb-user": USER}
SHIPPED_WORDS = {
    "dlrover-nb-viewer": "view jobs",
    "dlrover-nb-operator": "view and steer jobs",
    "dlrover-nb-user": "start, view, steer and end jobs",
}


_OWN_PODS = (Right("pods", ("create", "delete", "get", "list", "patch", "watch"), "make the job's nodes"),)
_OPERATED = (
    Right(
        "pods", ("get", "list", "patch", "watch"), "follow the operator's pods, and tell them where to report"
    ),
    Right("elasticjobs", ("delete", "get", "list", "watch"), "follow the job, and end it", _DLROVER),
    Right("scaleplans", ("create", "get", "list", "watch"), "apply accepted plans", _DLROVER),
)


def owner_rights(job: str, owner: str) -> tuple[Right, ...]:
    """Return the rights to the object that keeps the master's pod, and to what asks that job for plans."""
    named = ("get", "patch")
    if owner == "Job":
        return (Right("jobs", named, "own the objects that it creates", "batch", names=(job,)),)
    return (
        Right("elasticjobs", named, "own the objects that it creates", _DLROVER, names=(job,)),
        Right("elasticjobs", ("list", "watch"), "take the plan of its own", _DLROVER),
        Right("scaleplans", ("get", "list", "patch", "watch"), "take the plans that name it", _DLROVER),
        Right("scaleplans/status", ("patch",), "say what became of them", _DLROVER),
    )


def _budget(job: str) -> tuple[Right, ...]:
    why = "let a drain evict one parameter server at a time"
    return (
        Right(BUDGETS.resource, ("create",), why, BUDGETS.group),
        Right(BUDGETS.resource, ("patch",), why, BUDGETS.group, names=(f"{job}-budget",)),
    )


def master_rights(  # noqa: PLR0913 - what it may have beyond the usual, all by keyword
    job: str,
    *,
    reads_logs: bool = False,
    is_operated: bool = False,
    has_budget: bool = False,
    may_resize: bool = False,
    sees_queue: bool = False,
    owner: str = "Job",
) -> tuple[Right, ...]:
    """Return the rights of a job's master: on its own objects by name, and on pods of its namespace.

    Parameters
    ----------
    reads_logs
        Whether it reads the logs of its pods, as that of an external job does.
    is_operated
        Whether DLRover's operator makes the job's pods: then its master only reads them.
    has_budget
        Whether it keeps a disruption budget: only where who starts the job may (`BUDGETS`).
    may_resize
        Whether it may resize pods in place: only where who starts the job may (`RESIZE`).
    sees_queue
        Whether it reads its queue of Kueue: where its job names one, and who starts it may (`OF_KUEUE`).
    owner
        Kind of the object that keeps the master's pod.
    """
    logs = (Right("pods/log", ("get",), "read the output of external programs"),) if reads_logs else ()
    return (
        *logs,
        *(_budget(job) if has_budget else ()),
        *((replace(RESIZE, optional=False),) if may_resize else ()),
        *(replace(right, optional=False) for right in (OF_KUEUE if sees_queue else ())),
        *(_OPERATED if is_operated else _OWN_PODS),
        Right(
            "secrets",
            ("create", "get", "patch"),
            "read its keys, and restore them when they are deleted",
            names=(f"{job}-job", f"{job}-code"),
        ),
        *owner_rights(job, owner),
        Right("configmaps", ("create",), "record how the job ended"),
        Right("configmaps", ("get", "patch"), "record how the job ended", names=(f"{job}-end",)),
        Right("events", ("list", "watch"), "say why a pod waits"),
        Right("resourcequotas", ("get", "list"), "plan within the namespace's quota"),
    )


def role(
    name: str, rights: Iterable[Right], *, namespace: str = "", labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the Role that grants these rights, or the ClusterRole where they are of the cluster."""
    given = tuple(rights)
    cluster = any(right.cluster for right in given)
    metadata = {"name": name} | ({"namespace": namespace} if namespace and not cluster else {})
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole" if cluster else "Role",
        "metadata": metadata | ({"labels": dict(labels)} if labels else {}),
        "rules": [right.rule for right in given],
    }


def binding(given: Mapping[str, Any], user: str) -> dict[str, Any]:
    """Return the binding of a Role, or ClusterRole, to a user, or to a service account by its full name."""
    account = user.split(":") if user.startswith("system:serviceaccount:") else []
    subject = (
        {"kind": "ServiceAccount", "namespace": account[2], "name": account[3]}
        if len(account) == 4
        else {"apiGroup": _RBAC, "kind": "User", "name": user}
    )
    return {
        "apiVersion": given["apiVersion"],
        "kind": f"{given['kind']}Binding",
        "metadata": dict(given["metadata"]),
        "roleRef": {"apiGroup": _RBAC, "kind": given["kind"], "name": given["metadata"]["name"]},
        "subjects": [subject],
    }


def role_text(rights: Iterable[Right], user: str, namespace: str) -> str:
    """Return a Role with these rights and its binding to a user, as YAML: what to ask an administrator for.

    Rights of cluster scope are in a separate ClusterRole, so that the rest holds in the namespace alone. The
    names contain user and rights, so that later requests, or those of another user, do not replace rights
    granted before.
    """
    wanted, documents = tuple(rights), []
    for cluster in (False, True):
        if part := [right for right in wanted if right.cluster is cluster]:
            given = role(_role_name(part, user or NOBODY), part, namespace=namespace)
            documents += [given, binding(given, user or NOBODY)]
    return to_yaml(*documents, inline=True)


def _role_name(rights: Iterable[Right], user: str) -> str:
    rules = json.dumps([user, *(right.rule for right in rights)])
    slug = re.sub("[^a-z0-9]+", "-", user.lower()).strip("-")[:40]
    return f"dlrover-nb-{slug}-{hashlib.sha256(rules.encode()).hexdigest()[:6]}"


def granted(rights: Iterable[Right]) -> set[tuple[str, str, str]]:
    """Return rights one by one: group, resource and verb."""
    return {(right.group, right.resource, verb) for right in rights for verb in right.verbs}


def shipped_role(have: Collection[tuple[str, str, str]]) -> str:
    """Return the strongest shipped role all of whose needed rights are among these; empty: none."""
    names = [
        name for name, rights in SHIPPED.items() if granted(r for r in rights if not r.optional) <= set(have)
    ]
    return names[-1] if names else ""


def right_to(resource: str, group: str, verb: str) -> Right:
    """Return the right of the tables that a refused request needs, or else just the requested one."""
    for right in (*USER, SEE_NODES):
        if (right.resource, right.group) == (resource, group) and verb in right.verbs:
            return right
    return Right(resource, (verb,), "what was asked for", group)

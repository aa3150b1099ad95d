"""State of a job under DLRover's operator, read from its ElasticJob, ScalePlans and pods.

Functions of documents alone. DLRover has two halves: the operator (Go) keeps the job's master running and
writes the ElasticJob's status from that pod's phase, and the master (Python) makes the pods of the job, names
them ``JOB-edljob-ROLE-NUMBER`` and labels them with the job, the role, the pod's number and its rank. A pod
that is replaced keeps its rank and gets another number. A node is named by the number, as its pod is, so that
a new node does not inherit the record of its predecessor.

The status of a manual ScalePlan stays empty: the operator skips it, and the master, which acts on it, writes
no status. The master does write an owner, so the owner shows that the plan was taken up, and the pods show
whether it is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from dlrover_nb.core.export.nodes import MAIN
from dlrover_nb.core.export.quantities import MIB, amount
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import NodePhase, NodeView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

JOB_LABEL = "elasticjob.dlrover/name"
TYPE_LABEL = "elasticjob.dlrover/replica-type"
NUMBER_LABEL = "elasticjob.dlrover/replica-index"
SUSPENDED = "Suspended"
_ROLES = {"ps": Role.PS, "worker": Role.WORKER, "chief": Role.WORKER, "master": Role.WORKER}
_PHASES = {
    "": JobPhase.STARTING,
    "Created": JobPhase.STARTING,
    "Pending": JobPhase.STARTING,
    "Running": JobPhase.TRAINING,
    "Restarting": JobPhase.RESCALING,
    "Scaling": JobPhase.RESCALING,
    "Succeeded": JobPhase.SUCCEEDED,
    "Failed": JobPhase.FAILED,
    SUSPENDED: JobPhase.STARTING,
}
_NODE_PHASES = {"Pending": NodePhase.PENDING, "Running": NodePhase.READY}

Size: TypeAlias = tuple[float, int]  # cores and MiB of a node


class Applied(StrEnum):
    """Progress of a ScalePlan."""

    WAITING = "waiting"  # for DLRover's master to take it up
    SCALING = "scaling"
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ElasticView:
    """A job under DLRover's operator at one moment.

    Parameters
    ----------
    phase
        The job's phase; an ElasticJob that is gone is a stopped job.
    why
        The operator's last message on it.
    nodes
        Its pods, the master left out.
    counts
        Pods of each role by state, as the operator counts them.
    """

    phase: JobPhase
    why: str
    nodes: tuple[NodeView, ...]
    counts: Mapping[str, Mapping[str, int]]


def view(job: Doc | None, pods: Iterable[Doc], plans: Iterable[Doc] = ()) -> ElasticView:
    """Return the state of a job from its documents.

    Parameters
    ----------
    job
        The ElasticJob; None when it is gone.
    pods
        Those with its label.
    plans
        ScalePlans of it that are not done: while there is one, a job that trains is being re-scaled.
    """
    status = (job or {}).get("status") or {}
    phase = JobPhase.STOPPED if job is None else _PHASES.get(str(status.get("phase", "")), JobPhase.STARTING)
    if phase is JobPhase.TRAINING and any(plans):
        phase = JobPhase.RESCALING
    inner = status.get("status") or {}
    counts = {
        str(role): {state: n for state, n in states.items() if isinstance(n, int) and n}
        for role, states in (inner.get("replicaStatuses") or {}).items()
    }
    return ElasticView(phase, _why(job, inner), nodes_of(pods), counts)


def _why(job: Doc | None, inner: Doc) -> str:
    if job is None:
        return "its ElasticJob was deleted"
    conditions = inner.get("conditions") or []
    last: Doc = max(conditions, key=lambda each: str(each.get("lastTransitionTime") or ""), default={})
    return str(last.get("message") or last.get("reason") or "")


def nodes_of(pods: Iterable[Doc]) -> tuple[NodeView, ...]:
    """Return the nodes of a job by role and number; pods of other types are left out."""
    keyed = sorted((_key(pod), pod) for pod in pods if _labels(pod).get(TYPE_LABEL) in _ROLES)
    return tuple(_node(pod) for _, pod in keyed)


def _key(pod: Doc) -> tuple[str, int, str]:
    return _labels(pod).get(TYPE_LABEL, ""), number_of(pod), str(pod["metadata"]["name"])


def node_name(job: str, pod: str) -> str:
    """Return the name of a node from that of its pod."""
    return pod.removeprefix(f"{job}-edljob-")


def number_of(pod: Doc) -> int:
    """Return a pod's number, unique within its role."""
    return _whole(_labels(pod).get(NUMBER_LABEL))


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0


def _node(pod: Doc) -> NodeView:
    labels, status = _labels(pod), pod.get("status") or {}
    phase = _NODE_PHASES.get(str(status.get("phase")), NodePhase.GONE)
    if "deletionTimestamp" in pod["metadata"] and phase is not NodePhase.GONE:
        phase = NodePhase.DRAINING
    cpu, memory_mib = size_of(pod)
    kind = labels[TYPE_LABEL]
    return NodeView(
        id=f"{kind}-{number_of(pod)}",
        role=_ROLES[kind],
        phase=phase,
        cpu=cpu,
        memory_mib=memory_mib,
        cpu_enforced=cpu > 0,
        since_s=_time_s(status.get("startTime") or pod["metadata"].get("creationTimestamp")),
        memory_enforced=memory_mib > 0,
        waits_for=_waits_for(status) if phase is NodePhase.PENDING else "",
    )


def _waits_for(status: Doc) -> str:
    """Return why a pod has not begun, in the cluster's words; empty: nothing unusual."""
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "room")
    for container in status.get("containerStatuses") or []:
        if container.get("name", MAIN) != MAIN:
            continue  # of a mesh or an injector
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
            return ": ".join(str(part) for part in (waiting["reason"], waiting.get("message")) if part)
    return ""


def size_of(pod: Doc) -> Size:
    """Return the limits of a pod's main container; 0 where it has none."""
    containers = (pod.get("spec") or {}).get("containers") or [{}]
    main = next((each for each in containers if each.get("name") == MAIN), containers[0])
    limits = (main.get("resources") or {}).get("limits") or {}
    cpu = float(amount(limits.get("cpu", 0), "cpu"))
    return cpu, int(amount(limits.get("memory", 0), "memory") // MIB)


def alive(pods: Iterable[Doc]) -> dict[Role, list[Doc]]:
    """Return the live pods of each role that are to stay, the lowest numbers first.

    DLRover removes the highest numbers first.
    """
    by_role: dict[Role, list[Doc]] = {role: [] for role in Role}
    for pod in sorted(pods, key=number_of):
        role = _ROLES.get(_labels(pod).get(TYPE_LABEL, ""))
        over = (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
        if role is not None and not over and "deletionTimestamp" not in pod["metadata"]:
            by_role[role].append(pod)
    return by_role


def applied(scale: Doc, plan: ResourcePlan, pods: Iterable[Doc]) -> Applied:
    """Return the progress of a ScalePlan for `plan`."""
    phase = str((scale.get("status") or {}).get("phase") or "")
    if phase == "Failed":
        return Applied.REFUSED
    if _is_there(plan, alive(pods), _roles_in(scale)):
        return Applied.DONE
    is_begun = phase in {"Pending", "Scaling", "Running", "Succeeded"} or _is_accepted(scale)
    return Applied.SCALING if is_begun else Applied.WAITING


def _is_accepted(scale: Doc) -> bool:
    """Whether DLRover's master set its own owner reference: it blocks deletion, ours does not."""
    owners = scale["metadata"].get("ownerReferences") or []
    return any(owner.get("blockOwnerDeletion") for owner in owners)


def _roles_in(scale: Doc) -> list[Role]:
    sizes = (scale.get("spec") or {}).get("replicaResourceSpecs") or {}
    return [role for role in Role if role in sizes]


def _is_there(plan: ResourcePlan, pods: Mapping[Role, list[Doc]], roles: Iterable[Role]) -> bool:
    return all(
        len(pods[role]) == plan.role(role).count
        and all((pod.get("status") or {}).get("phase") == "Running" for pod in pods[role])
        and not misfits(plan.role(role), pods[role])
        for role in roles
    )


def misfits(plan: RolePlan, pods: Iterable[Doc]) -> list[Doc]:
    """Return the pods whose resources differ from the plan; DLRover reads cores in tenths."""
    wanted = {(cpu, plan.memory_mib) for cpu in (plan.cpu, round(plan.cpu, 1))}
    return [pod for pod in pods if size_of(pod) not in wanted]


def _labels(pod: Doc) -> dict[str, str]:
    labels: dict[str, str] = pod["metadata"].get("labels") or {}
    return labels


def _time_s(text: object) -> float:
    return datetime.fromisoformat(str(text)).timestamp() if text else 0.0

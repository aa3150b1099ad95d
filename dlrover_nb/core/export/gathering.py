"""Collects a job's plan from the fields of documents: ours, edited ones, foreign ones.

Status and other fields set by an API server are ignored; a List, as ``kubectl get -o yaml`` writes it, is
unpacked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.alone import JOB_FILE, need
from dlrover_nb.core.export.documents.own_elasticjob import MASTER
from dlrover_nb.core.export.documents.rayjob import size
from dlrover_nb.core.export.documents.scaleplan import JOB_LABELS
from dlrover_nb.core.export.exporters import BY_RESOURCE, READERS
from dlrover_nb.core.export.groups import Group, child, group, items
from dlrover_nb.core.export.nodes import JOB_LABEL, JOB_VARIABLE, MAIN, ROLE_LABEL
from dlrover_nb.core.export.quantities import MIB, amount
from dlrover_nb.core.jobfile import parse_job
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.yamltext import load_documents, named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

JOBS = tuple(READERS)
ELASTIC_JOB = "ElasticJob"  # the plan that its master takes is its own, not that of the job file
KINDS = {  # resource -> kind of export; of several the first names the file's kind
    **{resource: BY_RESOURCE[resource][0] for resource in JOBS},
    "ScalePlan": "scaleplan",
    "Pod": "pods",
    "Job": "pods",
}
FIELDS = {  # of `Pins`, in the documents' terms
    "workers": "worker replicas",
    "worker_cpu": "worker cpu",
    "worker_memory_mib": "worker memory (MiB)",
    "ps": "ps replicas",
    "ps_cpu": "ps cpu",
    "ps_memory_mib": "ps memory (MiB)",
}
_COUNTS = {Role.WORKER: "workers", Role.PS: "ps"}
_FIXED = {"Master": "chief"}  # of a PyTorchJob
_LISTS = ("List", *(f"{kind}List" for kind in KINDS))
_ROLE_LABELS = (ROLE_LABEL, "elasticjob.dlrover/replica-type")  # ours, and that of DLRover's own pods
_JOB_LABELS = (JOB_LABEL, *JOB_LABELS)

Nodes = tuple[int | None, Group]  # number, and limits of each


@dataclass(slots=True)
class JobContent:
    """Content collected from documents: `parts` by fields of `Pins`, `jobs` from the nodes' variables."""

    names: list[str] = field(default_factory=list)
    parts: dict[str, Any] = field(default_factory=dict)
    auto_scale: bool | None = None
    filed: JobSpec | None = None  # the job of a job file beside the resource: it is what runs
    jobs: list[str] = field(default_factory=list)
    external: JobSpec | None = None  # of a TrainJob that others wrote
    differs: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def documents_in(text: str) -> list[Group]:
    """Return the resources of a YAML text: its documents, and the items of lists.

    Raises
    ------
    InvalidValueError
        For malformed YAML (with line and column), and for a document that is no group.
    """
    return list(_opened(load_documents(text)))


def _opened(documents: Iterable[object]) -> Iterator[Group]:
    for number, document in enumerate(documents, start=1):
        if document is not None:
            content = group(document, f"document {number}")
            yield from _opened(items(content, "items")) if content.get("kind") in _LISTS else (content,)


def gather(documents: Sequence[Group], fixed: frozenset[str] = frozenset()) -> JobContent:
    """Collect one job from resources of the known kinds; a ScalePlan is newer than its job.

    Parameters
    ----------
    fixed
        Names of the exported job's fixed roles, of which no plan says anything.

    Raises
    ------
    InvalidValueError
        When they are of several jobs, or hold an invalid value.
    """
    by_kind = {kind: [d for d in documents if d["kind"] == kind] for kind in KINDS}
    for kind in (*JOBS, "ScalePlan"):
        _check_one(kind, [str(metadata(d).get("name")) for d in by_kind[kind]])
    content = JobContent()
    for document in documents:
        if holds_job_file(document):
            _filed(document, content)
    for kind in JOBS:
        for job in by_kind[kind]:
            _job(job, content, fixed)
    for plan in by_kind["ScalePlan"]:
        _scaleplan(plan, content)
    if by_kind["Pod"]:
        _pods(by_kind["Pod"], content)
    content.names = sorted({name for name in content.names if name})
    _check_one("job", content.names)
    return content


def holds_job_file(document: Group) -> bool:
    """Whether a document is the ConfigMap with the job file of a job that runs as a whole."""
    return document.get("kind") == "ConfigMap" and JOB_FILE in child(document, "data")


def is_companion(document: Group, content: JobContent) -> bool:
    """Whether a document is an auxiliary object of a job of ours, without content on the job."""
    return (
        content.filed is not None and child(metadata(document), "labels").get(JOB_LABEL) == content.filed.name
    )


def metadata(document: Group) -> Group:
    """Return the head of a resource."""
    return child(document, "metadata")


def annotation(document: Group, key: str) -> str | None:
    """Return an annotation of a resource; None where there is none."""
    text = child(metadata(document), "annotations").get(key)
    return None if text is None else str(text)


def _check_one(what: str, names: Sequence[str]) -> None:
    if len(names) > 1:
        raise InvalidValueError(
            f"an import reads one {what} at a time, got {', '.join(names)}; split the file"
        )


def _filed(document: Group, content: JobContent) -> None:
    """Take over a job file."""
    try:
        job = content.filed = parse_job(str(document["data"][JOB_FILE]), is_dump=True)
    except InvalidValueError as error:
        raise InvalidValueError(
            f"{JOB_FILE} of ConfigMap {metadata(document).get('name')}: {error}"
        ) from error
    content.names.append(job.name)
    content.parts |= dict(zip(FIELDS, plan_fields(job.plan), strict=True))


def plan_fields(plan: ResourcePlan) -> tuple[int, float, int, int, float, int]:
    """Return a plan in the order of `FIELDS`."""
    worker, ps = plan.worker, plan.ps
    return worker.count, worker.cpu, worker.memory_mib, ps.count, ps.cpu, ps.memory_mib


def _job(document: Group, content: JobContent, fixed: frozenset[str]) -> None:
    if content.filed is not None and document["kind"] != ELASTIC_JOB:
        content.differs += _misfits(document, content.filed)
        return
    content.names.append(str(metadata(document).get("name") or ""))
    flags, by_role = [], dict[Role, list[Nodes]]()
    for key, replica, template in READERS[document["kind"]](document):
        if key == MASTER or _FIXED.get(key, str(key).lower()) in fixed:
            continue
        if (role := _role_of(key)) is None:
            content.unknown.append(f"{key}: not a role in this product")
            continue
        if "autoScale" in replica:
            flags.append(replica["autoScale"] is True)
        limits = _limits(role, _main(template, content), content)
        by_role.setdefault(role, []).append((_count(role, replica.get("replicas")), limits))
    for role, nodes in by_role.items():
        _together(role, nodes, "replicas", content)
    content.auto_scale = any(flags) if flags else None


def _together(role: Role, nodes: list[Nodes], what: str, content: JobContent) -> None:
    """Take over a role's nodes: a plan gives all the same, so the most common resources count."""
    usual = Counter[tuple[tuple[str, str], ...]]()
    for count, limits in nodes:
        usual[tuple(sorted((k, str(v)) for k, v in limits.items()))] += count or 1
    if len(usual) > 1:
        content.differs.append(
            f"{role}: its {what} have different resources, the most frequent ones are used"
        )
    counts = [count for count, _ in nodes if count is not None]
    _role(role, sum(counts) if counts else None, dict(usual.most_common(1)[0][0]), content)


def _role_of(key: object) -> Role | None:
    """Return the role of a replica: a chief or a master is the first of the workers."""
    name = str(key).lower()
    return Role.WORKER if name in {"chief", "master"} else Role(name) if name in set(Role) else None


def _scaleplan(document: Group, content: JobContent) -> None:
    spec = child(document, "spec")
    labels = child(metadata(document), "labels")
    content.names.append(str(spec.get("ownerJob") or _labelled(labels, _JOB_LABELS)))
    replicas = child(spec, "replicaResourceSpecs")
    for role, key in _roles(replicas, content):
        replica = child(replicas, key)
        _role(role, _count(role, replica.get("replicas")), child(replica, "resource"), content)


def _pods(documents: Sequence[Group], content: JobContent) -> None:
    """Count pods by role; a plan gives all nodes of a role the same, so the most common resources count."""
    by_role: dict[str, list[Group]] = {}
    for document in documents:
        labels = child(metadata(document), "labels")
        content.names.append(_labelled(labels, _JOB_LABELS))
        by_role.setdefault(_labelled(labels, _ROLE_LABELS), []).append(document)
    for document in by_role.pop("", []):
        content.unknown.append(f"pod {metadata(document).get('name')}: no label with its role")
    for role, key in _roles(by_role, content):
        nodes: list[Nodes] = [(1, _limits(role, _main(pod, content), content)) for pod in by_role[key]]
        _together(role, nodes, "pods", content)


def _roles(replicas: dict[str, Any], content: JobContent) -> Iterator[tuple[Role, str]]:
    for key in replicas:
        if str(key).lower() in set(Role):
            yield Role(str(key).lower()), key
        else:
            content.unknown.append(f"{key}: not a role in this product")


def _count(role: Role, count: object) -> int | None:
    if isinstance(count, bool) or not isinstance(count, int | None):
        raise InvalidValueError(f"{role} replicas must be a whole number, got {named(count)}")
    return count


def _role(role: Role, count: int | None, resources: Group, content: JobContent) -> None:
    """Take over what a document contains of one role."""
    if count is not None and count < 1:
        content.unknown.append(f"{role} replicas: {count} there, a job needs at least 1")
    elif count is not None:
        content.parts[_COUNTS[role]] = count
    if "cpu" in resources:
        content.parts[f"{role}_cpu"] = _cores(role, resources["cpu"], content)
    if "memory" in resources:
        memory_mib = int(amount(resources["memory"], f"{role} memory") // MIB)
        _check.at_least(f"{role} memory in MiB", memory_mib, 64)
        content.parts[f"{role}_memory_mib"] = memory_mib


def _cores(role: Role, value: object, content: JobContent) -> float:
    exact = float(amount(value, f"{role} cpu"))
    _check.above_zero(f"{role} cpu", exact)
    cores = max(round(exact, 2), 0.01)
    if cores != exact:
        content.differs.append(f"{role} cpu: {value} is read as {cores:g}, plans are in hundredths of a core")
    return cores


def _limits(role: Role, main: Group, content: JobContent) -> Group:
    """Return the limits of a container, or without them its requests."""
    resources = child(main, "resources")
    limits, requests = child(resources, "limits"), child(resources, "requests")
    for what in ("cpu", "memory"):
        both = [amount(of[what], f"{role} {what}") for of in (limits, requests) if what in of]
        if len(set(both)) > 1:
            content.differs.append(
                f"{role} {what}: the limit {limits[what]} counts, {requests[what]} is requested"
            )
    return {key: value for key, value in {**requests, **limits}.items() if key in {"cpu", "memory"}}


def _main(pod: Group, content: JobContent) -> Group:
    """Return the container named main, or the first; take over the job in its variables."""
    containers = [group(c, "container") for c in items(child(pod, "spec"), "containers")]
    main: Group = next((c for c in containers if c.get("name") == MAIN), containers[0] if containers else {})
    for variable in items(main, "env"):
        if group(variable, "env").get("name") == JOB_VARIABLE:
            content.jobs.append(str(variable.get("value")))
    return main


def _labelled(labels: Group, keys: Iterable[str]) -> str:
    return next((str(labels[key]) for key in keys if key in labels), "")


def _misfits(document: Group, job: JobSpec) -> list[str]:
    """Return the differences of a resource's pods from what the job in the file beside it needs."""
    wanted = _needs(document["kind"], job)
    return [
        f"{name}: {what} is {got}, the job file beside it needs {wanted[what]}"
        for name, replica, template in READERS[document["kind"]](document)
        for what, got in _resources(replica, template)
        if _differs(got, wanted[what], what)
    ]


def _needs(kind: str, job: JobSpec) -> Group:
    if kind != "RayJob":
        return {"replicas": 1, **need(job.plan, job)}
    n_pod, cpu, memory_mib = size(job.plan)
    return {"replicas": n_pod, "cpu": str(cpu), "memory": str(memory_mib * MIB)}


def _resources(replica: Group, template: Group) -> Iterator[tuple[str, object]]:
    """Yield the resources of a group's pods; Ray's own parameters win over the container's."""
    yield "replicas", replica.get("replicas", 1)
    containers = items(child(template, "spec"), "containers") or [{}]
    limits = child(child(group(containers[0], "container"), "resources"), "limits")
    start = child(replica, "rayStartParams")
    amounts = {
        **limits,
        **{key: start[name] for key, name in (("cpu", "num-cpus"), ("memory", "memory")) if name in start},
    }
    yield from ((key, amounts[key]) for key in ("cpu", "memory") if key in amounts)


def _differs(got: object, wanted: object, what: str) -> bool:
    """Whether it is less than needed, or another number of pods; larger pods do."""
    if what == "replicas":
        return got != wanted
    return amount(got, what) < amount(wanted, what)

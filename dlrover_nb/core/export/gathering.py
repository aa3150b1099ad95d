"""What documents of a cluster say of a job's plan, by themselves: ours, edited ones, foreign ones.

Status and other marks of an API server do not matter; a List, as ``kubectl get -o yaml`` writes it, is
opened.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.nodes import JOB_VARIABLE
from dlrover_nb.core.export.pods import JOB_LABEL, ROLE_LABEL
from dlrover_nb.core.export.quantities import MIB, amount
from dlrover_nb.core.export.scaleplan import JOB_LABELS
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.resources import Role
from dlrover_nb.core.yamltext import load_documents, named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

KINDS = {"ElasticJob": "elasticjob", "ScalePlan": "scaleplan", "Pod": "pods"}
FIELDS = {  # of `Pins`, in the documents' words
    "workers": "worker replicas",
    "worker_cpu": "worker cpu",
    "worker_memory_mib": "worker memory (MiB)",
    "ps": "ps replicas",
    "ps_cpu": "ps cpu",
    "ps_memory_mib": "ps memory (MiB)",
}
_COUNTS = {Role.WORKER: "workers", Role.PS: "ps"}
_LISTS = ("List", *(f"{kind}List" for kind in KINDS))
_ROLE_LABELS = (ROLE_LABEL, "elasticjob.dlrover/replica-type")  # ours, and that of DLRover's own pods
_JOB_LABELS = (JOB_LABEL, *JOB_LABELS)

Group = dict[str, Any]


@dataclass(slots=True)
class Said:
    """What documents say, as it is gathered: `parts` by fields of `Pins`, `jobs` as the nodes are told it."""

    names: list[str] = field(default_factory=list)
    parts: dict[str, Any] = field(default_factory=dict)
    auto_scale: bool | None = None
    jobs: list[str] = field(default_factory=list)
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
            content = _group(document, f"document {number}")
            yield from _opened(_list(content, "items")) if content.get("kind") in _LISTS else (content,)


def gather(documents: Sequence[Group]) -> Said:
    """Return what resources of the known kinds say of one job; a ScalePlan is newer than its job.

    Raises
    ------
    InvalidValueError
        When they are of several jobs, or hold a value that cannot be.
    """
    by_kind = {kind: [d for d in documents if d["kind"] == kind] for kind in KINDS}
    for kind in ("ElasticJob", "ScalePlan"):
        _check_one(kind, [str(metadata(d).get("name")) for d in by_kind[kind]])
    said = Said()
    for job in by_kind["ElasticJob"]:
        _job(job, said)
    for plan in by_kind["ScalePlan"]:
        _scaleplan(plan, said)
    if by_kind["Pod"]:
        _pods(by_kind["Pod"], said)
    said.names = sorted({name for name in said.names if name})
    _check_one("job", said.names)
    return said


def metadata(document: Group) -> Group:
    """Return the head of a resource."""
    return _child(document, "metadata")


def annotation(document: Group, key: str) -> str | None:
    """Return an annotation of a resource; None where there is none."""
    text = _child(metadata(document), "annotations").get(key)
    return None if text is None else str(text)


def _check_one(what: str, names: Sequence[str]) -> None:
    if len(names) > 1:
        raise InvalidValueError(
            f"an import reads one {what} at a time, got {', '.join(names)}; split the file"
        )


def _job(document: Group, said: Said) -> None:
    said.names.append(str(metadata(document).get("name") or ""))
    replicas = _child(_child(document, "spec"), "replicaSpecs")
    flags = []
    for role, key in _roles(replicas, said):
        replica = _child(replicas, key)
        if "autoScale" in replica:
            flags.append(replica["autoScale"] is True)
        main = _main(_child(replica, "template"), said)
        _role(role, replica.get("replicas"), _limits(role, main, said), said)
    said.auto_scale = any(flags) if flags else None


def _scaleplan(document: Group, said: Said) -> None:
    spec = _child(document, "spec")
    labels = _child(metadata(document), "labels")
    said.names.append(str(spec.get("ownerJob") or _labelled(labels, _JOB_LABELS)))
    replicas = _child(spec, "replicaResourceSpecs")
    for role, key in _roles(replicas, said):
        replica = _child(replicas, key)
        _role(role, replica.get("replicas"), _child(replica, "resource"), said)


def _pods(documents: Sequence[Group], said: Said) -> None:
    """Count pods by role; a plan gives all nodes of a role the same, so the most usual resources count."""
    by_role: dict[str, list[Group]] = {}
    for document in documents:
        labels = _child(metadata(document), "labels")
        said.names.append(_labelled(labels, _JOB_LABELS))
        by_role.setdefault(_labelled(labels, _ROLE_LABELS), []).append(document)
    for document in by_role.pop("", []):
        said.unknown.append(f"pod {metadata(document).get('name')}: no label says its role")
    for role, key in _roles(by_role, said):
        limits = [_limits(role, _main(pod, said), said) for pod in by_role[key]]
        usual = Counter(tuple(sorted((k, str(v)) for k, v in limit.items())) for limit in limits)
        if len(usual) > 1:
            said.differs.append(f"{role}: its pods have different resources, the most usual ones count")
        _role(role, len(by_role[key]), dict(usual.most_common(1)[0][0]), said)


def _roles(replicas: dict[str, Any], said: Said) -> Iterator[tuple[Role, str]]:
    for key in replicas:
        if str(key).lower() in set(Role):
            yield Role(str(key).lower()), key
        else:
            said.unknown.append(f"{key}: no role that this product has")


def _role(role: Role, count: object, resources: Group, said: Said) -> None:
    """Note what a document says of one role, as far as it says it."""
    if isinstance(count, bool) or not isinstance(count, int | None):
        raise InvalidValueError(f"{role} replicas must be a whole number, got {named(count)}")
    if count is not None and count < 1:
        said.unknown.append(f"{role} replicas: {count} there, a job needs at least 1")
    elif count is not None:
        said.parts[_COUNTS[role]] = count
    if "cpu" in resources:
        said.parts[f"{role}_cpu"] = _cores(role, resources["cpu"], said)
    if "memory" in resources:
        memory_mib = int(amount(resources["memory"], f"{role} memory") // MIB)
        _check.at_least(f"{role} memory in MiB", memory_mib, 64)
        said.parts[f"{role}_memory_mib"] = memory_mib


def _cores(role: Role, value: object, said: Said) -> float:
    exact = float(amount(value, f"{role} cpu"))
    _check.above_zero(f"{role} cpu", exact)
    cores = max(round(exact, 2), 0.01)
    if cores != exact:
        said.differs.append(f"{role} cpu: {value} is read as {cores:g}, plans are in hundredths of a core")
    return cores


def _limits(role: Role, main: Group, said: Said) -> Group:
    """Return what a container may use: its limits, or where there are none its requests."""
    resources = _child(main, "resources")
    limits, requests = _child(resources, "limits"), _child(resources, "requests")
    for what in ("cpu", "memory"):
        both = [amount(of[what], f"{role} {what}") for of in (limits, requests) if what in of]
        if len(set(both)) > 1:
            said.differs.append(
                f"{role} {what}: the limit {limits[what]} counts, {requests[what]} is requested"
            )
    return {key: value for key, value in {**requests, **limits}.items() if key in {"cpu", "memory"}}


def _main(pod: Group, said: Said) -> Group:
    """Return the container that trains, the one named main or the first, and note the job that it is told."""
    containers = [_group(c, "container") for c in _list(_child(pod, "spec"), "containers")]
    main: Group = next(
        (c for c in containers if c.get("name") == "main"), containers[0] if containers else {}
    )
    for variable in _list(main, "env"):
        if _group(variable, "env").get("name") == JOB_VARIABLE:
            said.jobs.append(str(variable.get("value")))
    return main


def _labelled(labels: Group, keys: Iterable[str]) -> str:
    return next((str(labels[key]) for key in keys if key in labels), "")


def _child(group: Group, key: str) -> Group:
    value = group.get(key)
    return {} if value is None else _group(value, key)


def _group(value: object, where: str) -> Group:
    if not isinstance(value, dict):
        raise InvalidValueError(f"{where} must be a group of keys and values, got {named(value)}")
    return value


def _list(group: Group, key: str) -> list[Any]:
    value = group.get(key)
    if not isinstance(value, list | None):
        raise InvalidValueError(f"{key} must be a list, got {named(value)}")
    return value or []

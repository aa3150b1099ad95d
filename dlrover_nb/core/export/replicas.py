"""Where resources of other systems keep their replicas, and how large those of a whole job should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.alone import need
from dlrover_nb.core.export.quantities import MIB, amount
from dlrover_nb.core.export.rayjob import size
from dlrover_nb.core.yamltext import named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.structs.job import JobSpec

Group = dict[str, Any]
_REPLICAS = {
    "ElasticJob": "replicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
}


def replicas_of(document: Group) -> Iterator[tuple[str, Group, Group]]:
    """Yield name, replica (``replicas``: how many pods) and pod template of each group of a job's pods."""
    spec = child(document, "spec")
    match document["kind"]:
        case "JobSet":
            for each in items(spec, "replicatedJobs"):
                job = child(child(group(each, "replicated job"), "template"), "spec")
                n_pod = _times(each.get("replicas", 1), job.get("parallelism", 1))
                yield str(each.get("name")), {"replicas": n_pod}, child(job, "template")
        case "RayJob":
            for each in items(child(spec, "rayClusterSpec"), "workerGroupSpecs"):
                replica = group(each, "worker group")
                yield str(replica.get("groupName")), replica, child(replica, "template")
        case kind:
            replicas = child(spec, _REPLICAS[kind])
            for name in replicas:
                replica = child(replicas, name)
                yield str(name), replica, child(replica, "template")


def _times(n_job: object, n_pod: object) -> object:
    """Return the pods of all jobs; what is no number is left to be told as it stands."""
    return n_job * n_pod if isinstance(n_job, int) and isinstance(n_pod, int) else n_pod


def misfits(document: Group, job: JobSpec) -> list[str]:
    """Return where the pods of a resource are not what the job in the file beside it needs."""
    wanted = _wanted(document["kind"], job)
    return [
        f"{name}: {what} is {got}, the job file beside it needs {wanted[what]}"
        for name, replica, template in replicas_of(document)
        for what, got in _found(replica, template)
        if _differs(got, wanted[what], what)
    ]


def _wanted(kind: str, job: JobSpec) -> Group:
    if kind != "RayJob":
        return {"replicas": 1, **need(job.plan, job)}
    n_pod, cpu, memory_mib = size(job.plan)
    return {"replicas": n_pod, "cpu": str(cpu), "memory": str(memory_mib * MIB)}


def _found(replica: Group, template: Group) -> Iterator[tuple[str, object]]:
    """Yield what a group says of its pods; Ray's own word counts before the container's."""
    yield "replicas", replica.get("replicas", 1)
    containers = items(child(template, "spec"), "containers") or [{}]
    limits = child(child(group(containers[0], "container"), "resources"), "limits")
    start = child(replica, "rayStartParams")
    said = {
        **limits,
        **{key: start[name] for key, name in (("cpu", "num-cpus"), ("memory", "memory")) if name in start},
    }
    yield from ((key, said[key]) for key in ("cpu", "memory") if key in said)


def _differs(got: object, wanted: object, what: str) -> bool:
    return amount(got, what) != amount(wanted, what)


def child(parent: Group, key: str) -> Group:
    """Return a group in a group; empty where there is none."""
    value = parent.get(key)
    return {} if value is None else group(value, key)


def group(value: object, where: str) -> Group:
    """Return a value that has to be a group; `where` begins the error."""
    if not isinstance(value, dict):
        raise InvalidValueError(f"{where} must be a group of keys and values, got {named(value)}")
    return value


def items(parent: Group, key: str) -> list[Any]:
    """Return a list in a group; empty where there is none."""
    value = parent.get(key)
    if not isinstance(value, list | None):
        raise InvalidValueError(f"{key} must be a list, got {named(value)}")
    return value or []

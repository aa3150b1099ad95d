"""Compare the pods of a resource with what the job in the file beside it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.export.alone import need
from dlrover_nb.core.export.documents.rayjob import size
from dlrover_nb.core.export.exporters import READERS
from dlrover_nb.core.export.groups import child, group, items
from dlrover_nb.core.export.quantities import MIB, amount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.export.groups import Group
    from dlrover_nb.core.structs.job.job import JobSpec


def misfits(document: Group, job: JobSpec) -> list[str]:
    """Return the differences of a resource's pods from what the job in the file beside it needs."""
    wanted = _wanted(document["kind"], job)
    return [
        f"{name}: {what} is {got}, the job file beside it needs {wanted[what]}"
        for name, replica, template in READERS[document["kind"]](document)
        for what, got in _found(replica, template)
        if _differs(got, wanted[what], what)
    ]


def _wanted(kind: str, job: JobSpec) -> Group:
    if kind != "RayJob":
        return {"replicas": 1, **need(job.plan, job)}
    n_pod, cpu, memory_mib = size(job.plan)
    return {"replicas": n_pod, "cpu": str(cpu), "memory": str(memory_mib * MIB)}


def _found(replica: Group, template: Group) -> Iterator[tuple[str, object]]:
    """Yield the resources of a group's pods; Ray's own parameters win over the container's."""
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
    """Whether it is less than needed, or another number of pods; larger pods do."""
    if what == "replicas":
        return got != wanted
    return amount(got, what) < amount(wanted, what)

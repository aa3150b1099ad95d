"""RayJobs for KubeRay: refused, and those that release 0.1 wrote are still read.

KubeRay hands a job to its Ray through Ray's dashboard and asks the dashboard how it ended. The dashboard
comes with ``ray[default]``, which this package's extra `ray` leaves out (each start of a Ray would take
longer), so that on an image of ours a RayJob waits for ever. A file that needs a certain foreign image,
and that no test here can run, is not written. An external job's roles run images of their own, which
Ray cannot start.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Never

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.groups import child, group, items
from dlrover_nb.core.export.nodes import Options, fixed_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.export.groups import Group, Replicas
    from dlrover_nb.core.export.provenance import Provenance
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


def rayjob(job: JobSpec, _plan: ResourcePlan, _provenance: Provenance, options: Options) -> Never:
    """Refuse.

    Raises
    ------
    InvalidValueError
        Always, with what to export instead.
    """
    fixed_plan("a RayJob", options)
    if job.foreign is not None:
        raise InvalidValueError(
            f"job {job.name} runs images of its own, which Ray cannot start; export a tfjob, pytorchjob, "
            "jobset or pods"
        )
    raise InvalidValueError(
        f"a RayJob cannot run job {job.name}: KubeRay submits through Ray's dashboard, which is not in the "
        "images of this package; export pods, which need no operator"
    )


def replicas(document: Group) -> Iterator[Replicas]:
    """Yield the groups of a RayJob's pods."""
    cluster = child(child(document, "spec"), "rayClusterSpec")
    for each in items(cluster, "workerGroupSpecs"):
        replica = group(each, "worker group")
        yield str(replica.get("groupName")), replica, child(replica, "template")


def size(plan: ResourcePlan) -> tuple[int, int, int]:
    """Return the pods that a plan needs, and the cores and MiB that each offers; Ray counts whole cores."""
    roles = (plan.worker, plan.ps)
    return (
        sum(role.count for role in roles),
        max(math.ceil(role.cpu) for role in roles),
        max(role.memory_mib for role in roles),
    )

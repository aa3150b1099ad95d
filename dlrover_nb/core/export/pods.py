"""A job with a plan as plain Kubernetes pods, for clusters without an operator.

One Pod per node, which nobody restarts: the job's master replaces nodes, not the kubelet. Labels tell the job
and the role; an owner reference needs the id that a cluster gives, so who owns the job stands in an
annotation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.nodes import Options, container, head
from dlrover_nb.core.export.provenance import PREFIX, Context, Provenance, context, notes_of
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.resources import ResourcePlan

JOB_LABEL, ROLE_LABEL = f"{PREFIX}job", f"{PREFIX}role"


def pods(
    job: JobSpec, plan: ResourcePlan, provenance: Provenance, options: Options
) -> tuple[dict[str, object], ...]:
    """Return the pods of `job` on `plan`, parameter servers first.

    Raises
    ------
    InvalidValueError
        When something should scale them: nothing does.
    """
    if options.auto_scale:
        raise InvalidValueError("plain pods are scaled by nobody; export an elasticjob to let DLRover plan")
    told = context("pods", job, plan, provenance, auto_scale=False)
    notes = notes_of(told)
    return tuple(
        _pod(told, role, index, options, notes)
        for role in (Role.PS, Role.WORKER)
        for index in range(plan.role(role).count)
    )


def _pod(told: Context, role: Role, index: int, options: Options, notes: dict[str, str]) -> dict[str, object]:
    node = f"{role}-{index}"
    labels = {
        "app.kubernetes.io/part-of": told.job.name,
        "app.kubernetes.io/managed-by": "dlrover-nb",
        JOB_LABEL: told.job.name,
        ROLE_LABEL: str(role),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**head(f"{told.job.name}-{node}", options), "labels": labels, "annotations": notes},
        "spec": {"restartPolicy": "Never", "containers": [container(told, role, options, node=node)]},
    }

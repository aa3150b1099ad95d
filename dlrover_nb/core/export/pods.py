"""A job with a plan as plain Kubernetes pods, for clusters without an operator.

One Pod per node, which nobody restarts: the job's master replaces nodes, not the kubelet. Labels tell the job
and the role; an owner reference needs the id that a cluster gives, so who owns the job stands in an
annotation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.export.nodes import (
    ROLE_LABEL,
    Options,
    container,
    fixed_plan,
    head,
    labels_of,
)
from dlrover_nb.core.export.podspec import pod_spec
from dlrover_nb.core.export.provenance import Context, Provenance, context, notes_of
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.resources import ResourcePlan


def pods(
    job: JobSpec, plan: ResourcePlan, provenance: Provenance, options: Options
) -> tuple[dict[str, object], ...]:
    """Return the pods of `job` on `plan`, parameter servers first.

    Raises
    ------
    InvalidValueError
        When something should scale them: nothing does.
    """
    fixed_plan("a set of plain pods", options)
    told = context("pods", job, plan, provenance, auto_scale=False)
    notes = notes_of(told)
    return tuple(
        _pod(told, role, index, options, notes)
        for role in (Role.PS, Role.WORKER)
        for index in range(plan.role(role).count)
    )


def _pod(told: Context, role: Role, index: int, options: Options, notes: dict[str, str]) -> dict[str, object]:
    node = f"{role}-{index}"
    labels = {**labels_of(told.job), ROLE_LABEL: str(role)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**head(f"{told.job.name}-{node}", options), "labels": labels, "annotations": notes},
        "spec": pod_spec(told.job, container(told, role, options, node=node)),
    }

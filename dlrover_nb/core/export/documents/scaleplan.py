"""A plan as DLRover's ScalePlan: it moves a job that runs under its operator to this plan.

DLRover's master selects ScalePlans by two labels: the job (today ``elasticjob.dlrover/name``, before
``elasticjob-name``; both are written) and ``scale-type: manual``. Older documentation has `manualScaling` in
the spec; no schema in circulation has it, so the API server would refuse it. The master acts on a ScalePlan
only when it is created, so each has a unique name, from the decision or else the plan.

`replicaResourceSpecs` sets the number of nodes of each role, and the resources of new ones. Nodes that stay
keep their resources unless `migratePods` names them: where the plan changes a node's resources, those are
listed under DLRover's names of a job's pods (``JOB-edljob-ps-0``). A pod that was replaced has another
number; check with ``kubectl get pods`` before applying. DLRover reads cores in tenths; an annotation reports
where that changes the plan.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.export.nodes import Options, fixed_plan, head
from dlrover_nb.core.export.provenance import PREFIX, Provenance, context_of, notes_of
from dlrover_nb.core.export.quantities import resources_of
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RoleChange, diff

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job.job import JobSpec

API_VERSION = "elastic.iml.github.io/v1alpha1"
JOB_LABELS = ("elasticjob.dlrover/name", "elasticjob-name")  # of DLRover today, and before


def scaleplan(
    job: JobSpec, plan: ResourcePlan, provenance: Provenance, options: Options
) -> tuple[dict[str, object], ...]:
    """Return the ScalePlan that moves the running job to `plan`.

    Raises
    ------
    InvalidValueError
        When auto-scaling is set: that is an option of a job, not of a plan.
    """
    fixed_plan("a ScalePlan", options)
    context = context_of(
        "scaleplan", job, plan, provenance, auto_scale=False, with_secrets=options.with_secrets
    )
    notes = {f"{PREFIX}rounding": _rounding(plan)} if _rounding(plan) else {}
    spec: dict[str, object] = {
        "ownerJob": job.name,
        "replicaResourceSpecs": {
            str(role): {"replicas": plan.role(role).count, "resource": resources_of(plan.role(role))}
            for role in Role
        },
    }
    if pods := _migrated(job.name, provenance.before, plan):
        spec["migratePods"] = pods
    labels = {**dict.fromkeys(JOB_LABELS, job.name), "scale-type": "manual"}
    metadata = {**head(_name(job.name, plan, provenance), options), "labels": labels}
    document: dict[str, object] = {
        "apiVersion": API_VERSION,
        "kind": "ScalePlan",
        "metadata": {**metadata, "annotations": notes | notes_of(context)},
        "spec": spec,
    }
    return (document,)


def _name(job: str, plan: ResourcePlan, provenance: Provenance) -> str:
    decision = provenance.decision
    if decision is not None and decision.id:
        return f"{job}-{decision.id}"
    return f"{job}-{hashlib.sha256(str(plan).encode()).hexdigest()[:8]}"


def _migrated(job: str, before: ResourcePlan | None, plan: ResourcePlan) -> list[dict[str, object]]:
    """Return the pods that stay with other resources."""
    changes = () if before is None else diff(before, plan).changes
    return [
        {"name": f"{job}-edljob-{change.role}-{i}", "resource": resources_of(change.after)}
        for change in changes
        if change.replaces_nodes
        for i in range(_n_stay(change))
    ]


def _n_stay(change: RoleChange) -> int:
    return min(change.before.count, change.after.count)


def _rounding(plan: ResourcePlan) -> str:
    odd = (
        (role, plan.role(role).cpu) for role in Role if round(plan.role(role).cpu, 1) != plan.role(role).cpu
    )
    changes = and_list(f"{cpu:g} cores of a {role} become {round(cpu, 1):g}" for role, cpu in odd)
    return f"DLRover reads cores in tenths: {changes}" if changes else ""

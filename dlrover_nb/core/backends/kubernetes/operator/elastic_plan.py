"""The plan in an ElasticJob of a job of our own, or in a ScalePlan of it: pure, on documents.

Both say replicas and resources by role; what one of them leaves out stays as it is. The ElasticJob keeps the
plan that it was applied or edited with, while decisions change the job's. So an edit is what differs from the
plan that was taken from it last, which an annotation keeps, and only that is applied to the present plan.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.operator.elastic_desired import ASKED_NOTE
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.export.gathering import gather
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.resources import ResourcePlan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.plan.resources import RolePlan

_PODS = ("createPods", "removePods")  # of a ScalePlan: single pods, which are the master's
_FINAL = ("Succeeded", "Failed")


def plan_in(document: Doc, plan: ResourcePlan) -> ResourcePlan:
    """Return `plan` with the parts that a document gives.

    Raises
    ------
    InvalidValueError
        When a part is no count, or no quantity, or a ScalePlan names single pods to make or remove.
    """
    if named := [key for key in _PODS if document["spec"].get(key)]:
        raise InvalidValueError(
            f"{named[0]} names single pods, which the job's master makes; set replicaResourceSpecs"
        )
    return Pins(**gather([document]).parts).applied(plan)


def noted_plan(document: Doc) -> ResourcePlan | None:
    """Return the plan that was taken from a document; None: none yet."""
    note = (document["metadata"].get("annotations") or {}).get(ASKED_NOTE)
    return None if note is None else from_json(note, ResourcePlan)


def with_edits(plan: ResourcePlan, before: ResourcePlan, after: ResourcePlan) -> ResourcePlan:
    """Return `plan` with what differs between two states of a document."""
    return ResourcePlan(
        worker=_edited(plan.worker, before.worker, after.worker), ps=_edited(plan.ps, before.ps, after.ps)
    )


def _edited(plan: RolePlan, before: RolePlan, after: RolePlan) -> RolePlan:
    names = [each.name for each in fields(after)]
    new = {name: getattr(after, name) for name in names if getattr(after, name) != getattr(before, name)}
    return replace(plan, **new)


def open_scale_plans(scales: Iterable[Doc], job: Doc) -> list[Doc]:
    """Return the ScalePlans that name a job and are not done, the oldest first.

    One that is older than the job was meant for an earlier one of its name.
    """
    head = job["metadata"]
    open_ones = [
        scale
        for scale in scales
        if scale["spec"].get("ownerJob") == head["name"]
        and (scale.get("status") or {}).get("phase") not in _FINAL
        and scale["metadata"]["creationTimestamp"] >= head["creationTimestamp"]
    ]
    return sorted(
        open_ones, key=lambda scale: [scale["metadata"][key] for key in ("creationTimestamp", "name")]
    )

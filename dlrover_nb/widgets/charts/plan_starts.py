"""Where the plans of a job began, as marks of each chart over time: a decision changed what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.widgets.svg.marks import Rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, PlanMarker


def plan_starts(snapshot: JobSnapshot) -> tuple[Rule, ...]:
    """Return an upright rule for each plan that ran; times in seconds since the job's start."""
    decided = _decided(snapshot)
    return tuple(
        Rule(max(0.0, marker.at_s - snapshot.started_at_s), _label(marker, decided), dash="2 3")
        for marker in snapshot.markers
    )


def _decided(snapshot: JobSnapshot) -> dict[ResourcePlan, list[tuple[float, str]]]:
    """Return when each plan was decided, and by which decision; oldest first."""
    proposed = {each.id: each.candidate.plan for each in snapshot.proposals}
    decided: dict[ResourcePlan, list[tuple[float, str]]] = {}
    for each in snapshot.decisions:
        plan = each.plan or proposed.get(each.proposal or "")
        if plan is not None and each.verdict is not Verdict.REJECT:
            decided.setdefault(plan, []).append((each.at_s, each.id))
    return decided


def _label(marker: PlanMarker, decided: Mapping[ResourcePlan, Sequence[tuple[float, str]]]) -> str:
    """Return the plan, after the decision that set it, where there was one: ``d3: 2w x 0.5 + 1p x 0.25``."""
    ids = [name for at_s, name in decided.get(marker.plan, ()) if at_s <= marker.at_s]
    return f"{ids[-1]}: {marker.plan.short}" if ids else marker.plan.short

"""The result of `Job.plan` and the verb `plan`: goals, and the plan that meets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.structs.decisions.goals import VALUES, answer, read_goals
from dlrover_nb.widgets.jobs import goals
from dlrover_nb.widgets.rows.tables import Columns, Tables, fields, one

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.goals import Goal, GoalAnswer
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.widgets.blocks import View

_MET: Columns[GoalsView] = Columns(
    fields("job=snapshot.spec.name is_met is_sure=answer.is_sure plan=answer.plan.plan.short")
)
_GOALS: Columns[tuple[Goal, float | None, float | None]] = Columns(
    fields("goal=0.text kind=0.kind limit=0.limit value=1 nearest=2")
)


@dataclass(frozen=True, slots=True, repr=False)
class GoalsView(Shown):
    """Goals for a plan of a job, and what can be done about them."""

    snapshot: JobSnapshot
    answer: GoalAnswer

    @property
    def is_met(self) -> bool:
        """Whether a plan meets all goals."""
        return self.answer.plan is not None

    def view(self) -> View:
        """Return the content."""
        return goals.goals_view(self.answer, self.snapshot)

    def tables(self) -> Tables:
        """Return it as data."""
        plan, alone = self.answer.plan, dict(self.answer.alone)
        nearest = {each.goal: each.nearest for each in self.answer.bindings}
        rows = (
            (goal, None if plan is None else VALUES[goal.kind](plan), nearest.get(goal, alone.get(goal)))
            for goal in self.answer.goals
        )
        return Tables(one(_MET, self), {"goals": _GOALS.table(rows)}, "goals")


def goals_view(text: str, snapshot: JobSnapshot) -> GoalsView:
    """Return what can be done about the goals of a text; raises as `Job.plan` does."""
    goals, name = read_goals(text, snapshot.at_s), snapshot.spec.name
    if snapshot.front is None:
        raise NotFoundError(
            f"no plan of job {name} is predicted yet; wait until it has been measured, or look at `status "
            f"{name}`"
        )
    return GoalsView(snapshot, answer(goals, (snapshot.front.current, *snapshot.front.candidates)))

"""The result of `Job.plan` and the verb `plan`: goals, and the plan that meets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import Shown
from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.structs.decisions.goals import answer, read_goals
from dlrover_nb.widgets.jobs import goals
from dlrover_nb.widgets.rows import results

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.goals import GoalAnswer
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.widgets.blocks import View
    from dlrover_nb.widgets.rows.tables import Tables


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
        return results.goals(self.answer, self.snapshot)


def goals_view(text: str, snapshot: JobSnapshot) -> GoalsView:
    """Return what can be done about the goals of a text; raises as `Job.plan` does."""
    goals, name = read_goals(text, snapshot.at_s), snapshot.spec.name
    if snapshot.front is None:
        raise NotFoundError(
            f"no plan of job {name} is predicted yet; wait until it was measured, or look at `status {name}`"
        )
    return GoalsView(snapshot, answer(goals, (snapshot.front.current, *snapshot.front.candidates)))

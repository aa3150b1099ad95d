"""The total budget of a job: what its rest buys, a review when most is spent, and the end at its limit.

At `NEAR_SHARE` of the limit the story says what the rest buys, and a plan is proposed that ends within it, if
the model knows one. That is the review of any new fit (`planner.advising.advice`), which is not waited for
here. At the limit the job is stopped once, and that order stands: a limit that is raised later is for the
next run, as the nodes are saving by then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.planner.predictions.budget_forecast import present_budget
from dlrover_nb.core.structs.plan.budget import NEAR_SHARE, BudgetOutlook, spent_why
from dlrover_nb.core.structs.views.events import EndJob

if TYPE_CHECKING:
    from dlrover_nb.core.controller.analyst import Analyst
    from dlrover_nb.core.controller.measured.measurement import Measurement
    from dlrover_nb.core.controller.plans.advisor import Advised, Advisor
    from dlrover_nb.core.controller.plans.rollouts import Rollouts
    from dlrover_nb.core.controller.state.job_state import JobState
    from dlrover_nb.core.controller.state.story import Story
    from dlrover_nb.core.planner.analysis import Analysis
    from dlrover_nb.core.structs.views.events import CostChanged


class BudgetWatch:
    """Watches what one job spends.

    Parameters
    ----------
    state, story
        The job with its spending, and what is told of it.
    rollouts, measured, analyst, advisor
        Its plans, its progress, its speed, and what to propose.

    Attributes
    ----------
    ending
        Why the job was ordered to stop; empty: it was not.
    """

    def __init__(
        self,
        *,
        state: JobState,
        story: Story,
        rollouts: Rollouts,
        measured: Measurement,
        analyst: Analyst,
        advisor: Advisor,
    ) -> None:
        self._state, self._story, self._rollouts = state, story, rollouts
        self._measured, self._analyst, self._advisor = measured, analyst, advisor
        self._is_told = False  # that most of it is spent
        self.ending = ""

    def pass_time(self, at_s: float) -> None:
        """Count the money until now; an ended job spends none."""
        if not self._state.phase.is_final:
            self._state.spending.pass_time(at_s)

    def cost_changed(self, event: CostChanged) -> None:
        """Count with another price from now on."""
        if not self._state.phase.is_final:
            self._state.spending.change(event.at_s, event.per_hour)

    def review(self, at_s: float) -> Advised | tuple[EndJob]:
        """Stop the job whose budget is spent; advise once where most of it is."""
        limit, spent = self._state.spec.budget_total, self._state.spending.spent
        is_news = limit is not None and spent >= limit * (NEAR_SHARE if not self._is_told else 1.0)
        if not is_news or self.ending or self._state.phase.is_final:
            return ()
        outlook = self.outlook
        assert outlook is not None
        if not outlook.left:
            self.ending = spent_why(outlook)
            self._story.add(at_s, f"the budget is spent: {self.ending}")
            return (EndJob(self.ending),)
        self._is_told = True
        self._story.add(at_s, f"the budget: {outlook.words}")
        return self._advise(at_s)

    def limit_changed(self, at_s: float) -> Advised:
        """Plan with another limit; what was told of the one before is told again of this one."""
        self._is_told = False
        return self._advise(at_s)

    def _advise(self, at_s: float) -> Advised:
        self._analyst.observe(self._rollouts.target, at_s)
        return self._advisor.reconsider(at_s)

    @property
    def outlook(self) -> BudgetOutlook | None:
        """What is spent, and what the rest buys by the last published analysis; None without a limit."""
        limit, spending = self._state.spec.budget_total, self._state.spending
        if limit is None:
            return None
        outlook = BudgetOutlook(
            self._state.name, limit, spending.spent, self._state.spec.prices.currency, spending.per_hour
        )
        shown = self._analyst.published
        is_of_plan = shown is not None and shown.situation.plan == self._rollouts.target
        if shown is None or not is_of_plan or self._rollouts.current is not None or self._state.is_over:
            return outlook
        return self._with_forecast(outlook, shown)

    def _with_forecast(self, outlook: BudgetOutlook, shown: Analysis) -> BudgetOutlook:
        situation, now, n_left = shown.situation, shown.current, self._measured.n_left
        speed = now.prediction.samples_per_s
        if self._state.job.is_endless:
            return replace(outlook, samples_per_s=speed)
        present = present_budget(situation, now, money_left=outlook.left, n_sample_left=n_left)
        forecast = shown.budget
        is_enough = present is not None and present.enough >= situation.deadline_chance
        return replace(
            outlook,
            samples_per_s=speed,
            n_sample_left=n_left,
            wanted=situation.deadline_chance,
            now=present,
            best=None if forecast is None or is_enough else forecast.best,
            most=None if forecast is None or is_enough else forecast.most,
        )

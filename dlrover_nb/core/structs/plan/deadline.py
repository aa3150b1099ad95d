"""What can be promised of a job's deadline, by the newest fit."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.basics.percents import chance_words
from dlrover_nb.core.structs.plan.resources import ResourcePlan

MINUTE_S, HOUR_S = 60.0, 3600.0
TWO_DIGITS_S = 10.0  # spans below it are given with two digits


@dataclass(frozen=True, slots=True)
class DeadlineOutlook:
    """Whether a job finishes by its deadline.

    Parameters
    ----------
    left_s
        Seconds until the deadline; negative: it has passed.
    wanted
        The probability that planning aims at.
    in_time, finish_s
        Of the plan that runs: the probability to finish by the deadline, and seconds to the predicted end.
    best_plan, best_in_time, best_finish_s
        The cheapest plan that reaches the wanted probability, or the most probable one, and the same of it;
        within the budget where there is one.
    earliest_s
        The seconds to the earliest predicted end of all plans.
    least_budget, least_budget_in_time
        Where the budget forbids all plans that are as good: money per hour of the cheapest one that reaches
        the wanted probability, or of the most probable one, and its probability; else None.
    """

    left_s: float
    wanted: float
    in_time: float
    finish_s: float
    best_plan: ResourcePlan
    best_in_time: float
    best_finish_s: float
    earliest_s: float
    least_budget: float | None = None
    least_budget_in_time: float | None = None

    @property
    def is_feasible(self) -> bool:
        """Whether some plan, within the budget if there is one, reaches the wanted probability."""
        return self.is_met or (self.best_in_time >= self.wanted and self.least_budget is None)

    @property
    def is_met(self) -> bool:
        """Whether the plan that runs reaches the wanted probability."""
        return self.in_time >= self.wanted

    @property
    def margin_s(self) -> float:
        """Seconds from the predicted end of the present plan to the deadline; negative: late."""
        return self.left_s - self.finish_s

    @property
    def words(self) -> str:
        """The outlook in one line; it names another plan only where the present one is not enough."""
        when = f"in {span_words(self.left_s)}" if self.left_s > 0 else f"{span_words(-self.left_s)} ago"
        chance = f"the present plan has a {chance_words(self.in_time)} chance"
        now = f"{when}; {chance} to meet it and should end {margin_words(self.margin_s)}"
        if self.is_met:
            return now
        if self.least_budget is not None:
            return f"{now}; {self._budget_words(self.least_budget)}"
        best = f"{self.best_plan.short} has {chance_words(self.best_in_time)}"
        if self.is_feasible:
            return f"{now}; {best}"
        return (
            f"{now}; no plan has a {chance_words(self.wanted)} chance: {best}, "
            f"and the earliest end is in {span_words(self.earliest_s)}"
        )

    def _budget_words(self, least: float) -> str:
        chance, wanted = self.least_budget_in_time, chance_words(self.wanted)
        if chance is not None and chance < self.wanted:
            return (
                f"no plan has a {wanted} chance: the best within the budget has "
                f"{chance_words(self.best_in_time)}, one for {least:.4g} an hour has {chance_words(chance)}"
            )
        odds = "" if chance is None else f" ({chance_words(chance)})"
        return f"no plan within the budget has a {wanted} chance: you need {least:.4g} an hour{odds}"


def margin_words(margin_s: float) -> str:
    """Say how far the predicted end is from the deadline."""
    return f"{span_words(abs(margin_s))} {'early' if margin_s >= 0 else 'late'}"


def span_words(seconds: float) -> str:
    """Say a time as people do: ``0.5 s``, ``90 s``, ``12 min``, ``2.5 h``."""
    if seconds < TWO_DIGITS_S:
        return f"{seconds:.2g} s"
    if seconds < 2 * MINUTE_S:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE_S:.0f} min" if seconds < 2 * HOUR_S else f"{seconds / HOUR_S:,.1f} h"

"""The total budget of a job: what is spent, and what the rest buys.

Money is counted while nodes hold cores and memory, at the job's own prices and in their currency. An amount
is never an invoice: a cloud may bill other things, and starts of nodes earlier than they come up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import chance_words, percent
from dlrover_nb.core.structs.plan.deadline import span_words
from dlrover_nb.core.structs.plan.resources import ResourcePlan, total_need

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.plan.prices import PriceTable
    from dlrover_nb.core.structs.plan.resources import Need

HOUR_S = 3600.0
MOST_SAMPLES = 1e15  # that any money buys, at prices next to nothing
NEAR_SHARE = 0.8  # of the limit: from here on a job says what its rest buys
STOPPED_BY = "budget_total"  # who ends a job whose budget is spent


@dataclass(frozen=True, slots=True)
class PlanBudget:
    """What the rest of a budget does for one plan.

    Parameters
    ----------
    plan, per_hour
        The plan, and what it costs with the fixed nodes of the job.
    end_cost
        Money until the predicted end of the job.
    enough
        The probability that the rest is enough for that.
    share
        Of the samples left, those that the rest buys, by the predicted speed: 1 at most.
    """

    plan: ResourcePlan
    per_hour: float
    end_cost: float
    enough: float
    share: float


@dataclass(frozen=True, slots=True)
class BudgetOutlook:
    """What is spent of a job's total budget, and what the rest buys.

    Parameters
    ----------
    job
        Its name, for the commands that the words name.
    limit, spent, currency
        The budget, what was spent of it, and their unit. The runs whose rows this one goes on with count.
    per_hour
        What the nodes that are up cost now; 0: none is.
    samples_per_s
        Of the plan that runs, as predicted; None: not known.
    n_sample_left
        Samples still to train; None: the job has no known end.
    wanted
        The probability to end within the budget that planning aims at.
    now
        What the rest does for the plan that runs; None: not known, or the job has no known end.
    best
        The cheapest plan that ends within the rest, where the present one does not; None: none is known.
    most
        Where no plan ends within the rest, the one that trains the most with it, if that is another one.
    """

    job: str
    limit: float
    spent: float
    currency: str
    per_hour: float
    samples_per_s: float | None = None
    n_sample_left: int | None = None
    wanted: float = 0.9
    now: PlanBudget | None = None
    best: PlanBudget | None = None
    most: PlanBudget | None = None

    @property
    def left(self) -> float:
        """The money that is left; 0 where more was spent."""
        return max(self.limit - self.spent, 0.0)

    @property
    def share(self) -> float:
        """The share of the budget that is spent."""
        return self.spent / self.limit

    @property
    def is_near(self) -> bool:
        """Whether so much is spent that the job says what to do about the rest."""
        return self.share >= NEAR_SHARE

    @property
    def is_enough(self) -> bool:
        """Whether the rest is enough for the plan that runs, with the wanted probability."""
        return self.now is not None and self.now.enough >= self.wanted

    @property
    def left_s(self) -> float | None:
        """How long the rest lasts with the nodes that are up; None where none is, or all are free."""
        return self.left / self.per_hour * HOUR_S if self.per_hour > 0 else None

    @property
    def n_sample_bought(self) -> int | None:
        """The samples that the rest buys at the present plan's speed, at most all; None: not known."""
        if self.left_s is None or self.samples_per_s is None:
            return None
        n_bought = int(min(self.left_s * self.samples_per_s, MOST_SAMPLES))
        return n_bought if self.n_sample_left is None else min(n_bought, self.n_sample_left)

    @property
    def spent_words(self) -> str:
        """The money alone: ``8.1 of 10 USD spent (81 %)``."""
        share = percent(self.share)
        return f"{self.spent:,.4g} of {self.limit:,.6g} {self.currency} spent ({share})"

    @property
    def words(self) -> str:
        """The outlook in one line: what is spent, what the rest buys, and what to do where it matters."""
        parts = (self.spent_words, self._rest_words(), self._choice_words())
        return "; ".join(part for part in parts if part)

    def _rest_words(self) -> str:
        if self.now is not None and self.is_enough:
            return f"the rest of the job costs about {self.now.end_cost:,.4g} {_enough(self.now)}"
        if self.left_s is None:
            return ""
        n_bought, n_left = self.n_sample_bought, self.n_sample_left
        lasts = f"the money lasts {span_words(self.left_s)}"
        if n_bought is None:
            return lasts
        if self.now is None or not n_left:
            return f"{lasts}, for about {n_bought:,} rows"
        share = percent(self.now.share)
        return (
            f"{lasts}, for about {n_bought:,} rows ({share} of the rest); all of them would cost "
            f"{self.now.end_cost:,.4g} {_enough(self.now)}"
        )

    def _choice_words(self) -> str:
        """Name the choices; nothing while the rest is enough, or there is time."""
        if self.is_enough or not (self.is_near or self.best is not None):
            return ""
        if self.best is not None:
            return f"{self.best.plan.short} would finish for {self.best.end_cost:,.4g} {_enough(self.best)}"
        raised = f"`%dlrover pin {self.job} --budget {self._needed_words()}` raises the limit"
        stops = f"`%dlrover end {self.job} --now` keeps what is trained"
        smaller = ""
        if self.most is not None:
            share = percent(self.most.share)
            smaller = f", or {self.most.plan.short} trains {share} of the rest"
        none = "" if self.now is None else "no plan can finish: "
        return f"{none}{raised}, {stops}{smaller}"

    def _needed_words(self) -> str:
        """Return a limit that lets the job end, with a tenth to spare; a half more where no end is known."""
        more = 0.5 * self.limit if self.now is None else 1.1 * self.now.end_cost - self.left
        limit = self.limit + max(more, 0.1 * self.limit)
        step = 10.0 ** (math.floor(math.log10(limit)) - 2)  # of its third digit, which is rounded up
        return f"{math.ceil(limit / step) * step:.12g}"


def _enough(plan: PlanBudget) -> str:
    return f"({chance_words(plan.enough)} chance that the money is enough)"


def per_hour(prices: PriceTable, nodes: Iterable[Need]) -> float | None:
    """Return what nodes cost in an hour; None where a price is unknown."""
    cost = prices.per_hour(*total_need(nodes))
    return None if cost is None else round(cost, 9)


def spent_why(outlook: BudgetOutlook) -> str:
    """Say why a job ends whose budget is spent, and how it goes on."""
    return (
        f"{outlook.spent:,.4g} {outlook.currency} are spent, the limit was {outlook.limit:,.6g}; to go on "
        f"where it stopped, submit it again with --from {outlook.job} --from-rows and a higher budget_total"
    )

"""What running jobs hold and cost per person, and what decisions changed in cost. Pure.

Amounts are summed by currency, as a sum over currencies is none.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions.commands import Stage
from dlrover_nb.widgets import units
from dlrover_nb.widgets.rows.job_totals import cost_rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.structs.decisions.commands import ChainedRow
    from dlrover_nb.core.structs.views.summary import JobSummary

NOBODY = "nobody named"


@dataclass(frozen=True, slots=True)
class PersonCost:
    """What the running jobs of one owner cost per hour, and hold."""

    owner: str
    n_job: int
    cpu: float
    memory_mib: int
    cost: str

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        return (self.owner, str(self.n_job), f"{self.cpu:,.4g}", units.memory(self.memory_mib), self.cost)


def per_person(jobs: Iterable[JobSummary]) -> tuple[PersonCost, ...]:
    """Return what the running jobs of each owner hold and cost, by owner."""
    owned: dict[str, list[JobSummary]] = defaultdict(list)
    for job in jobs:
        if not job.phase.is_final:
            owned[job.owner or NOBODY].append(job)
    return tuple(
        PersonCost(
            owner,
            len(running),
            sum(job.cpu for job in running),
            sum(job.memory_mib for job in running),
            cost_rate(running),
        )
        for owner, running in sorted(owned.items())
    )


@dataclass(frozen=True, slots=True)
class DecisionCost:
    """What one decision that was carried out has changed in cost per hour; None: a price is not known."""

    at_s: float
    person: str
    job: str
    what: str
    change_per_hour: float | None
    currency: str = ""

    @property
    def words(self) -> str:
        """The change in words."""
        if self.change_per_hour is None:
            return units.PRICE_UNKNOWN
        return units.signed_money(self.change_per_hour, units.Currency(self.currency), per="h")


def decision_costs(rows: Iterable[ChainedRow]) -> tuple[DecisionCost, ...]:
    """Return what decisions on plans have changed, newest first."""
    costs = []
    for each in rows:
        row = each.row
        if row.stage is not Stage.DONE or not row.plan_after or row.plan_after == row.plan_before:
            continue
        after, before = row.cost_per_hour, row.cost_before_per_hour
        change = None if after is None or before is None else after - before
        what = f"{row.action} {row.subject}".strip()
        costs.append(DecisionCost(row.at_s, row.person, row.job, what, change, row.currency))
    return tuple(sorted(costs, key=lambda cost: cost.at_s, reverse=True))


def decisions_sum(costs: Sequence[DecisionCost]) -> str:
    """Return the sum of what decisions have changed, by currency."""
    sums: dict[str, float] = defaultdict(float)
    priced = [cost for cost in costs if cost.change_per_hour is not None]
    for cost in priced:
        sums[cost.currency] += cost.change_per_hour or 0.0
    n_unknown = len(costs) - len(priced)
    parts = [units.signed_money(value, units.Currency(name), per="h") for name, value in sorted(sums.items())]
    parts += [f"{n_unknown} of unknown price"] if n_unknown else []
    return f"{units.counted(len(costs), 'decision')}: {', '.join(parts)}"

"""Numbers of all jobs together: what they hold and cost, per person too, and what decisions changed. Pure.

Amounts are summed by currency, as a sum over currencies is none. What has an unknown price is counted beside
the sum, and never taken for free.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions.commands import Stage
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.widgets import units
from dlrover_nb.widgets.clusters.many.columns import waiting_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.structs.decisions.commands import ChainedRow
    from dlrover_nb.core.structs.plan.capacity import Capacity
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


def totals(jobs: Sequence[JobSummary], capacity: Capacity | None) -> dict[str, str]:
    """Return the numbers of all jobs, as text by their titles; a capacity of None is not known now."""
    running = [job for job in jobs if not job.phase.is_final]
    all_cpu, all_mib = (capacity.total_cpu, capacity.total_memory_mib) if capacity else (None, None)
    cpu, mib = sum(job.cpu for job in running), sum(job.memory_mib for job in running)
    n_open = sum(job.open_proposal is not None for job in running)
    n_action = sum(job.open_mitigation is not None for job in running)
    n_memory = sum(bool(job.memory_needs) for job in running)
    return {
        "jobs": _phases(jobs),
        "waiting for you": waiting_words(n_open, n_action, n_memory),
        "throughput": units.rate(sum(job.samples_per_s for job in running)),
        "cores": _of(f"{cpu:,.4g}", cpu, all_cpu, "{:,.4g}"),
        "memory": f"{units.memory(mib)}{_share(mib, all_mib)}",
        "cost rate": cost_rate(running),
    }


def _phases(jobs: Sequence[JobSummary]) -> str:
    counts = ((sum(job.phase is phase for job in jobs), phase) for phase in JobPhase)
    return ", ".join(f"{n} {phase}" for n, phase in counts if n) or "none"


def _of(text: str, part: float, whole: float | None, form: str) -> str:
    return text if not whole else f"{text} of {form.format(whole)} ({units.percent(part / whole)})"


def _share(part: float, whole: float | None) -> str:
    return f" of {units.memory(whole)} ({units.percent(part / whole)})" if whole else ""


def cost_rate(jobs: Iterable[JobSummary]) -> str:
    """Return what running jobs cost per hour, by currency; those of unknown price are counted."""
    sums: dict[tuple[str, bool], float] = defaultdict(float)
    n_unknown = 0
    for job in jobs:
        outlook = job.outlook
        if outlook.cost_per_hour is None:
            n_unknown += 1
        else:
            sums[outlook.currency, outlook.prices_assumed] += outlook.cost_per_hour
    parts = []
    for (name, is_assumed), value in sorted(sums.items()):
        money = units.Currency(name, is_assumed)
        parts.append(f"{units.money(value, money, per='h')}{money.note}")
    if n_unknown:
        parts.append(f"{units.counted(n_unknown, 'job')} of unknown price")
    return "; ".join(parts) or "nothing runs"


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

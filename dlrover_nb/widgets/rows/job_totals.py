"""Numbers of all jobs together, as every list of jobs with room for them has them. Pure.

Amounts are summed by currency, as a sum over currencies is none. What has an unknown price is counted beside
the sum, and never taken for free.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.widgets import units

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.summary import JobSummary


def totals(jobs: Sequence[JobSummary], capacity: Capacity | None) -> dict[str, str]:
    """Return the numbers of all jobs, as text by their titles; a capacity of None is not known now."""
    running = [job for job in jobs if not job.phase.is_final]
    all_cpu, all_mib = (capacity.total_cpu, capacity.total_memory_mib) if capacity else (None, None)
    cpu, mib = sum(job.cpu for job in running), sum(job.memory_mib for job in running)
    return {
        "jobs": _phases(jobs),
        "waiting for you": _waiting(running),
        "throughput": units.rate(sum(job.samples_per_s for job in running)),
        "cores": _of(f"{cpu:,.4g}", cpu, all_cpu, "{:,.4g}"),
        "memory": f"{units.memory(mib)}{_share(mib, all_mib)}",
        "cost rate": cost_rate(running),
    }


def _phases(jobs: Sequence[JobSummary]) -> str:
    counts = ((sum(job.phase is phase for job in jobs), phase) for phase in JobPhase)
    return ", ".join(f"{n} {phase}" for n, phase in counts if n) or "none"


def _waiting(running: Sequence[JobSummary]) -> str:
    """Return what waits for a person; actions against stragglers only where there are some."""
    n_action = sum(job.open_mitigation is not None for job in running)
    return ", ".join(
        (
            _count(sum(job.open_proposal is not None for job in running), "proposal"),
            *((_count(n_action, "action"),) if n_action else ()),
            _count(sum(bool(job.memory_needs) for job in running), "memory warning"),
        )
    )


def _count(n: int, what: str) -> str:
    return f"{n or 'no'} {what}{'s' * (n != 1)}"


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

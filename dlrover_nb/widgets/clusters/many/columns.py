"""Content of the view of many jobs: a row per job, those that need attention first, and totals. Pure.

A row holds text, never a color alone: what a job waits for, and the age of its last report. Order within a
rank is by name, so that rows keep their places while numbers change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.widgets import units
from dlrover_nb.widgets.series import natural

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.widgets.clusters.many.grid import Wide

STALE_S = 5.0  # a second between polls, a few for a master that is busy
HEAD = ("job", "state", "plan", "samples/s", "trained", "ends in", "open", "memory")
N_ENDED = 10  # ended jobs that keep their lines, the newest ones
N_LINE = 200


class Rank(IntEnum):
    """What needs attention first."""

    PROPOSAL = 0
    MEMORY = 1
    FAILED = 2
    STALE = 3
    RUNNING = 4
    ENDED = 5


@dataclass(frozen=True, slots=True)
class JobReading:
    """The last summary of a job's master, and its age, in seconds of our clock."""

    summary: JobSummary
    age_s: float

    @property
    def is_stale(self) -> bool:
        """Whether a newer summary is overdue."""
        return self.age_s > STALE_S and not self.summary.phase.is_final


@dataclass(frozen=True, slots=True)
class JobsViewState:
    """The state that a screen draws.

    Parameters
    ----------
    description
        Of the cluster.
    origin_s
        Origin of the chart's times.
    silent_s
        Seconds since the cluster answered.
    error
        Why it does not; empty while it does.
    """

    description: str
    capacity: Capacity
    jobs: tuple[JobReading, ...]
    wide: Wide
    origin_s: float = 0.0
    silent_s: float = 0.0
    error: str = ""

    @property
    def simulated(self) -> bool:
        """Whether the cluster is simulated."""
        return any(heard.summary.simulated for heard in self.jobs)


@dataclass(frozen=True, slots=True)
class Row:
    """One job: cells under `HEAD`, its rank, and its line in the chart (None: not drawn)."""

    name: str
    rank: Rank
    cells: tuple[str, ...]
    slot: int | None


@dataclass(frozen=True, slots=True)
class Columns:
    """The content of the view."""

    rows: tuple[Row, ...]
    totals: tuple[tuple[str, str], ...]
    badge: str  # empty, or why the content is old


def columns(state: JobsViewState) -> Columns:
    """Return what to show of all jobs."""
    ordered = sorted(state.jobs, key=lambda heard: (rank(heard), natural(heard.summary.name)))
    rows = tuple(_row(heard, state.wide.slot) for heard in ordered)
    return Columns(rows, totals(state), badge(state))


def rank(heard: JobReading) -> Rank:
    """Describe what a job needs."""
    job = heard.summary
    if job.phase.is_final:
        return Rank.FAILED if job.phase is JobPhase.FAILED else Rank.ENDED
    if job.waiting:
        return Rank.PROPOSAL
    if job.memory_needs:
        return Rank.MEMORY
    return Rank.STALE if heard.is_stale else Rank.RUNNING


def _row(heard: JobReading, slot: dict[str, int]) -> Row:
    job = heard.summary
    runs = not job.phase.is_final
    cells = (
        job.name,
        state_words(heard),
        job.plan.short if job.plan else units.MISSING,
        units.number(job.samples_per_s) if runs and not heard.is_stale else units.MISSING,
        units.percent(job.done),
        units.duration(coarse_s(job.left_s)),
        ", ".join(job.waiting) or units.MISSING if runs else units.MISSING,
        "; ".join(job.memory_needs) or units.MISSING if runs else units.MISSING,
    )
    return Row(job.name, rank(heard), cells, slot.get(job.name))


def state_words(heard: JobReading) -> str:
    """Describe the phase, the reason of a failure, and the age of the report."""
    job = heard.summary
    words = f"{job.phase}: {job.message}" if job.message and job.phase is JobPhase.FAILED else str(job.phase)
    return f"{words} (stale {units.duration(round(heard.age_s))})" if heard.is_stale else words


def coarse_s(seconds: float | None) -> float | None:
    """Return a time to two digits: the third would only flicker."""
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        return seconds
    return float(f"{seconds:.2g}")


def totals(state: JobsViewState) -> tuple[tuple[str, str], ...]:
    """Return the numbers of the cluster as a whole."""
    jobs = [heard.summary for heard in state.jobs]
    running = [job for job in jobs if not job.phase.is_final]
    capacity, all_mib = state.capacity, state.capacity.total_memory_mib
    cpu, memory_mib = sum(job.cpu for job in running), sum(job.memory_mib for job in running)
    n_open = sum(job.open_proposal is not None for job in running)
    n_action = sum(job.open_mitigation is not None for job in running)
    n_memory = sum(bool(job.memory_needs) for job in running)
    return (
        ("jobs", _phases(jobs)),
        ("waiting for you", waiting_words(n_open, n_action, n_memory)),
        ("throughput", units.rate(sum(job.samples_per_s for job in running))),
        ("cores", f"{cpu:,.4g} of {capacity.total_cpu:,.4g} ({_share(cpu, capacity.total_cpu)})"),
        ("memory", f"{units.memory(memory_mib)} of {units.memory(all_mib)} ({_share(memory_mib, all_mib)})"),
    )


def _phases(jobs: list[JobSummary]) -> str:
    counts = ((sum(job.phase is phase for job in jobs), phase) for phase in JobPhase)
    return ", ".join(f"{n} {phase}" for n, phase in counts if n) or "none"


def _count(n: int, what: str) -> str:
    return f"{n or 'no'} {what}{'s' * (n != 1)}"


def waiting_words(n_proposal: int, n_action: int, n_memory: int) -> str:
    """Return what waits for a person; actions against stragglers only where there are some."""
    acts = (_count(n_action, "action"),) if n_action else ()
    return ", ".join((_count(n_proposal, "proposal"), *acts, _count(n_memory, "memory warning")))


def _share(part: float, whole: float) -> str:
    return units.percent(part / whole if whole else None)


def badge(state: JobsViewState) -> str:
    """Report that the cluster does not answer, for how long, and why."""
    if not state.error:
        return ""
    return f"stale {units.duration(round(state.silent_s))}: {state.error}"


def drawn(jobs: tuple[JobReading, ...]) -> tuple[str, ...]:
    """Return the jobs that have a line: those that run, and those that ended last."""
    newest = sorted((heard.summary for heard in jobs), key=lambda job: job.at_s, reverse=True)
    running = [job.name for job in newest if not job.phase.is_final]
    ended = [job.name for job in newest if job.phase.is_final]
    return (*running[:N_LINE], *ended[:N_ENDED])

"""Content of the view of many jobs: a row per job, those that need attention first, and totals. Pure.

A row holds text, never a color alone: what a job waits for, and the age of its last report. Order within a
rank is by name, so that rows keep their places while numbers change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.rows.job_cells import line_of
from dlrover_nb.widgets.rows.job_columns import LIVE, whole_cells
from dlrover_nb.widgets.rows.job_totals import totals
from dlrover_nb.widgets.series import natural

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.widgets.clusters.many.grid import Wide
    from dlrover_nb.widgets.rows.job_cells import JobLine, Rank

STALE_S = 5.0  # a second between polls, a few for a master that is busy
N_ENDED = 10  # ended jobs that keep their lines, the newest ones
N_LINE = 200


@dataclass(frozen=True, slots=True)
class JobReading:
    """The last summary of a job's master, and its age, in seconds of our clock."""

    summary: JobSummary
    age_s: float

    @property
    def is_stale(self) -> bool:
        """Whether a newer summary is overdue."""
        return self.age_s > STALE_S and not self.summary.phase.is_final

    @property
    def line(self) -> JobLine:
        """The line of the job in the table."""
        return line_of(self.summary, self.age_s if self.is_stale else 0.0)


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
    """One job: cells under the columns, its rank, and its line in the chart (None: not drawn)."""

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
    rows = [_row(reading.line, state.wide.slot) for reading in state.jobs]
    rows.sort(key=lambda row: (row.rank, natural(row.name)))
    all_jobs = totals([reading.summary for reading in state.jobs], state.capacity)
    return Columns(tuple(rows), tuple(all_jobs.items()), badge(state))


def _row(line: JobLine, slot: dict[str, int]) -> Row:
    cells = tuple(cell.text for cell in whole_cells(LIVE, line))
    return Row(line.job.name, line.rank, cells, slot.get(line.job.name))


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

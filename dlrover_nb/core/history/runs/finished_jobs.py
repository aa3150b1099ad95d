"""Finished jobs as warm start reads them: traits, first and final plan, newest fit.

Only runs that SUCCEEDED and whose traits are known count: a plan under which a job failed is not used.
The final plan is the last of which there is evidence that it ran: a measured outcome, or a proposal that was
applied. A plan ordered by hand has neither when the job ended before two steady windows; it counts when the
series ends on its counts. With no evidence of any change, the first plan is the final one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.history import tables
from dlrover_nb.core.history.rows import record_from, series_from
from dlrover_nb.core.structs.decisions.decisions import Decision, Outcome, Proposal, ProposalStatus
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.views.past_jobs import FitSummary, JobTraits, PastJob, SeriesRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Select, Table

    from dlrover_nb.core.structs.plan.resources import ResourcePlan

logger = logging.getLogger(__name__)

Ran = tuple[float, "ResourcePlan"]  # start time, plan
_Grouped = dict[str, list[Any]]


def past_jobs(connection: Connection, *, limit: int) -> tuple[PastJob, ...]:
    """Return the newest finished jobs, newest first; one that cannot be read is left out, and logged."""
    return tuple(job for _, job in _by_name(connection, limit=limit))


def past_series(connection: Connection, *, limit: int) -> tuple[tuple[PastJob, tuple[SeriesRow, ...]], ...]:
    """Return the newest finished jobs as `past_jobs` does, each with its series, oldest row first."""
    jobs = _by_name(connection, limit=limit)
    rows = _by_run(connection, _all(tables.series, [run for run, _ in jobs]).order_by(tables.series.c.at_s))
    return tuple((job, tuple(series_from(row) for row in rows.get(run, ()))) for run, job in jobs)


def _by_name(connection: Connection, *, limit: int) -> list[tuple[str, PastJob]]:
    """Return finished jobs with the names of their runs."""
    runs = connection.execute(_finished(limit)).all()
    names = [row.run for row in runs]
    evidence = _Evidence(connection, names)
    jobs = []
    for row in runs:
        try:
            spec, traits = record_from(row.spec, JobSpec), record_from(row.record, JobTraits)
            final, fit = evidence.final_plan(row.run, spec), evidence.fit(row.run)
            jobs.append((row.run, PastJob(traits, spec.plan, final, fit)))
        except BackendError as error:
            logger.warning("run %s is not used for the warm start of new jobs: %s", row.run, error)
    return jobs


def _finished(limit: int) -> Select[Any]:
    runs, traits, phases = tables.runs, tables.traits, tables.phases
    succeeded = phases.c.phase == str(JobPhase.SUCCEEDED)
    ends = select(phases.c.run, func.max(phases.c.at_s).label("at_s")).where(succeeded).group_by(phases.c.run)
    done = ends.subquery()
    return (
        select(runs.c.run, runs.c.spec, traits.c.record)
        .join(traits, traits.c.run == runs.c.run)
        .join(done, done.c.run == runs.c.run)
        .order_by(done.c.at_s.desc(), runs.c.run)
        .limit(limit)
    )


class _Evidence:
    """Records of some runs, read with one query per table."""

    def __init__(self, connection: Connection, names: Sequence[str]) -> None:
        proposals = tables.proposals
        applied = proposals.c.status == str(ProposalStatus.APPLIED)
        self._proposals = _by_run(
            connection, select(proposals).where(proposals.c.run.in_(names), applied).order_by("closed_at_s")
        )
        self._decisions = _by_run(connection, _all(tables.decisions, names).order_by("at_s"))
        self._outcomes = _by_run(connection, _all(tables.outcomes, names).order_by("applied_at_s"))
        self._fits = _by_run(connection, _newest(tables.fits, names))
        self._ends = _by_run(connection, _newest(tables.series, names))

    def fit(self, run: str) -> FitSummary | None:
        """Return the newest fit."""
        return next((record_from(row.record, FitSummary) for row in self._fits.get(run, ())), None)

    def final_plan(self, run: str, spec: JobSpec) -> ResourcePlan:
        """Return the last plan that ran, as far as there is evidence."""
        decisions = [record_from(row.record, Decision) for row in self._decisions.get(run, ())]
        proposals = [record_from(row.record, Proposal) for row in self._proposals.get(run, ())]
        outcomes = [record_from(row.record, Outcome) for row in self._outcomes.get(run, ())]
        given = {d.proposal: d.plan for d in decisions if d.proposal and d.plan}
        ran: list[Ran] = [(float("-inf"), spec.plan)]
        ran += [(o.applied_at_s, o.plan) for o in outcomes]
        ran += [(p.closed_at_s or p.created_at_s, given.get(p.id, p.candidate.plan)) for p in proposals]
        ran += [
            (d.at_s, d.plan) for d in decisions if d.plan and not d.proposal and self._ends_on(run, d.plan)
        ]
        return max(ran, key=lambda item: item[0])[1]

    def _ends_on(self, run: str, plan: ResourcePlan) -> bool:
        return any(
            (row.workers, row.ps) == (plan.worker.count, plan.ps.count) for row in self._ends.get(run, ())
        )


def _all(table: Table, names: Sequence[str]) -> Select[Any]:
    return select(table).where(table.c.run.in_(names))


def _newest(table: Table, names: Sequence[str]) -> Select[Any]:
    """Select the newest row of each run."""
    last = select(table.c.run, func.max(table.c.at_s).label("at_s")).where(table.c.run.in_(names))
    ends = last.group_by(table.c.run).subquery()
    return select(table).join(ends, (ends.c.run == table.c.run) & (ends.c.at_s == table.c.at_s))


def _by_run(connection: Connection, query: Select[Any]) -> _Grouped:
    grouped: _Grouped = {}
    for row in connection.execute(query):
        grouped.setdefault(row.run, []).append(row)
    return grouped

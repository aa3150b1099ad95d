"""`HistoryStore`: jobs, plans, decisions with who and why, actions, predicted against measured, fits, series.

The name of a job may be used again, so every record belongs to a *run*: the name and the time of submission.
Writing is idempotent per id within a run: a master that restarts from its journal writes everything again,
and no record is stored twice, not even rows of a series that were merged in the meantime.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import delete, exists, func, insert, literal, select

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError
from dlrover_nb.core.history import tables
from dlrover_nb.core.history.database import Database, default_url, is_there
from dlrover_nb.core.history.rows import record_from, row_of, run_row, series_from, series_row
from dlrover_nb.core.history.runs import finished_jobs
from dlrover_nb.core.history.runs.compaction import THINNING, Thinning, thinned
from dlrover_nb.core.history.runs.prediction_scores import Scoreboard, scoreboard
from dlrover_nb.core.history.stores import batch_costs
from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation, Outcome, Proposal
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec, run_name
from dlrover_nb.core.structs.training.batch_cost import ProgramCost
from dlrover_nb.core.structs.views.past_jobs import FitSummary, JobTraits, PastJob, SeriesRow

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection, Table

    from dlrover_nb.core.history.rows import Columns, Record

T = TypeVar("T")

logger = logging.getLogger(__name__)

SERIES_LOCK = 0x646C  # first half of an advisory lock; the run is the other


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job: `phase` is the last that was recorded; `traits` is None where unknown."""

    run: str
    job: str
    owner: str
    spec: JobSpec
    started_at_s: float
    phase: JobPhase
    phase_at_s: float
    message: str
    traits: JobTraits | None = None

    @property
    def ended_at_s(self) -> float | None:
        """When it ended; None while it has not, as far as is known."""
        return self.phase_at_s if self.phase.is_final else None


class HistoryStore:
    """The history of one user (SQLite file) or team (PostgreSQL).

    Parameters
    ----------
    url
        SQLAlchemy URL; None means ``history.db`` in the user's data folder. A SQLite file and its folder
        are made on demand, the folder readable by its owner alone. An older schema is migrated.

    Raises
    ------
    InvalidValueError
        When the database of the URL is not supported.
    BackendError
        When the database cannot be opened, read or written, or is of a newer release; the text says
        what to do.
    """

    def __init__(self, url: str | None = None) -> None:
        self._database = Database(url or default_url())
        self._runs: dict[str, str] = {}

    @classmethod
    def existing(cls, url: str | None = None) -> HistoryStore | None:
        """Return an existing history; None where there is none: nothing is created."""
        url = url or default_url()
        return cls(url) if is_there(url) else None

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    # writing

    def remember(self, job: str, at_s: float, record: Record) -> None:
        """Write one record of a job's newest run; a `JobSpec` starts a run at `at_s`.

        Raises
        ------
        NotFoundError
            When no run of the job was ever started.
        InvalidValueError
            When a number in the record is not finite.
        """
        match record:
            case JobSpec():
                self._start(job, at_s, record)
            case SeriesRow():
                self._add_series({"run": self._run(job), **series_row(record)})
            case ProgramCost():
                batch_costs.add(self._database, record)
            case _:
                table, row = row_of(record)
                update = table in {tables.proposals, tables.mitigations, tables.traits, tables.outcomes}
                self._database.upsert(table, {"run": self._run(job), **row}, update=update)

    def reopen(self, job: str, at_s: float) -> None:
        """Let `remember` write to the run of a job that was started at `at_s`, the newest by date or not.

        Raises
        ------
        NotFoundError
            When there is no such run.
        """
        run, runs = run_name(job, at_s), tables.runs
        if not self._database.rows(select(runs.c.run).where(runs.c.run == run)):
            raise NotFoundError(f"no run {run!r} in the history; list its jobs with %dlrover history")
        self._runs[job] = run

    def delete(self, job: str, *, run: str | None = None) -> int:
        """Forget a run, or all runs of a name; return how many.

        Raises
        ------
        NotFoundError
            When there is none.
        """
        runs = tables.runs
        mine = (runs.c.job == job) if run is None else (runs.c.job == job) & (runs.c.run == run)
        with self._database.writing() as connection:
            names = connection.scalars(select(runs.c.run).where(mine)).all()
            for table in (*tables.OF_A_RUN, runs):
                connection.execute(delete(table).where(table.c.run.in_(names)))
        if not names:
            raise NotFoundError(
                f"no run {run!r} of job {shown(job)} in the history; list its runs with %dlrover history"
            )
        self._runs.pop(job, None)
        return len(names)

    def compact(self, at_s: float, levels: Collection[Thinning] = THINNING) -> int:
        """Merge what is old at `at_s` (see `history.runs.compaction`); return how many rows fewer there are.

        Of the fits of a run that are older than the first level, the newest stays.
        """
        if not levels:
            raise InvalidValueError("compact needs at least one level of thinning, got none; give one")
        before_s = at_s - min(level.older_s for level in levels)
        return sum(
            self._compact(run, at_s, levels) for run in self._old_runs(before_s, levels)
        ) + self._compact_fits(before_s)

    # reading

    def jobs(self) -> tuple[JobRun, ...]:
        """Return all runs, newest first; one that cannot be read is left out, and logged."""
        runs, traits, phases = tables.runs, tables.traits, tables.phases
        query = (
            select(runs, traits.c.record)
            .outerjoin(traits, traits.c.run == runs.c.run)
            .order_by(runs.c.started_at_s.desc(), runs.c.run)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
            heard = connection.execute(select(phases).order_by(phases.c.at_s)).all()
        last = {row.run: (row.at_s, row.phase, row.message) for row in heard}
        listed = []
        for row in rows:
            try:
                listed.append(_job_run(row, last.get(row.run)))
            except BackendError as error:
                logger.warning("run %s of the history is not listed: %s", row.run, error)
        return tuple(listed)

    def past_jobs(self, *, limit: int = 100) -> tuple[PastJob, ...]:
        """Return runs that SUCCEEDED and whose traits are known, newest first, for warm start."""
        if limit < 1:
            raise InvalidValueError(f"limit must be >= 1, got {limit}")
        with self._database.reading() as connection:
            return finished_jobs.past_jobs(connection, limit=limit)

    def past_series(self, *, limit: int = 100) -> tuple[tuple[PastJob, tuple[SeriesRow, ...]], ...]:
        """Return the jobs of `past_jobs`, each with its series, for what is learnt of single settings."""
        if limit < 1:
            raise InvalidValueError(f"limit must be >= 1, got {limit}")
        with self._database.reading() as connection:
            return finished_jobs.past_series(connection, limit=limit)

    def decisions(self, job: str, *, run: str | None = None) -> tuple[Decision, ...]:
        """Return the decisions of a run (the job's newest by default), oldest first."""
        return self._read(job, run, (tables.decisions, "at_s", "id"), Decision)

    def outcomes(self, job: str, *, run: str | None = None) -> tuple[Outcome, ...]:
        """Return the outcomes of the applied plans of a run, oldest first."""
        return self._read(job, run, (tables.outcomes, "applied_at_s", "decision"), Outcome)

    def proposals(self, job: str, *, run: str | None = None) -> tuple[Proposal, ...]:
        """Return the proposals of a run in their last known status, oldest first."""
        return self._read(job, run, (tables.proposals, "created_at_s", "id"), Proposal)

    def mitigations(self, job: str, *, run: str | None = None) -> tuple[Mitigation, ...]:
        """Return the actions against stragglers of a run in their last known status, oldest first."""
        return self._read(job, run, (tables.mitigations, "created_at_s", "id"), Mitigation)

    def fits(self, job: str, *, run: str | None = None) -> tuple[FitSummary, ...]:
        """Return the summaries of the fits of a run, oldest first: the last is the newest."""
        return self._read(job, run, (tables.fits, "at_s", "run"), FitSummary)

    def series(
        self, job: str, *, since_s: float | None = None, run: str | None = None
    ) -> tuple[SeriesRow, ...]:
        """Return a run's rolled-up series, oldest first; with `since_s`, what ended after it."""
        table = tables.series
        query = select(table).where(table.c.run == (run or self._newest(job))).order_by(table.c.at_s)
        if since_s is not None:
            query = query.where(table.c.at_s > since_s)
        return tuple(series_from(row) for row in self._database.rows(query))

    def scores(
        self, *, owner: str | None = None, since_s: float | None = None, job: str | None = None
    ) -> Scoreboard:
        """Return how good predictions were, over all jobs and for each (all its runs together)."""
        runs, outcomes = tables.runs, tables.outcomes
        query = select(runs.c.job, outcomes.c.record).join(runs, runs.c.run == outcomes.c.run)
        if owner is not None:
            query = query.where(runs.c.owner == owner[: tables.OWNER_LENGTH])
        if since_s is not None:
            query = query.where(outcomes.c.applied_at_s >= since_s)
        if job is not None:
            query = query.where(runs.c.job == job)
        by_job: dict[str, list[Outcome]] = {}
        for row in self._database.rows(query):
            by_job.setdefault(row.job, []).append(record_from(row.record, Outcome))
        return scoreboard(by_job)

    # internals

    def _start(self, job: str, at_s: float, spec: JobSpec) -> None:
        run = run_name(job, at_s)
        self._database.upsert(tables.runs, run_row(run, job, at_s, spec))
        self._runs[job] = run

    def _run(self, job: str) -> str:
        """Return the run that this store started, else the newest one of that name."""
        if job not in self._runs:
            self._runs[job] = self._newest(job)
        return self._runs[job]

    def _newest(self, job: str) -> str:
        runs = tables.runs
        query = select(runs.c.run).where(runs.c.job == job).order_by(runs.c.started_at_s.desc()).limit(1)
        rows = self._database.rows(query)
        if not rows:
            raise NotFoundError(f"no job {shown(job)} in the history; list its jobs with %dlrover history")
        return str(rows[0].run)

    def _read(
        self, job: str, run: str | None, source: tuple[Table, str, str], kind: type[T]
    ) -> tuple[T, ...]:
        """Read whole records, by their time and then by the number in their id (d9 before d10)."""
        table, time, name = source
        wanted = run or self._newest(job)
        query = (
            select(table.c.record)
            .where(table.c.run == wanted)
            .order_by(table.c[time], func.length(table.c[name]), table.c[name])
        )
        return tuple(record_from(row.record, kind) for row in self._database.rows(query))

    def _add_series(self, row: Columns) -> None:
        """Add a piece of a series unless its middle is covered: by itself, or by what it was merged into."""
        table = tables.series
        with self._database.writing() as connection:
            _keep_others_out(connection, str(row["run"]))
            middle_s = literal(row["at_s"]) - literal(row["span_s"]) / 2
            covers = (table.c.at_s - table.c.span_s <= middle_s) & (table.c.at_s > middle_s)
            if not connection.scalar(select(exists().where(table.c.run == row["run"], covers))):
                connection.execute(insert(table).values(row))

    def _old_runs(self, before_s: float, levels: Collection[Thinning]) -> list[str]:
        table = tables.series
        short = table.c.span_s < max(level.span_s for level in levels)
        query = select(table.c.run).where(table.c.at_s <= before_s, short).distinct()
        return [row.run for row in self._database.rows(query)]

    def _compact(self, run: str, at_s: float, levels: Collection[Thinning]) -> int:
        table = tables.series
        with self._database.writing() as connection:
            _keep_others_out(connection, run)
            rows = connection.execute(select(table).where(table.c.run == run)).all()
            before = {series_from(row) for row in rows}
            after = set(thinned(before, at_s, levels))
            gone = [row.at_s for row in before - after]
            if gone:
                connection.execute(delete(table).where(table.c.run == run, table.c.at_s.in_(gone)))
                new = [{"run": run, **series_row(row)} for row in after - before]
                connection.execute(insert(table), new)
        return len(before) - len(after)

    def _compact_fits(self, before_s: float) -> int:
        fits, newer = tables.fits, tables.fits.alias()
        has_newer = exists().where(newer.c.run == fits.c.run, newer.c.at_s > fits.c.at_s)
        with self._database.writing() as connection:
            return connection.execute(delete(fits).where(fits.c.at_s < before_s, has_newer)).rowcount


def _keep_others_out(connection: Connection, run: str) -> None:
    """Lock this run's series against other writers until the transaction ends; SQLite allows only one."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(SERIES_LOCK, func.hashtext(run))))


def _job_run(row: object, last: tuple[float, str, str] | None) -> JobRun:
    fields = row._mapping  # type: ignore[attr-defined]  # noqa: SLF001 - the documented way to a row's columns
    at_s, phase, message = last or (fields["started_at_s"], JobPhase.STARTING, "")
    spec = record_from(fields["spec"], JobSpec)
    return JobRun(
        run=fields["run"],
        job=fields["job"],
        owner=spec.owner,
        spec=spec,
        started_at_s=fields["started_at_s"],
        phase=JobPhase(phase),
        phase_at_s=at_s,
        message=message,
        traits=record_from(fields["record"], JobTraits) if fields["record"] else None,
    )

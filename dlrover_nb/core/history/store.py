"""`HistoryStore`: jobs, plans, decisions with who and why, predicted against measured.

A job's name may be used again and again, so everything belongs to a *run*: the name and when it was
submitted. Writing is idempotent per id within a run; a master that comes back from its journal writes
everything once more, and nothing is there twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, assert_never

from sqlalchemy import func, select

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import BackendError, NotFoundError, WireError
from dlrover_nb.core.history import tables
from dlrover_nb.core.history.database import Database, default_url
from dlrover_nb.core.structs.decisions import Decision, Outcome, Proposal
from dlrover_nb.core.structs.events import PhaseChanged
from dlrover_nb.core.structs.job import JobPhase, JobSpec

if TYPE_CHECKING:
    from sqlalchemy import Table

T = TypeVar("T")
Record = JobSpec | PhaseChanged | Proposal | Decision | Outcome


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job: `phase` is the last that was heard of."""

    run: str
    job: str
    owner: str
    spec: JobSpec
    started_at_s: float
    phase: JobPhase
    phase_at_s: float
    message: str

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
        are made on demand, the folder readable by its owner alone.

    Raises
    ------
    InvalidValueError
        When the URL is of no database that we know.
    BackendError
        When the database cannot be opened, read or written; the text says what to do.
    """

    def __init__(self, url: str | None = None) -> None:
        self._database = Database(url or default_url())
        self._runs: dict[str, str] = {}

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def remember(self, job: str, at_s: float, record: Record) -> None:
        """Write one record of a job's newest run; a `JobSpec` starts a run at `at_s`.

        Raises
        ------
        NotFoundError
            When no run of the job was ever started.
        """
        match record:
            case JobSpec():
                self._start(job, at_s, record)
            case PhaseChanged():
                self._write(job, tables.phases, _phase_row(record))
            case Proposal():
                self._write(job, tables.proposals, _proposal_row(record), update=True)
            case Decision():
                self._write(job, tables.decisions, _decision_row(record))
            case Outcome():
                self._write(job, tables.outcomes, _outcome_row(record))
            case _:
                assert_never(record)

    def jobs(self) -> tuple[JobRun, ...]:
        """Return all runs, newest first."""
        rows = self._database.rows(select(tables.runs).order_by(tables.runs.c.started_at_s.desc()))
        last: dict[str, tuple[float, str, str]] = {}
        phases = tables.phases
        for row in self._database.rows(select(phases).order_by(phases.c.at_s)):
            last[row.run] = (row.at_s, row.phase, row.message)
        return tuple(_job_run(row, last.get(row.run)) for row in rows)

    def decisions(self, job: str, *, run: str | None = None) -> tuple[Decision, ...]:
        """Return the decisions of a run (the job's newest by default), oldest first."""
        return self._read(job, run, (tables.decisions, "at_s", "id"), Decision)

    def outcomes(self, job: str, *, run: str | None = None) -> tuple[Outcome, ...]:
        """Return how the applied plans of a run turned out, oldest first."""
        return self._read(job, run, (tables.outcomes, "applied_at_s", "decision"), Outcome)

    def proposals(self, job: str, *, run: str | None = None) -> tuple[Proposal, ...]:
        """Return the proposals of a run in their last known status, oldest first."""
        return self._read(job, run, (tables.proposals, "created_at_s", "id"), Proposal)

    def _start(self, job: str, at_s: float, spec: JobSpec) -> None:
        run = f"{job}@{at_s:.3f}"
        row = {"run": run, "job": job, "owner": spec.owner, "started_at_s": at_s, "spec": _json(spec)}
        self._database.upsert(tables.runs, row)
        self._runs[job] = run

    def _write(self, job: str, table: Table, row: dict[str, object], *, update: bool = False) -> None:
        self._database.upsert(table, {"run": self._run(job), **row}, update=update)

    def _run(self, job: str) -> str:
        """Return the run that this store started, else the newest one of that name."""
        if job not in self._runs:
            self._runs[job] = self._newest(job)
        return self._runs[job]

    def _newest(self, job: str) -> str:
        runs = tables.runs
        query = select(runs.c.run).where(runs.c.job == job).order_by(runs.c.started_at_s.desc()).limit(1)
        found = self._database.rows(query)
        if not found:
            raise NotFoundError(f"the history must know the job, got {job!r}; see which ones it has")
        return str(found[0].run)

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
        return tuple(_record(row.record, kind) for row in self._database.rows(query))


def _json(record: object) -> str:
    return to_json(record).decode()


def _record(text: str, kind: type[T]) -> T:
    try:
        return from_json(text, kind)
    except WireError as error:
        raise BackendError(
            f"the history must hold a {kind.__name__}, got something else: {error}; "
            "the file is damaged or of another release"
        ) from error


def _job_run(row: object, last: tuple[float, str, str] | None) -> JobRun:
    fields = row._mapping  # type: ignore[attr-defined]  # noqa: SLF001 - the documented way to a row's columns
    at_s, phase, message = last or (fields["started_at_s"], JobPhase.STARTING, "")
    return JobRun(
        run=fields["run"],
        job=fields["job"],
        owner=fields["owner"],
        spec=_record(fields["spec"], JobSpec),
        started_at_s=fields["started_at_s"],
        phase=JobPhase(phase),
        phase_at_s=at_s,
        message=message,
    )


def _phase_row(record: PhaseChanged) -> dict[str, object]:
    return {"at_s": record.at_s, "phase": str(record.phase), "message": record.message}


def _proposal_row(record: Proposal) -> dict[str, object]:
    return {
        "id": record.id,
        "created_at_s": record.created_at_s,
        "closed_at_s": record.closed_at_s,
        "kind": str(record.kind),
        "status": str(record.status),
        "plan": str(record.candidate.plan),
        "predicted_samples_per_s": record.candidate.prediction.samples_per_s,
        "cost_per_hour": record.candidate.cost_per_hour,
        "why": record.why,
        "record": _json(record),
    }


def _decision_row(record: Decision) -> dict[str, object]:
    return {
        "id": record.id,
        "at_s": record.at_s,
        "by": record.by,
        "verdict": str(record.verdict),
        "proposal": record.proposal,
        "plan": str(record.plan) if record.plan else None,
        "why": record.why,
        "record": _json(record),
    }


def _outcome_row(record: Outcome) -> dict[str, object]:
    return {
        "decision": record.decision,
        "applied_at_s": record.applied_at_s,
        "plan": str(record.plan),
        "predicted_samples_per_s": record.predicted.samples_per_s if record.predicted else None,
        "measured_samples_per_s": record.measured_samples_per_s,
        "pause_s": record.pause_s,
        "record": _json(record),
    }

"""Client queries of the history: runs, one complete run, and how accurate predictions were.

The history is where the masters on this machine write it (`HistoryStore`), so it is readable without a
cluster, and long after one. Reading creates nothing: where no job has written yet, no file is made. Simulated
jobs write no history. The database's client loads when the history is read: the calls of a cluster that need
none of it take a fifth of a second less.
"""

from __future__ import annotations

import difflib
import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.disk.paths import HISTORY_VAR, own_history
from dlrover_nb.core.errors import BackendError, NotFoundError
from dlrover_nb.core.rundir.last_share import last_share
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.summary import JobSummary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dlrover_nb.core.history import HistoryStore, JobRun, Scoreboard
    from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation, Outcome, Proposal
    from dlrover_nb.core.structs.views.past_jobs import FitSummary, SeriesRow

logger = logging.getLogger(__name__)

NO_HISTORY = "the history is empty; the first job on a real cluster begins it"
N_NEAR = 3  # names that an error offers


@dataclass(frozen=True, slots=True)
class RunHistory:
    """All records of one run, each part oldest first.

    Parameters
    ----------
    proposals
        In their last known status.
    outcomes
        Of the plans that ran long enough to be measured.
    fits
        The fits: all of a recent run, the newest of an old one.
    series
        Rolled up: a row for a minute, longer ones where the run is old.
    mitigations
        Actions against stragglers, in their last known status.
    """

    run: JobRun
    proposals: tuple[Proposal, ...]
    decisions: tuple[Decision, ...]
    outcomes: tuple[Outcome, ...]
    fits: tuple[FitSummary, ...]
    series: tuple[SeriesRow, ...]
    mitigations: tuple[Mitigation, ...] = ()


def runs(url: str | None = None, *, job: str | None = None) -> tuple[JobRun, ...]:
    """Return the runs in the history, newest first: of all jobs, or of one name.

    Parameters
    ----------
    url
        Of the database; None for the user's own file.
    job
        A job's name.

    Raises
    ------
    NotFoundError
        When no job of that name ever ran; it names the nearest ones.
    BackendError
        When the history exists but cannot be read.
    """
    with _reading(url) as store:
        all_runs = store.jobs() if store else ()
    return all_runs if job is None else _of_job(job, all_runs)


def run_history(job: str, run: str | None = None, url: str | None = None) -> RunHistory:
    """Return the records of a job's run: the newest one, or that of the given id.

    A running job may write meanwhile: a record is read before the one it refers to, so each decision's
    proposal or action and each outcome's decision is included.

    Raises
    ------
    NotFoundError
        When there is no such job or run; it names the nearest ones.
    BackendError
        When the history exists but cannot be read.
    """
    with _reading(url) as store:
        if store is None:
            raise NotFoundError(f"no job {shown(job)} in the history; {NO_HISTORY}")
        job_run = _run(run, _of_job(job, store.jobs()))
        outcomes = store.outcomes(job, run=job_run.run)
        decisions = store.decisions(job, run=job_run.run)
        return RunHistory(
            run=job_run,
            proposals=store.proposals(job, run=job_run.run),
            decisions=decisions,
            outcomes=outcomes,
            fits=store.fits(job, run=job_run.run),
            series=store.series(job, run=job_run.run),
            mitigations=store.mitigations(job, run=job_run.run),
        )


def scores(
    owner: str | None = None,
    since_s: float | None = None,
    url: str | None = None,
    *,
    job: str | None = None,
) -> Scoreboard:
    """Return the accuracy of predictions: over all jobs, and for each.

    Parameters
    ----------
    owner
        Owner of the jobs; None for all owners.
    since_s
        Time (seconds since 1970) from which on plans count; None for all.
    job
        Only the runs of that name; None for all jobs.

    Raises
    ------
    NotFoundError
        When no job of that name ever ran; it names the nearest ones.
    BackendError
        When the history exists but cannot be read.
    """
    from dlrover_nb.core.history import scoreboard  # noqa: PLC0415 - see the module

    with _reading(url) as store:
        if job is not None:
            _of_job(job, store.jobs() if store else ())
        return store.scores(owner=owner, since_s=since_s, job=job) if store else scoreboard({})


@contextmanager
def _reading(url: str | None) -> Iterator[HistoryStore | None]:
    """Open the history while it is read; None where no job has begun one, for which no client is loaded."""
    if url is None and not os.environ.get(HISTORY_VAR) and not os.path.lexists(own_history()):
        yield None
        return
    from dlrover_nb.core.history import HistoryStore  # noqa: PLC0415 - see the module

    store = HistoryStore.existing(url)
    try:
        yield store
    finally:
        if store is not None:
            store.close()


def _of_job(job: str, all_runs: Iterable[JobRun]) -> tuple[JobRun, ...]:
    all_runs = tuple(all_runs)
    mine = tuple(run for run in all_runs if run.job == job)
    if not mine:
        names = list(dict.fromkeys(run.job for run in all_runs))
        raise NotFoundError(f"no job {shown(job)} in the history; {_near(job, names)}")
    return mine


def _run(run: str | None, mine: tuple[JobRun, ...]) -> JobRun:
    if run is None:
        return mine[0]
    for one in mine:
        if one.run == run:
            return one
    names = [one.run for one in mine]
    raise NotFoundError(f"no run {shown(run)} of job {mine[0].job}; {_near(run, names)}")


def _near(name: str, names: list[str]) -> str:
    """Return the names nearest to a wrong one; else the newest."""
    if not names:
        return NO_HISTORY
    near = difflib.get_close_matches(name, names, n=N_NEAR)
    if near:
        return f"did you mean {' or '.join(near)}?"
    more = ", …" if len(names) > N_NEAR else ""
    return f"it has {', '.join(names[:N_NEAR])}{more}"


def past_jobs() -> list[JobSummary]:
    """Return the newest run of each job in the history; without a history, log that and go on."""
    try:
        with _reading(None) as history:
            runs = history.jobs() if history else ()
    except BackendError as error:
        logger.warning("past jobs are not listed: %s", error)
        return []
    newest: dict[str, JobRun] = {}
    for run in runs:
        newest.setdefault(run.job, run)
    return [_summary_of(run) for run in newest.values()]


def _summary_of(run: JobRun) -> JobSummary:
    """Return a job of the history; one without an end was lost with its master, as far as it had come."""
    if run.phase.is_final:
        phase, message, done = run.phase, "", 1.0 if run.phase is JobPhase.SUCCEEDED else None
    else:
        phase, message, done = JobPhase.FAILED, lost_words(run), last_share(run.job, run.started_at_s)
    return JobSummary(
        run.job,
        phase,
        run.owner,
        run.started_at_s,
        run.spec.plan,
        0.0,
        done,
        None,
        live=False,
        message=message,
        ended_at_s=run.ended_at_s,
        tags=run.spec.tags,
    )


def lost_words(run: JobRun) -> str:
    """Return what became of a job that has no master and no recorded end."""
    return (
        f"lost with its master while it was {run.phase}; `%dlrover submit --from` goes on from its checkpoint"
    )

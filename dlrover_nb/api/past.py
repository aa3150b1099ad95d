"""Records of past jobs: all runs, one run, and how good predictions were.

They are in the history on this machine; no cluster is needed.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from dlrover_nb.api.views.job_views import HistoryView, LogsView, RunsView, ScoresView, logs_title
from dlrover_nb.core.errors import InvalidValueError, NotFoundError

if TYPE_CHECKING:
    from dlrover_nb.core.errors import DlroverError
    from dlrover_nb.core.history import JobRun

DAY_S = 86_400.0


def runs(job: str | None = None) -> RunsView:
    """Return the runs in the history, newest first: of all jobs, or of one name.

    Parameters
    ----------
    job
        A job's name.

    Raises
    ------
    NotFoundError
        When no job of that name ever ran; it names the nearest ones.
    BackendError
        When the history is there but cannot be read.

    Examples
    --------
    >>> dlrover_nb.api.past.runs("ads-ctr")
    """
    from dlrover_nb.core.client.past import history_queries  # noqa: PLC0415 - SQLAlchemy takes its time to import

    return RunsView(history_queries.runs(job=job))


def history(job: str | None = None, run: str | None = None) -> HistoryView | RunsView:
    """Return one run of a job, or, where none is named, the list of all runs.

    Parameters
    ----------
    job
        A job's name.
    run
        Id of a run, ``job@seconds`` as the list shows it; None: the job's newest.

    Raises
    ------
    NotFoundError
        When there is no such job or run; it names the nearest ones.
    BackendError
        When the history is there but cannot be read.

    Examples
    --------
    >>> dlrover_nb.api.past.history("ads-ctr").history.outcomes
    """
    if run is not None:
        job = job or run.rpartition("@")[0] or run
    if job is None:
        return runs()
    from dlrover_nb.core.client.past import history_queries  # noqa: PLC0415 - as above

    return HistoryView(history_queries.run_history(job, run))


def score(owner: str | None = None, days: float | None = None, *, job: str | None = None) -> ScoresView:
    """Return how good predictions were: over all jobs, and for each.

    Parameters
    ----------
    owner
        Owner of the jobs; None for all.
    days
        Only plans that were applied in the last so many days; None for all.
    job
        A job's name: only its runs; None for all jobs.

    Raises
    ------
    InvalidValueError
        When `days` is not above zero.
    NotFoundError
        When no job of that name ever ran; it names the nearest ones.
    BackendError
        When the history is there but cannot be read.

    Examples
    --------
    >>> dlrover_nb.api.past.score(days=30)
    """
    if days is not None and not (days > 0 and math.isfinite(days)):
        raise InvalidValueError(f"days must be > 0, got {days:g}; leave it out for all")
    from dlrover_nb.core.client.past import history_queries  # noqa: PLC0415 - as above

    since_s = None if days is None else time.time() - days * DAY_S
    return ScoresView(history_queries.scores(owner, since_s, job=job))


def logs(job: str, node: str | None = None, *, n: int = 100, gone: DlroverError | None = None) -> LogsView:
    """Return the log lines of a job that has no master any more, the newest last.

    Parameters
    ----------
    job
        Its name: the newest run of that name on this machine.
    node
        Name of one, such as ``"worker-0"``; None: all.
    n
        How many lines.
    gone
        The error of finding its master; raised where the job did not run on this machine either.

    Raises
    ------
    NotFoundError
        When no job of that name ran here, it left no lines, or there was no such node.
    InvalidValueError
        When `n` is below 1.

    Examples
    --------
    >>> dlrover_nb.api.past.logs("ads-ctr", "worker-0", n=20)
    """
    from dlrover_nb.core.rundir.locate import run_folder  # noqa: PLC0415 - as above
    from dlrover_nb.core.rundir.node_logs import read_logs  # noqa: PLC0415 - it loads on demand

    try:
        folder = run_folder(job)
    except NotFoundError as nowhere:
        raise (gone or nowhere) from nowhere
    lines = read_logs(folder, node, n_line=n)
    return LogsView(f"{logs_title(job, node)}, left in {folder}", lines)


def ids(rows: tuple[JobRun, ...]) -> dict[str, tuple[str, ...]]:
    """Return job -> ids of its runs."""
    return {job: tuple(r.run for r in rows if r.job == job) for job in dict.fromkeys(r.job for r in rows)}

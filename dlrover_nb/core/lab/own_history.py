"""Runs of the history as jobs of a lab: what they asked for, how long they took, and their last fit."""

from __future__ import annotations

from dlrover_nb.core.client.past import history_queries
from dlrover_nb.core.lab.workload import DAY_S, PastRun
from dlrover_nb.core.structs.job.job import JobPhase


def past_runs(days: float, url: str | None = None) -> tuple[PastRun, ...]:
    """Return the runs that ended, within so many days before the newest of them began.

    Parameters
    ----------
    url
        Of the history's database; None for the user's own file.

    Raises
    ------
    BackendError
        When the history exists but cannot be read.

    Notes
    -----
    Days count from the newest run and not from now, so that a lab gives the same result tomorrow. External
    jobs are left out: the programs of others have roles that no policy sizes.
    """
    runs = [
        run
        for run in history_queries.runs(url)
        if run.ended_at_s is not None and run.ended_at_s > run.started_at_s and run.spec.foreign is None
    ]
    newest_s = max((run.started_at_s for run in runs), default=0.0)
    past = []
    for run in runs:
        if run.ended_at_s is None or run.started_at_s < newest_s - days * DAY_S:
            continue
        fits = history_queries.run_history(run.job, run.run, url).fits
        is_whole = run.phase is JobPhase.SUCCEEDED and run.traits is not None
        n_sample = run.traits.n_sample if is_whole and run.traits is not None else None
        fit = fits[-1] if fits else None
        past.append(PastRun(run.spec, run.started_at_s, run.ended_at_s - run.started_at_s, fit, n_sample))
    return tuple(past)

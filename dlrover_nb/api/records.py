"""What is kept of jobs of any cluster: their runs, how good predictions were, and the audit of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.api import audit, past
from dlrover_nb.widgets.rows.tables import Tabular

if TYPE_CHECKING:
    from dlrover_nb.api.audit import AuditView
    from dlrover_nb.api.views.job_views import HistoryView, RunsView, ScoresView


class Records(Tabular):
    """The records; `Cluster` is what users hold."""

    def history(self, job: str | None = None, run: str | None = None) -> HistoryView | RunsView:
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
        >>> cluster.history("ads-ctr").history.outcomes
        """
        return past.history(job, run)

    def score(
        self, owner: str | None = None, days: float | None = None, *, job: str | None = None
    ) -> ScoresView:
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
        >>> cluster.score(days=30)
        """
        return past.score(owner, days, job=job)

    def audit(self, job: str | None = None, since: str | None = None, n: int = 50) -> AuditView:
        """Return the newest commands in the audit: who asked for what, and what became of it.

        Parameters
        ----------
        job
            A job's name; None: all jobs.
        since
            An age such as ``24h``, or a date; None: all.
        n
            How many at the most.

        Raises
        ------
        InvalidValueError
            When `since` is no moment, or `n` is below 1.

        Examples
        --------
        >>> cluster.audit("ads-ctr", since="24h")
        """
        return audit.audit(job, since=since, n=n)

"""Persistent records of a job: the journal, from which the controller can be replayed, and the history.

Neither may stop training: a full disk or an unreachable database is logged once, and the job continues. The
history is not retried, because each try may block the driver's loop until a lock or a connection times out;
the journal has all that is missing.

A team reads one history, so nothing secret is written to it: neither where a job holds it, nor in texts.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import Redactor
from dlrover_nb.core.codec import with_texts
from dlrover_nb.core.driver.auto_audit import AutoAudit
from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.secrets import for_storage, secret_values
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.views.past import SeriesRow

if TYPE_CHECKING:
    from dlrover_nb.core.history.rows import Record
    from dlrover_nb.core.structs.views.events import Remember
    from dlrover_nb.core.structs.views.past import PastJob

logger = logging.getLogger(__name__)


def examples(url: str | None, *, limit: int = 100, owner: str | None = None) -> tuple[PastJob, ...]:
    """Return finished jobs for warm start, newest first; none, and a line in the log, without a history."""
    try:
        store = HistoryStore(url)
        try:
            return store.past_jobs(limit=limit, owner=owner)
        finally:
            store.close()
    except DlroverError as error:
        logger.warning("past jobs cannot be used: %s", error)
        return ()


def example_series(url: str | None, *, limit: int = 200) -> tuple[tuple[PastJob, tuple[SeriesRow, ...]], ...]:
    """Return finished jobs with their series, as `examples` returns jobs."""
    try:
        store = HistoryStore(url)
        try:
            return store.past_series(limit=limit)
        finally:
            store.close()
    except DlroverError as error:
        logger.warning("the series of past jobs cannot be used: %s", error)
        return ()


class HistoryWriter:
    """Writes the history of one job.

    Parameters
    ----------
    job
        The job's name.
    url
        Of the database; None for the user's own file.
    namespace
        Where the job runs, for the audit.
    """

    def __init__(self, job: str, url: str | None, namespace: str = "") -> None:
        self._job, self._url = job, url
        self._store: HistoryStore | None = None
        self._has_failed = False
        self._redactor = Redactor()
        self._started_at_s: float | None = None
        self._audit = AutoAudit(url, namespace)

    def continue_run(self, spec: JobSpec, started_at_s: float) -> None:
        """Write to the run that was started then, of which an earlier master wrote the beginning."""
        self._redactor = Redactor(secret_values(spec))
        self._started_at_s = started_at_s
        self._audit.begin(for_storage(spec), started_at_s)

    def remember(self, order: Remember) -> None:
        """Write one record; at the end of the job, compact old ones."""
        if self._has_failed:
            return
        try:
            if self._store is None:
                self._store = HistoryStore(self._url)
                if self._started_at_s is not None and not isinstance(order.record, JobSpec):
                    self._store.reopen(self._job, self._started_at_s)
            record = self._storable(order.record)
            self._store.remember(self._job, order.at_s, record)
            self._audit.note(record, order.at_s)
            if isinstance(order.record, PhaseChanged) and order.record.phase.is_final:
                self._store.compact(order.at_s)
        except InvalidValueError as error:
            self._has_failed = self._store is None  # a wrong address stays wrong
            logger.warning("job %s: the history of it is incomplete: %s", self._job, error)
        except DlroverError as error:
            self._has_failed = True
            logger.warning("job %s is not in the history from here on: %s", self._job, error)

    def _storable(self, record: Record) -> Record:
        """Return a record without secrets; the job itself, the first record, tells their values."""
        if isinstance(record, SeriesRow):  # many, and numbers alone
            return record
        if isinstance(record, JobSpec):
            self._redactor = Redactor(secret_values(record))
            return for_storage(record)
        return with_texts(record, self._redactor.within)

    def close(self) -> None:
        """Close the database."""
        if self._store is not None:
            self._store.close()
        self._audit.close()

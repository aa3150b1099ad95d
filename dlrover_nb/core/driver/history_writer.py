"""Persistent records of a job: the journal, from which the controller can be replayed, and the history.

Neither may stop training: a full disk or an unreachable database is logged once, and the job continues. The
history is not retried, because each try may block the driver's loop until a lock or a connection times out;
the journal has all that is missing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.structs.events import PhaseChanged

if TYPE_CHECKING:
    from dlrover_nb.core.structs.events import Remember
    from dlrover_nb.core.structs.past import PastJob

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
        logger.warning("nothing can be learnt from past jobs: %s", error)
        return ()


class HistoryWriter:
    """Writes the history of one job.

    Parameters
    ----------
    job
        The job's name.
    url
        Of the database; None for the user's own file.
    """

    def __init__(self, job: str, url: str | None) -> None:
        self._job, self._url = job, url
        self._store: HistoryStore | None = None
        self._has_failed = False

    def remember(self, order: Remember) -> None:
        """Write one record; at the end of the job, compact old ones."""
        if self._has_failed:
            return
        try:
            if self._store is None:
                self._store = HistoryStore(self._url)
            self._store.remember(self._job, order.at_s, order.record)
            if isinstance(order.record, PhaseChanged) and order.record.phase.is_final:
                self._store.compact(order.at_s)
        except InvalidValueError as error:
            self._has_failed = self._store is None  # a wrong address stays wrong
            logger.warning("job %s: not all is in the history: %s", self._job, error)
        except DlroverError as error:
            self._has_failed = True
            logger.warning("job %s is not in the history from here on: %s", self._job, error)

    def close(self) -> None:
        """Close the database."""
        if self._store is not None:
            self._store.close()

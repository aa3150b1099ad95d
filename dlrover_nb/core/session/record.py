"""What a job leaves behind: the journal, from which the controller can be replayed, and the history.

Neither may stop training: a full disk or a database that is away is logged once, and the job goes on. The
history is not tried again, because each try may hold up the driver's loop for as long as a lock or a
connection takes to be given up; the journal has all that is missing.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import Tagged
from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.structs.events import Event, PhaseChanged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from dlrover_nb.core.structs.events import Remember
    from dlrover_nb.core.structs.past import PastJob

logger = logging.getLogger(__name__)

JOURNAL = "journal.jsonl"
_EVENTS: Tagged[Event] = Tagged(Event)


class Journal:
    """Every event that the controller heard, one line each, in order.

    Parameters
    ----------
    folder
        The job's run folder.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOURNAL
        self._file: BinaryIO | None = None
        self._has_failed = False

    def append(self, event: Event) -> None:
        """Write one event."""
        if self._has_failed:
            return
        try:
            if self._file is None:
                self._file = self._path.open("ab")
            self._file.write(_EVENTS.to_line(event))
            self._file.flush()
        except OSError as error:
            self._has_failed = True
            logger.warning("the journal %s ends here, the job goes on: %s", self._path, error)

    def close(self) -> None:
        """Close the file; on a full disk its last lines may still wait to be written, and are dropped."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()


def read_journal(path: Path) -> Iterator[Event]:
    """Yield the events of a journal; its last line may be half written and is then left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield _EVENTS.from_line(line)


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


class Memory:
    """The history as one job writes it.

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
        """Write one record; with the end of the job, make what is old smaller."""
        if self._has_failed:
            return
        try:
            if self._store is None:
                self._store = HistoryStore(self._url)
            self._store.remember(self._job, order.at_s, order.record)
            if isinstance(order.record, PhaseChanged) and order.record.phase.is_final:
                self._store.compact(order.at_s)
        except InvalidValueError as error:
            self._has_failed = self._store is None  # an address that is wrong stays wrong
            logger.warning("job %s: not all is in the history: %s", self._job, error)
        except DlroverError as error:
            self._has_failed = True
            logger.warning("job %s is not in the history from here on: %s", self._job, error)

    def close(self) -> None:
        """Let go of the database."""
        if self._store is not None:
            self._store.close()

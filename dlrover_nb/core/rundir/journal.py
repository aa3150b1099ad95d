"""The journal of a job: every event that its controller received, one JSON line each, in order.

It must not stop training: a full disk is logged once, and the job continues without a journal.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import Tagged
from dlrover_nb.core.structs.events import Event

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

logger = logging.getLogger(__name__)


JOURNAL = "journal.jsonl"


_EVENTS: Tagged[Event] = Tagged(Event)


class Journal:
    """Every event that the controller received, one line each, in order.

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
        """Close the file; on a full disk the unwritten last lines are dropped."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()


def read_journal(path: Path) -> Iterator[Event]:
    """Yield the events of a journal; a partly written last line is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield _EVENTS.from_line(line)

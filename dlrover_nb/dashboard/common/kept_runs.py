"""The records of runs that were read last: a scrubber asks for many moments of one run, one after the other.

Only ended runs are kept, whose records change no more, and for a minute, since they may be deleted.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from dlrover_nb.core.client.past.history_queries import run_history

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.client.past.history_queries import RunHistory

KEPT_S = 60.0
N_KEPT = 4  # a run of 100,000 spans takes some 20 MB


class KeptRuns:
    """Reads runs from the history, and keeps those that were asked for last; thread-safe.

    Parameters
    ----------
    url
        Of the history's database; None for the user's own file.
    read
        Returns the records of a run: by the job's name, the run's id and the address.
    monotonic
        A clock that is never set back.
    """

    def __init__(
        self,
        url: str | None,
        *,
        read: Callable[[str, str, str | None], RunHistory] = run_history,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url, self._read, self._monotonic = url, read, monotonic
        self._kept: dict[str, tuple[float, RunHistory]] = {}
        self._lock = threading.Lock()

    def run(self, run: str) -> RunHistory:
        """Return the records of a run by its id; `NotFoundError` names the nearest ones."""
        now_s = self._monotonic()
        with self._lock:
            self._kept = {each: entry for each, entry in self._kept.items() if now_s - entry[0] < KEPT_S}
            if (entry := self._kept.get(run)) is not None:
                return entry[1]
        history = self._read(run.rpartition("@")[0] or run, run, self._url)
        if history.run.phase.is_final:
            with self._lock:
                self._kept[run] = now_s, history
                for oldest in [*self._kept][:-N_KEPT]:
                    del self._kept[oldest]
        return history

"""The newest board of each watched cluster, drawn once however many browsers show it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.errors import DlroverError, NotFoundError
from dlrover_nb.dashboard.jobs_board.deltas import Board, board_of

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.dashboard.common.clusters import Jobs, WatchedCluster

CAPACITY_S = 30.0  # a cluster's capacity is asked for no more often
ASKED_S = 5.0  # that a page waits for it; one that comes later is on the next page
SHOWN_S = 3.0  # a master that is busy misses a list or two
KEPT_S = 300.0  # a job whose master gives no answer stays for so long
SEARCH_S = 5.0  # whether silent jobs are still there is asked no more often


class LastSeen:
    """The jobs that were heard lately, also those whose masters give no answer now. It has no clock.

    A list of jobs leaves out a master that does not answer at once; its row must not come and go with that,
    and one that is gone for good is what the reader should see.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[JobSummary, float]] = {}

    def with_silent(
        self, jobs: tuple[JobSummary, ...], now_s: float
    ) -> tuple[tuple[JobSummary, ...], dict[str, float]]:
        """Return the jobs with those that are silent, and for how long each of these is.

        A job that had ended when it was last heard, or is silent for longer than `KEPT_S`, is left out.
        """
        self._jobs |= {job.name: (job, now_s) for job in jobs}
        here = {job.name for job in jobs}
        self._jobs = {
            name: (job, at_s)
            for name, (job, at_s) in self._jobs.items()
            if name in here or (not job.phase.is_final and now_s - at_s <= KEPT_S)
        }
        away = [(job, now_s - at_s) for name, (job, at_s) in self._jobs.items() if name not in here]
        silent = {job.name: silent_s for job, silent_s in away if silent_s > SHOWN_S}
        return (*jobs, *(job for job, _ in away)), silent

    def forget(self, name: str) -> None:
        """Leave out a job that is not there any more."""
        self._jobs.pop(name, None)


class Drawn:
    """The newest board of one cluster."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: Jobs | None = None
        self._board: Board | None = None
        self._capacity: Capacity | None = None
        self._asked_s: float | None = None
        self._asking: threading.Thread | None = None
        self._seen = LastSeen()
        self._searching: threading.Thread | None = None
        self._searched_s = 0.0

    def board(self, cluster: WatchedCluster) -> Board:
        """Return the board of what was heard last; it may wait a little for the capacity, so on a thread."""
        with self._lock:
            jobs = cluster.jobs()
            if self._board is None or self._of is not jobs:
                shown, silent = self._seen.with_silent(jobs.jobs, time.monotonic())
                if silent and not jobs.error:
                    self._search(cluster, tuple(silent))
                capacity, now_s = self._known_capacity(cluster), SystemClock().now_s()
                self._board = board_of(shown, capacity, jobs.error, silent_s=silent, now_s=now_s)
                self._of = jobs
            return self._board

    def _search(self, cluster: WatchedCluster, silent: tuple[str, ...]) -> None:
        """Look on a thread whether silent jobs are still there: a deleted one is no silent one."""
        now_s = time.monotonic()
        is_on = self._searching is not None and self._searching.is_alive()
        if not is_on and now_s > self._searched_s + SEARCH_S:
            self._searched_s = now_s
            self._searching = threading.Thread(
                target=self._forget_deleted, args=(cluster, silent), name="dlrover-deleted", daemon=True
            )
            self._searching.start()

    def _forget_deleted(self, cluster: WatchedCluster, silent: tuple[str, ...]) -> None:
        for name in silent:
            try:
                cluster.core.job(name)
            except NotFoundError:
                with self._lock:
                    self._seen.forget(name)
            except DlroverError:  # nothing can be said of it now
                return

    def _known_capacity(self, cluster: WatchedCluster) -> Capacity | None:
        now_s = time.monotonic()
        is_asked = self._asking is not None and self._asking.is_alive()
        if not is_asked and (self._asked_s is None or now_s > self._asked_s + CAPACITY_S):
            self._asked_s = now_s
            self._asking = threading.Thread(
                target=self._ask, args=(cluster,), name="dlrover-capacity", daemon=True
            )
            self._asking.start()
            self._asking.join(ASKED_S)
        return self._capacity

    def _ask(self, cluster: WatchedCluster) -> None:
        try:
            self._capacity = cluster.core.capacity()
        except DlroverError:
            self._capacity = None


_DRAWN: WeakKeyDictionary[WatchedCluster, Drawn] = WeakKeyDictionary()
_LOCK = threading.Lock()


def board(cluster: WatchedCluster) -> Board:
    """Return the newest board of a cluster."""
    with _LOCK:
        drawn = _DRAWN.setdefault(cluster, Drawn())
    return drawn.board(cluster)

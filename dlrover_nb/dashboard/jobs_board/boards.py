"""The newest board of each watched cluster, drawn once however many browsers show it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from dlrover_nb.core.errors import DlroverError
from dlrover_nb.dashboard.jobs_board.deltas import Board, board_of

if TYPE_CHECKING:
    from dlrover_nb.core.structs.capacity import Capacity
    from dlrover_nb.dashboard.clusters import Jobs, WatchedCluster

CAPACITY_S = 30.0  # a cluster's capacity is asked for no more often


class Drawn:
    """The newest board of one cluster."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: Jobs | None = None
        self._board: Board | None = None
        self._capacity: Capacity | None = None
        self._asked_s: float | None = None

    def board(self, cluster: WatchedCluster) -> Board:
        """Return the board of what was heard last; it may wait for the cluster's capacity, so on a thread."""
        with self._lock:
            jobs = cluster.jobs()
            if self._board is None or self._of is not jobs:
                self._board = board_of(jobs.jobs, self._known_capacity(cluster), jobs.error)
                self._of = jobs
            return self._board

    def _known_capacity(self, cluster: WatchedCluster) -> Capacity | None:
        now_s = time.monotonic()
        if self._asked_s is None or now_s > self._asked_s + CAPACITY_S:
            self._asked_s = now_s
            try:
                self._capacity = cluster.core.capacity()
            except DlroverError:
                self._capacity = None
        return self._capacity


_DRAWN: WeakKeyDictionary[WatchedCluster, Drawn] = WeakKeyDictionary()
_LOCK = threading.Lock()


def board(cluster: WatchedCluster) -> Board:
    """Return the newest board of a cluster."""
    with _LOCK:
        drawn = _DRAWN.setdefault(cluster, Drawn())
    return drawn.board(cluster)

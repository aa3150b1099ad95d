"""Checks every few seconds which machines exist, and what other jobs leave free."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core.errors import BackendError

if TYPE_CHECKING:
    from dlrover_nb.core.driver.backend import Backend
    from dlrover_nb.core.structs.plan.capacity import Capacity

logger = logging.getLogger(__name__)

EVERY_S = 5.0


class CapacityChange(NamedTuple):
    """What changed since the last check; None: unchanged."""

    capacity: Capacity | None
    room: Capacity | None


class CapacityWatcher:
    """Queries the backend of one job for its capacity.

    Parameters
    ----------
    job
        The job's name.
    backend
        Where the job runs.
    capacity
        Of the backend when the job started.
    """

    def __init__(self, job: str, backend: Backend, capacity: Capacity) -> None:
        self._job, self._backend = job, backend
        self._capacity = self._room = capacity
        self._at_s = 0.0

    def look_soon(self) -> None:
        """Let the next check be due at once: the cluster has refused a node, and may have said why."""
        self._at_s = 0.0

    def check(self, at_s: float, *, is_running: bool) -> CapacityChange | None:
        """Return what changed; None when no check is due, or the backend did not answer.

        Before the job's plan runs, free room is not checked, but the sizes of nodes that were refused are.
        """
        if at_s < self._at_s + EVERY_S:
            return None
        self._at_s = at_s
        try:
            capacity = self._backend.capacity()
            room = self._backend.room() if is_running else self._room
            room = replace(room, node_limits=capacity.node_limits)
        except BackendError as error:
            logger.warning("the capacity for job %s cannot be read: %s", self._job, error)
            return None
        change = CapacityChange(
            capacity if capacity != self._capacity else None,
            room if room != self._room else None,
        )
        self._capacity, self._room = capacity, room
        return change

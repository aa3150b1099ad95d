"""Looks, every few seconds, for machines that came or went and for what other jobs leave."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core.errors import BackendError

if TYPE_CHECKING:
    from dlrover_nb.core.driver.backend import Backend
    from dlrover_nb.core.structs.capacity import Capacity

logger = logging.getLogger(__name__)

EVERY_S = 5.0


class CapacityChange(NamedTuple):
    """What is other than at the last look; None: the same."""

    capacity: Capacity | None
    room: Capacity | None


class CapacityWatcher:
    """Asks the backend of one job what there is.

    Parameters
    ----------
    job
        The job's name.
    backend
        Whom to ask.
    capacity
        What it said at the job's beginning.
    """

    def __init__(self, job: str, backend: Backend, capacity: Capacity) -> None:
        self._job, self._backend = job, backend
        self._capacity = self._room = capacity
        self._at_s = 0.0

    def look(self, at_s: float, *, is_running: bool) -> CapacityChange | None:
        """Return what changed; None when it is not time for a look, or nothing could be seen.

        Before the job has its plan, what is free is of no concern.
        """
        if at_s < self._at_s + EVERY_S:
            return None
        self._at_s = at_s
        try:
            capacity = self._backend.capacity()
            room = self._backend.room() if is_running else self._room
        except BackendError as error:
            logger.warning("job %s cannot see what is free: %s", self._job, error)
            return None
        seen = CapacityChange(
            capacity if capacity != self._capacity else None,
            room if room != self._room else None,
        )
        self._capacity, self._room = capacity, room
        return seen

"""Virtual time: scheduled actions in one fixed order.

A heap of (time, sequence, action), as in SimPy without its processes: actions of one time run in the order in
which they were scheduled, so a run is a function of its seed. Processes as generators were rejected: all that
a job does reacts to others, and a state with incoming events is easier to test.
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Callable


class Engine:
    """Runs actions at their time.

    Attributes
    ----------
    now_s
        The virtual time; it never runs backwards.
    """

    def __init__(self, at_s: float = 0.0) -> None:
        self.now_s = at_s
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._n = 0

    @property
    def next_at_s(self) -> float:
        """When the next action is due; infinite when none is."""
        return self._heap[0][0] if self._heap else math.inf

    def at(self, at_s: float, action: Callable[[], None]) -> None:
        """Run `action` at a time that is not before now; at an infinite time it never runs.

        Raises
        ------
        InvalidValueError
            When the time is in the past or no number.
        """
        if not at_s >= self.now_s:
            raise InvalidValueError(
                f"time must be >= now ({self.now_s:g} s), got {at_s}; act at now or later"
            )
        if at_s < math.inf:
            self._n += 1
            heapq.heappush(self._heap, (at_s, self._n, action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Run `action` after a delay."""
        self.at(self.now_s + delay_s, action)

    def run_next(self) -> None:
        """Move to the time of the next action and run it."""
        self.now_s, _, action = heapq.heappop(self._heap)
        action()

    def move(self, at_s: float) -> None:
        """Advance to `at_s`; no action may be due before."""
        if at_s > self.next_at_s:
            raise InvalidValueError(
                f"time may advance to what is due next ({self.next_at_s:g} s), got {at_s:g}; run that first"
            )
        self.now_s = max(self.now_s, at_s)

"""Time as an argument: the one place that reads the machine's clock.

Decisions take `at_s`, seconds since the epoch, as a value. Only the loops at the edge own a `Clock`.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of the present time."""

    def now_s(self) -> float:
        """Return seconds since the epoch; never less than the value before."""
        ...


class SystemClock:
    """Wall-clock time that never runs backwards, even if the machine's clock is set back."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def now_s(self) -> float:
        """Return seconds since the epoch."""
        return self._offset_s + time.monotonic()


class ManualClock:
    """Virtual time for tests and simulations: it moves only in `advance`."""

    def __init__(self, at_s: float = 0.0) -> None:
        self._at_s = at_s

    def now_s(self) -> float:
        """Return the present virtual time."""
        return self._at_s

    def advance(self, seconds: float) -> float:
        """Move on by `seconds` (>= 0) and return the new time."""
        if seconds < 0:
            raise ValueError(f"seconds must be >= 0, got {seconds}")
        self._at_s += seconds
        return self._at_s

"""One time for a chart of many jobs, whose masters' clocks may be hours apart. Pure.

It begins as the latest time of all jobs, and then passes with the time of one job, as long as that job's
time passes. The latest time of each tick was rejected: when the job whose clock is ahead leaves, the chart
stands still until the others have caught up. The viewer's own clock was rejected: simulated time is faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class SharedTime:
    """The chart's time.

    Attributes
    ----------
    now_s
        The present time, by the clock of the job that was ahead at first.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._times: dict[str, float] = {}
        self._job = ""  # whose time it passes with

    def advance(self, times: Mapping[str, float]) -> float:
        """Note the present time of each job (0: none); return the chart's time."""
        moved = {name: at_s for name, at_s in times.items() if at_s > self._times.get(name, at_s) > 0}
        if not self.now_s:
            self.now_s = max(times.values())
        elif moved:
            self._job = self._job if self._job in moved else min(moved)
            self.now_s += moved[self._job] - self._times[self._job]
        self._times = dict(times)
        return self.now_s

    def shift_s(self, job: str) -> float:
        """Return what to add to the times of a job, so that its present is the chart's."""
        at_s = self._times.get(job, 0.0)
        return self.now_s - at_s if at_s else 0.0

"""When a lost node may be replaced: soon at first, later and later, and not for ever.

A node that dies by bad luck (killed, evicted, out of memory once) should be replaced at once. A program
that crashes each time must not be started for ever: it burns the cluster and hides its reason. Both look
the same the first time; the number of losses within a window tells them apart.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 300.0
FREE_LOSSES = 4  # in a window, beyond two per planned node: a whole machine may go down twice
LONGEST_WAIT_S = 15.0


class RestartBudget:
    """Losses of nodes of one role within the window."""

    def __init__(self) -> None:
        self._lost_at_s: deque[float] = deque()

    def record(self, at_s: float) -> None:
        """Note a loss."""
        self._lost_at_s.append(at_s)

    def clear(self) -> None:
        """Forget the losses, because something else is started from now on."""
        self._lost_at_s.clear()

    def exhausted(self, at_s: float, n_planned: int) -> bool:
        """Whether so many nodes were lost in the window that starting more is pointless."""
        return self._n_recent(at_s) > FREE_LOSSES + 2 * n_planned

    def not_before_s(self, at_s: float, n_planned: int) -> float:
        """Return when the next node may be started.

        At once for the first `n_planned` losses, then 1, 2, 4 … seconds after the last one.
        """
        n_extra = self._n_recent(at_s) - n_planned
        if n_extra <= 0:
            return at_s
        return self._lost_at_s[-1] + min(2.0 ** (n_extra - 1), LONGEST_WAIT_S)

    def _n_recent(self, at_s: float) -> int:
        while self._lost_at_s and self._lost_at_s[0] < at_s - WINDOW_S:
            self._lost_at_s.popleft()
        return len(self._lost_at_s)

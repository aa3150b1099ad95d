"""When a lost node may be replaced: soon at first, later and later, and not for ever.

A node that dies by bad luck (killed, evicted, out of memory once) should be replaced at once. A program
that crashes each time must not be started for ever: it burns the cluster and hides its reason. Both look
the same the first time. What tells them apart is work: a node that did some, in a job that has come further
than ever since the last loss, died by bad luck, however often that happens. Losses without it are counted
within a window. So a machine that is pre-empted all day is no failure; a row of the data that ends every
worker, or a PS that dies each time before it is past the point where the one before it died, is.
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
        self._most_done = 0
        self._forgiven_at = -1

    def record(self, at_s: float, *, has_worked: bool, n_sample_done: int) -> None:
        """Note a loss, or forget those of before when this one was bad luck.

        Parameters
        ----------
        has_worked
            Whether the lost node did any work.
        n_sample_done
            How far the job was when the node was lost.
        """
        has_advanced = n_sample_done > self._most_done
        self._most_done = max(self._most_done, n_sample_done)
        if has_worked and has_advanced:
            self._lost_at_s.clear()
        else:
            self._lost_at_s.append(at_s)

    def forgive(self, n_loss: int, *, n_sample_done: int) -> None:
        """Forget the last losses, whose reason was found and put aside.

        Once for each time that the job has come further: a program that dies of whatever it is given would
        be forgiven for ever else.
        """
        if n_sample_done > self._forgiven_at:
            self._forgiven_at = n_sample_done
            for _ in range(min(n_loss, len(self._lost_at_s))):
                self._lost_at_s.pop()

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

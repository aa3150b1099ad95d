"""When a lost node may be replaced: at once at first, then with growing delays, and not without end.

A node that dies by accident (killed, evicted, out of memory once) should be replaced at once. A program that
crashes each time must not be restarted for ever: it wastes the cluster and hides its reason. Both look the
same the first time; what distinguishes them is work. A node that did some, in a job that has advanced since
the last loss, died by accident, however often that happens. Losses without work are counted within a window.
So a machine that is preempted all day is no failure; a row of the data that kills every worker, or a PS that
dies each time before the point where its predecessor died, is. A program that fails by the same error again
and again is found by that error (`crash_loops`), also where it works in between.

A node that the cluster refuses by a rule is asked for less and less often too, but says nothing of the
program: when the rule is lifted, one accident more must not end a job that trained all the time.
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
        self._refused_at_s: deque[float] = deque()
        self._most_done = 0
        self._forgiven_at = -1

    def record(self, at_s: float, *, has_worked: bool, n_sample_done: int) -> None:
        """Record a loss, or clear earlier ones when the job has advanced since.

        Parameters
        ----------
        has_worked
            Whether the lost node did any work.
        n_sample_done
            Samples done when the node was lost.
        """
        has_advanced = n_sample_done > self._most_done
        self._most_done = max(self._most_done, n_sample_done)
        if has_worked and has_advanced:
            self.clear()
        else:
            self._lost_at_s.append(at_s)

    def refuse(self, at_s: float) -> None:
        """Record a node that a rule of the cluster refused, which is no failure."""
        self._refused_at_s.append(at_s)

    def forgive(self, n_loss: int, *, n_sample_done: int) -> None:
        """Remove the last losses, whose reason was found and isolated.

        Only once per advance of the job; else a program that dies of any input would be restarted for ever.
        """
        if n_sample_done > self._forgiven_at:
            self._forgiven_at = n_sample_done
            for _ in range(min(n_loss, len(self._lost_at_s))):
                self._lost_at_s.pop()

    def clear(self) -> None:
        """Clear the losses, because other nodes are started from now on."""
        self._lost_at_s.clear()
        self._refused_at_s.clear()

    def exhausted(self, at_s: float, n_planned: int) -> bool:
        """Whether so many nodes were lost in the window that starting more is pointless."""
        return len(_recent(self._lost_at_s, at_s)) > FREE_LOSSES + 2 * n_planned

    def not_before_s(self, at_s: float, n_planned: int) -> float:
        """Return when the next node may be started.

        At once for the first `n_planned` losses and refusals, then 1, 2, 4 … seconds after the last one.
        """
        tried_at_s = [*_recent(self._lost_at_s, at_s), *_recent(self._refused_at_s, at_s)]
        n_extra = len(tried_at_s) - n_planned
        if n_extra <= 0:
            return at_s
        return max(tried_at_s) + min(2.0 ** (n_extra - 1), LONGEST_WAIT_S)


def _recent(times_s: deque[float], at_s: float) -> deque[float]:
    """Drop what is older than the window; return the rest."""
    while times_s and times_s[0] < at_s - WINDOW_S:
        times_s.popleft()
    return times_s

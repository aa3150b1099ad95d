"""What a job has spent: the sum of what its nodes cost over time.

It follows from events alone: each change of what the nodes cost is one, so a replay of the journal gives the
same sum, and a restart of the master forgets nothing. While there is no master, its nodes work on and cost
money, or they have ended with its machine: what the nodes that are there again cost counts for that time.

Rejected: the price of the plan times the time since it was applied. Nodes of two plans are up during a change
of plan, and before the first plan runs; both cost money.
"""

from __future__ import annotations

HOUR_S = 3600.0


class Spending:
    """The money that one job has spent.

    Parameters
    ----------
    at_s
        When it was submitted.
    spent
        By earlier runs, whose rows it goes on with.

    Attributes
    ----------
    spent
        Until the last event.
    per_hour
        What its nodes cost, as last known.
    """

    def __init__(self, at_s: float, spent: float = 0.0) -> None:
        self.spent, self.per_hour = spent, 0.0
        self._at_s = at_s
        self._unseen_s: float | None = None  # how long the job has had no master; None: it has one

    def pass_time(self, at_s: float) -> None:
        """Count the money up to a time; an earlier one than the last changes nothing."""
        passed_s = max(at_s - self._at_s, 0.0)
        self._at_s = max(at_s, self._at_s)
        if self._unseen_s is None:
            self.spent += self.per_hour * passed_s / HOUR_S
        else:
            self._unseen_s += passed_s

    def change(self, at_s: float, per_hour: float | None) -> None:
        """Count with another price from now on; None: not known since the last event, until the next call."""
        if per_hour is None:
            self._unseen_s = self._unseen_s or 0.0
        self.pass_time(at_s)
        if per_hour is None:
            return
        if self._unseen_s is not None:
            self.spent += min(self.per_hour, per_hour) * self._unseen_s / HOUR_S
            self._unseen_s = None
        self.per_hour = per_hour

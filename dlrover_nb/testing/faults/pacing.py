"""When to stop a process, and for how long, so that each of its iterations takes a given time longer.

From outside one does not see where an iteration begins. But a process that runs for r seconds finishes
r / t iterations of t seconds, and so owes r T / t seconds of stops for a delay of T. It pays them in stops
about twice a second: longer ones than an iteration where the delay is large, because in a short stop a
worker may only miss the time in which it would have waited for its PS anyway. The time t of its own comes
from its reports: the mean iteration times the share of the time in which the process ran. What a stop hides
behind a wait is in neither, so the stops of an iteration sum to T whatever the node waits for.

No stop is longer than a tenth of the job's heartbeat time-out, and between two stops the process runs for a
breath, which is enough for its heartbeat: so a slow node is not taken for a dead one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

PERIOD_S = 0.5  # of a stop and a run together: two in each report of the node
BREATH_S = 0.005  # that a process runs at least between two stops
LONGEST_STOP_S = 3.0
SHARE_PERIOD_S = 0.1  # of a share of the time: short beside a report, long beside a turn of the scheduler
_NEWEST = 0.5  # weight of the newest report in the mean


def longest_stop_s(heartbeat_timeout_s: float) -> float:
    """Return the longest stop of a node: far below the silence after which it counts as lost."""
    return min(LONGEST_STOP_S, heartbeat_timeout_s / 10)


@dataclass(frozen=True, slots=True)
class Pacing:
    """What is known of a process, and what it owes.

    Parameters
    ----------
    longest_s
        Of a stop.
    own_s
        Mean iteration without the stops; None: not known, so nothing is owed.
    owed_s
        Stops that are due.
    ran_s, stopped_s
        Since the last report.
    """

    longest_s: float
    own_s: float | None = None
    owed_s: float = 0.0
    ran_s: float = 0.0
    stopped_s: float = 0.0

    def ran(self, seconds: float, delay_s: float) -> Pacing:
        """Return the state after the process ran."""
        owed_s = seconds * delay_s / self.own_s if self.own_s else 0.0
        most_s = delay_s + self.longest_s  # a debt from a long hiccup of ours is not collected for minutes
        return replace(self, ran_s=self.ran_s + seconds, owed_s=min(self.owed_s + owed_s, most_s))

    def stopped(self, seconds: float) -> Pacing:
        """Return the state after a stop; one that took too long is made up for later."""
        return replace(self, stopped_s=self.stopped_s + seconds, owed_s=self.owed_s - seconds)

    def reported(self, iter_s: float) -> Pacing:
        """Return the state after a report; one without an iteration says nothing."""
        passed_s = self.ran_s + self.stopped_s
        if iter_s <= 0 or passed_s <= 0:
            return self
        own_s = iter_s * self.ran_s / passed_s
        mixed_s = own_s if self.own_s is None else _NEWEST * own_s + (1 - _NEWEST) * self.own_s
        return replace(self, own_s=max(mixed_s, 1e-6), ran_s=0.0, stopped_s=0.0)

    def run_for_s(self, delay_s: float) -> float:
        """Return how long to let the process run now."""
        if not self.own_s or delay_s <= 0:
            return PERIOD_S
        return max(BREATH_S, PERIOD_S * self.own_s / (self.own_s + delay_s))

    @property
    def stop_for_s(self) -> float:
        """How long to stop the process now."""
        return max(0.0, min(self.owed_s, self.longest_s))

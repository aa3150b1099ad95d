"""Virtual time that follows real time by a factor, without catching up.

Virtual time moves `speed` times as fast as real time, as long as the simulation keeps up. Where it does not,
virtual time waits for it, and nothing is caught up later: a notebook that was suspended overnight must not
find its jobs ended.
"""

from __future__ import annotations

from dlrover_nb.core.structs import _check

MAX_TURN_S = 0.5  # real seconds that one turn may cover


class SimulationClock:
    """The virtual time up to which a simulation may run.

    Parameters
    ----------
    speed
        Virtual seconds per real second, > 0.
    at_s
        Virtual time at the start.
    real_s
        Real time at the start.

    Attributes
    ----------
    reached_s
        Virtual time that the simulation has reached.
    """

    def __init__(self, speed: float, *, at_s: float, real_s: float) -> None:
        _check.above_zero("speed", speed)
        self.speed = speed
        self.reached_s = at_s
        self._real_s = real_s

    def goal_s(self, real_s: float) -> float:
        """Return up to which virtual time to run at a real time."""
        return self.reached_s + self.speed * min(max(real_s - self._real_s, 0.0), MAX_TURN_S)

    def reach(self, at_s: float, real_s: float) -> None:
        """Record the virtual time that the simulation has reached."""
        self.reached_s, self._real_s = max(at_s, self.reached_s), real_s

    def wait_s(self, next_at_s: float) -> float:
        """Return the real seconds until something is due at a virtual time."""
        return max((next_at_s - self.reached_s) / self.speed, 0.0)

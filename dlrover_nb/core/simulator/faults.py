"""Random faults: node failures, slow episodes, noise of speeds and pending times.

Everything is drawn from a generator that the caller seeds. The failure rate is DLRover-RM's 1.5 % a day per
pod, as an exponential time to failure: no memory, no wear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    import numpy as np

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Faults:
    """Rates of faults, and noise.

    Parameters
    ----------
    failures_per_day
        Of one node; 0 means never.
    slow_per_day
        Episodes of slowness of one node; 0 means never.
    slow_factor
        Speed of a slow node over its normal speed, in (0, 1]: drawn evenly between the two.
    slow_s
        Mean length of an episode, exponential.
    speed_noise
        Standard deviation of the logarithm of the job's speed from one report to the next.
    node_noise
        The same of one worker against the others.
    memory_noise
        The same of reported memory.
    host_parts
        (from_s, part) in the order of time: which part of their speed other work on the hosts leaves to jobs
        from then on, in (0, 1]; all of it before the first.
    """

    failures_per_day: float = 0.015
    slow_per_day: float = 0.1
    slow_factor: tuple[float, float] = (0.3, 0.8)
    slow_s: float = 1800.0
    speed_noise: float = 0.02
    node_noise: float = 0.02
    memory_noise: float = 0.002
    host_parts: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        for _, part in self.host_parts:
            _check.above_zero("part of host_parts", part)
            _check.at_least("1 - part of host_parts", 1 - part, 0)
        for name in ("failures_per_day", "slow_per_day", "speed_noise", "node_noise", "memory_noise"):
            _check.at_least(name, getattr(self, name), 0)
        _check.above_zero("slow_s", self.slow_s)
        low, high = self.slow_factor
        _check.above_zero("least slow_factor", low)
        _check.at_least("largest slow_factor", high, low)
        _check.at_least("1 - largest slow_factor", 1 - high, 0)

    def host_at(self, at_s: float) -> float:
        """Return which part of their speed other work on the hosts leaves to jobs."""
        past = [part for from_s, part in self.host_parts if from_s <= at_s]
        return past[-1] if past else 1.0

    def until_failure_s(self, rng: np.random.Generator) -> float:
        """Draw the time to the failure of a node; infinite when nodes never fail."""
        return _until(self.failures_per_day, rng)

    def until_slow_s(self, rng: np.random.Generator) -> float:
        """Draw the time to a node's next episode of slowness."""
        return _until(self.slow_per_day, rng)

    def episode(self, rng: np.random.Generator) -> tuple[float, float]:
        """Draw how slow and for how many seconds."""
        return float(rng.uniform(*self.slow_factor)), float(rng.exponential(self.slow_s))


CALM = Faults(failures_per_day=0, slow_per_day=0, speed_noise=0, node_noise=0, memory_noise=0)
"""No faults and no noise."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Time from the order of a node to its first work, once there is capacity for it.

    Parameters
    ----------
    median_s
        Median time to be scheduled and to pull its image: lognormal.
    spread
        Standard deviation of the logarithm; 0 means always the median.
    start_s
        Start of the process and its libraries, the same for all.
    """

    median_s: float = 20.0
    spread: float = 0.5
    start_s: float = 10.0

    def __post_init__(self) -> None:
        _check.above_zero("median_s", self.median_s)
        _check.at_least("spread", self.spread, 0)
        _check.at_least("start_s", self.start_s, 0)

    def draw_s(self, rng: np.random.Generator) -> float:
        """Draw the time of one node."""
        return self.start_s + self.median_s * float(rng.lognormal(0.0, self.spread))


def _until(per_day: float, rng: np.random.Generator) -> float:
    return float(rng.exponential(DAY_S / per_day)) if per_day > 0 else math.inf

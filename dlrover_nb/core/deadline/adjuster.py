"""How a job's size may change, and how good a change is: Qore-DL's adjuster for one job.

A job's time-out degree compares its predicted run with the time until its deadline. Its workers change in
number or in size; how large the change is, `genetic` searches.

The paper's fitness (its Eq. 15) is not public. Ours puts being in time first and resources second: a late
job's best change is the smallest that is in time, a job with slack gives back as much as stays in time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from dlrover_nb.core.deadline.genetic import Change

LATE_WEIGHT = 10.0  # of a time-out degree of 1, where 1 is the job's present resources


@dataclass(frozen=True, slots=True)
class Size:
    """The workers of a job."""

    count: int
    cpu: float
    memory_mib: int

    def __post_init__(self) -> None:
        _check.at_least("number of workers", self.count, 1)
        _check.above_zero("cores of a worker", self.cpu)
        _check.at_least("memory_mib of a worker", self.memory_mib, 64)


def timeout_degree(run_s: float, left_s: float) -> float:
    """Return O, how far a job's predicted run exceeds the time until its deadline, as a share of that time.

    Above 0 it is late, below 0 it has slack (-1 at most); inf where the deadline has passed.
    """
    _check.at_least("run_s", run_s, 0)
    return run_s / left_s - 1 if left_s > 0 else math.inf  # (eq. 12)


def horizontal(size: Size, n: int) -> tuple[Size, ...]:
    """Return the size with n more workers (fewer, below 0); none where no worker would be left."""
    return (Size(size.count + n, size.cpu, size.memory_mib),) if size.count + n >= 1 else ()


def vertical(size: Size, cpu: float, memory: float | None = None) -> tuple[Size, ...]:
    """Return the size with the resources of so many workers spread over all; none where nothing is left.

    Parameters
    ----------
    cpu, memory
        In workers' cores and in workers' memory; below 0: taken away. Memory is as cores by default.
    """
    cpu_part = 1 + cpu / size.count
    memory_part = 1 + (cpu if memory is None else memory) / size.count
    if cpu_part <= 0 or size.memory_mib * memory_part < 64:
        return ()
    return (Size(size.count, size.cpu * cpu_part, int(size.memory_mib * memory_part)),)


def changed(size: Size, change: Change, *, grows: bool) -> Size | None:
    """Return the size after a change; None where nothing would be left.

    A horizontal change is of whole workers: as many as both amounts hold.
    """
    sign = 1 if grows else -1
    if change.is_horizontal:
        found = horizontal(size, sign * min(change.cpu, change.memory))
    else:
        found = vertical(size, sign * change.cpu, sign * change.memory)
    return found[0] if found else None


def fitness(timeout: float, resources: float, *, grows: bool) -> float:
    """Return how good a change is; the highest is the best, -inf is none.

    Parameters
    ----------
    timeout
        Time-out degree after it.
    resources
        Of the job after it, as a share of now.
    grows
        False: a change by which the job would be late is none.
    """
    if not grows and timeout > 0:
        return -math.inf
    return -LATE_WEIGHT * min(max(timeout, 0.0), 1e6) - resources  # (eq. 15)

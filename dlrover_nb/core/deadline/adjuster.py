"""Which running jobs get more, which give some back, and how good a change is: Qore-DL's adjuster.

A job's time-out degree compares its predicted run with the time until its deadline; its sensitivity is what
the resources of one more worker would speed it up, or those of one less slow it down. The four cases of the
paper choose jobs by both and by the utilisation of the cluster; the brain calls that (`brain.by_deadline`). A
job's own policy finds the size of its change, of its workers' number or size (`planner.policies.qore`,
`genetic`).

The paper's fitness (its Eq. 15) is not public. Ours puts being in time first and resources second: a late
job's best change is the smallest that is in time, a job with slack gives back as much as stays in time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.job.tuning import ClusterLoads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.deadline.genetic import Change

    Array = NDArray[np.float64]

LATE_WEIGHT = 10.0  # of a time-out degree of 1, where 1 is the job's present resources
CORE_WEIGHT = (
    0.25  # of the logarithm of resources, where that of speed is 1: cores that idle are worth little
)


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


@dataclass(frozen=True, slots=True)
class RunningJob:
    """What the choice among running jobs is made from.

    Parameters
    ----------
    timeout
        Its `timeout_degree`; 0 for a job without a deadline, which is neither late nor has slack.
    gain, loss
        Its `sensitivity` to the resources of one worker more, and of one less.
    """

    name: str
    timeout: float
    gain: float
    loss: float

    @property
    def is_late(self) -> bool:
        """Whether it would miss its deadline."""
        return self.timeout > 0


@dataclass(frozen=True, slots=True)
class Target:
    """A job to change, and why."""

    name: str
    grows: bool
    why: str


def timeout_degree(run_s: float, left_s: float) -> float:
    """Return O, how far a job's predicted run exceeds the time until its deadline, as a share of that time.

    Above 0 it is late, below 0 it has slack (-1 at most); inf where the deadline has passed.
    """
    _check.at_least("run_s", run_s, 0)
    return run_s / left_s - 1 if left_s > 0 else math.inf  # (eq. 12)


def sensitivity(
    samples_per_s: Array, cores: Array, *, now: tuple[float, float], unit: float
) -> tuple[float, float]:
    """Return S of a job: the relative gain by one more worker's resources, and the loss by one less.

    Both ways of a change, another number of workers and another size, are among the plans: the better one
    counts. Where no plan has more, the gain is 0; where none has less, the loss is inf.

    Parameters
    ----------
    samples_per_s, cores
        Of the plans that the job may go to: shape (n_plans,).
    now
        Samples/s and cores of the present plan.
    unit
        Cores of one of its workers.
    """
    speed, own_cores = now
    more, less = cores > own_cores + 1e-9, cores < own_cores - 1e-9
    steps = np.maximum(np.abs(cores - own_cores), unit) / unit
    change = (samples_per_s / speed - 1) / steps
    gain = float(change[more].max(initial=0.0))
    loss = float((-change[less]).min(initial=math.inf))
    return gain, max(loss, 0.0)  # (eq. 13)


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
        sizes = horizontal(size, sign * min(change.cpu, change.memory))
    else:
        sizes = vertical(size, sign * change.cpu, sign * change.memory)
    return sizes[0] if sizes else None


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


def eagerness(faster: float, resources: float) -> float:
    """Return how good growth is that no deadline asks for, on a cluster with idle cores; staying is 0.

    Parameters
    ----------
    faster, resources
        Speed and resources after it, as shares of now.
    """
    return math.log(faster) - CORE_WEIGHT * math.log(resources)


def targets(
    jobs: Sequence[RunningJob], utilisation: float, *, n: int = 1, loads: ClusterLoads | None = None
) -> tuple[Target, ...]:
    """Return at most n jobs to grow and at most n to shrink, by the four cases of the paper.

    Parameters
    ----------
    utilisation
        U of the cluster (`deadline.utilisation`).
    loads
        θ₁ to θ₃; None: the paper's.
    """
    loads = loads or ClusterLoads()
    late, slack = [j for j in jobs if j.is_late], [j for j in jobs if j.timeout < 0]
    load = f"{percent(utilisation)} of the cluster is in use"
    if late:
        grown = _most(late, n, f"it would be late, and {load}")
        if utilisation <= loads.middle:
            return grown
        return (*grown, *_least(slack, n, f"it has time to spare, late jobs have none, and {load}"))
    if utilisation <= loads.light:
        return _most(jobs, n, f"no job would be late, and {load}")
    if utilisation > loads.heavy:
        return _least(slack, n, f"it has time to spare, and {load}, which leaves little for new jobs")
    return ()


def _most(jobs: Sequence[RunningJob], n: int, why: str) -> tuple[Target, ...]:
    return tuple(Target(j.name, grows=True, why=why) for j in sorted(jobs, key=lambda j: -j.gain)[:n])


def _least(jobs: Sequence[RunningJob], n: int, why: str) -> tuple[Target, ...]:
    return tuple(Target(j.name, grows=False, why=why) for j in sorted(jobs, key=lambda j: j.loss)[:n])

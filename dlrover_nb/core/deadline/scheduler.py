"""Which waiting job starts next, and on which hosts: Qore-DL's scheduler.

Light hosts count most. The weight of a host falls geometrically with its rank in load, so that the lightest
third of the hosts holds 95 % of the weight. The same weights make the utilisation of the cluster, which
describes the room where a node would go, and the chances of a host to be a candidate for a node.

The paper names the quantities; its equations 8 and 16 are not public, so their forms are ours:

- Weights by rank, not by load itself: the share of the lightest third is 95 % whatever the loads are. Hosts
  of equal load share their ranks' weights equally, so the order of the list decides nothing.
- A job's priority is its urgency, plus its size under light load, and minus its size under heavy load.
  Size counts less than urgency (`SIZE_WEIGHT`): a deadline is a promise, the order of sizes a matter of
  packing.
- A job that cannot be in time any more is not urgent: it would delay one that can. Rejected: the highest
  urgency for it, by which one hopeless job makes others hopeless.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.structs.capacity import Need

    Array = NDArray[np.float64]

CPU_WEIGHT, MEMORY_WEIGHT = 0.7, 0.3  # alpha of the paper
LIGHT_PART, LIGHT_WEIGHT = 1 / 3, 0.95  # of the hosts, of the weight
SIZE_WEIGHT = 0.5  # of a job that takes the whole cluster, where 1 is the urgency of one with no time to lose


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Utilisation that separates light, middle and heavy load: theta 1 to 3, as the paper sets them."""

    light: float = 0.35
    middle: float = 0.55
    heavy: float = 0.70

    def __post_init__(self) -> None:
        if not 0 <= self.light < self.middle < self.heavy <= 1:
            raise InvalidValueError(
                "thresholds must rise within 0 and 1, got "
                f"{self.light:g}, {self.middle:g}, {self.heavy:g}; the paper's are 0.35, 0.55, 0.7"
            )


PAPER = Thresholds()


@dataclass(frozen=True, slots=True)
class Host:
    """A machine: what it has, and what of it is given to nodes."""

    name: str
    cpu: float
    memory_mib: int
    used_cpu: float = 0.0
    used_memory_mib: int = 0

    def __post_init__(self) -> None:
        _check.above_zero(f"cores of host {self.name}", self.cpu)
        _check.above_zero(f"memory_mib of host {self.name}", self.memory_mib)
        _check.at_least(f"used cores of host {self.name}", self.used_cpu, 0)
        _check.at_least(f"used memory_mib of host {self.name}", self.used_memory_mib, 0)

    @property
    def load(self) -> float:
        """U_l, 0 to 1: the weighted utilisation of cores and memory."""
        cpu, memory = self.used_cpu / self.cpu, self.used_memory_mib / self.memory_mib
        return CPU_WEIGHT * cpu + MEMORY_WEIGHT * memory  # (eq. 17)

    def has_room(self, need: Need) -> bool:
        """Whether a node fits beside what runs."""
        cpu, memory_mib = need
        return self.used_cpu + cpu <= self.cpu + 1e-6 and self.used_memory_mib + memory_mib <= self.memory_mib

    def with_node(self, need: Need) -> Host:
        """Return the host with one more node."""
        cpu, memory_mib = need
        return replace(self, used_cpu=self.used_cpu + cpu, used_memory_mib=self.used_memory_mib + memory_mib)


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A configured job in the queue.

    Parameters
    ----------
    needs
        Cores and MiB of each node.
    run_s
        Predicted seconds from its start to its end with these nodes.
    least_run_s
        The same with the most that it could be given; at most `run_s`.
    left_s
        Seconds until the deadline; negative: it has passed.
    """

    name: str
    needs: tuple[Need, ...]
    run_s: float
    least_run_s: float
    left_s: float

    def __post_init__(self) -> None:
        _check.above_zero("run_s", self.run_s)
        _check.above_zero("least_run_s", self.least_run_s)
        if not self.needs:
            raise InvalidValueError(f"job {self.name} must have >= 1 node, got none; configure it first")


def host_weights(loads: Sequence[float]) -> Array:
    """Return beta, the weight of each host: shape (n_hosts,), sum 1, falling with the load.

    Notes
    -----
    Eq. (16) of Qore-DL is described as 95 % confidence for the first third of the hosts. We take q**rank with
    the q by which ceil(n / 3) hosts hold that share, and the mean of it among hosts of equal load.

    Raises
    ------
    InvalidValueError
        Where there is no host, or a load is not finite.
    """
    load = np.asarray(loads, dtype=np.float64)
    if not len(load) or not np.isfinite(load).all():
        raise InvalidValueError(f"the loads of >= 1 host must be finite numbers, got {list(loads)}")
    by_rank = _ratio(len(load)) ** np.arange(len(load))
    by_rank /= by_rank.sum()
    _, which, n_equal = np.unique(load, return_inverse=True, return_counts=True)
    ends = np.cumsum(n_equal)
    sums = np.add.reduceat(by_rank, ends - n_equal)
    return np.asarray((sums / n_equal)[which])  # (eq. 16)


def _ratio(n_host: int) -> float:
    """Return the q by which the first third of n terms of 1, q, q**2... holds `LIGHT_WEIGHT` of the sum."""
    n_light = light_hosts(n_host)
    if n_light == n_host:
        return 1.0

    def missing(q: float) -> float:
        powers = q ** np.arange(n_host)
        return float(powers[:n_light].sum() / powers.sum()) - LIGHT_WEIGHT

    return float(brentq(missing, 1e-9, 1.0, xtol=1e-14))


def light_hosts(n_host: int) -> int:
    """Return how many hosts the lightest third is, rounded up."""
    return -int(-n_host * LIGHT_PART // 1)


def utilisation(hosts: Sequence[Host]) -> float:
    """Return U, the weighted utilisation of a cluster: 0 to 1.

    It is near the load of the lightest third: the room that the next node finds.
    """
    loads = [host.load for host in hosts]
    return float(host_weights(loads) @ np.asarray(loads))  # (eq. 1)


def size(job: WaitingJob, hosts: Sequence[Host]) -> float:
    """Return N, what a job needs as a share of the whole cluster, weighted as the loads are."""
    cpu, memory_mib = (sum(column) for column in zip(*job.needs, strict=True))
    all_cpu, all_mib = sum(h.cpu for h in hosts), sum(h.memory_mib for h in hosts)
    return float(CPU_WEIGHT * cpu / all_cpu + MEMORY_WEIGHT * memory_mib / all_mib)  # (eqs. 6, 7)


def urgency(job: WaitingJob) -> float:
    """Return the share of the time until the deadline that the job needs, 0 to 1; 0 where it must be late."""
    if job.left_s < job.least_run_s:
        return 0.0
    return min(job.run_s / job.left_s, 1.0)


def size_preference(load: float, thresholds: Thresholds = PAPER) -> float:
    """Return 1 under light load (large jobs first) to -1 under heavy load (small ones first)."""
    part = (load - thresholds.light) / (thresholds.heavy - thresholds.light)
    return 1 - 2 * min(max(part, 0.0), 1.0)


def priority(job: WaitingJob, hosts: Sequence[Host], thresholds: Thresholds = PAPER) -> float:
    """Return R of a waiting job; the highest is to start next (Eq. 8 of Qore-DL; see the module)."""
    preference = size_preference(utilisation(hosts), thresholds)
    return urgency(job) + SIZE_WEIGHT * preference * size(job, hosts)


def ordered(
    jobs: Sequence[WaitingJob], hosts: Sequence[Host], thresholds: Thresholds = PAPER
) -> tuple[WaitingJob, ...]:
    """Return the queue, highest priority first; of equal ones the earlier in the queue."""
    return tuple(sorted(jobs, key=lambda job: -priority(job, hosts, thresholds)))


def candidates(hosts: Sequence[Host], n: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Draw n different hosts (all, where there are fewer) by their weights; positions in `hosts`."""
    weights = host_weights([host.load for host in hosts])
    return tuple(int(i) for i in rng.choice(len(hosts), min(n, len(hosts)), replace=False, p=weights))


def place(
    needs: Sequence[Need], hosts: Sequence[Host], rng: np.random.Generator, *, n_candidate: int = 3
) -> tuple[int, ...] | None:
    """Return the host of each node, as positions in `hosts`; None where some node finds no room.

    Nodes are placed largest first, each on the lightest of its candidates with room; where none of them has
    room, on the lightest of all hosts that has. Algorithm 1 of Qore-DL, with that last resort added: a job
    must not wait because of a draw.
    """
    now, found = list(hosts), dict[int, int]()
    for node in sorted(range(len(needs)), key=lambda i: needs[i], reverse=True):
        drawn = [i for i in candidates(now, n_candidate, rng) if now[i].has_room(needs[node])]
        free = drawn or [i for i, host in enumerate(now) if host.has_room(needs[node])]
        if not free:
            return None
        best = min(free, key=lambda i: now[i].load)
        now[best], found[node] = now[best].with_node(needs[node]), best
    return tuple(found[i] for i in range(len(needs)))

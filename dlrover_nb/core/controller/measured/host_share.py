"""What the host's other load took of a node's time, by the reports of a job's nodes.

A node that shares processors waits for them. Its threads' waits beyond the quota's (`starved_s`) are lost to
other processes, with three limits. Threads that wait side by side lose the time once. A node whose quota is
used up would have waited anyway: what it used of its quota takes at least used / cores seconds on an idle
host too, so only the rest of the time can be lost. And while it waits, the processors run the job's other
nodes as well as neighbors: a plan that is in its own way is no busy host. So the wait is divided by the
processor time of both on that machine.

Rejected: to compare the processor time of a step with its duration alone. It is as good where a node fills
its quota, and takes each wait for a disk or a barrier of a node that does not for other load. Pressure (PSI)
says that a host is busy, not which process waits for which.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dlrover_nb.core.structs.training.samples import NodeSample

MOST_LOST = 0.95  # of the time: a node that got next to nothing says nothing of its plan either
UNBOUND = 1.1  # times its cores: a node that uses more has no quota


@dataclass(slots=True)
class HostTally:
    """Sums of the reports of one node over a window.

    Attributes
    ----------
    cpu, machine
        Cores that the node may use, and where it runs.
    window_s, busy_s
        Time of its reports, and the part in which it did not wait for other nodes.
    cpu_s, starved_s, throttled_s, host_s
        `NodeSample.cpu_cores`, `starved_s`, `throttled_s` and `host_cores` as seconds.
    is_known
        Whether each report told its waits.
    """

    cpu: float = 0.0
    machine: str = ""
    window_s: float = 0.0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    starved_s: float = 0.0
    throttled_s: float = 0.0
    host_s: float | None = 0.0
    is_known: bool = True

    def add(self, sample: NodeSample, cpu: float) -> None:
        """Add a report of the node, which has `cpu` cores."""
        self.cpu, self.machine = cpu, sample.machine
        self.is_known = self.is_known and sample.starved_s is not None
        self.window_s += sample.window_s
        self.busy_s += busy_s(sample)
        self.cpu_s += sample.cpu_cores * sample.window_s
        self.starved_s += sample.starved_s or 0.0
        self.throttled_s += sample.throttled_s or 0.0
        if self.host_s is not None:
            cores = sample.host_cores
            self.host_s = None if cores is None else self.host_s + cores * sample.window_s

    @property
    def given_cores(self) -> float:
        """Cores that it got."""
        return self.cpu_s / self.window_s if self.window_s > 0 else 0.0

    def lost_s(self, others: float) -> float:
        """Return the seconds that it lost, where `others` had this part of the time that others ran."""
        runnable_s = self.cpu_s + self.starved_s + self.throttled_s
        side_by_side = max(runnable_s / max(self.busy_s, 1e-9), 1.0)
        is_bound = self.cpu > 0 and self.cpu_s <= UNBOUND * self.cpu * self.window_s
        rest_s = max(self.window_s - self.cpu_s / self.cpu, 0.0) if is_bound else inf
        return min(others * self.starved_s / side_by_side, rest_s, MOST_LOST * self.window_s)

    def wanted_cores(self, others: float) -> float:
        """Return the cores that it would have used for the same work on an idle host."""
        rest_s = self.window_s - self.lost_s(others)
        return self.cpu_s / rest_s if rest_s > 0 else 0.0


def busy_s(sample: NodeSample) -> float:
    """Return the seconds of a report in which its node did not wait for others."""
    split = sample.split
    waits_s = split.data_s + split.peers_s + split.idle_s
    if sample.role is Role.WORKER:
        waits_s += split.lookup_s + split.update_s
    if split.total_s <= 0:
        return sample.window_s
    return max(sample.window_s * (1 - waits_s / split.total_s), 0.0)  # also where an iteration has begun


def job_cores(nodes: Collection[HostTally]) -> Mapping[str, float]:
    """Return the cores that the nodes of a job got on each machine."""
    cores: dict[str, float] = defaultdict(float)
    for node in nodes:
        cores[node.machine] += node.given_cores
    return cores


def others_part(node: HostTally, of_job: Mapping[str, float]) -> float:
    """Return which part of the processor time beside a node was not its job's, 0 to 1; 1 where not known."""
    if node.host_s is None or node.window_s <= 0:
        return 1.0
    others = max(node.host_s / node.window_s - of_job[node.machine], 0.0)
    siblings = max(of_job[node.machine] - node.given_cores, 0.0)
    return others / (others + siblings) if others > 0 else 0.0

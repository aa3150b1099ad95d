"""What the nodes of a job used of what they have: cores, and their network link.

All figures are means over the last samples, as single reports are noisy. What is used is not cut to what is
allocated: where limits are advisory a node may use more, and its job is then certainly not short of work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.job.tuning import Nearchus
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.samples import NodeSample

BOTH = frozenset(Role)


@dataclass(frozen=True, slots=True)
class NodeUse:
    """What one node used under the present plan, oldest sample first.

    Parameters
    ----------
    allocated_cores
        What it may use: what the plan gives its role, or its own.
    used_cores
        CPU time over wall time, of each sample.
    bytes_per_s
        Of the busier direction of its link, of each sample; zero where it is not measured.
    memory_mib
        What it may use; 0: not told.
    tuning
        Parameters of NEARCHUS.
    gpu_busy
        Share of the time in which its GPUs computed, of each sample; empty: it has none, or nothing counts
        that.
    """

    node: str
    role: Role
    allocated_cores: float
    used_cores: tuple[float, ...]
    bytes_per_s: tuple[float, ...] = ()
    memory_mib: int = 0
    tuning: Nearchus = field(default_factory=Nearchus)
    gpu_busy: tuple[float, ...] = ()

    def cores(self) -> float:
        """Return the mean of the last samples (u_i)."""
        return fmean(self.used_cores[-self.tuning.n_stable :]) if self.used_cores else 0.0

    def efficiency(self) -> float:
        """Return the share of its cores that it uses (e_i)."""
        return self.cores() / self.allocated_cores

    def n_full(self, link_bytes_per_s: float) -> int:
        """Return how many of its last samples exceed the threshold of its link."""
        full = self.tuning.link_share * link_bytes_per_s
        return sum(rate > full for rate in self.judged_bytes_per_s)

    @property
    def judged_bytes_per_s(self) -> tuple[float, ...]:
        """The last N_net samples of its link."""
        return self.bytes_per_s[-self.tuning.n_network :]


def bytes_per_s(sample: NodeSample) -> float:
    """Return the rate of the busier direction of a node's link, which is full duplex."""
    n_byte = max(sample.n_byte_sent, sample.n_byte_received)
    return n_byte / sample.window_s if sample.window_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class PlanUse:
    """The cores that all nodes of a plan used while it ran."""

    plan: ResourcePlan
    used_cores: float


@dataclass(frozen=True, slots=True)
class JobUse:
    """What a job uses of its plan, and what it used of those before.

    Parameters
    ----------
    plan
        What runs.
    nodes
        Its nodes, as far as they have reported.
    earlier
        The plans that ran before, oldest first.
    link_bytes_per_s
        Capacity of each node's link, one direction; None: unknown.
    link_source
        How the capacity is known, or why it is not, as a clause.
    pinned
        Nodes whose size stays as it is: a user decided so, or their cluster could not change it.
    tuning
        Parameters of NEARCHUS.
    """

    plan: ResourcePlan
    nodes: tuple[NodeUse, ...]
    earlier: tuple[PlanUse, ...] = ()
    link_bytes_per_s: float | None = None
    link_source: str = ""
    pinned: frozenset[str] = frozenset()
    tuning: Nearchus = field(default_factory=Nearchus)

    def of(self, roles: Collection[Role]) -> tuple[NodeUse, ...]:
        """Return the nodes of these roles."""
        return tuple(node for node in self.nodes if node.role in roles)

    def cores(self) -> float:
        """Return the cores that all nodes use together."""
        return sum(node.cores() for node in self.nodes)

    def is_complete(self) -> bool:
        """Whether all nodes of the plan have reported often enough, and what they use is measured."""
        n_node = self.plan.worker.count + self.plan.ps.count
        least = self.tuning.n_stable
        enough = len(self.nodes) == n_node and all(len(n.used_cores) >= least for n in self.nodes)
        return enough and self.cores() > 0


def gpu_share(nodes: Sequence[NodeUse]) -> float | None:
    """Return the share of the time in which the GPUs of some nodes computed lately; None: not known."""
    shares = [fmean(node.gpu_busy[-node.tuning.n_stable :]) for node in nodes if node.gpu_busy]
    return fmean(shares) if shares else None


def efficiency(nodes: Sequence[NodeUse]) -> float:
    """Return the used over the allocated cores of some nodes together (e_job); 0 without any."""
    allocated = sum(node.allocated_cores for node in nodes)
    return sum(node.cores() for node in nodes) / allocated if allocated else 0.0


def is_stable(use: JobUse) -> bool:
    """Whether the job's used cores hardly vary over the last samples.

    Its speed is tested where its windows are made (`controller.windows`). After `n_network` samples the last
    ones count with any scatter: a machine that others use too is never calm.
    """
    if not use.is_complete():
        return False
    if all(len(node.used_cores) >= use.tuning.n_network for node in use.nodes):
        return True
    last = [node.used_cores[-use.tuning.n_stable :] for node in use.nodes]
    return varies_less(map(sum, zip(*last, strict=True)), use.tuning)


def varies_less(values: Iterable[float], tuning: Nearchus) -> bool:
    """Whether the coefficient of variation of some samples is below the threshold."""
    samples = tuple(values)
    return len(samples) >= tuning.n_stable and pstdev(samples) < tuning.stable_cv * fmean(samples)

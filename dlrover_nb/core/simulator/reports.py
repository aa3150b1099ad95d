"""What simulated nodes report: the same records as real nodes send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.resources import Role
from dlrover_nb.core.structs.samples import NodeSample, TimeSplit

if TYPE_CHECKING:
    from dlrover_nb.core.simulator.crew import SimNode

IDLE = TimeSplit()


@dataclass(frozen=True, slots=True)
class Pace:
    """How the job runs between two changes, as its nodes' reports need it.

    Parameters
    ----------
    batch
        Samples of one worker's iteration.
    split
        Parts of T_iter of a worker at normal speed.
    n_worker, n_ps
        Active nodes.
    """

    batch: float = 1.0
    split: TimeSplit = IDLE
    n_worker: int = 0
    n_ps: int = 0

    @property
    def compute_share(self) -> float:
        """Share of an iteration that a worker computes; where it is not known, all of it."""
        total_s = self.split.total_s
        known_s = self.split.compute_s + self.split.lookup_s
        return 0.0 if total_s == 0 else self.split.compute_s / total_s if known_s else 1.0

    @property
    def serve_share(self) -> float:
        """Share of the time that a PS works for somebody, at most all of it."""
        total_s = self.split.total_s
        return min(self.split.lookup_s / total_s, 1.0) if total_s else 0.0


def worker_sample(node: SimNode, n_sample: int, pace: Pace, *, at_s: float, memory_mib: float) -> NodeSample:
    """Return a worker's report on what it trained since its last one."""
    window_s = at_s - node.reported_s
    n_iter = int(n_sample / pace.batch)
    iter_s = window_s * pace.batch / n_sample if n_sample else 0.0
    normal_s = pace.split.total_s
    stretch = iter_s / normal_s if normal_s else 0.0
    split = pace.split
    return NodeSample(
        node=node.id,
        role=Role.WORKER,
        at_s=at_s,
        window_s=window_s,
        n_iter=n_iter,
        n_sample=n_sample,
        iter_s=iter_s,
        split=TimeSplit(
            compute_s=split.compute_s * stretch,
            lookup_s=split.lookup_s * stretch,
            other_s=split.other_s * stretch,
        ),
        cpu_cores=node.cpu * pace.compute_share if n_sample else 0.0,
        memory_mib=memory_mib,
    )


def ps_sample(
    node: SimNode, n_sample: int, pace: Pace, *, at_s: float, memory_mib: float, parameter_mib: float
) -> NodeSample:
    """Return a PS's report; `n_sample` is what all workers trained since its last one."""
    window_s = at_s - node.reported_s
    n_served = int(n_sample / pace.batch)
    each_s = window_s / n_served if n_served else 0.0
    busy = pace.serve_share
    return NodeSample(
        node=node.id,
        role=Role.PS,
        at_s=at_s,
        window_s=window_s,
        n_iter=n_served,
        n_sample=0,
        iter_s=each_s,
        split=TimeSplit(lookup_s=each_s * busy, idle_s=each_s * (1 - busy)),
        cpu_cores=node.cpu * busy if n_served else 0.0,
        memory_mib=memory_mib,
        parameter_mib=parameter_mib,
    )

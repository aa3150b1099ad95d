"""Reports of simulated nodes: the same records as real nodes send.

Where an iteration took longer than the true function says, the cause is known and its time is reported as a
real node would measure it: time lost by a slow worker is compute time, time lost by a slow PS is waiting for
it, and synchronous workers wait for the slowest of them as for peers. The remainder is noise, which stretches
all parts alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit

if TYPE_CHECKING:
    from dlrover_nb.core.simulator.one_job.sim_nodes import SimNode

IDLE = TimeSplit()


@dataclass(frozen=True, slots=True)
class RunRate:
    """The rate of a job between two changes, for the reports of its nodes.

    Parameters
    ----------
    batch
        Samples of one worker's iteration.
    split
        Parts of T_iter of a worker at normal speed.
    n_worker, n_ps
        Active nodes.
    ps_factor
        Speed of the slowest PS over its normal speed.
    slowest
        Relative speed of the slowest worker in synchronous training; None: asynchronous.
    late_s
        How long a worker takes whose gradients come too late to count; 0: they count.
    n_byte
        Of one worker's iteration: what it pulls, and as much that it pushes.
    host
        Part of the speed that other work on the hosts leaves; workers wait for processors in the rest.
    """

    batch: float = 1.0
    split: TimeSplit = IDLE
    n_worker: int = 0
    n_ps: int = 0
    ps_factor: float = 1.0
    slowest: float | None = None
    n_byte: float = 0.0
    late_s: float = 0.0
    host: float = 1.0

    @property
    def work_share(self) -> float:
        """Share of an iteration in which a worker works itself; where it is not known, all of it."""
        total_s, works_s = self.split.total_s, self.split.compute_s + self.split.other_s
        known_s = self.split.compute_s + self.wait_s
        return 0.0 if total_s == 0 else works_s / total_s if known_s else 1.0

    def threads(self, cpu: float) -> float:
        """Return how many cores a worker that has `cpu` of them uses in its own work, on average.

        It computes with all of them. What else it does takes the same time on any number of cores: one does
        it.
        """
        works_s = self.split.compute_s + self.split.other_s
        computes = self.split.compute_s / works_s if self.split.compute_s else 1.0
        return computes * cpu + (1 - computes) * min(cpu, 1.0)

    @property
    def serve_share(self) -> float:
        """Share of the time that a PS serves requests, at most 1."""
        total_s = self.split.total_s
        return min(self.wait_s / total_s, 1.0) if total_s else 0.0

    @property
    def wait_s(self) -> float:
        """Seconds that a worker waits for PS in a normal iteration."""
        return self.split.lookup_s + self.split.update_s

    @property
    def update_share(self) -> float:
        """Share of that wait which is for gradients; all of it is for rows where neither is known."""
        return self.split.update_s / self.wait_s if self.wait_s else 0.0

    def spread(self, iter_s: float, factor: float) -> TimeSplit:
        """Return the parts of an iteration of `iter_s` seconds of a worker with a speed of `factor`."""
        in_step = 1.0 if self.slowest is None else min(self.slowest / factor, 1.0)
        own_s, factor = iter_s * in_step, min(factor, 1.0) * self.host
        as_ever_s = own_s * factor * self.ps_factor
        for_ps_s = own_s * factor * (1 - self.ps_factor)
        stretch = as_ever_s / self.split.total_s if self.split.total_s else 0.0
        return TimeSplit(
            data_s=self.split.data_s * stretch,
            compute_s=self.split.compute_s * stretch + own_s * (1 - factor),
            lookup_s=self.split.lookup_s * stretch + for_ps_s * (1 - self.update_share),
            update_s=self.split.update_s * stretch + for_ps_s * self.update_share,
            peers_s=self.split.peers_s * stretch + iter_s - own_s,
            idle_s=self.split.idle_s * stretch,
            other_s=self.split.other_s * stretch,
        )


def worker_sample(
    node: SimNode, n_sample: int, rate: RunRate, *, at_s: float, memory_mib: float
) -> NodeSample:
    """Return a worker's report on what it trained since its last one."""
    window_s = at_s - node.reported_s
    n_iter = int(n_sample / rate.batch)
    iter_s = window_s * rate.batch / n_sample if n_sample else 0.0
    if rate.late_s:
        n_iter, iter_s = int(window_s / rate.late_s), rate.late_s
    threads = rate.threads(node.cpu)
    return NodeSample(
        node=node.id,
        role=Role.WORKER,
        at_s=at_s,
        window_s=window_s,
        n_iter=n_iter,
        n_sample=n_sample,
        iter_s=iter_s,
        split=rate.spread(iter_s, node.factor),
        cpu_cores=threads * rate.work_share * rate.host if n_iter or n_sample else 0.0,
        memory_mib=memory_mib,
        throttled_s=0.0,
        starved_s=max(threads, 1.0) * (1 - rate.host) * window_s,  # of all of them
        n_byte_sent=(n_byte := int(rate.n_byte * n_sample / rate.batch)),
        n_byte_received=n_byte,
    )


def ps_sample(  # noqa: PLR0913 - the state of a node, by keyword
    node: SimNode,
    n_sample: int,
    rate: RunRate,
    *,
    at_s: float,
    memory_mib: float,
    parameter_mib: float,
    share: float,
    pace: float = 1.0,
) -> NodeSample:
    """Return a PS's report; `n_sample` is what all workers trained since its last one.

    `share` is its part of the parameters, and so of the bytes that are pulled and pushed; `pace` its speed
    for them over the normal one. The time that a slow one loses is serving, and others are idle meanwhile.
    """
    window_s = at_s - node.reported_s
    n_served = int(n_sample / rate.batch)
    each_s = window_s / n_served if n_served else 0.0
    busy = rate.serve_share
    lost = max(1 / pace - 1, (1 / pace - 1) * busy)  # one that has less to serve than normal loses none
    served_s = min(each_s * rate.ps_factor * (busy + lost), each_s)
    return NodeSample(
        node=node.id,
        role=Role.PS,
        at_s=at_s,
        window_s=window_s,
        n_iter=n_served,
        n_sample=0,
        iter_s=each_s,
        split=TimeSplit(
            lookup_s=served_s * (1 - rate.update_share),
            update_s=served_s * rate.update_share,
            idle_s=each_s - served_s,
        ),
        cpu_cores=node.cpu * busy if n_served else 0.0,
        memory_mib=memory_mib,
        parameter_mib=parameter_mib,
        throttled_s=0.0,
        starved_s=0.0,
        n_byte_sent=(n_byte := int(share * rate.n_byte * n_sample / rate.batch)),
        n_byte_received=n_byte,
    )

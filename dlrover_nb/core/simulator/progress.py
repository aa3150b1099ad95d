"""How a simulated job moves between two changes: speed, progress, memory, and what its nodes report.

The speed is that of the true function at the nodes that take part, slowed by slow nodes, times noise that
is drawn anew with each report: so what is reported sums to what was trained, and the noise averages out
over time as it does on machines.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dlrover_nb.core.simulator.reports import RunRate, ps_sample, worker_sample
from dlrover_nb.core.structs.events import NodeReported, ProgressMade
from dlrover_nb.core.structs.job import Sync
from dlrover_nb.core.structs.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.shards import ShardCounts

if TYPE_CHECKING:
    import numpy as np

    from dlrover_nb.core.simulator.description import SimulatedJob
    from dlrover_nb.core.simulator.faults import Faults
    from dlrover_nb.core.simulator.sim_nodes import SimNode, SimNodes

EPS = 1e-6  # samples: a job this near its end is at its end
MIB_PER_GIB = 1024
FLOAT_BYTES = 4


class Progress:
    """Progress of one job.

    Parameters
    ----------
    job, nodes
        The job and its nodes.
    faults, rng
        Rates of noise, and the generator to draw it from.

    Attributes
    ----------
    n_done, speed
        Samples trained, and samples per second now.
    core_s, gib_s
        Resources that placed nodes have held so far.
    """

    def __init__(
        self, job: SimulatedJob, nodes: SimNodes, *, faults: Faults, rng: np.random.Generator, at_s: float
    ) -> None:
        self._job, self._nodes, self._faults, self._rng = job, nodes, faults, rng
        self._at_s = at_s
        self._rate = RunRate()
        self._noise, self._carry = 1.0, 0.0
        self._jitter: dict[str, float] = {}
        self._workers: list[tuple[SimNode, float]] = []  # with their shares of the speed
        self._ps: list[tuple[SimNode, float]] = []  # with their shares of the parameters
        self._cores = self._gib = 0.0
        self._n_emitted = 0
        self.n_done = self.core_s = self.gib_s = self.speed = 0.0

    @property
    def n_worker(self) -> int:
        """Active workers."""
        return len(self._workers)

    @property
    def is_done(self) -> bool:
        """Whether every sample is trained."""
        return self.n_done >= self._job.n_sample - EPS

    def shards(self, *, is_over: bool) -> ShardCounts:
        """Return the counts of training shards that a ledger would show now."""
        spec, n_total = self._job.spec, self._job.n_sample
        size = spec.batch_size * spec.shard_batches
        n_shard = -(-n_total // size)
        done = n_shard if self.is_done else int(self.n_done / size)
        doing = 0 if is_over else min(self.n_worker, n_shard - done)
        return ShardCounts(n_shard - done - doing, doing, done, int(self.n_done + EPS), n_total)

    def advance(self, at_s: float) -> float:
        """Move to `at_s` at the present speed; return the seconds without training."""
        dt_s, self._at_s = at_s - self._at_s, at_s
        if dt_s <= 0:
            return 0.0
        self.core_s += self._cores * dt_s
        self.gib_s += self._gib * dt_s
        if self.speed == 0:
            return dt_s
        self._train(min(self.speed * dt_s, self._job.n_sample - self.n_done))
        return 0.0

    def finish(self) -> None:
        """Train the remainder, which is below the resolution of the clock."""
        self._train(self._job.n_sample - self.n_done)

    def _train(self, n_new: float) -> None:
        self.n_done += n_new
        for node, share in self._workers:
            node.n_trained += share * n_new
        for node, _ in self._ps:
            node.n_trained += n_new

    def redraw(self) -> None:
        """Draw the noise of the time until the next report."""
        f = self._faults
        if f.speed_noise:
            self._noise = float(self._rng.lognormal(0.0, f.speed_noise))
        if f.node_noise:
            draws = self._rng.lognormal(0.0, f.node_noise, len(self._workers)).tolist()
            self._jitter = {node.id: d for (node, _), d in zip(self._workers, draws, strict=True)}

    def refresh(self, serving: ResourcePlan | None, *, is_paused: bool) -> None:
        """Update the active nodes and the speed that follows.

        Parameters
        ----------
        serving
            Sizes and number of PS in use; None: none.
        """
        held = [n for n in self._nodes.nodes if n.place is not None]
        self._cores = sum(n.cpu for n in held)
        self._gib = sum(n.memory_mib for n in held) / MIB_PER_GIB
        workers, ps = self._nodes.active(Role.WORKER), self._nodes.active(Role.PS)
        n_ps = serving.ps.count if serving is not None else 1
        self._ps = [(node, self._ps_share(node, n_ps)) for node in ps]
        can_train = serving is not None and not is_paused and workers and len(ps) == serving.ps.count
        if serving is None or not can_train:
            self._workers, self.speed = [(n, 0.0) for n in workers], 0.0
            return
        factors = [n.factor for n in workers]
        weights = [n.factor * self._jitter.get(n.id, 1.0) for n in workers]
        slowed = sum(factors) / len(factors)
        if self._job.spec.sync is Sync.BSP:  # all wait for the slowest
            weights, slowed = [1.0] * len(workers), min(factors)
        total = sum(weights)
        self._workers = [(n, x / total) for n, x in zip(workers, weights, strict=True)]
        self._set_rate(serving, len(workers), slowed, min(n.factor for n in ps))

    def _set_rate(self, serving: ResourcePlan, n_worker: int, slowed: float, ps_factor: float) -> None:
        job, size = self._job, serving.worker
        plan = serving
        if n_worker != size.count:
            plan = ResourcePlan(RolePlan(n_worker, size.cpu, size.memory_mib), serving.ps)
        m = job.spec.batch_of(n_worker)
        slowest = slowed if job.spec.sync is Sync.BSP else None
        n_byte = job.dense_bytes + FLOAT_BYTES * m * job.embedding_dim
        split = job.truth.split(plan, m)
        self._rate = RunRate(m, split, n_worker, plan.ps.count, ps_factor, slowest, n_byte)
        self.speed = job.truth.speed(plan, m) * slowed * ps_factor * self._noise

    def _ps_share(self, node: SimNode, n_ps: int) -> float:
        """Return the share of the parameters that a PS holds: slot 0 holds more than its even share."""
        if n_ps < 2:
            return 1.0
        hot = min((1 + self._job.hot_ps) / n_ps, 1.0)
        return hot if node.slot == 0 else (1 - hot) / (n_ps - 1)

    def made(self) -> ProgressMade | None:
        """Return the progress since the last call as an event; None without a whole sample."""
        n_before, self._n_emitted = self._n_emitted, int(self.n_done + EPS)
        return None if self._n_emitted == n_before else ProgressMade(self._at_s, self._n_emitted)

    def due(self) -> tuple[float, SimNode | None]:
        """Return when the job is done or the next node is out of memory, which may be now."""
        first: tuple[float, SimNode | None] = (math.inf, None)
        if self.speed > 0:
            first = (self._at_s + max(self._job.n_sample - self.n_done, 0) / self.speed, None)
        for node, share in (*self._ps, *((n, 1.0) for n, _ in self._workers)):
            growth = self._job.ps_memory if node.role is Role.PS else self._job.worker_memory
            left = growth.reached_at(node.memory_mib, share) - self.n_done
            at_s = self._at_s if left <= EPS else self._at_s + left / self.speed if self.speed else math.inf
            if at_s < first[0]:
                first = (at_s, node)
        return first

    def memory_mib(self, node: SimNode) -> float:
        """Return the memory of an active node, without noise."""
        if node.role is Role.WORKER:
            return self._job.worker_memory.at(self.n_done)
        return self._job.ps_memory.at(self.n_done, self._share_of(node))

    def _share_of(self, node: SimNode) -> float:
        """Return the share of the parameters that an active PS holds; 0 of one that is not active."""
        return next((share for each, share in self._ps if each is node), 0.0)

    def events(
        self, plan: ResourcePlan | None, steady_since_s: float | None
    ) -> list[NodeReported | ProgressMade]:
        """Return what is to be told now: the reports of all active nodes, and the progress."""
        made = self.made()
        return [*self.reports(plan, steady_since_s), *([] if made is None else [made])]

    def reports(self, plan: ResourcePlan | None, steady_since_s: float | None) -> list[NodeReported]:
        """Return the reports of all active nodes; `plan` runs since `steady_since_s`."""
        if self._workers:
            self._workers[0][0].n_trained += self._carry
            self._carry = 0.0
        rest = round(sum(n.n_trained for n, _ in self._workers)) if self.is_done else None
        reports = []
        for node, _ in reversed(self._workers):
            n_sample = int(node.n_trained + EPS)
            if rest is not None:  # the last report: the oldest worker gets the remainder of rounding
                n_sample = rest if node is self._workers[0][0] else n_sample
                rest -= n_sample
            reports.append(self.report(node, plan, steady_since_s, n_sample))
        reports.reverse()
        reports += [self.report(node, plan, steady_since_s, int(node.n_trained)) for node, _ in self._ps]
        return [report for report in reports if report is not None]

    def last_report(self, node: SimNode) -> NodeReported | None:
        """Return the last report of a leaving node, if it was active; carry over what rounding leaves."""
        report = self.report(node, None, None) if node.is_active else None
        if node.role is Role.WORKER:
            self._carry += node.n_trained
        return report

    def report(
        self,
        node: SimNode,
        plan: ResourcePlan | None,
        steady_since_s: float | None,
        n_sample: int | None = None,
    ) -> NodeReported | None:
        """Return a node's report since its last one; None when no time has passed."""
        at_s, window_s = self._at_s, self._at_s - node.reported_s
        n_sample = int(node.n_trained + EPS) if n_sample is None else n_sample
        if window_s <= 0:
            return None
        memory_mib = self.memory_mib(node)
        if node.role is Role.PS:
            parameter_mib = memory_mib - self._job.ps_memory.base_mib
        if self._faults.memory_noise:
            memory_mib *= float(self._rng.lognormal(0.0, self._faults.memory_noise))
        memory_mib = min(memory_mib, node.memory_mib)
        if node.role is Role.WORKER:
            sample = worker_sample(node, n_sample, self._rate, at_s=at_s, memory_mib=memory_mib)
        else:
            sample = ps_sample(
                node,
                n_sample,
                self._rate,
                at_s=at_s,
                memory_mib=memory_mib,
                parameter_mib=parameter_mib,
                share=self._share_of(node),
            )
        is_steady = steady_since_s is not None and node.reported_s >= steady_since_s
        node.last, node.reported_s = sample, at_s
        node.n_trained -= n_sample
        return NodeReported(at_s, sample, plan if is_steady else None)

"""How a simulated job moves between two changes: speed, progress, memory, and what its nodes report.

The speed is that of the true function at the nodes that take part, slowed by slow nodes, times noise that
is drawn anew with each report: so what is reported sums to what was trained, and the noise averages out
over time as it does on machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.simulator.one_job.reports import RunRate, ps_sample, worker_sample
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role
from dlrover_nb.core.structs.training.shards import ShardCounts
from dlrover_nb.core.structs.views.events import NodeReported, ProgressMade

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from dlrover_nb.core.simulator.description import SimulatedJob
    from dlrover_nb.core.simulator.faults import Faults
    from dlrover_nb.core.simulator.one_job.sim_nodes import SimNode, SimNodes

EPS = 1e-6  # samples: a job this near its end is at its end
MIB_PER_GIB = 1024
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Pacing:
    """Workers with speeds and batches of their own, in their order.

    The true function says how long a worker of normal speed takes for a batch; a slow one takes longer by its
    factor. Workers that keep in step take as long as the slowest of those that are waited for.

    Parameters
    ----------
    sizes
        Samples of each worker in one iteration.
    normal_s
        How long a worker of normal speed takes for that.
    factors
        Speed of each over its normal speed.
    n_backup
        How many of the slowest workers an iteration goes on without; None: workers do not keep in step.
    """

    sizes: Sequence[int]
    normal_s: Sequence[float]
    factors: Sequence[float]
    n_backup: int | None = None

    @property
    def own_s(self) -> list[float]:
        """Return how long each worker takes."""
        return [normal_s / factor for normal_s, factor in zip(self.normal_s, self.factors, strict=True)]

    @property
    def left_out(self) -> frozenset[int]:
        """Indices of the workers that an iteration goes on without: of equally slow ones the last."""
        own_s = self.own_s
        order = sorted(range(len(own_s)), key=lambda i: own_s[i])
        n = min(self.n_backup or 0, len(order) - 1)
        return frozenset(order[len(order) - n :])

    @property
    def iter_s(self) -> float:
        """How long an iteration takes of workers that keep in step."""
        out = self.left_out
        return max(own_s for i, own_s in enumerate(self.own_s) if i not in out)

    @property
    def speeds(self) -> list[float]:
        """Return the samples per second of each worker that count."""
        own_s, out = self.own_s, self.left_out
        if self.n_backup is None:
            return [size / each_s for size, each_s in zip(self.sizes, own_s, strict=True)]
        iter_s = self.iter_s
        return [0.0 if i in out else size / iter_s for i, size in enumerate(self.sizes)]


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
    sizes, n_backup
        Samples of each worker in an iteration, where they are not the job's batch; how many of the slowest
        workers an iteration goes on without.
    loads
        Parameters of each PS over an even share, where they are placed by speed.
    """

    def __init__(
        self, job: SimulatedJob, nodes: SimNodes, *, faults: Faults, rng: np.random.Generator, at_s: float
    ) -> None:
        self._job, self._nodes, self._faults, self._rng = job, nodes, faults, rng
        self._at_s = at_s
        self._rate, self._own_rates = RunRate(), dict[str, RunRate]()
        self.sizes: dict[str, int] = {}
        self.n_backup = 0
        self.loads: dict[str, float] = {}
        self._noise, self._carry, self._host = 1.0, 0.0, 1.0
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
        self._host = f.host_at(self._at_s)
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
        placed = [n for n in self._nodes.nodes if n.place is not None]
        self._cores = sum(n.cpu for n in placed)
        self._gib = sum(n.memory_mib for n in placed) / MIB_PER_GIB
        workers, ps = self._nodes.active(Role.WORKER), self._nodes.active(Role.PS)
        n_ps = serving.ps.count if serving is not None else 1
        self._ps = [(node, self._ps_share(node, n_ps)) for node in ps]
        can_train = serving is not None and not is_paused and workers and len(ps) == serving.ps.count
        if serving is None or not can_train:
            self._workers, self.speed = [(n, 0.0) for n in workers], 0.0
            return
        ps_factor = min(self._ps_pace(n) for n in ps)
        if self.sizes or self.n_backup:
            self._pace_each(serving, workers, ps_factor)
            return
        factors = [n.factor for n in workers]
        weights = [n.factor * self._jitter.get(n.id, 1.0) for n in workers]
        slowed = sum(factors) / len(factors)
        if self._job.spec.sync is Sync.BSP:  # all wait for the slowest
            weights, slowed = [1.0] * len(workers), min(factors)
        self._divide(workers, weights)
        self._set_rate(serving, len(workers), slowed, ps_factor)

    def _divide(self, workers: list[SimNode], weights: list[float]) -> None:
        total = sum(weights)
        self._workers = [(n, x / total) for n, x in zip(workers, weights, strict=True)]

    def _ps_pace(self, node: SimNode) -> float:
        """Return the speed of a PS for its parameters, over the normal one."""
        return node.factor / self.loads.get(node.id, 1.0)

    def _pace_each(self, serving: ResourcePlan, workers: list[SimNode], ps_factor: float) -> None:
        """Set the speed of workers whose batches differ, or of which not all are waited for."""
        n, job, in_step = len(workers), self._job, self._job.spec.sync is Sync.BSP
        plan, usual = _with_workers(serving, n), job.spec.batch_of(n)
        sizes = [self.sizes.get(node.id, usual) for node in workers]
        splits = [job.truth.split(plan, size) for size in sizes]
        normal_s = [split.total_s for split in splits]
        paced = Pacing(sizes, normal_s, [n.factor for n in workers], self.n_backup if in_step else None)
        normal = n * usual / job.truth.split(plan, usual).total_s
        speeds = paced.speeds
        self._divide(workers, speeds)
        self._set_rate(serving, n, sum(speeds) / normal, ps_factor)
        for i, node in enumerate(workers):
            is_late = in_step and i in paced.left_out
            self._own_rates[node.id] = replace(
                self._rate,
                batch=sizes[i],
                split=splits[i],
                slowest=normal_s[i] / paced.iter_s if in_step and not is_late else None,
                late_s=paced.own_s[i] / ps_factor if is_late else 0.0,
            )
        self._rate = replace(self._rate, batch=sum(sizes) / n)

    def _set_rate(self, serving: ResourcePlan, n_worker: int, slowed: float, ps_factor: float) -> None:
        self._own_rates = {}
        job, plan = self._job, _with_workers(serving, n_worker)
        m = job.spec.batch_of(n_worker)
        slowest = slowed if job.spec.sync is Sync.BSP else None
        n_byte = job.dense_bytes + FLOAT_BYTES * m * job.embedding_dim
        split = job.truth.split(plan, m)
        self._rate = RunRate(m, split, n_worker, plan.ps.count, ps_factor, slowest, n_byte, host=self._host)
        self.speed = job.truth.speed(plan, m) * slowed * ps_factor * self._noise * self._host

    def _ps_share(self, node: SimNode, n_ps: int) -> float:
        """Return the share of the parameters that a PS holds: slot 0 holds more than its even share."""
        if n_ps < 2:
            return 1.0
        hot, load = min((1 + self._job.hot_ps) / n_ps, 1.0), self.loads.get(node.id)
        if load is not None:
            return load / n_ps
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
            rate = self._own_rates.get(node.id, self._rate)
            sample = worker_sample(node, n_sample, rate, at_s=at_s, memory_mib=memory_mib)
        else:
            sample = ps_sample(
                node,
                n_sample,
                self._rate,
                at_s=at_s,
                memory_mib=memory_mib,
                parameter_mib=parameter_mib,
                share=self._share_of(node),
                pace=self._ps_pace(node),
            )
        is_steady = steady_since_s is not None and node.reported_s >= steady_since_s
        node.last, node.reported_s = sample, at_s
        node.n_trained -= n_sample
        return NodeReported(at_s, sample, plan if is_steady else None)


def _with_workers(plan: ResourcePlan, n_worker: int) -> ResourcePlan:
    size = plan.worker
    if n_worker == size.count:
        return plan
    return ResourcePlan(replace(size, count=n_worker), plan.ps)

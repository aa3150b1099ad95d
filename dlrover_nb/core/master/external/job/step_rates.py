"""Converts totals that programs report to reports of nodes, for telemetry and controller.

The difference of two totals of one program is a report. The first one of each program only begins its count,
since the duration of its steps is unknown; its samples count as trained. Samples that are trained again after
a restart count again, unless the program itself reports the job's progress.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.master.external.job.node_set import is_worker
from dlrover_nb.core.structs.job.external import CHIEF, Counting, StepsDone
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dlrover_nb.core.structs.job.external import ExternalSpec
    from dlrover_nb.core.structs.training.batch_cost import BatchCost

MOST_PROGRAMS = 64  # of one node: each restart adds new ones


class StepRates:
    """Measures one job.

    Parameters
    ----------
    spec
        The job, which defines batch size and samples.
    n_done
        Samples trained so far.
    told
        The last totals of each program.
    """

    def __init__(self, spec: ExternalSpec, n_done: int = 0, totals: Iterable[StepsDone] = ()) -> None:
        self._spec, self.n_done = spec, n_done
        self._told = {(each.node, each.program): each for each in totals}
        self._beside: dict[str, int] = {}  # samples of a node's other programs since its last report

    @property
    def told(self) -> tuple[StepsDone, ...]:
        """The last totals of each program."""
        return tuple(self._told.values())

    def last(self, node: str, program: str) -> StepsDone | None:
        """Return the last totals of a program; None when it reported none."""
        return self._told.get((node, program))

    def forget(self, node: str) -> None:
        """Remove a node that is gone."""
        self._told = {key: each for key, each in self._told.items() if key[0] != node}
        self._beside.pop(node, None)

    def record(
        self, totals: StepsDone, workers: Sequence[str], role: Role, at_s: float
    ) -> tuple[NodeSample, ...]:
        """Return the reports that follow from a program's totals.

        Parameters
        ----------
        workers
            All nodes that train together, the first one (chief, rank 0) first.
        role
            Of the reporting node. Work of a role beside the world does not count.
        """
        is_of_job, is_training = self._spec.counting is Counting.JOB, role in {Role.WORKER, CHIEF}
        key = totals.node, totals.program
        before = self._told.get(key)
        if before is not None and (
            totals.at_s <= before.at_s or totals.n_iter < before.n_iter or totals.n_sample < before.n_sample
        ):
            return ()  # reported twice, or late, or no total of what was done
        if is_of_job and is_training and totals.node not in workers[:1]:
            self._remember(key, totals)  # its base, should it become the first one
            return ()
        if role in self._spec.world:
            self._count(totals, before)
        if before is not None and totals.n_iter == before.n_iter and is_training and totals.rank == 0:
            return ()  # a step in progress: its time is reported at its end
        self._remember(key, totals)
        if before is None or totals.rank > 0:
            return ()
        sample = _between(before, totals, self._beside.pop(totals.node, 0), role, at_s)
        if not (is_of_job and is_training):
            return (sample,)
        return _shared(sample, [name for name in workers if is_worker(name)])

    def _count(self, totals: StepsDone, before: StepsDone | None) -> None:
        n_new = totals.n_sample - (0 if before is None else before.n_sample)
        if totals.n_done is not None:
            self.n_done = totals.n_done
        else:
            self.n_done += max(n_new, 0)
        if totals.rank > 0:
            self._beside[totals.node] = self._beside.get(totals.node, 0) + n_new * (before is not None)

    def _remember(self, key: tuple[str, str], totals: StepsDone) -> None:
        self._told.pop(key, None)
        self._told[key] = totals
        own = [each for each in self._told if each[0] == key[0]]
        for each in own[:-MOST_PROGRAMS]:
            del self._told[each]


class OwnWork:
    """Divides the steps of processes that wait for each other: what each computes itself, and its wait.

    All of them take as long as the slowest one, so only what a process says of its own work tells them apart.

    Attributes
    ----------
    costs
        Of mini-batches by node, where its process measured them.
    """

    def __init__(self) -> None:
        self._busy_s: dict[str, float] = {}  # seconds that a node has computed since its start
        self._base: dict[str, float] = {}  # the same, at its last report
        self.costs: dict[str, BatchCost] = {}

    def hear(self, node: str, busy_s: float, cost: BatchCost | None) -> None:
        """Note the seconds that a node has computed since its start, and what its mini-batches cost."""
        if busy_s < self._busy_s.get(node, 0.0):
            self._base.pop(node, None)  # another program
        self._busy_s[node] = busy_s
        if cost is not None:
            self.costs[node] = cost

    def divided(self, sample: NodeSample) -> NodeSample:
        """Return a report with its own work apart from its wait, where its node tells that."""
        total_s, base_s = self._busy_s.get(sample.node), self._base.get(sample.node)
        sample = replace(sample, batch_cost=self.costs.get(sample.node))
        if total_s is None:
            return sample
        self._base[sample.node] = total_s
        if base_s is None or total_s <= base_s or not sample.n_iter:
            return sample
        own_s = min((total_s - base_s) / sample.n_iter, sample.iter_s)
        return replace(sample, split=TimeSplit(compute_s=own_s, peers_s=sample.iter_s - own_s))


def _between(before: StepsDone, totals: StepsDone, n_beside: int, role: Role, at_s: float) -> NodeSample:
    window_s, n_iter = totals.at_s - before.at_s, totals.n_iter - before.n_iter
    iter_s = window_s / n_iter if n_iter else 0.0
    return NodeSample(
        node=totals.node,
        role=role,
        at_s=at_s,
        window_s=window_s,
        n_iter=n_iter,
        n_sample=totals.n_sample - before.n_sample + n_beside,
        iter_s=iter_s,
        split=TimeSplit(other_s=iter_s),  # the parts of an external step are unknown
        cpu_cores=max(totals.cpu_s - before.cpu_s, 0.0) / window_s,
        memory_mib=totals.memory_mib,
        loss=totals.loss,
    )


def _shared(sample: NodeSample, workers: Sequence[str]) -> tuple[NodeSample, ...]:
    """Divide a job's work evenly among its workers: their differences, and a chief's part, are unknown."""
    n_each, n_over = divmod(sample.n_sample, len(workers))
    return tuple(
        replace(
            sample,
            node=node,
            role=Role.WORKER,
            n_sample=n_each + (i < n_over),
            cpu_cores=sample.cpu_cores if node == sample.node else 0.0,
            memory_mib=sample.memory_mib if node == sample.node else 0.0,
        )
        for i, node in enumerate(workers)
    )

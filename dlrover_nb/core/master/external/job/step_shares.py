"""How many rows of a step each member of an elastic job has, by its speed.

All members wait for the slowest one in each step, so rows are shared to minimize max_i m_i / v_i with a
fixed sum: the global batch. LB-BSP gives each member one mini-batch of its own size
(`straggler.batch_solver`); AntDT-DD lets it accumulate several (Eq. 4), as `straggler.solutions` has it.
Speeds are measured: rows by the time that a member computes, without what it waits for others. The bounds of
a mini-batch for AntDT-DD are what members have measured. Programs of users know what a mini-batch costs, and
not what fits: the job's mini-batch is known to. Half of it is their lower bound where the saturation point is
above that, since one that is as large as the upper bound would leave no choice, and until a cost is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.straggler.batch_solver import Share, share_batch
from dlrover_nb.core.straggler.situation import Situation, WorkerState
from dlrover_nb.core.straggler.solutions import antdt_dd
from dlrover_nb.core.structs.decisions.actions import AdjustBatches
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Sync

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.training.batch_cost import BatchCost

WINDOW_S = 4.0  # of computing by each member, from which a speed is told
MIN_GAIN = 0.05  # of the time of the slowest member: smaller ones are noise
MOST_TIMES = 8


@dataclass(frozen=True, slots=True)
class Part:
    """What a member has of a step: `times` mini-batches of `size` rows."""

    size: int
    times: int = 1

    @property
    def n_row(self) -> int:
        """Rows of a step."""
        return self.size * self.times


def even(spec: JobSpec, members: Sequence[str]) -> dict[str, Part]:
    """Return equal parts: the job's mini-batch, or of a global batch what each member has to accumulate.

    Of N mini-batches member i of n takes floor(N/n), and one more if i < N mod n (the rule of DLRover).
    """
    if spec.global_batch is None or not members:
        return {node: Part(spec.batch_size) for node in members}
    n_batch = max(round(spec.global_batch / spec.batch_size), 1)
    is_small = n_batch < len(members)  # each member gets a part of a mini-batch
    each, more = divmod(spec.global_batch if is_small else n_batch, len(members))
    counts = [each + (i < more) for i in range(len(members))]
    return {
        node: Part(max(count, 1)) if is_small else Part(spec.batch_size, count)
        for node, count in zip(members, counts, strict=True)
    }


def by_speed(
    spec: JobSpec,
    members: Sequence[str],
    speeds: Mapping[str, float],
    now: Mapping[str, Part],
    costs: Mapping[str, BatchCost] | None = None,
) -> dict[str, Part]:
    """Return the parts that minimize the time of the slowest member; the present ones where that is little.

    Parameters
    ----------
    speeds
        Rows per second of each member.
    now
        Its present part.
    costs
        Of mini-batches, by the members that have measured them.
    """
    total = sum(part.n_row for part in even(spec, members).values())
    measured = costs or {}
    try:
        workers = [_worker(spec, node, speeds[node], now[node], measured.get(node)) for node in members]
        parts = _SOLVERS[spec.stragglers](workers, total)
    except InvalidValueError:  # no such sizes sum to the batch
        parts = {}
    return parts or dict(now)


def _worker(spec: JobSpec, node: str, speed: float, part: Part, cost: BatchCost | None) -> WorkerState:
    """Return a member as a device of its own, with the bounds of its mini-batch."""
    least, most = max(spec.batch_size // 2, 1), spec.batch_size
    worker = WorkerState(node, part.size, speed, least, most, node, part.times, MOST_TIMES)
    bounded = worker.with_cost(cost, is_full=True)
    is_ours = spec.sync is Sync.ALLREDUCE
    return bounded if is_ours else replace(bounded, least=min(bounded.least, least), most=most)


def _one_batch(workers: Sequence[WorkerState], total: int) -> dict[str, Part]:
    """Return mini-batches by speed; nothing where that gains little."""
    shares = [Share(w.samples_per_s_at(w.size), most=w.cost.most if w.cost else None) for w in workers]
    sizes = share_batch(shares, total)
    before_s = max(w.seconds(w.size, w.times) for w in workers)
    after_s = max(w.seconds(size) for w, size in zip(workers, sizes, strict=True))
    if after_s >= (1 - MIN_GAIN) * before_s:
        return {}
    return {w.node: Part(size) for w, size in zip(workers, sizes, strict=True)}


def _accumulated(workers: Sequence[WorkerState], total: int) -> dict[str, Part]:
    """Return what `antdt-dd` answers; nothing where that gains little."""
    parts: dict[str, Part] = {}
    for proposed in antdt_dd((), Situation(Sync.BSP, tuple(workers), global_batch=total)):
        assert isinstance(proposed.action, AdjustBatches)
        times = dict(proposed.action.accumulate)
        parts = {node: Part(size, times.get(node, 1)) for node, size in proposed.action.sizes}
    return parts


_SOLVERS: Mapping[str, Callable[[Sequence[WorkerState], int], dict[str, Part]]] = {
    SolutionName.LB_BSP: _one_batch,
    SolutionName.ANTDT_DD: _accumulated,
}


class Speeds:
    """Measures the speed of members from the totals that they tell."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[int, float]] = {}
        self._base: dict[str, tuple[int, float]] = {}

    def hear(self, node: str, n_row: int, busy_s: float) -> None:
        """Note rows that a node has computed since its start, and the seconds that this took."""
        if busy_s < self._told.get(node, (0, 0.0))[1]:
            self._base.pop(node, None)  # another program
        self._told[node] = n_row, busy_s
        self._base.setdefault(node, (n_row, busy_s))

    def take(self, members: Sequence[str]) -> dict[str, float] | None:
        """Return rows per second of all members since the last time; None: not all are measured yet."""
        speeds = {}
        for node in members:
            (n_row, busy_s), (n_before, before_s) = (
                each.get(node, (0, 0.0)) for each in (self._told, self._base)
            )
            if busy_s - before_s < WINDOW_S or n_row <= n_before:
                return None
            speeds[node] = (n_row - n_before) / (busy_s - before_s)
        self.restart(members)
        return speeds

    def restart(self, members: Sequence[str]) -> None:
        """Measure from now on."""
        self._base = {node: self._told[node] for node in members if node in self._told}


def is_balanced(spec: JobSpec) -> bool:
    """Whether parts follow speeds."""
    return spec.stragglers in _SOLVERS

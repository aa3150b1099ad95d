"""What a solution knows of a job beside the findings: its workers, its PS, and what was done before."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.job.tuning import AntDT

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.actions import SetSize
    from dlrover_nb.core.structs.training.batch_cost import BatchCost
    from dlrover_nb.core.structs.training.stragglers import Spread


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One worker at the time of a decision.

    Parameters
    ----------
    node
        Its name.
    size, times
        Its mini-batch, and how many of them it computes for one update.
    samples_per_s
        v_i: samples over the time of its own work, over the short window; None: not measured yet.
    least, most
        Bounds on its mini-batch; None: no upper bound.
    device
        Series of its device; workers of one device and equal bounds get equal shares from ``antdt-dd``.
    most_times
        Bound on `times`.
    rate
        Factor on its learning rate.
    cost
        What its mini-batches cost, where that was measured; its speed says how fast it is now.
    """

    node: str
    size: int
    samples_per_s: float | None
    least: int = 1
    most: int | None = None
    device: str = ""
    times: int = 1
    most_times: int = 5
    rate: float = 1.0
    cost: BatchCost | None = None

    def __post_init__(self) -> None:
        _check.at_least(f"size of {self.node}", self.size, 1)
        _check.at_least(f"times of {self.node}", self.times, 1)
        if self.samples_per_s is not None:
            _check.above_zero(f"samples_per_s of {self.node}", self.samples_per_s)

    @property
    def samples(self) -> int:
        """Samples in one iteration."""
        return self.size * self.times

    def seconds(self, size: int, times: int = 1) -> float:
        """Return how long it would compute so many mini-batches of a size, by its present speed.

        Where costs were measured, they say how that depends on the size; else the speed is the same for all.
        """
        assert self.samples_per_s is not None, self
        now_s = self.samples / self.samples_per_s
        if self.cost is None:
            return now_s * size * times / self.samples
        return now_s * self.cost.seconds(size, times) / self.cost.seconds(self.size, self.times)

    def with_cost(self, cost: BatchCost | None, *, is_full: bool) -> WorkerState:
        """Return it with measured costs of its mini-batches, and the bounds that follow.

        Parameters
        ----------
        is_full
            Whether mini-batches should use the device well: then the saturation point is their lower bound.
        """
        if cost is None:
            return self
        return replace(self, cost=cost, least=cost.least if is_full else 1, most=cost.most)

    def samples_per_s_at(self, size: int) -> float:
        """Return its speed with mini-batches of a size."""
        return size / self.seconds(size)


@dataclass(frozen=True, slots=True)
class PsState:
    """The cores of one PS at the time of a decision.

    Parameters
    ----------
    node
        Its name.
    size
        What it may use.
    used_cores
        Mean over its last reports; None: not measured.
    larger
        The sizes with more cores that it may get, smallest first.
    """

    node: str
    size: SetSize
    used_cores: float | None = None
    larger: tuple[SetSize, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """What a solution knows beside the findings.

    Parameters
    ----------
    sync
        How far workers may run ahead of each other.
    workers
        The workers that take part.
    ps
        All parameter servers.
    relieved_ps
        Those that gave buckets away by load, and have not been replaced since.
    is_busy
        Whether a new node would wait long for its place in the cluster.
    n_backup
        How many of the slowest workers an iteration goes on without.
    exchange_s
        Mean time of a worker's exchange with the PS in one iteration; None: unknown, then no gain is told.
    spread
        How far workers differ for good; None: they do not.
    global_batch
        Samples of one iteration of all workers; None: those that the workers have now. After a worker with a
        smaller batch was replaced by one with the usual batch, the two differ.
    ps_states
        Cores of the PS, as far as they have reported.
    tuning
        Parameters of AntDT.
    is_fixed
        Whether each step has the same batches whatever the workers (deterministic training).
    """

    sync: Sync
    workers: tuple[WorkerState, ...]
    ps: tuple[str, ...] = ()
    relieved_ps: frozenset[str] = frozenset()
    is_busy: bool = False
    n_backup: int = 0
    exchange_s: float | None = None
    spread: Spread | None = None
    global_batch: int | None = None
    ps_states: tuple[PsState, ...] = ()
    tuning: AntDT = field(default_factory=AntDT)
    is_fixed: bool = False

    @property
    def divides(self) -> bool:
        """Whether workers share the rows of a step, so that one may have fewer of them, or be left out."""
        return self.sync is Sync.BSP and not self.is_fixed

    @property
    def total(self) -> int:
        """Samples that the batches of all workers are to sum to."""
        return self.global_batch or sum(worker.samples for worker in self.workers)

    @property
    def is_off(self) -> bool:
        """Whether the batches sum to something else, by more than rounding."""
        now = sum(worker.samples for worker in self.workers)
        return bool(self.workers) and abs(now - self.total) > len(self.workers)

    @property
    def measured(self) -> tuple[WorkerState, ...]:
        """The workers, a new one with the median speed of the others; none while no speed is known."""
        speeds = [w.samples_per_s for w in self.workers if w.samples_per_s is not None]
        if not speeds:
            return ()
        usual = median(speeds)
        return tuple(w if w.samples_per_s else replace(w, samples_per_s=usual) for w in self.workers)

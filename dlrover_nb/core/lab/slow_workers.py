"""Slow workers of one job of a lab, and what the job's solution makes of them.

One worker at a time is slow. The solution is the product's (`core.straggler.solutions`): it gets the finding
and the workers as a controller would give them, once over the short window and once over the long one, and
what it proposes is carried out. In a fluid job only the speed matters: a barrier waits for the slowest
worker, asynchronous workers lose what the slow one loses, other batch sizes level their times, backup workers
leave the slow one's samples out, and a restart costs its worker for as long as a new node takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.straggler.detect import LONG_WINDOW_S, SHORT_WINDOW_S
from dlrover_nb.core.straggler.situation import Situation, WorkerState
from dlrover_nb.core.straggler.solutions import SOLUTIONS
from dlrover_nb.core.structs.decisions.actions import AdjustBatches, BackupWorkers, KillRestart
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import Pace, Straggler

if TYPE_CHECKING:
    import numpy as np

    from dlrover_nb.core.lab.lab_file import LabWorld
    from dlrover_nb.core.structs.decisions.actions import Proposed

DAY_S = 86_400.0
SIZE = 512  # of each worker's mini-batch: only proportions matter


@dataclass(frozen=True, slots=True)
class Episode:
    """One node gets slow in so many seconds: `factor` of its speed, for `lasts_s`."""

    in_s: float
    factor: float
    lasts_s: float


def drawn_episode(world: LabWorld, per_day: float, rng: np.random.Generator) -> Episode | None:
    """Draw the next episode of nodes that get slow so often; None where they never do."""
    if per_day <= 0:
        return None
    in_s = float(rng.exponential(DAY_S / per_day))
    factor = float(rng.uniform(*world.slow_factor))
    return Episode(in_s, factor, float(rng.exponential(world.slow_s)))


class SlowWorkers:
    """Draws the slow episodes of a job, and says what is left of its speed.

    Attributes
    ----------
    share
        Of the job's usual speed, now.
    """

    def __init__(self, sync: Sync, solution: str, world: LabWorld, rng: np.random.Generator) -> None:
        self._sync, self._solution, self._world, self._rng = sync, SOLUTIONS[solution], world, rng
        self._n_worker = 1
        self.share = 1.0

    def resize(self, n_worker: int) -> None:
        """Begin anew with so many workers, none of them slow."""
        self._n_worker, self.share = n_worker, 1.0

    def next_episode(self) -> Episode | None:
        """Draw the next episode; None where workers never get slow."""
        return drawn_episode(self._world, self._world.slow_per_day * self._n_worker, self._rng)

    def stages(self, episode: Episode) -> tuple[tuple[float, float], ...]:
        """Return the share of the usual speed from when on, in seconds after the episode's begin."""
        stages = [(0.0, self._untreated(episode.factor))]
        for pace, at_s in ((Pace.TRANSIENT, SHORT_WINDOW_S), (Pace.PERSISTENT, LONG_WINDOW_S)):
            if at_s >= episode.lasts_s:
                break
            answer = self._answer(episode, pace, at_s)
            if answer:
                return (*stages, *((at_s + after_s, share) for after_s, share in answer))
        return tuple(stages)

    def _untreated(self, factor: float) -> float:
        """Return the share with one slow worker and equal batches."""
        return factor if self._sync is Sync.BSP else self._mean(factor)

    def _mean(self, factor: float) -> float:
        return (self._n_worker - 1 + factor) / self._n_worker

    def _answer(self, episode: Episode, pace: Pace, at_s: float) -> tuple[tuple[float, float], ...]:
        speeds = [SIZE * episode.factor] + [float(SIZE)] * (self._n_worker - 1)
        workers = tuple(WorkerState(f"worker-{i}", SIZE, speed) for i, speed in enumerate(speeds))
        slow = Straggler("worker-0", Role.WORKER, pace, 1 / episode.factor, 1.0, at_s, 0.0, "lab")
        for proposed in self._solution((slow,), Situation(self._sync, workers)):
            stages = self._carried_out(proposed, episode.factor)
            if stages:
                return stages
        return ()

    def _carried_out(self, proposed: Proposed, factor: float) -> tuple[tuple[float, float], ...]:
        left = (self._n_worker - 1) / self._n_worker
        match proposed.action:
            case KillRestart():
                return ((0.0, left), (self._world.start_s, 1.0))
            case BackupWorkers(n) if n > 0:
                return ((0.0, left),)
            case AdjustBatches(sizes, accumulate):
                times = dict(accumulate)
                slowest = max(
                    size * times.get(node, 1) / (SIZE * (factor if node == "worker-0" else 1.0))
                    for node, size in sizes
                )
                return ((0.0, min(1.0 / slowest, 1.0)),)
        return ()

"""Slow parameter servers of one job of a lab, and what the job's solution makes of them.

One server at a time is slow, and each step waits for it. As for slow workers, the product's solution gets the
finding once over the short window and once over the long one. What it can do is to move buckets to the other
servers: each holds what it can serve then, and the job goes on.

How much of a step that costs is the truth's to say: where computing hides the servers' work, a slow one costs
nothing until it takes longer than that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.lab.slow_workers import SIZE, drawn_episode
from dlrover_nb.core.straggler.detect import LONG_WINDOW_S, SHORT_WINDOW_S
from dlrover_nb.core.straggler.situation import Situation, WorkerState
from dlrover_nb.core.straggler.solutions import SOLUTIONS
from dlrover_nb.core.structs.decisions.actions import MoveBuckets
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import Pace, Straggler

if TYPE_CHECKING:
    import numpy as np

    from dlrover_nb.core.lab.lab_file import LabWorld
    from dlrover_nb.core.lab.slow_workers import Episode
    from dlrover_nb.core.lab.workload import LabJob
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


class SlowServers:
    """Draws the slow episodes of a job's servers, and says what is left of its speed.

    Parameters
    ----------
    job
        With its truth.
    solution
        By its name.

    Attributes
    ----------
    share
        Of the job's usual speed, now.
    """

    def __init__(self, job: LabJob, solution: str, world: LabWorld, rng: np.random.Generator) -> None:
        self._job, self._solution, self._world, self._rng = job, SOLUTIONS[solution], world, rng
        self._plan = job.spec.plan
        self.share = 1.0

    def resize(self, plan: ResourcePlan) -> None:
        """Begin anew with the servers of a plan, none of them slow."""
        self._plan, self.share = plan, 1.0

    def next_episode(self) -> Episode | None:
        """Draw the next episode; None where servers never get slow."""
        return drawn_episode(self._world, self._world.slow_ps_per_day * self._plan.ps.count, self._rng)

    def stages(self, episode: Episode) -> tuple[tuple[float, float], ...]:
        """Return the share of the usual speed from when on, in seconds after the episode's begin."""
        first = (0.0, self._share(1 / episode.factor))
        for pace, at_s in ((Pace.TRANSIENT, SHORT_WINDOW_S), (Pace.PERSISTENT, LONG_WINDOW_S)):
            if at_s < episode.lasts_s and self._moves(episode, pace, at_s):
                n = self._plan.ps.count
                return (first, (at_s, self._share(n / (n - 1 + episode.factor))))
        return (first,)

    def _share(self, times: float) -> float:
        plan = self._plan
        batch = self._job.spec.batch_of(plan.worker.count)
        return self._job.truth.speed_served(plan, batch, times) / self._job.truth.speed(plan, batch)

    def _moves(self, episode: Episode, pace: Pace, at_s: float) -> bool:
        """Whether the solution moves buckets, by what a controller would know."""
        plan, n = self._plan, self._plan.ps.count
        batch = self._job.spec.batch_of(plan.worker.count)
        split = self._job.truth.split(plan, batch)
        usual_s = split.lookup_s + split.update_s
        if usual_s <= 0:  # nothing is known of servers: none would be found slow
            return False
        exchange_s = split.total_s / self._share(1 / episode.factor) - split.total_s + usual_s
        own_s = split.total_s - usual_s
        workers = tuple(
            WorkerState(f"worker-{i}", SIZE, SIZE / own_s if own_s > 0 else None)
            for i in range(plan.worker.count)
        )
        servers = tuple(f"ps-{i}" for i in range(n))
        situation = Situation(self._job.spec.sync, workers, ps=servers, exchange_s=exchange_s)
        slow = Straggler(servers[0], Role.PS, pace, usual_s / episode.factor, usual_s, at_s, 0.0, "lab")
        return any(isinstance(each.action, MoveBuckets) for each in self._solution((slow,), situation))

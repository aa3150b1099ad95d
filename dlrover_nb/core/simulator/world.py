"""Many jobs on one simulated cluster: instructions in, events out, virtual time between.

The world knows no controller. The caller steps the world, hands each event to the job's controller and hands
the controller's instructions back with `obey`, at the same virtual time:

    while world.next_at_s < math.inf:
        _, events = world.step()
        for job, event in events:
            for instruction in controllers[job].handle(event):
                world.obey(job, instruction)

For real time the caller waits until `next_at_s` is due on a clock of any factor, or calls `step(until_s)`
with the present time. The same seed, submissions and instructions give the same events.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.simulator.cluster import SimCluster
from dlrover_nb.core.simulator.description import WorldSettings
from dlrover_nb.core.simulator.engine import Engine
from dlrover_nb.core.simulator.one_job.life import SimJob
from dlrover_nb.core.structs.decisions.actions import MitigationChoice
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.budget import STOPPED_BY
from dlrover_nb.core.structs.plan.capacity import check_fits
from dlrover_nb.core.structs.views.events import EndJob, Mitigate, PhaseChanged, Scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

    from dlrover_nb.core.simulator.description import SimulatedJob
    from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
    from dlrover_nb.core.structs.views.events import Event, Instruction

JobEvents = tuple[tuple[str, "Event"], ...]


class SimulatedWorld:
    """A cluster and its jobs on a virtual clock.

    Parameters
    ----------
    machines
        Groups of machines.
    rng
        Source of all randomness; each job draws from its own child generator.
    settings
        Rates and times of the world.
    at_s
        The virtual time at the start.
    """

    def __init__(
        self,
        machines: Sequence[NodeShape],
        *,
        rng: np.random.Generator,
        settings: WorldSettings | None = None,
        at_s: float = 0.0,
    ) -> None:
        self.settings = settings or WorldSettings()
        self.cluster = SimCluster(machines)
        self._rng = rng
        self._engine = Engine(at_s)
        self._jobs: dict[str, SimJob] = {}
        self._events: list[tuple[str, Event]] = []
        self._n_living = 0
        self._n_release_offered = 0  # releases of capacity that were offered to waiting jobs

    @property
    def now_s(self) -> float:
        """The virtual time."""
        return self._engine.now_s

    @property
    def next_at_s(self) -> float:
        """Time of the next possible event; infinite when all jobs have ended."""
        if self._events:
            return self._engine.now_s
        return self._engine.next_at_s if self._n_living else math.inf

    @property
    def jobs(self) -> tuple[SimJob, ...]:
        """All jobs in the order of their submission."""
        return tuple(self._jobs.values())

    def job(self, name: str) -> SimJob:
        """Return a job by name.

        Raises
        ------
        NotFoundError
            When there is none of that name.
        """
        if name not in self._jobs:
            raise NotFoundError(
                f"the world has no job {shown(name)} (jobs: {', '.join(self._jobs) or 'none'})"
            )
        return self._jobs[name]

    def submit(self, job: SimulatedJob, at_s: float | None = None) -> SimJob:
        """Submit a job at `at_s` (None: now).

        Raises
        ------
        InvalidValueError
            When there is a job of that name, or the time has passed.
        CapacityError
            When its first plan does not fit on the empty cluster.
        """
        name = job.spec.name
        if name in self._jobs:
            raise InvalidValueError(f"job names must be unique, got {shown(name)} again; choose another name")
        check_fits(job.spec.plan, self.cluster.capacity)
        sim = SimJob(
            job,
            engine=self._engine,
            cluster=self.cluster,
            settings=self.settings,
            rng=self._rng.spawn(1)[0],
            emit=lambda event: self._record(name, event),
        )
        self._engine.at(
            self.now_s if at_s is None else at_s,
            lambda: None if sim.phase.is_final else sim.start(),  # it may be stopped before it arrives
        )
        self._jobs[name] = sim
        self._n_living += 1
        return sim

    def obey(self, name: str, instruction: Instruction) -> None:
        """Execute an instruction of a job's controller now.

        `Remember` is not for the world, and the batch sizes of a policy are not simulated.
        """
        if isinstance(instruction, Scale):
            self.job(name).set_target(instruction.target)
            self._offer_capacity()
        elif isinstance(instruction, Mitigate) and isinstance(instruction.choice, MitigationChoice):
            self.job(name).mitigate(instruction.choice)
            self._offer_capacity()
        elif isinstance(instruction, EndJob):
            self.stop(name, STOPPED_BY, instruction.why)

    def stop(self, name: str, by: str, why: str = "") -> None:
        """End a job now; no effect on an ended job."""
        self.job(name).stop(JobPhase.STOPPED, f"stopped by {by}" + (f": {why}" if why else ""))
        self._offer_capacity()

    def finish(self, name: str, why: str) -> None:
        """Let a job succeed now; no effect on an ended job."""
        self.job(name).stop(JobPhase.SUCCEEDED, why)
        self._offer_capacity()

    def step(self, until_s: float = math.inf) -> tuple[float, JobEvents]:
        """Advance to the next events, at most to `until_s`; return the time and the events.

        No events: nothing happens up to `until_s`, which is then the time (or, without `until_s`, nothing
        will happen any more).
        """
        limit_s = until_s if self._n_living or until_s < math.inf else -math.inf
        while self._engine.next_at_s <= limit_s and not self._events:
            self._engine.run_next()
            self._offer_capacity()
        if not self._events and until_s < math.inf:
            self._engine.move(until_s)
        events, self._events = tuple(self._events), []
        return self.now_s, events

    def _record(self, name: str, event: Event) -> None:
        self._events.append((name, event))
        if isinstance(event, PhaseChanged) and event.phase.is_final:
            self._n_living -= 1

    def room_for(self, names: Iterable[str]) -> Capacity:
        """Return the capacity in reach of these jobs together: their own places, and what is free."""
        own = (place for name in names for place in self.job(name).places)
        return self.cluster.room_for(own, len(self.cluster))

    def _offer_capacity(self) -> None:
        """Let waiting jobs try to place nodes, in order of submission, if capacity was released."""
        if self.cluster.n_release == self._n_release_offered:
            return
        self._n_release_offered = self.cluster.n_release
        for sim in self._jobs.values():
            sim.retry_placement()

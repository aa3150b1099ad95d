"""Many jobs on one simulated cluster: instructions in, events out, virtual time between.

The world knows no controller. Who composes a simulation steps the world, hands each event to the job's
controller and hands the controller's instructions back with `obey`, at the same virtual time:

    while world.next_at_s < math.inf:
        _, told = world.step()
        for job, event in told:
            for instruction in controllers[job].handle(event):
                world.obey(job, instruction)

Real time is a matter of who steps: wait until `next_at_s` is due on a clock of any factor, or call
`step(until_s)` with the present time. Given the same seed, submissions and instructions, a world
tells the same events.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.simulator.cluster import SimCluster
from dlrover_nb.core.simulator.description import WorldSettings
from dlrover_nb.core.simulator.engine import Engine
from dlrover_nb.core.simulator.job import SimJob
from dlrover_nb.core.structs.capacity import check_fits
from dlrover_nb.core.structs.events import PhaseChanged, Scale
from dlrover_nb.core.structs.job import JobPhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

    from dlrover_nb.core.simulator.description import SimulatedJob
    from dlrover_nb.core.structs.capacity import Capacity, NodeShape
    from dlrover_nb.core.structs.events import Event, Instruction

JobEvents = tuple[tuple[str, "Event"], ...]


class SimulatedWorld:
    """A cluster and its jobs on a virtual clock.

    Parameters
    ----------
    machines
        Groups of machines.
    rng
        Where all chance comes from; each job draws from its own child of it.
    settings
        How the world behaves.
    at_s
        The virtual time to begin at.
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
        self._told: list[tuple[str, Event]] = []
        self._n_living = 0
        self._seen = 0  # changes of the cluster that jobs waiting for room have been asked about

    @property
    def now_s(self) -> float:
        """The virtual time."""
        return self._engine.now_s

    @property
    def next_at_s(self) -> float:
        """When something may happen next; infinite when all jobs have ended and none is to come."""
        if self._told:
            return self._engine.now_s
        return self._engine.next_at_s if self._n_living else math.inf

    @property
    def jobs(self) -> tuple[SimJob, ...]:
        """All jobs that were submitted, in this order."""
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
                f"the world must know the job, got {name!r} (known: {', '.join(self._jobs) or 'none'})"
            )
        return self._jobs[name]

    def submit(self, job: SimulatedJob, at_s: float | None = None) -> SimJob:
        """Let a job arrive at `at_s` (None: now).

        Raises
        ------
        InvalidValueError
            When there is a job of that name, or the time has passed.
        CapacityError
            When its first plan would not even fit on the empty cluster.
        """
        name = job.spec.name
        if name in self._jobs:
            raise InvalidValueError(f"job names must be unique, got {name!r} again; choose another name")
        check_fits(job.spec.plan, self.cluster.capacity)
        sim = SimJob(
            job,
            engine=self._engine,
            cluster=self.cluster,
            settings=self.settings,
            rng=self._rng.spawn(1)[0],
            emit=lambda event: self._hear(name, event),
        )
        self._engine.at(
            self.now_s if at_s is None else at_s,
            lambda: None if sim.phase.is_final else sim.start(),  # it may be stopped before it arrives
        )
        self._jobs[name] = sim
        self._n_living += 1
        return sim

    def obey(self, name: str, instruction: Instruction) -> None:
        """Carry out what a job's controller orders, now; what it wants remembered is not the world's."""
        if isinstance(instruction, Scale):
            self.job(name).set_target(instruction.target)
            self._offer_room()

    def stop(self, name: str, by: str, why: str = "") -> None:
        """End a job now; nothing happens when it has ended."""
        self.job(name).stop(JobPhase.STOPPED, f"stopped by {by}" + (f": {why}" if why else ""))
        self._offer_room()

    def step(self, until_s: float = math.inf) -> tuple[float, JobEvents]:
        """Move on to the next events, at most to `until_s`; return the time and what was told at it.

        Nothing told means that nothing happens up to `until_s`, which is then the time (or, with no
        `until_s`, that nothing will ever happen again).
        """
        limit_s = until_s if self._n_living or until_s < math.inf else -math.inf
        while self._engine.next_at_s <= limit_s and not self._told:
            self._engine.run_next()
            self._offer_room()
        if not self._told and until_s < math.inf:
            self._engine.move(until_s)
        told, self._told = tuple(self._told), []
        return self.now_s, told

    def _hear(self, name: str, event: Event) -> None:
        self._told.append((name, event))
        if isinstance(event, PhaseChanged) and event.phase.is_final:
            self._n_living -= 1

    def room_for(self, names: Iterable[str]) -> Capacity:
        """Return what these jobs together may use at the most: their own places, and what is free."""
        own = (place for name in names for place in self.job(name).places)
        return self.cluster.room_for(own, len(self.cluster))

    def _offer_room(self) -> None:
        """Ask jobs that wait for room to look again, first come first, if any room was given back."""
        if self.cluster.n_release == self._seen:
            return
        self._seen = self.cluster.n_release
        for sim in self._jobs.values():
            sim.retry_placement()

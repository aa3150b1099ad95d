"""The world of one simulated cluster: several own jobs, each a world of its own, and the real brains that plan for them.

Jobs keep step with each other: each takes its turns until it has reached the time of all. One that stood still meanwhile,
or whose master was killed, is ahead of the others until they have caught up, and answers nobody as long. A brain runs in
tasks; what it says to masters, and they to it, is packed as between hosts, and is lost or late.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from simulation.own.audit import OwnAudit
from simulation.own.world import OwnWorld
from simulation.tasks import LONGEST_S, Task, Tasks, Time, Turns
from sqlalchemy import Float, literal
from support.driver.driver_world import ManualMachine, PlayedBackend, features

from dlrover_nb.core.brain import planning_round as rounds_module
from dlrover_nb.core.brain import service as service_module
from dlrover_nb.core.brain.service import Brain, Rhythm
from dlrover_nb.core.client.link.call_ends import CallHandler, CallLink, unpack_answer
from dlrover_nb.core.client.link.calls import CALLS
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.errors import BackendError, DlroverError
from dlrover_nb.core.history.stores.brain_rounds import RoundStore
from dlrover_nb.core.history.stores.leases import Lease, LeaseStore
from dlrover_nb.core.planner.availability.waiting import free_of
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, plan_needs
from dlrover_nb.core.structs.views.summary import JobSummary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from simulation.brain.audit import BrainAudit
    from simulation.brain.schedule import BrainScenario

    from dlrover_nb.core.client.link.calls import Answer, Call
    from dlrover_nb.core.driver.own import own_job
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.brain import BrainRound

STEP_S = 0.25
CALL_LIMIT_S = 5.0  # after which a master does not answer
RHYTHM = Rhythm(interval_s=2.0, lease_s=3.0)
MEMORY_MIB = 8192
NETWORK = "the network"


class SharedBackend(PlayedBackend):
    """Nodes of one of several jobs."""

    def room(self) -> Capacity:
        return self._world.room()  # type: ignore[attr-defined, no-any-return]


class JobOfClusterWorld(OwnWorld):
    """One of the jobs."""

    def __init__(self, cluster: BrainWorld, *args: Any, **fields: Any) -> None:
        self.cluster = cluster
        super().__init__(*args, **fields)

    def _setup(self) -> own_job.RunSetup:
        self.machine.passed_s = max(self.machine.passed_s, self.cluster.elapsed_s)
        self.capacity = self.cluster.capacity
        return super()._setup()

    def room(self) -> Capacity:
        """Return what this job holds, and what no other does."""
        others = [job for job in self.cluster.jobs.values() if job.world is not self]
        free = free_of(
            self.capacity, [need for job in others if (plan := job.holds) for need in plan_needs(plan)]
        )
        return free if free.shapes else Capacity((NodeShape(0.05, 64),))


@dataclass(eq=False)
class PlayedJob:
    """A job and its auditor."""

    world: JobOfClusterWorld
    audit: OwnAudit
    goes_on: bool = True

    @property
    def holds(self) -> ResourcePlan | None:
        """The plan for which it holds room, or will at once; None: none."""
        now = self.world.now
        return None if now.phase.is_final or now.queue is not None else now.target


class PlayedLeases(LeaseStore):
    """Leases by the clock of a played database."""

    machine: ManualMachine
    away_until_s = 0.0
    holders: dict[int, str]  # by term

    def take(self, name: str, holder: str, lasts_s: float) -> Lease:
        if self.away_until_s > self.machine.passed_s:
            raise BackendError("the database is away")
        lease = super().take(name, holder, lasts_s)
        self.holders[lease.term] = lease.holder
        return lease

    def _now(self) -> Any:
        return literal(self.machine.passed_s, Float)


class PlayedLink(CallLink):
    """A brain's way to one master."""

    def __init__(self, world: BrainWorld, brain: str, job: str) -> None:
        super().__init__()
        self._world, self._brain, self._job = world, brain, job

    def send(self, call: Call) -> Answer:
        packed = self._world.ask(self._brain, self._job, call)
        if packed is None:
            raise BackendError(f"the master of job {self._job} does not answer")
        return unpack_answer(packed)


class PlayedCluster:
    """What a brain may know of the cluster."""

    def __init__(self, world: BrainWorld, brain: str) -> None:
        self._world, self._brain = world, brain

    def live_jobs(self) -> tuple[JobSummary, ...]:
        return tuple(
            job.world.driver.summary() for name, job in self._world.jobs.items() if self._world.answers(name)
        )

    def jobs(self) -> tuple[JobSummary, ...]:
        """Return all jobs: of those that do not answer only that they are there, as the local cluster has it."""
        return tuple(
            job.world.driver.summary()
            if self._world.answers(name)
            else JobSummary(
                name,
                JobPhase.STARTING,
                "",
                job.world.driver.summary().started_at_s,
                None,
                0.0,
                0.0,
                None,
                live=False,
            )
            for name, job in self._world.jobs.items()
            if job.goes_on
        )

    def capacity(self) -> Capacity:
        return self._world.capacity

    def job(self, name: str) -> Any:
        link = PlayedLink(self._world, self._brain, name)
        return SimpleNamespace(with_short_timeout=SimpleNamespace(link=link))


class Stops:
    """What `threading.Event` is to a brain."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> None:
        self._tasks.sleep(seconds)


class PlayedBrain(Brain):
    """A brain whose own errors are noted, which it survives."""

    errors: list[Exception]
    known: set[str]

    def planned(self) -> BrainRound:
        try:
            found = super().planned()
        except DlroverError:
            raise
        except Exception as error:
            self.errors.append(error)
            raise
        self.known |= {each.job for each in found.holding}
        return found


class BrainWorld:
    """One cluster; whatever befalls it is carried out by `events`."""

    def __init__(self, folder: Path, case: BrainScenario) -> None:
        self.case, self._folder = case, folder
        self._history = (folder / "history.db").read_bytes()
        self.machine, self.capacity = ManualMachine(), Capacity((NodeShape(case.cores, MEMORY_MIB),))
        self.rng = random.Random(case.seed)
        self.jobs: dict[str, PlayedJob] = {}
        self.audit: BrainAudit
        self.stopped_until_s: dict[str, float] = {}
        self.tasks = Tasks(self.machine, lambda name: self.stopped_until_s.get(name, 0.0) > self.elapsed_s)
        url = f"sqlite:///{folder / 'history.db'}"
        self.leases, self._rounds = PlayedLeases(url), RoundStore(url)
        self.leases.machine, self.leases.holders = self.machine, {}
        self.errors: list[Exception] = []
        self.known: set[str] = set()  # jobs that any brain has known in a round
        self.brains: dict[str, tuple[Brain, Task]] = {}
        self._n_brain, self._to_come = 0, list(case.jobs)
        self._open = ExitStack()
        time = Time(self.tasks)
        self._open.enter_context(mock.patch.object(service_module, "time", time))
        self._open.enter_context(mock.patch.object(rounds_module, "time", time))
        self._open.enter_context(
            mock.patch.object(service_module, "SystemClock", partial(SystemClock, self.machine))
        )
        self._open.enter_context(mock.patch.object(rounds_module, "_at_once", self._at_once))

    # what is read

    @property
    def elapsed_s(self) -> float:
        return self.machine.passed_s

    @property
    def is_over(self) -> bool:
        return not self._to_come and not any(job.goes_on for job in self.jobs.values())

    @property
    def end_phase(self) -> str:
        return ", ".join(sorted({str(job.world.now.phase) for job in self.jobs.values()}))

    @property
    def n_excused(self) -> int:
        return sum(job.world.account.n_excused for job in self.jobs.values())

    def answers(self, name: str) -> bool:
        """Whether the master of a job is there, and not ahead of the others."""
        world = self.jobs[name].world
        return world.master_is_up and world.elapsed_s <= self.elapsed_s + 2 * STEP_S

    # time

    def start(self) -> None:
        for i in range(self.case.n_brain):
            self.begin_brain(f"brain-{i}")
        self._submit_due()

    def _submit_due(self) -> None:
        while self._to_come and self._to_come[0][0] <= self.elapsed_s:
            self._submit(self._to_come.pop(0)[1])

    def turn_loop(self) -> bool:
        """Let a step of time pass for all; return whether any job goes on."""
        self._submit_due()
        end_s = self.elapsed_s + STEP_S
        self.tasks.run(end_s, until=lambda: False)
        for job in self.jobs.values():
            while job.goes_on and job.world.elapsed_s < end_s:
                job.audit.after_turn()
                job.goes_on = job.world.turn_loop()
                if not job.goes_on:
                    job.audit.at_end()
        return not self.is_over

    def abandon(self) -> None:
        for job in self.jobs.values():
            job.world.abandon()
        for _, task in self.brains.values():
            self.tasks.kill(task)
        self._open.close()

    # jobs

    def _submit(self, fields: dict[str, Any]) -> None:
        name = str(fields["name"])
        folder = self._folder / name
        folder.mkdir()
        (folder / "history.db").write_bytes(self._history)
        world = JobOfClusterWorld(
            self,
            folder,
            features(self.case.n_train, 10),
            order_seed=self.case.seed,
            backend=SharedBackend,
            **fields,
        )
        self.jobs[name] = PlayedJob(world, OwnAudit(world))
        world.start()

    # brains

    def begin_brain(self, name: str, in_s: float = 0.0) -> None:
        """Begin a brain, under a name that none had before."""
        self._n_brain += 1
        by = f"{name} of {self._n_brain}"
        stop = Stops(self.tasks)
        brain = PlayedBrain(
            PlayedCluster(self, by),  # type: ignore[arg-type]
            "played",
            leases=self.leases,
            rounds=self._rounds,
            settings=self.case.settings,
            rhythm=RHYTHM,
            by=by,
        )
        brain.errors, brain.known = self.errors, self.known
        brain._lock = Turns(self.tasks)  # type: ignore[assignment]

        def run() -> None:
            self.tasks.sleep(in_s)
            brain.run(stop)

        self.brains[name] = brain, self.tasks.begin(run, by)

    def kill_brain(self, name: str) -> None:
        if name in self.brains:
            self.tasks.kill(self.brains.pop(name)[1])

    def stop_brain(self, name: str, seconds: float) -> None:
        """Let a brain do nothing for a while."""
        if name in self.brains:
            self.stopped_until_s[self.brains[name][0]._by] = self.elapsed_s + seconds

    @property
    def leads(self) -> bool:
        """Whether a brain holds the lease, and is awake."""
        awake = (
            brain
            for brain, _ in self.brains.values()
            if self.stopped_until_s.get(brain._by, 0.0) <= self.elapsed_s
        )
        return any(brain.leads for brain in awake)

    def _at_once(self, call: Callable[[Any], object], items: list[Any]) -> list[Any]:
        """Call for each item in a task of its own, as a brain does in threads."""
        parent, found = self.tasks.present, dict[int, object]()

        def one(at: int) -> None:
            found[at] = call(items[at])
            if len(found) == len(items):
                self.tasks.wake(parent, True)

        for at in range(len(items)):
            parent.children.append(self.tasks.begin(lambda at=at: one(at), parent.of))
        if items:
            self.tasks.park(LONGEST_S)
        return [found[at] for at in range(len(items))]

    # messages

    def ask(self, brain: str, job: str, call: Call) -> bytes | None:
        """Return the packed answer of a master, for a task of a brain; None: there is none in time."""
        self.audit.note_sent(brain, call)
        task, data = self.tasks.present, CALLS.pack(call)

        def deliver() -> None:
            fate = self.rng.random()
            self.tasks.sleep(self.rng.choice([0.0, 0.01, 0.1]))
            if fate < self.case.late:
                self.tasks.sleep(self.rng.choice([1.0, 4.0, 12.0]))
            if fate > 1 - self.case.lost / 2 or not self.answers(job):
                return
            answer = self._answer(job, data)
            self.audit.note_answered(job, call, unpack_answer(answer))
            if fate < 1 - self.case.lost:
                self.tasks.sleep(self.rng.choice([0.0, 0.01, 0.1]))
                self.tasks.wake_if(task, task_number, answer)

        self.tasks.begin(deliver, NETWORK)
        task_number = task.number + 1  # of the wait that follows
        answer: bytes | None = self.tasks.park(CALL_LIMIT_S)
        return answer

    def _answer(self, name: str, data: bytes) -> bytes:
        return CallHandler(self.jobs[name].world.driver).answer_packed(data)

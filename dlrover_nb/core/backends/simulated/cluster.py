"""Jobs on a simulated cluster: one thread, one loop, one command queue, many readers.

The controllers are the real ones; they control `core.simulator`. All events of all jobs are handled in the
loop, one at a time, in virtual time that follows real time by a factor. Other threads submit commands with a
future, which the loop answers between two steps. A snapshot is built on request only, since most of a hundred
jobs are not viewed.

Everything is marked as simulated: snapshots and summaries carry `simulated`, and nothing is written to the
user's history, from which real jobs learn.

Virtual time moves `speed` times as fast as real time, as long as the simulation keeps up. Where it does not,
virtual time waits for it, and nothing is caught up later: a notebook that was suspended overnight must not
find its jobs ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.simulated.simulated_job import SimulatedRun
from dlrover_nb.core.brain.cluster_plan import BrainSettings, plan_cluster
from dlrover_nb.core.client.cluster import OfThisAccount, no_job
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.driver.job_start import initial_plan
from dlrover_nb.core.driver.loop.command_queue import CommandQueue
from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.cluster.cluster_access import ClusterAccess
from dlrover_nb.core.structs.cluster.cluster_load import Amount, ClusterLoad, MachineLoad, by_job, total
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.capacity import check_fits
from dlrover_nb.core.structs.plan.default_bounds import completed
from dlrover_nb.core.structs.plan.offers import JobOffer
from dlrover_nb.core.structs.plan.resources import CPU_STEP
from dlrover_nb.core.structs.training.shards import BatchChoice, FinishChoice
from dlrover_nb.core.structs.views.events import (
    CurvesMeasured,
    Decided,
    JobSubmitted,
    QuotaChanged,
    quota_changed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from dlrover_nb.core.controller.plan_queries import PlanQueries
    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.simulator.cluster import Place
    from dlrover_nb.core.simulator.description import SimulatedJob
    from dlrover_nb.core.simulator.world import SimulatedWorld
    from dlrover_nb.core.structs.decisions.decisions import Decision
    from dlrover_nb.core.structs.decisions.query_answers import Explanation, LogLine, Weighed
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.offers import Allotment, Offer
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.quality import QualityCurve
    from dlrover_nb.core.structs.training.shards import UserChoice
    from dlrover_nb.core.structs.views.events import Event
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, NodeView, SeriesChunk
    from dlrover_nb.core.structs.views.summary import JobSummary

logger = logging.getLogger(__name__)

WORK_S = 0.02  # of simulation between two checks of the command queue: the longest wait for an answer
IDLE_S = 0.25
AHEAD_CHECK_S = 0.02
FRESH_S = 0.5  # an answer of the loop serves sliders this long, as a snapshot of a driver does


MAX_TURN_S = 0.5  # real seconds that one turn may cover


SHARE_S = 300.0  # of virtual time
PLENTY = 0.5  # of all cores: below this use, jobs do not compete


class QuotaSharing:
    """Makes quotas periodically.

    Parameters
    ----------
    world
        The simulated world.

    Attributes
    ----------
    is_planned_outside
        Whether another program plans for all jobs: then it makes none.
    """

    def __init__(self, world: SimulatedWorld) -> None:
        self._world, self._shared_s, self._is_shared = world, world.now_s, False
        self.is_planned_outside = False
        self._before: Mapping[str, ResourcePlan] = {}

    def quotas(self, runs: Collection[SimulatedRun]) -> tuple[tuple[str, QuotaChanged], ...]:
        """Return the quotas of jobs in auto mode, by name, when they are due."""
        at_s = self._world.now_s
        if self.is_planned_outside or at_s < self._shared_s + SHARE_S:
            return ()
        self._shared_s = at_s
        used, whole = self._world.cluster.used_cpu, self._world.cluster.capacity.total_cpu
        if used < PLENTY * whole and not self._is_shared:
            return ()
        offers = [offer for run in runs if isinstance(offer := run.offer(), JobOffer) and not offer.asks]
        if not offers:
            return ()
        room = self._world.room_for(offer.job for offer in offers)
        cluster_plan = plan_cluster(offers, room, BrainSettings(), self._before)
        self._before = {job: share.plan for job, share in cluster_plan.shares.items()}
        self._is_shared = any(share.quota != Quota() for share in cluster_plan.shares.values())
        return tuple(
            (job, QuotaChanged(at_s, share.quota, share.why)) for job, share in cluster_plan.shares.items()
        )


class SimulationClock:
    """The virtual time up to which a simulation may run.

    Parameters
    ----------
    speed
        Virtual seconds per real second, > 0.
    at_s
        Virtual time at the start.
    real_s
        Real time at the start.

    Attributes
    ----------
    reached_s
        Virtual time that the simulation has reached.
    """

    def __init__(self, speed: float, *, at_s: float, real_s: float) -> None:
        _check.above_zero("speed", speed)
        self.speed = speed
        self.reached_s = self._ahead_s = at_s
        self._real_s = real_s

    def run_ahead(self, seconds: float) -> float:
        """Let virtual time pass as fast as it can be simulated; return until when."""
        self._ahead_s = self.reached_s + seconds
        return self._ahead_s

    def goal_s(self, real_s: float) -> float:
        """Return up to which virtual time to run at a real time."""
        passed_s = min(max(real_s - self._real_s, 0.0), MAX_TURN_S)
        return max(self.reached_s + self.speed * passed_s, self._ahead_s)

    def reach(self, at_s: float, real_s: float) -> None:
        """Record the virtual time that the simulation has reached."""
        self.reached_s, self._real_s = max(at_s, self.reached_s), real_s

    def wait_s(self, next_at_s: float) -> float:
        """Return the real seconds until something is due at a virtual time."""
        if next_at_s <= self._ahead_s:
            return 0.0
        return max((next_at_s - self.reached_s) / self.speed, 0.0)


class SimulatedCluster(OfThisAccount):
    """A cluster of simulated machines; implements `core.client.cluster.Cluster`.

    Parameters
    ----------
    world
        Machines, jobs and virtual time.
    settings
        Of the controllers; their windows match the interval of the world's reports.
    assume
        Makes the truth of a job from its specification; see `core.backends.simulated.assumptions`.
    speed
        Virtual seconds per real second.
    """

    def __init__(
        self,
        world: SimulatedWorld,
        settings: ControllerSettings,
        assume: Callable[[JobSpec], SimulatedJob],
        *,
        speed: float,
    ) -> None:
        self._world, self._settings, self._assume = world, settings, assume
        self._clock = SimulationClock(speed, at_s=world.now_s, real_s=time.monotonic())
        self._runs: dict[str, SimulatedRun] = {}
        self._events: deque[tuple[str, Event]] = deque()  # events of this moment that were not handled yet
        self._why_over = ""
        self._commands = CommandQueue("the simulation", over=self._over)
        self._sharing = QuotaSharing(world)
        self._thread = threading.Thread(target=self._run, name="simulated-cluster", daemon=True)
        self._thread.start()

    # for any thread

    @property
    def simulated(self) -> bool:
        """Whether the cluster is simulated."""
        return True

    @property
    def description(self) -> str:
        """One line: kind and capacity."""
        capacity = self.capacity()
        machines = sum(shape.count for shape in capacity.shapes)
        return (
            f"simulated cluster: {machines} machine{'s' * (machines != 1)}, {capacity.total_cpu:g} cores, "
            f"{capacity.total_memory_mib / 1024:.1f} GiB, {self._clock.speed:g} s simulated in a second"
        )

    def capacity(self) -> Capacity:
        """Return the capacity for jobs."""
        return self._world.cluster.capacity

    def load(self) -> ClusterLoad:
        """Return what each machine has and who holds it; see `Cluster.load`."""
        return self._commands.ask(lambda: _load(self._world))

    def standing(self) -> ClusterAccess:
        """Return no restrictions: every user of the process has all rights."""
        return ClusterAccess()

    def submit(self, spec: JobSpec, *, model: object = None, data: object = None) -> JobHandle:
        """Start a job and return at once; see `Cluster.submit`."""
        _check_simulated(spec, has_code=model is not None or data is not None)
        job = self._assume(spec.counted_from(SystemClock().now_s()))
        self.add(job)
        bounds = completed(spec.bounds, self.capacity(), spec.plan, most_workers=spec.step_batches)
        return JobHandle(
            spec.name,
            _Link(self, spec.name),
            simulated=True,
            schema=job.schema,
            bounds=bounds,
            deadline=self.snapshot(spec.name).deadline,
        )

    def add(self, job: SimulatedJob) -> JobHandle:
        """Start a job whose truth is given; see `submit`."""
        return self.add_all([job])[0]

    def add_all(self, jobs: Iterable[SimulatedJob]) -> tuple[JobHandle, ...]:
        """Start jobs at one virtual moment; one by one they start as far apart as this machine is slow."""
        jobs = tuple(jobs)
        for job in jobs:
            check_fits(job.spec.plan, self.capacity())
        self._commands.ask(lambda: self._add_all(jobs))
        return tuple(self._handle(job.spec.name) for job in jobs)

    def run_ahead(self, seconds: float) -> None:
        """Let virtual time pass as fast as this machine can simulate it, and return when it has."""
        until_s = self._commands.ask(lambda: self._clock.run_ahead(seconds))
        while not self._why_over and self._clock.reached_s < until_s:
            time.sleep(AHEAD_CHECK_S)

    def jobs(self) -> tuple[JobSummary, ...]:
        """Return all jobs, newest first."""
        summaries = self._commands.ask(
            lambda: [run.summary(self._world.now_s) for run in self._runs.values()]
        )
        return tuple(sorted(summaries, key=lambda s: s.started_at_s, reverse=True))

    def live_jobs(self) -> tuple[JobSummary, ...]:
        """Return all jobs, newest first: none of them is past."""
        return self.jobs()

    def job(self, name: str) -> JobHandle:
        """Find a job by name; `NotFoundError` names the nearest ones."""
        names = self._commands.ask(lambda: list(self._runs))
        if name not in names:
            raise NotFoundError(no_job(name, "in the simulated cluster", names))
        return self._handle(name)

    def delete(self, name: str, *, force: bool = False) -> str:  # noqa: ARG002 - as in the protocol
        """Refuse: there is nothing to delete."""
        self.job(name)
        raise InvalidValueError(
            f"a simulated job needs no delete; `stop {name}` ends it, `shutdown` ends all"
        )

    def shutdown(self, *, force: bool = False) -> str:
        """End the simulation; refused while jobs run, unless forced."""
        if self._why_over:
            return f"the simulation is over ({self._why_over})"
        running = self._commands.ask(
            lambda: [run.name for run in self._runs.values() if not run.phase.is_final]
        )
        if running and not force:
            raise InvalidValueError(
                f"{len(running)} simulated job(s) still run; stop them first, or shutdown --force"
            )
        self._close("it was shut down")
        self._thread.join()
        return "the simulated cluster has ended" + f", and with it {len(running)} job(s)" * bool(running)

    def snapshot(self, name: str) -> JobSnapshot:
        """Return the newest snapshot of a job."""
        return self._commands.ask(lambda: self._runs[name].snapshot(self._world.now_s))

    def series(self, name: str, cursor: int) -> SeriesChunk:
        """Return a job's telemetry newer than `cursor`."""
        return self._commands.ask(lambda: self._runs[name].series(cursor))

    def decide(self, name: str, decision: Decision) -> Decision:
        """Submit a decision; return it with its id, or raise why it is refused."""
        return self._commands.ask(lambda: self._decide(name, decision))

    def logs(self, name: str, node: str | None, n_line: int) -> tuple[LogLine, ...]:
        """Return the newest lines about a job's nodes."""
        return self._commands.ask(lambda: self._runs[name].logs(node, n_line))

    def queries(self, name: str) -> PlanQueries:
        """Return the queries about the current state of a job."""
        return self._commands.ask(self._runs[name].queries)

    def allot(self, name: str, allotment: Allotment) -> None:
        """Set what a job may plan with."""
        self._commands.ask(lambda: self._allot(name, allotment))

    def learn_curves(self, name: str, curves: tuple[QualityCurve, ...]) -> None:
        """Let a job plan with these curves of quality."""
        self._commands.ask(lambda: self._learn_curves(name, curves))

    def stop(self, name: str, by: str, why: str) -> None:
        """End a job."""
        self._commands.ask(lambda: self._stop(name, by, why))

    def finish(self, name: str, choice: FinishChoice) -> None:
        """Let a job succeed with what it has trained."""
        self._commands.ask(lambda: self._finish(name, choice))

    def _handle(self, name: str) -> JobHandle:
        return JobHandle(name, _Link(self, name), simulated=True)

    def _over(self) -> BackendError:
        return BackendError(f"the simulation is over ({self._why_over}); connect sim starts another")

    # the loop's thread

    def _run(self) -> None:
        try:
            while not self._why_over:
                self._turn()
        except Exception as error:
            logger.exception("the simulation failed")
            self._close(f"it failed: {type(error).__name__}: {error}")
        self._commands.close()

    def _turn(self) -> None:
        """Answer commands, then simulate up to the present time."""
        wait_s = 0.0 if self._events else min(self._clock.wait_s(self._world.next_at_s), IDLE_S)
        self._answer_all(wait_s)
        start_s = time.monotonic()
        goal_s = self._clock.goal_s(start_s)
        while (self._events or self._world.now_s < goal_s) and time.monotonic() < start_s + WORK_S:
            if not self._events:
                self._events.extend(self._world.step(goal_s)[1])
                self._events.extend(self._sharing.quotas(self._runs.values()))
            else:
                self._handle_event(*self._events.popleft())
        self._clock.reach(self._world.now_s, start_s)

    def _allot(self, name: str, allotment: Allotment) -> None:
        self._sharing.is_planned_outside = True
        self._catch_up(name)  # a quota of its own that waits here comes first
        lasts_s = allotment.lasts_s * self._clock.speed  # its planner lives in real time
        self._handle_event(name, quota_changed(replace(allotment, lasts_s=lasts_s), self._world.now_s))

    def _learn_curves(self, name: str, curves: tuple[QualityCurve, ...]) -> None:
        self._catch_up(name)
        self._handle_event(name, CurvesMeasured(self._world.now_s, curves))

    def _answer_all(self, wait_s: float) -> None:
        if self._commands.run_next(wait_s):
            while self._commands.run_next():
                pass

    def _handle_event(self, name: str, event: Event) -> None:
        for order in self._runs[name].handle(event):
            self._world.obey(name, order)

    def _catch_up(self, name: str) -> None:
        """Handle all events of a job up to now, before a command of a user about it."""
        self._events.extend(self._world.step(self._world.now_s)[1])
        own = [event for job, event in self._events if job == name]
        self._events = deque(fact for fact in self._events if fact[0] != name)
        for event in own:
            self._handle_event(name, event)

    def _add_all(self, jobs: Sequence[SimulatedJob]) -> None:
        names: set[str] = set()
        for job in jobs:
            name = job.spec.name
            if name in names or name in self._runs:
                phase = self._runs[name].phase if name in self._runs else "twice in this list"
                raise InvalidValueError(f"a job named {name} exists already ({phase}); choose another name")
            names.add(name)
        for job in jobs:
            self._add(job)

    def _add(self, job: SimulatedJob) -> None:
        name = job.spec.name
        sim = self._world.submit(self._begun(job))
        self._runs[name] = SimulatedRun(sim, self._first_event(name), self.capacity(), self._settings)
        self._catch_up(name)

    def _first_event(self, name: str) -> JobSubmitted:
        """Step the world, within this moment, until a job has arrived; return and drop its first event."""
        while (event := next((fact for fact in self._events if fact[0] == name), None)) is None:
            self._events.extend(self._world.step(self._world.now_s)[1])
        self._events.remove(event)
        assert isinstance(event[1], JobSubmitted)
        return event[1]

    def _begun(self, job: SimulatedJob) -> SimulatedJob:
        """Warm-start a job with known traits from the jobs that have ended here."""
        if job.traits is None:
            return job
        past = [run.past for run in self._runs.values() if run.past is not None]
        begun = initial_plan(job.spec, job.traits, self.capacity(), past)
        return replace(job, spec=begun.spec, prior=begun.prior, why=begun.why)

    def _decide(self, name: str, decision: Decision) -> Decision:
        self._catch_up(name)
        run, at_s = self._runs[name], self._world.now_s
        decided, orders = run.decide(Decided(at_s, replace(decision, at_s=at_s)))
        for order in orders:
            self._world.obey(name, order)
        return decided

    def _stop(self, name: str, by: str, why: str) -> None:
        self._world.stop(name, by, why)
        self._catch_up(name)

    def _finish(self, name: str, choice: FinishChoice) -> None:
        if (phase := self._runs[name].phase).is_final:
            raise StaleDecisionError(f"job {name} has {phase}, so there is nothing left to finish")
        self._world.finish(name, str(choice))
        self._catch_up(name)

    def _close(self, why: str) -> None:
        self._why_over = self._why_over or why
        self._commands.shut()


class _Link:
    """One job of a simulated cluster; implements `core.client.link.protocols.MasterLink`.

    A slider asks at every move, and the loop may be busy with the fit of another job: an answer serves
    requests for `FRESH_S`, until a decision is made here.
    """

    def __init__(self, cluster: SimulatedCluster, name: str) -> None:
        self._cluster, self._name = cluster, name
        self._queries: tuple[float, PlanQueries] | None = None  # time of the answer

    def snapshot(self) -> JobSnapshot:
        """Return the newest snapshot of the job."""
        return self._cluster.snapshot(self._name)

    def series(self, cursor: int) -> SeriesChunk:
        """Return telemetry newer than `cursor`."""
        return self._cluster.series(self._name, cursor)

    def decide(self, decision: Decision) -> Decision:
        """Submit a decision."""
        decided = self._cluster.decide(self._name, decision)
        self._queries = None
        return decided

    def weigh(self, plans: tuple[ResourcePlan, ...]) -> tuple[Weighed, ...]:
        """Predict plans, in the caller's thread: the simulation goes on."""
        cached, now_s = self._queries, time.monotonic()
        if cached is None or now_s > cached[0] + FRESH_S:
            self._queries = cached = (now_s, self._cluster.queries(self._name))
        return cached[1].weigh(plans)

    def offer(self) -> Offer:
        """Return the plans that the job could use, or why it takes no part in a choice among jobs."""
        return self._cluster.queries(self._name).offer()

    def allot(self, allotment: Allotment) -> None:
        """Set what auto mode may plan with; from then on the cluster shares nothing out by itself."""
        self._cluster.allot(self._name, allotment)

    def learn_curves(self, curves: tuple[QualityCurve, ...]) -> None:
        """Let the job plan with these curves of quality."""
        self._cluster.learn_curves(self._name, curves)
        self._queries = None

    def explain(self, proposal: str | None) -> Explanation:
        """Explain a proposal."""
        return self._cluster.queries(self._name).explain(proposal)

    def logs(self, node: str | None, n_line: int) -> tuple[LogLine, ...]:
        """Return the events of a node, or of all: simulated nodes write no logs."""
        return self._cluster.logs(self._name, node, n_line)

    def choose(self, choice: UserChoice) -> None:
        """Finish the job; refuse all else, as simulated rows kill no workers."""
        if isinstance(choice, FinishChoice):
            self._cluster.finish(self._name, choice)
            return
        if isinstance(choice, BatchChoice):
            raise InvalidValueError("workers of a simulated job have no batch sizes that could be adjusted")
        raise InvalidValueError(f"shard {choice.shard} is not in quarantine; none is: this job is simulated")

    def stop(self, by: str, why: str) -> None:
        """End the job."""
        self._cluster.stop(self._name, by, why)


def _check_simulated(spec: JobSpec, *, has_code: bool) -> None:
    """Refuse what only real jobs have: programs, code or parameters; a simulated one has a size and a speed.

    Raises
    ------
    InvalidValueError
        When the job has code or programs of its user, begins from a checkpoint, or trains by all-reduce.
    """
    if has_code:
        raise InvalidValueError(
            "a simulated cluster cannot run your own code; name a built-in model, or connect ray"
        )
    if spec.foreign is not None:
        raise InvalidValueError(
            "a simulated cluster cannot run external programs; leave external out, or connect local"
        )
    if spec.start_from is not None:
        raise InvalidValueError(
            "a simulated job has no parameters to begin with; leave start_from out, or connect local"
        )
    if spec.sync is Sync.ALLREDUCE:
        raise InvalidValueError(
            "a simulated job trains with PS; choose sync asp, bsp, ssp or gba, or connect local"
        )


def _load(world: SimulatedWorld) -> ClusterLoad:
    """Return the load of all machines now: the places of nodes, and what their newest reports used.

    Nothing runs there but our jobs, so others hold nothing, and what nodes report is all that is used.
    """
    on: dict[int, list[tuple[str, Place, NodeView]]] = {}
    for job in world.jobs:
        for place, view in job.placed:
            on.setdefault(place.machine, []).append((job.job.spec.name, place, view))
    return ClusterLoad(
        tuple(
            _machine(f"machine-{number}", Amount(has.cpu, float(has.memory_mib)), on.get(number - 1, []))
            for number, has in enumerate(world.cluster.machines, 1)
        )
    )


def _machine(name: str, has: Amount, placed: list[tuple[str, Place, NodeView]]) -> MachineLoad:
    allocated = by_job((job, Amount(at.cpu_steps * CPU_STEP, float(at.memory_mib))) for job, at, _ in placed)
    used = total(Amount(v.last.cpu_cores, v.last.memory_mib) for _, _, v in placed if v.last is not None)
    return MachineLoad(name, has, allocated, used=used)

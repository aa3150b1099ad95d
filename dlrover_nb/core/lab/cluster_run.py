"""One contender on one workload: a cluster of fluid jobs between events.

Between two events each job trains at a constant speed, so an event moves all quantities at once and a month
of a thousand jobs is some ten thousand events. An event is an arrival, a start, a question to a policy, a
change of plan, a slow episode or an end. Machines are those of the simulator (`simulator.cluster`): nodes are
placed one by one, so capacity in gaps is of no use to a job here either. Who starts is decided by the brain's
admission (`brain.admission`), and while a job waits no other one may grow, as under the brain.

Rejected: the simulator's world with its reports of nodes. It plays a controller's second by second; a day of
a hundred jobs takes as long there as a month of a thousand here.

All randomness of a job comes from its own generator, whatever other jobs do, so that contenders see the same
noise and the same slow episodes.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core import pricing
from dlrover_nb.core.brain.admission import admit
from dlrover_nb.core.brain.queue_order import ORDERS, QueueState, share_of
from dlrover_nb.core.lab.adviser import Adviser, Moment, next_wait_s, noisy
from dlrover_nb.core.lab.results import JobResult, RunResult
from dlrover_nb.core.lab.slow_servers import SlowServers
from dlrover_nb.core.lab.slow_workers import Episode, SlowWorkers
from dlrover_nb.core.planner.policies.stages import warm_start
from dlrover_nb.core.simulator import SimCluster
from dlrover_nb.core.simulator.engine import Engine
from dlrover_nb.core.structs.cluster.waits import Holder
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, check_fits, plan_needs
from dlrover_nb.core.structs.plan.queued_jobs import WaitingOffer
from dlrover_nb.core.structs.plan.resources import CPU_STEP
from dlrover_nb.core.structs.views.past_jobs import PastJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.lab.lab_file import Contender, LabWorld, OwnPolicy
    from dlrover_nb.core.lab.workload import LabJob
    from dlrover_nb.core.planner.advising.advice import Advice
    from dlrover_nb.core.simulator.cluster import Place
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

SlowNodes = SlowWorkers | SlowServers
DEPTH = 16  # jobs at the front of the queue that may start: deeper backfilling gains little and costs much


@dataclass(slots=True)
class Running:
    """A job of the run: what it holds, how fast it is, and what it came to so far."""

    job: LabJob
    rng: np.random.Generator
    adviser: Adviser
    slow: SlowWorkers
    slow_ps: SlowServers
    left: float
    plan: ResourcePlan
    alone_s: float  # on its request
    first: ResourcePlan  # that it began on
    places: list[Place] = field(default_factory=list)
    leaving: list[Place] = field(default_factory=list)  # beside the new nodes, until they work
    samples_per_s: float = 0.0  # without slow workers; 0: it does not train
    since_s: float = 0.0
    begun_at_s: float | None = None
    ended_at_s: float | None = None
    version: int = 0  # of its speed: ends that were foreseen before are void
    n_begin: int = 0  # how often it began to train: questions and episodes of before are void
    is_changing: bool = False
    wait_s: float = 0.0  # until the policy is asked again
    n_change: int = 0
    n_question: int = 0
    core_s: float = 0.0
    used_core_s: float = 0.0
    mib_s: float = 0.0
    cost: float = 0.0
    pause_s: float = 0.0

    @property
    def is_running(self) -> bool:
        """Whether it has started and has not ended."""
        return self.begun_at_s is not None and self.ended_at_s is None

    @property
    def cores(self) -> float:
        """Cores that it holds."""
        return sum(place.cpu_steps for place in (*self.places, *self.leaving)) * CPU_STEP

    @property
    def memory_mib(self) -> int:
        """MiB that it holds."""
        return sum(place.memory_mib for place in (*self.places, *self.leaving))

    @property
    def speed(self) -> float:
        """Samples per second now."""
        return self.samples_per_s * self.slow.share * self.slow_ps.share

    @property
    def left_s(self) -> float | None:
        """Seconds until its end at the present speed; None: it does not train."""
        return self.left / self.speed if self.speed > 0 else None


class ClusterRun:
    """Runs the jobs of one workload under one contender.

    Parameters
    ----------
    jobs
        In the order of their arrival.
    policy
        Of all jobs.
    seed
        Of all noise.
    """

    def __init__(
        self,
        jobs: Sequence[LabJob],
        machines: Sequence[NodeShape],
        contender: Contender,
        policy: OwnPolicy,
        *,
        world: LabWorld,
        seed: int,
    ) -> None:
        self._cluster, self._engine = SimCluster(machines), Engine()
        self._world, self._contender = world, contender
        self._use: list[tuple[float, float]] = [(0.0, 0.0)]
        self._waiting: dict[str, Running] = {}
        self._running: dict[str, Running] = {}
        self._policy, self._past = policy, list[PastJob]()
        self._released = -1  # releases after which the queue was last looked at
        whole = self._cluster.capacity
        generators = np.random.default_rng(seed).spawn(len(jobs))
        self.jobs = [self._made(job, policy, rng) for job, rng in zip(jobs, generators, strict=True)]
        for each in self.jobs:
            check_fits(each.job.spec.plan, whole)
            self._engine.at(each.job.at_s, lambda each=each: self._arrive(each))  # type: ignore[misc]

    def _made(self, job: LabJob, policy: OwnPolicy, rng: np.random.Generator) -> Running:
        noise, slowness = rng.spawn(2)
        slow = SlowWorkers(job.spec.sync, self._contender.stragglers, self._world, slowness)
        (slowness,) = rng.spawn(1)  # after the others: these draw what they drew before PS were slow
        slow_ps = SlowServers(job, self._contender.stragglers, self._world, slowness)
        adviser, plan = Adviser(job, policy, self._world), job.spec.plan
        return Running(job, noise, adviser, slow, slow_ps, float(job.n_sample), plan, job.alone_s, plan)

    def run(self, seed: int) -> RunResult:
        """Run until all jobs have ended, and return what came of it."""
        while self._engine.next_at_s < math.inf:
            self._engine.run_next()
        return RunResult(
            contender=self._contender.name,
            seed=seed,
            jobs=tuple(map(_result, self.jobs)),
            use=tuple(self._use),
            cores=self._cluster.capacity.total_cpu,
            is_warm=self._contender.warm_start,
        )

    # queue

    def _arrive(self, each: Running) -> None:
        if self._contender.warm_start:
            self._start_warm(each)
        self._waiting[each.job.name] = each
        self._admit()

    def _start_warm(self, each: Running) -> None:
        """Let a job begin as the product would: on what similar jobs ended on that have ended before."""
        spec = each.job.spec
        start = warm_start(spec, self._cluster.capacity, each.job.traits, self._past)
        each.job = replace(each.job, spec=replace(spec, plan=start.plan))
        each.adviser = Adviser(each.job, self._policy, self._world)
        each.plan = each.first = start.plan

    def _admit(self) -> None:
        """Start who may start now."""
        if not self._waiting:
            return
        free = self._free()
        holders = [self._holder(each) for each in self._running.values()]
        plan = admit(
            self._front(free, holders),
            self._cluster.capacity,
            free,
            holders,
            order=self._contender.scheduler,
            least_share=self._world.start_share,
        )
        for name, start in plan.admitted.items():
            self._start(self._waiting[name], start)

    def _free(self) -> Capacity:
        """Return what is free, exactly: the fewest shapes of machines that say so."""
        cpu, mib = self._cluster.free_cpu.tolist(), self._cluster.free_mib.tolist()
        rooms = Counter(pair for pair in zip(cpu, mib, strict=True) if pair[0] > 0 and pair[1] > 0)
        shapes = (NodeShape(round(c * CPU_STEP, 2), m, n) for (c, m), n in rooms.items())
        return Capacity(tuple(sorted(shapes, key=lambda s: (s.cpu, s.memory_mib), reverse=True)))

    def _holder(self, each: Running) -> Holder:
        self._advance(each)
        return Holder(each.job.name, each.job.spec.owner, each.cores, each.memory_mib, each.left_s)

    def _front(self, free: Capacity, holders: Sequence[Holder]) -> list[WaitingOffer]:
        """Return the first jobs of the queue; more of them cannot change who starts."""
        offers = [self._offer(each) for each in self._waiting.values()]
        if len(offers) <= DEPTH:
            return offers
        whole, rank = self._cluster.capacity, ORDERS[self._contender.scheduler]
        shares: dict[str, float] = {}
        for each in holders:
            own = share_of(each.cpu, each.memory_mib, whole)
            shares[each.owner] = shares.get(each.owner, 0.0) + own
        used = 1 - free.total_cpu / whole.total_cpu
        state = QueueState(whole, used, shares)
        return heapq.nsmallest(DEPTH, offers, key=lambda job: (rank(job, state), job.since_s, job.job))

    def _offer(self, each: Running) -> WaitingOffer:
        job, now_s = each.job, self._engine.now_s
        speed = job.speed(job.spec.plan)
        return WaitingOffer(
            job=job.name,
            owner=job.spec.owner,
            plan=job.spec.plan,
            since_s=job.at_s,
            n_sample=job.n_sample,
            bounds=job.spec.bounds,
            samples_per_s=speed / job.estimate,
            deadline_left_s=_left_s(job, now_s),
            priority=job.spec.priority,
        )

    def _start(self, each: Running, plan: ResourcePlan) -> None:
        places = self._cluster.place(plan_needs(plan))
        if places is None:  # it fits by the sizes of machines, but not in the gaps between nodes
            return
        del self._waiting[each.job.name]
        self._running[each.job.name] = each
        each.plan, each.first, each.places = plan, plan, places
        each.begun_at_s = each.since_s = self._engine.now_s
        self._note_use()
        self._engine.after(self._world.start_s, lambda: self._train(each))

    # training

    def _train(self, each: Running) -> None:
        """Let a job train on its plan from now on."""
        self._advance(each)
        each.is_changing = False
        each.n_begin += 1
        noise = math.exp(self._world.noise * float(each.rng.standard_normal()))
        each.samples_per_s = each.job.speed(each.plan) * noise
        each.slow.resize(each.plan.worker.count)
        each.slow_ps.resize(each.plan)
        self._foresee(each)
        each.wait_s = self._world.ask_s
        self._ask_later(each)
        for slow in (each.slow, each.slow_ps):
            self._next_episode(each, slow)

    def _foresee(self, each: Running) -> None:
        each.version += 1
        version, left_s = each.version, each.left_s
        if left_s is not None:
            self._engine.after(left_s, lambda: self._end(each, version))

    def _advance(self, each: Running) -> None:
        """Bring what a job trained, held and paid up to now."""
        if not each.is_running:
            return
        passed_s, each.since_s = self._engine.now_s - each.since_s, self._engine.now_s
        if passed_s <= 0:
            return
        each.core_s += each.cores * passed_s
        each.mib_s += each.memory_mib * passed_s
        each.cost += passed_s / 3600 * (pricing.cost_per_hour(each.plan, each.job.spec.prices) or 0.0)
        if each.speed > 0:
            each.left = max(each.left - each.speed * passed_s, 0.0)
            each.used_core_s += passed_s * _busy_cores(each)
        else:
            each.pause_s += passed_s

    def _end(self, each: Running, version: int) -> None:
        if version != each.version or not each.is_running:
            return
        self._advance(each)
        each.left, each.ended_at_s, each.samples_per_s = 0.0, self._engine.now_s, 0.0
        self._past.append(PastJob(each.job.traits, each.first, each.plan))
        self._cluster.release((*each.places, *each.leaving))
        each.places, each.leaving = [], []
        del self._running[each.job.name]
        self._note_use()
        self._admit()

    def _note_use(self) -> None:
        point = self._engine.now_s, self._cluster.used_cpu
        if self._use[-1][0] == point[0]:
            self._use.pop()
        self._use.append(point)

    # plans

    def _ask_later(self, each: Running) -> None:
        n_begin = each.n_begin
        self._engine.after(each.wait_s, lambda: self._ask(each, n_begin))

    def _ask(self, each: Running, n_begin: int) -> None:
        """Ask the policy of a job, if it trains as it did when this was scheduled."""
        if not self._trains(each, n_begin):
            return
        self._advance(each)
        each.n_question += 1
        advice = each.adviser.advice(self._moment(each))
        if advice is not None and self._change(each, advice):
            return
        each.wait_s = next_wait_s(each.wait_s, self._world)
        self._ask_later(each)

    def _trains(self, each: Running, n_begin: int) -> bool:
        """Whether a job has trained on one plan since it began to for the n-th time."""
        return each.is_running and not each.is_changing and n_begin == each.n_begin

    def _moment(self, each: Running) -> Moment:
        plan, bounds = each.plan, each.job.spec.bounds
        now_s = self._engine.now_s
        quota = Quota(plan.total_cpu, plan.total_memory_mib) if self._waiting else Quota()
        return Moment(
            at_s=now_s,
            plan=plan,
            samples_per_s=noisy(each.speed, self._world, float(each.rng.standard_normal())),
            n_sample_left=max(math.ceil(each.left), 0),
            capacity=self._cluster.room_for(each.places, sum(bounds.counts)),
            quota=quota,
            deadline_left_s=_left_s(each.job, now_s),
        )

    def _change(self, each: Running, advice: Advice) -> bool:
        """Begin the change to a plan; False, with nothing changed, where its nodes find no place."""
        before, plan = each.plan, advice.candidate.plan
        pause_s = self._placed(each, plan)
        if pause_s is None:
            return False
        each.adviser.applied(advice, before, self._engine.now_s)
        each.n_change += 1
        each.is_changing = True
        self._note_use()
        self._engine.after(self._world.start_s, lambda: self._switch(each, plan, pause_s))
        return True

    def _placed(self, each: Running, plan: ResourcePlan) -> float | None:
        """Give a job its new nodes, and return for how long it will not train; None: there is no place."""
        old, w = each.plan, each.plan.worker.count
        only_workers = old.ps == plan.ps and _size(old) == _size(plan)
        more = plan.worker.count - w
        if only_workers and more < 0:  # they leave when the others have shared their rows
            each.leaving, each.places = each.places[more + w : w], each.places[: more + w] + each.places[w:]
            return self._world.join_s
        needs = plan_needs(plan)
        if only_workers:
            added = self._cluster.place(needs[:more])
            if added is None:
                return None
            each.places = each.places[:w] + added + each.places[w:]
            return self._world.join_s
        beside = self._cluster.place(needs)
        if beside is not None:
            each.leaving, each.places = each.places, beside
            return self._world.seamless_s
        if not self._cluster.has_room(needs, instead_of=each.places):
            return None
        return self._replaced(each, plan)

    def _replaced(self, each: Running, plan: ResourcePlan) -> float:
        """Let the old nodes leave before the new ones start: the job stands still from now on."""
        self._advance(each)
        self._cluster.release(each.places)
        each.places = self._cluster.place(plan_needs(plan)) or []
        assert each.places, "has_room was true"
        each.samples_per_s = 0.0
        each.version += 1
        return self._world.restart_s

    def _switch(self, each: Running, plan: ResourcePlan, pause_s: float) -> None:
        """Let the new nodes take over: the old ones leave, and the job stands still for a moment."""
        if not each.is_running:
            return
        self._advance(each)
        self._cluster.release(each.leaving)
        each.leaving = []
        each.plan, each.samples_per_s = plan, 0.0
        each.version += 1
        self._note_use()
        self._engine.after(pause_s, lambda: self._train(each) if each.is_running else None)
        self._admit()

    # slow nodes

    def _next_episode(self, each: Running, slow: SlowNodes) -> None:
        episode, n_begin = slow.next_episode(), each.n_begin
        if episode is not None:
            self._engine.after(episode.in_s, lambda: self._slow_down(each, slow, episode, n_begin))

    def _slow_down(self, each: Running, slow: SlowNodes, episode: Episode, n_begin: int) -> None:
        """Begin a slow episode; each later stage of it changes the speed again."""
        if not self._trains(each, n_begin):
            return
        for after_s, share in slow.stages(episode):
            if after_s < episode.lasts_s:
                self._engine.after(
                    after_s,
                    lambda share=share: self._set_share(each, slow, share, n_begin),  # type: ignore[misc]
                )
        self._engine.after(episode.lasts_s, lambda: self._recover(each, slow, n_begin))

    def _set_share(self, each: Running, slow: SlowNodes, share: float, n_begin: int) -> None:
        if not self._trains(each, n_begin):
            return
        self._advance(each)
        slow.share = share
        self._foresee(each)

    def _recover(self, each: Running, slow: SlowNodes, n_begin: int) -> None:
        self._set_share(each, slow, 1.0, n_begin)
        if self._trains(each, n_begin):
            self._next_episode(each, slow)


def _size(plan: ResourcePlan) -> tuple[float, int]:
    return plan.worker.cpu, plan.worker.memory_mib


def _left_s(job: LabJob, now_s: float) -> float | None:
    return None if job.deadline_after_s is None else job.at_s + job.deadline_after_s - now_s


def _busy_cores(each: Running) -> float:
    """Return the cores that a job keeps busy at its present speed."""
    plan = each.plan
    worker, ps = each.job.truth.used_cores(plan, each.job.spec.batch_of(plan.worker.count))
    share = min(each.speed / each.job.speed(plan), 1.0)
    return (worker * plan.worker.count + ps * plan.ps.count) * share


def _result(each: Running) -> JobResult:
    job = each.job
    assert each.begun_at_s is not None and each.ended_at_s is not None, job.name  # noqa: PT018 - one fact
    took_s = each.ended_at_s - job.at_s
    return JobResult(
        job=job.name,
        owner=job.spec.owner,
        jct_s=took_s,
        queued_s=each.begun_at_s - job.at_s,
        alone_s=each.alone_s,
        ended_at_s=each.ended_at_s,
        core_s=each.core_s,
        used_core_s=each.used_core_s,
        cost=each.cost,
        pause_s=each.pause_s,
        n_change=each.n_change,
        n_question=each.n_question,
        in_time=None if job.deadline_after_s is None else took_s <= job.deadline_after_s,
        last=each.plan.short,
        first_nodes=(each.first.worker.count, each.first.ps.count),
        last_nodes=(each.plan.worker.count, each.plan.ps.count),
    )

"""What a seed stands for: a job, and what its clients and its surroundings do to it, each thing at its time.

Each event says itself all that it needs, so that any of them can be left out and the others stay what they are. Nodes are
named by their place among the living ones at that time. Many faults come in bursts and about the time of another one:
alone, each is survived by construction.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from damaged_world import damage
from driver_world import PlayedBackend, ResizingPlayedBackend, plan

from dlrover_nb.core.rundir.job_file import WRITE_AHEAD_LOG
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict, version_of
from dlrover_nb.core.structs.job.job import Migration, Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from simulation.audit import Audit
    from simulation.world import SimulatedWorld

SPAN_S = 10.0  # in which things happen


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens at a time of the job."""

    at_s: float

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        raise NotImplementedError


def _chosen(world: SimulatedWorld, role: Role, place: int) -> str | None:
    names = world.up(role)
    return names[place % len(names)] if names else None


@dataclass(frozen=True, slots=True)
class End(Event):
    """A node's process ends with an exit code, negative for a signal."""

    role: Role
    place: int
    code: int

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        if name := _chosen(world, self.role, self.place):
            errors = "Traceback (most recent call last):\nRuntimeError: bad luck\n" if self.code == 1 else ""
            world.lose_node(name, self.code, errors)


@dataclass(frozen=True, slots=True)
class OutOfMemory(Event):
    """The kernel ends a node for lack of memory."""

    role: Role
    place: int

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        if name := _chosen(world, self.role, self.place):
            world.n_loss += 1
            world.n_crash += self.role is Role.WORKER
            world.end_for_memory(name)


@dataclass(frozen=True, slots=True)
class Stop(Event):
    """A node is stopped, and goes on later, if it lives still."""

    role: Role
    place: int
    seconds: float

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        if name := _chosen(world, self.role, self.place):
            world.stopped_until_s[name] = world.elapsed_s + self.seconds


@dataclass(frozen=True, slots=True)
class BusyMachine(Event):
    """Each worker that holds rows gets no processor, as long as other work takes all."""

    seconds: float

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        world.busy_until_s = world.elapsed_s + self.seconds


@dataclass(frozen=True, slots=True)
class Slow(Event):
    """A node takes several times as long from now on."""

    place: int
    times: float

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        if name := _chosen(world, Role.WORKER, self.place):
            world.slow[name] = self.times


@dataclass(frozen=True, slots=True)
class CutLink(Event):
    """What a node and the master say to each other arrives later; where `unreachable`, nobody can end it either."""

    role: Role
    place: int
    seconds: float
    unreachable: bool

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        if name := _chosen(world, self.role, self.place):
            world.cut_until_s[name] = world.elapsed_s + self.seconds
            if self.unreachable:
                world.unreachable.add(name)


@dataclass(frozen=True, slots=True)
class ResetLink(Event):
    """A connection of a node to the master is dead, which both notice some seconds later."""

    role: Role
    place: int
    seconds: float

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        if name := _chosen(world, self.role, self.place):
            world.cut_until_s[name] = world.elapsed_s + self.seconds
            world.broken_links.add(name)


@dataclass(frozen=True, slots=True)
class Evict(Event):
    """A cluster ends a node, which has some seconds yet."""

    role: Role
    place: int
    grace_s: float

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        if name := _chosen(world, self.role, self.place):
            world.evict(name)
            world.ends_at_s[name] = world.elapsed_s + self.grace_s


@dataclass(frozen=True, slots=True)
class LoseHost(Event):
    """A host is gone with all its nodes."""

    host: int

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        world.lose_host(self.host)


@dataclass(frozen=True, slots=True)
class FullDisk(Event):
    """No file of the run folder can grow for some time."""

    seconds: float

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        world.full_until_s = world.elapsed_s + self.seconds
        audit.note_full_disk()


@dataclass(frozen=True, slots=True)
class SetClock(Event):
    """The wall clock of the machine is set."""

    by_s: float

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        world.machine.set_by_s += self.by_s


@dataclass(frozen=True, slots=True)
class StallMaster(Event):
    """The master does nothing for some time."""

    seconds: float

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        world.pass_alone(self.seconds)


@dataclass(frozen=True, slots=True)
class KillMaster(Event):
    """The master is killed, some time after it read its last message, and another one goes on later.

    `damage` is the seed of what the disk does meanwhile; None: nothing. `nodes_too` ends all nodes, as a host does that
    loses its power.
    """

    away_s: float
    damage: int | None = None
    nodes_too: bool = False
    unread_s: float = 0.0

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        world.pass_alone(self.unread_s)
        world.crash()
        if self.nodes_too:
            world.lose_nodes()
        world.pass_alone(self.away_s)
        if self.damage is not None and (world.folder / WRITE_AHEAD_LOG).exists():
            audit.note_damage(damage(world.folder, self.damage))
        audit.restart()


@dataclass(frozen=True, slots=True)
class Act(Event):
    """A client decides by what it saw a while ago."""

    client: str
    old_s: float

    def seen(self, world: SimulatedWorld) -> JobSnapshot:
        """The newest snapshot that is as old."""
        old = (each for each in reversed(world.seen) if each.at_s <= world.at_s - self.old_s)
        return next(old, world.seen[0] if world.seen else world.now)

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        decision = self.decision(self.seen(world), world.at_s)
        if decision is not None and not world.now.phase.is_final:
            audit.decide(decision)

    def decision(self, seen: JobSnapshot, at_s: float) -> Decision | None:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Scale(Act):
    """A client orders a plan."""

    plan: ResourcePlan

    def decision(self, seen: JobSnapshot, at_s: float) -> Decision:
        version = version_of(seen.undo)
        return Decision(Verdict.SCALE, self.client, at_s, plan=self.plan, seen=version)


@dataclass(frozen=True, slots=True)
class Undo(Act):
    """A client takes the latest change back."""

    def decision(self, seen: JobSnapshot, at_s: float) -> Decision | None:
        back = seen.undo
        if back is None:
            return None
        return Decision(
            back.verdict,
            self.client,
            at_s,
            plan=back.plan,
            mode=back.mode,
            pins=back.pins,
            undoes=back.undoes,
        )


@dataclass(frozen=True, slots=True)
class Answer(Act):
    """A client accepts, overrides or rejects the oldest open proposal that it saw."""

    verdict: Verdict
    plan: ResourcePlan

    def decision(self, seen: JobSnapshot, at_s: float) -> Decision | None:
        proposal = next((each for each in seen.proposals if each.status == "pending"), None)
        if proposal is None:
            return None
        target = self.plan if self.verdict is Verdict.OVERRIDE else None
        return Decision(self.verdict, self.client, at_s, proposal=proposal.id, plan=target)


@dataclass(frozen=True, slots=True)
class SetMode(Act):
    """A client sets the mode."""

    mode: Mode

    def decision(self, seen: JobSnapshot, at_s: float) -> Decision:
        return Decision(Verdict.MODE, self.client, at_s, mode=self.mode)


@dataclass(frozen=True, slots=True)
class StopJob(Event):
    """A client stops the job."""

    client: str

    def happen(self, world: SimulatedWorld, audit: Audit) -> None:
        audit.stop(self.client)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A job, and what happens to it, in order."""

    seed: int
    n_train: int
    job: dict[str, object]
    backend: type[PlayedBackend]
    poison: frozenset[int]
    broken: frozenset[int]
    events: tuple[Event, ...]


def scenario(seed: int) -> Scenario:
    """Return what a seed stands for."""
    rng = random.Random(seed)
    fields = {
        "plan": _plan(rng),
        "n_epoch": rng.choice([1, 2, 2, 3]),
        "shard_batches": rng.choice([1, 2, 4]),
        "checkpoint_every_s": rng.choice([0.0, 0.5, 1.0, 3.0]),
        "heartbeat_timeout_s": rng.choice([3.0, 3.0, 10.0]),
        "migration": rng.choice([Migration.SEAMLESS, Migration.SEAMLESS, Migration.RESTART]),
        "mode": rng.choice([Mode.MANUAL, Mode.MANUAL, Mode.SUGGEST, Mode.AUTO]),
        "seed": rng.randrange(100),
    }
    n_train = rng.randrange(100, 500)
    rows = range(n_train)
    poison = frozenset(rng.sample(rows, 1)) if rng.random() < 0.06 else frozenset()
    broken = frozenset(rng.sample(rows, 2)) if rng.random() < 0.06 else frozenset()
    events = tuple(sorted(_events(rng, fields["heartbeat_timeout_s"]), key=lambda each: each.at_s))
    backend = ResizingPlayedBackend if rng.random() < 0.25 else PlayedBackend
    return Scenario(seed, n_train, fields, backend, poison, broken, events)


def _plan(rng: random.Random) -> ResourcePlan:
    cpu = rng.choice([0.25, 0.25, 0.5])
    return plan(rng.randrange(1, 4), rng.randrange(1, 4), worker_cpu=cpu, ps_cpu=rng.choice([0.2, 0.2, 0.4]))


def _events(rng: random.Random, heartbeat_s: float) -> list[Event]:
    """Return some events: alone, about one moment, or the same one again and again."""
    events: list[Event] = []
    at_s = 0.0
    for _ in range(rng.choice([1, 1, 2, 3, 4, 6, 8])):
        is_close = events and rng.random() < 0.5
        at_s = at_s + rng.choice([0.0, 0.1, 0.5, 1.0]) if is_close else rng.uniform(0.2, SPAN_S)
        kind = rng.choices(list(KINDS), weights=list(KINDS.values()))[0]
        n_time = rng.choice([1, 1, 1, 1, 2, 3])
        events += [
            kind(rng, round(at_s + i * rng.choice([0.5, 1.0, 2.0]), 3), heartbeat_s) for i in range(n_time)
        ]
    return events


def _role(rng: random.Random) -> Role:
    return rng.choice([Role.WORKER, Role.WORKER, Role.PS])


def _for_s(rng: random.Random, heartbeat_s: float) -> float:
    return rng.choice([0.3, 0.8, 1.5, 3.0, 6.0]) * heartbeat_s


def _dead_s(rng: random.Random, heartbeat_s: float) -> float:
    """Return for how long a dead connection is not noticed: for less than a heartbeat, else its node is given up."""
    return rng.choice([0.0, 0.1, 0.3, 0.6]) * heartbeat_s


def _kill_master(rng: random.Random, at_s: float, heartbeat_s: float) -> KillMaster:
    damage_seed = rng.randrange(10**6) if rng.random() < 0.4 else None
    away_s = rng.choice([0.0, 0.25, 1.0, heartbeat_s, 5 * heartbeat_s])
    return KillMaster(at_s, away_s, damage_seed, rng.random() < 0.15, rng.choice([0.0, 0.25, 1.0]))


def _client(rng: random.Random) -> tuple[str, float]:
    return rng.choice(["ada", "bob"]), rng.choice([0.0, 0.0, 0.5, 2.0])


KINDS: dict[Callable[[random.Random, float, float], Event], float] = {
    lambda rng, at_s, _: End(at_s, _role(rng), rng.randrange(4), rng.choice([-9, -9, -11, 1, -15])): 4,
    lambda rng, at_s, _: OutOfMemory(at_s, _role(rng), rng.randrange(4)): 1,
    lambda rng, at_s, hb: Stop(at_s, _role(rng), rng.randrange(4), _for_s(rng, hb)): 4,
    lambda rng, at_s, hb: BusyMachine(at_s, rng.choice([2.0, 4.0]) * hb): 1,
    lambda rng, at_s, _: Slow(at_s, rng.randrange(4), rng.choice([3.0, 10.0])): 1,
    lambda rng, at_s, hb: CutLink(at_s, _role(rng), rng.randrange(4), _for_s(rng, hb), rng.random() < 0.5): 3,
    lambda rng, at_s, hb: ResetLink(at_s, _role(rng), rng.randrange(4), _dead_s(rng, hb)): 4,
    lambda rng, at_s, _: Evict(at_s, _role(rng), rng.randrange(4), rng.choice([0.5, 3.0, 30.0])): 2,
    lambda rng, at_s, _: LoseHost(at_s, rng.randrange(2)): 1,
    lambda rng, at_s, _: FullDisk(at_s, rng.choice([0.5, 2.0, 8.0])): 1,
    lambda rng, at_s, _: SetClock(at_s, rng.choice([-86400.0, -5.0, 5.0, 86400.0])): 0.5,
    lambda rng, at_s, hb: StallMaster(at_s, _for_s(rng, hb)): 1,
    _kill_master: 5,
    lambda rng, at_s, _: Scale(at_s, *_client(rng), _plan(rng)): 5,
    lambda rng, at_s, _: Undo(at_s, *_client(rng)): 2,
    lambda rng, at_s, _: Answer(
        at_s, *_client(rng), rng.choice([Verdict.ACCEPT, Verdict.OVERRIDE]), _plan(rng)
    ): 1,
    lambda rng, at_s, _: SetMode(at_s, *_client(rng), rng.choice(list(Mode))): 0.5,
    lambda rng, at_s, _: StopJob(at_s, "ada"): 0.3,
}

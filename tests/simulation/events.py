"""What befalls a job: clients' acts and faults, each at its time.

Each event says itself all that it needs, so that any of them can be left out and the others stay what they are. Nodes are
named by their place among the living ones at that time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict, version_of
from dlrover_nb.core.structs.job.spec_choices import Mode  # noqa: TC001 - a record
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role
from simulation.rules import SizeRule

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from simulation.external.world import ExternalWorld
    from simulation.job_audit import JobAudit
    from simulation.own.world import OwnWorld

    JobWorld = OwnWorld | ExternalWorld


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens at a time of the job."""

    at_s: float

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        raise NotImplementedError


def chosen(world: JobWorld, role: Role, place: int) -> str | None:
    names = world.up(role)
    return names[place % len(names)] if names else None


@dataclass(frozen=True, slots=True)
class End(Event):
    """A node's process ends with an exit code, negative for a signal."""

    role: Role
    place: int
    code: int

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        if name := chosen(world, self.role, self.place):
            errors = "Traceback (most recent call last):\nRuntimeError: bad luck\n" if self.code == 1 else ""
            world.lose_node(name, self.code, errors)


@dataclass(frozen=True, slots=True)
class OutOfMemory(Event):
    """The kernel ends a node for lack of memory."""

    role: Role
    place: int

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        if name := chosen(world, self.role, self.place):
            world.n_loss += 1
            world.n_crash += self.role is Role.WORKER
            world.end_for_memory(name)


@dataclass(frozen=True, slots=True)
class Stop(Event):
    """A node is stopped, and goes on later, if it lives still."""

    role: Role
    place: int
    seconds: float

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        if name := chosen(world, self.role, self.place):
            world.stopped_until_s[name] = world.elapsed_s + self.seconds


@dataclass(frozen=True, slots=True)
class BusyMachine(Event):
    """Each worker that holds rows gets no processor, as long as other work takes all."""

    seconds: float

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        world.busy_until_s = world.elapsed_s + self.seconds


@dataclass(frozen=True, slots=True)
class Slow(Event):
    """A node takes several times as long from now on."""

    place: int
    times: float

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        if name := chosen(world, Role.WORKER, self.place):
            world.slow[name] = self.times


@dataclass(frozen=True, slots=True)
class CutLink(Event):
    """What a node and the master say to each other arrives later; where `unreachable`, nobody can end it either."""

    role: Role
    place: int
    seconds: float
    unreachable: bool

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        if name := chosen(world, self.role, self.place):
            world.cut_until_s[name] = world.elapsed_s + self.seconds
            if self.unreachable:
                world.unreachable.add(name)


@dataclass(frozen=True, slots=True)
class ResetLink(Event):
    """A connection of a node to the master is dead, which both notice some seconds later."""

    role: Role
    place: int
    seconds: float

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        if name := chosen(world, self.role, self.place):
            world.cut_until_s[name] = world.elapsed_s + self.seconds
            world.broken_links.add(name)


@dataclass(frozen=True, slots=True)
class Evict(Event):
    """A cluster ends a node, which has some seconds yet."""

    role: Role
    place: int
    grace_s: float

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        if name := chosen(world, self.role, self.place):
            world.evict(name)
            world.ends_at_s[name] = world.elapsed_s + self.grace_s


@dataclass(frozen=True, slots=True)
class LoseHost(Event):
    """A host is gone with all its nodes."""

    host: int

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        world.lose_host(self.host)


@dataclass(frozen=True, slots=True)
class Limit(Event):
    """The cluster has a new rule for some time, and makes no larger node."""

    most_cpu: float | None
    seconds: float
    most_memory_mib: int | None = None
    is_stated: bool = True

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        rule = SizeRule(self.most_cpu, self.most_memory_mib, self.is_stated)
        world.rules.limit_sizes(rule, world.elapsed_s + self.seconds)


@dataclass(frozen=True, slots=True)
class Quota(Event):
    """The cluster lets the nodes of the job have so many cores together for some time; its master reads so later."""

    cpu: float
    seconds: float
    read_after_s: float

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        at_s = world.elapsed_s
        world.rules.limit_all(self.cpu, at_s + self.seconds, read_s=at_s + self.read_after_s)


@dataclass(frozen=True, slots=True)
class FullDisk(Event):
    """No file of the run folder can grow for some time."""

    seconds: float

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        world.full_until_s = world.elapsed_s + self.seconds
        audit.note_full_disk()


@dataclass(frozen=True, slots=True)
class DamageCheckpoint(Event):
    """A disk damages the newest checkpoint of a program; `seed` is that of how.

    `loses_node`: the node is lost too, with what its memory held, so that files are all there is.
    """

    seed: int
    loses_node: bool

    def happen(self, world: ExternalWorld, audit: JobAudit) -> None:  # type: ignore[override]
        world.copies.damage(self.seed)
        if self.loses_node and (name := chosen(world, Role.WORKER, 0)):
            world.lose_node(name, -9)


@dataclass(frozen=True, slots=True)
class SetClock(Event):
    """The wall clock of the machine is set."""

    by_s: float

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        world.machine.set_by_s += self.by_s


@dataclass(frozen=True, slots=True)
class StallMaster(Event):
    """The master does nothing for some time."""

    seconds: float

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
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

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        world.pass_alone(self.unread_s)
        world.crash()
        if self.nodes_too:
            world.lose_nodes()
        world.pass_alone(self.away_s)
        if self.damage is not None:
            audit.note_damage(world.damage(self.damage))
        audit.restart()


@dataclass(frozen=True, slots=True)
class Act(Event):
    """A client decides by what it saw a while ago."""

    client: str
    old_s: float

    def seen(self, world: JobWorld) -> JobSnapshot:
        """The newest snapshot that is as old."""
        old = (each for each in reversed(world.seen) if each.at_s <= world.at_s - self.old_s)
        return next(old, world.seen[0] if world.seen else world.now)

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
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

    def happen(self, world: JobWorld, audit: JobAudit) -> None:
        audit.stop(self.client)

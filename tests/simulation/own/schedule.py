"""What a seed of an own job stands for: the job, and what its clients and its surroundings do to it.

Many faults come in bursts and about the time of another one: alone, each is survived by construction.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulation.events import (
    Answer,
    BusyMachine,
    CutLink,
    End,
    Evict,
    FullDisk,
    KillMaster,
    Limit,
    LoseHost,
    OutOfMemory,
    Quota,
    ResetLink,
    Scale,
    SetClock,
    SetMode,
    Slow,
    StallMaster,
    Stop,
    StopJob,
    Undo,
)
from simulation.own.backends import RuledBackend, RuledResizingBackend
from simulation.own.world import BATCH_S
from simulation.schedule import Scenario, drawn
from support.driver.driver_world import plan

from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.spec_choices import Migration, Mode
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from simulation.events import Event
    from simulation.schedule import Draw
    from support.driver.driver_world import PlayedBackend

    from dlrover_nb.core.structs.plan.resources import ResourcePlan

SPAN_S = 10.0  # in which things happen


@dataclass(frozen=True, slots=True)
class OwnScenario(Scenario):
    """A job, and what happens to it."""

    n_train: int
    job: dict[str, object]
    backend: type[PlayedBackend]
    poison: frozenset[int] = frozenset()
    broken: frozenset[int] = frozenset()
    batch_s: float = BATCH_S

    @property
    def words(self) -> str:
        return f"own, {self.n_train} rows, {self.batch_s:g} s a batch, {self.backend.__name__}, {self.job}"


def scenario(seed: int) -> OwnScenario:
    """Return what a seed stands for."""
    rng = random.Random(seed)
    fields = {
        "plan": plan_of(rng),
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
    events = drawn(rng, KINDS, limit_s=fields["heartbeat_timeout_s"], span_s=SPAN_S)
    backend = RuledResizingBackend if rng.random() < 0.25 else RuledBackend
    rules, batch_s = ruled(random.Random(f"the rules of {seed}"))
    events = tuple(sorted((*events, *rules), key=lambda each: each.at_s))
    return OwnScenario(seed, events, n_train, fields, backend, poison, broken, batch_s)


def ruled(rng: random.Random) -> tuple[list[Event], float]:
    """Return rules of the cluster and what meets them, for a part of all seeds, and how long a batch takes.

    Some wait for longer than any change may. They have a generator of their own, so that all else of a seed stays.
    """
    if rng.random() < 0.6:
        return [], BATCH_S
    events: list[Event] = []
    for _ in range(rng.choice([1, 1, 2])):
        at_s = rng.choice([-1.0, round(rng.uniform(0.2, SPAN_S), 3), round(rng.uniform(0.2, SPAN_S), 3)])
        seconds = rng.choice([5.0, 20.0, 60.0, 150.0, 400.0])
        events.append(
            _quota(rng, at_s, seconds) if at_s < 0 or rng.random() < 0.6 else _limit(rng, at_s, seconds)
        )
        begin_s = max(at_s, 2.0)
        if rng.random() < 0.7:
            scale_s = begin_s + rng.choice([-0.5, 0.1, 1.0, 5.0])
            events.append(Scale(scale_s, *client(rng), plan_of(rng)))
            if rng.random() < 0.5:
                events.append(Undo(scale_s + rng.choice([0.5, 3.0, 12.0, 40.0, 110.0]), *client(rng)))
        if rng.random() < 0.5:
            at_s = begin_s + rng.choice([0.1, 2.0, 10.0, 40.0])
            events.append(End(at_s, role_of(rng), rng.randrange(4), rng.choice([-9, -15])))
    return events, rng.choice([BATCH_S, 1.0, 4.0])


def _quota(rng: random.Random, at_s: float, seconds: float) -> Quota:
    return Quota(at_s, rng.choice([0.4, 0.6, 0.9, 1.2, 1.8]), seconds, rng.choice([0.0, 5.0, 30.0, 1e6]))


def _limit(rng: random.Random, at_s: float, seconds: float) -> Limit:
    most_mib = rng.choice([None, None, 300, 600])
    most_cpu = rng.choice([0.2, 0.3] if most_mib is None else [None, 0.3])
    return Limit(at_s, most_cpu, seconds, most_mib, rng.random() < 0.5)


def plan_of(rng: random.Random) -> ResourcePlan:
    cpu = rng.choice([0.25, 0.25, 0.5])
    return plan(rng.randrange(1, 4), rng.randrange(1, 4), worker_cpu=cpu, ps_cpu=rng.choice([0.2, 0.2, 0.4]))


def role_of(rng: random.Random) -> Role:
    return rng.choice([Role.WORKER, Role.WORKER, Role.PS])


def for_s(rng: random.Random, heartbeat_s: float) -> float:
    return rng.choice([0.3, 0.8, 1.5, 3.0, 6.0]) * heartbeat_s


def dead_s(rng: random.Random, heartbeat_s: float) -> float:
    """Return for how long a dead connection is not noticed: for less than a heartbeat, else its node is given up."""
    return rng.choice([0.0, 0.1, 0.3, 0.6]) * heartbeat_s


def _kill_master(rng: random.Random, at_s: float, heartbeat_s: float) -> KillMaster:
    damage_seed = rng.randrange(10**6) if rng.random() < 0.4 else None
    away_s = rng.choice([0.0, 0.25, 1.0, heartbeat_s, 5 * heartbeat_s])
    return KillMaster(at_s, away_s, damage_seed, rng.random() < 0.15, rng.choice([0.0, 0.25, 1.0]))


def client(rng: random.Random) -> tuple[str, float]:
    return rng.choice(["ada", "bob"]), rng.choice([0.0, 0.0, 0.5, 2.0])


KINDS: dict[Draw, float] = {
    lambda rng, at_s, _: End(at_s, role_of(rng), rng.randrange(4), rng.choice([-9, -9, -11, 1, -15])): 4,
    lambda rng, at_s, _: OutOfMemory(at_s, role_of(rng), rng.randrange(4)): 1,
    lambda rng, at_s, hb: Stop(at_s, role_of(rng), rng.randrange(4), for_s(rng, hb)): 4,
    lambda rng, at_s, hb: BusyMachine(at_s, rng.choice([2.0, 4.0]) * hb): 1,
    lambda rng, at_s, _: Slow(at_s, rng.randrange(4), rng.choice([3.0, 10.0])): 1,
    lambda rng, at_s, hb: CutLink(
        at_s, role_of(rng), rng.randrange(4), for_s(rng, hb), rng.random() < 0.5
    ): 3,
    lambda rng, at_s, hb: ResetLink(at_s, role_of(rng), rng.randrange(4), dead_s(rng, hb)): 4,
    lambda rng, at_s, _: Evict(at_s, role_of(rng), rng.randrange(4), rng.choice([0.5, 3.0, 30.0])): 2,
    lambda rng, at_s, _: LoseHost(at_s, rng.randrange(2)): 1,
    lambda rng, at_s, lim: Limit(at_s, rng.choice([0.2, 0.3]), for_s(rng, lim)): 1,
    lambda rng, at_s, _: FullDisk(at_s, rng.choice([0.5, 2.0, 8.0])): 1,
    lambda rng, at_s, _: SetClock(at_s, rng.choice([-86400.0, -5.0, 5.0, 86400.0])): 0.5,
    lambda rng, at_s, hb: StallMaster(at_s, for_s(rng, hb)): 1,
    _kill_master: 5,
    lambda rng, at_s, _: Scale(at_s, *client(rng), plan_of(rng)): 5,
    lambda rng, at_s, _: Undo(at_s, *client(rng)): 2,
    lambda rng, at_s, _: Answer(
        at_s, *client(rng), rng.choice([Verdict.ACCEPT, Verdict.OVERRIDE]), plan_of(rng)
    ): 1,
    lambda rng, at_s, _: SetMode(at_s, *client(rng), rng.choice(list(Mode))): 0.5,
    lambda rng, at_s, _: StopJob(at_s, "ada"): 0.3,
}

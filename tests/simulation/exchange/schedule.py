"""What a seed of a job with real nodes stands for: the job, its network, and what happens to it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulation.events import (
    CutLink,
    End,
    Event,
    Evict,
    KillMaster,
    LoseHost,
    ResetLink,
    Scale,
    SetClock,
    Slow,
    StallMaster,
    Stop,
    Undo,
    chosen,
)
from simulation.exchange.network import Ways
from simulation.own.schedule import client, dead_s, for_s, plan_of, role_of
from simulation.schedule import Scenario, drawn

from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Migration, Mode, Optimizer, Sync

if TYPE_CHECKING:
    from simulation.exchange.world import ExchangeWorld
    from simulation.job_audit import JobAudit
    from simulation.schedule import Draw

    from dlrover_nb.core.structs.plan.resources import Role

SPAN_S = 12.0
MODEL = ModelSpec(embedding_dim=1, hidden=(1,), optimizer=Optimizer.SGD, learning_rate=1.0)


@dataclass(frozen=True, slots=True)
class CutExchange(Event):
    """No worker and no server reaches a node for some time; what is on its way arrives later, or never."""

    role: Role
    place: int
    seconds: float
    is_lost: bool

    def happen(self, world: ExchangeWorld, audit: JobAudit) -> None:  # type: ignore[override]
        if name := chosen(world, self.role, self.place):
            network = world.network_of_data
            network.held_until_s[name] = world.elapsed_s + self.seconds
            (network.broken.add if self.is_lost else network.broken.discard)(name)


@dataclass(frozen=True, slots=True)
class ExchangeScenario(Scenario):
    """A job with real nodes, and what happens to it."""

    n_train: int
    job: dict[str, object]
    ways: Ways
    listen: str = "ipc"
    shares_memory: bool = False

    @property
    def poison(self) -> frozenset[int]:
        return frozenset()

    @property
    def words(self) -> str:
        how = "slabs" if self.shares_memory else "messages"
        return f"exchange, {self.n_train} rows, {self.ways}, {self.listen} with {how}, {self.job}"


def scenario(seed: int) -> ExchangeScenario:
    """Return what a seed stands for."""
    rng = random.Random(seed)
    fields = {
        "plan": plan_of(rng),
        "model": MODEL,
        "shard_batches": rng.choice([1, 2, 4]),
        "checkpoint_every_s": rng.choice([0.0, 0.5, 1.0, 3.0]),
        "heartbeat_timeout_s": rng.choice([3.0, 10.0, 60.0]),
        "migration": rng.choice([Migration.SEAMLESS, Migration.SEAMLESS, Migration.RESTART]),
        "mode": Mode.MANUAL,
        "seed": rng.randrange(100),
        "overlap": rng.random() < 0.5,
        "sync": rng.choice([Sync.ASP, Sync.ASP, Sync.SSP, Sync.BSP, Sync.GBA, Sync.GBA]),
        "link_gbit_per_s": rng.choice([None, 1.0, 1.0]),
    }
    if fields["sync"] is Sync.GBA:
        fields["global_batch"] = rng.choice([None, 20, 37, 65])
    shares = (0.0, 0.0, 0.002, 0.01, 0.02)
    ways = Ways(rng.choice(shares), rng.choice(shares), rng.choice(shares), rng.random() < 0.5)
    events = drawn(rng, KINDS, limit_s=min(fields["heartbeat_timeout_s"], 10.0), span_s=SPAN_S)
    listen = rng.choice(["ipc", "ipc", "tcp://10.0.0.1"])
    if fields["sync"] is Sync.BSP and rng.random() < 0.6:
        fields |= {"deterministic": True, "global_batch": rng.choice([10, 20, 30, 50])}
    return ExchangeScenario(
        seed, events, rng.randrange(80, 300), fields, ways, listen, listen == "ipc" and rng.random() < 0.5
    )


def _cut(rng: random.Random, at_s: float, heartbeat_s: float) -> CutExchange:
    seconds = rng.choice([0.3, 2.0, 2.0, 8.0, 15.0, 50.0, heartbeat_s])
    return CutExchange(at_s, role_of(rng), rng.randrange(4), seconds, rng.random() < 0.5)


def _kill_master(rng: random.Random, at_s: float, heartbeat_s: float) -> KillMaster:
    away_s = rng.choice([0.0, 0.25, 1.0, heartbeat_s, 3 * heartbeat_s])
    return KillMaster(at_s, away_s, None, rng.random() < 0.15, rng.choice([0.0, 0.25, 1.0]))


KINDS: dict[Draw, float] = {
    _cut: 8,
    lambda rng, at_s, _: End(at_s, role_of(rng), rng.randrange(4), rng.choice([-9, -9, -11, 1, -15])): 4,
    lambda rng, at_s, hb: Stop(at_s, role_of(rng), rng.randrange(4), for_s(rng, hb)): 4,
    lambda rng, at_s, _: Slow(at_s, rng.randrange(4), rng.choice([3.0, 10.0])): 1,
    lambda rng, at_s, hb: CutLink(
        at_s, role_of(rng), rng.randrange(4), for_s(rng, hb), rng.random() < 0.5
    ): 3,
    lambda rng, at_s, hb: ResetLink(at_s, role_of(rng), rng.randrange(4), dead_s(rng, hb)): 2,
    lambda rng, at_s, _: Evict(at_s, role_of(rng), rng.randrange(4), rng.choice([0.5, 3.0, 30.0])): 2,
    lambda rng, at_s, _: LoseHost(at_s, rng.randrange(2)): 1,
    lambda rng, at_s, _: SetClock(at_s, rng.choice([-86400.0, -5.0, 5.0, 86400.0])): 0.3,
    lambda rng, at_s, hb: StallMaster(at_s, for_s(rng, hb)): 1,
    _kill_master: 2,
    lambda rng, at_s, _: Scale(at_s, *client(rng), plan_of(rng)): 6,
    lambda rng, at_s, _: Undo(at_s, *client(rng)): 2,
}

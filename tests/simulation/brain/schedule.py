"""What a seed of a cluster stands for: its jobs, those who plan for them, and what befalls all of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulation.events import End, KillMaster, StallMaster
from simulation.schedule import Scenario, drawn
from support.driver.driver_world import plan

from dlrover_nb.core.brain.cluster_plan import BrainSettings
from dlrover_nb.core.structs.job.spec_choices import Admission, Mode
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from simulation.brain.audit import BrainAudit
    from simulation.brain.world import BrainWorld
    from simulation.events import Event
    from simulation.schedule import Draw

SPAN_S = 30.0  # in which things happen


@dataclass(frozen=True, slots=True)
class BrainScenario(Scenario):
    """A cluster.

    Parameters
    ----------
    jobs
        When each is submitted, and its fields.
    n_brain, settings
        Those who plan.
    cores
        Of the one machine.
    lost, late
        Shares of messages between brains and masters.
    """

    jobs: tuple[tuple[float, dict[str, Any]], ...]
    n_train: int = 200
    n_brain: int = 1
    settings: BrainSettings = field(default_factory=BrainSettings)
    cores: float = 3.0
    lost: float = 0.0
    late: float = 0.0

    @property
    def words(self) -> str:
        jobs = "; ".join(
            f"{fields['name']} at {at_s:g} s, {fields['plan'].short}, {fields['mode']}, {fields['admission']}"
            for at_s, fields in self.jobs
        )
        return (
            f"{self.n_brain} brains with {self.settings.method}, {self.settings.order}, {self.cores:g} cores; {jobs}; "
            f"{self.lost:.0%} of messages are lost, {self.late:.0%} late"
        )


@dataclass(frozen=True, slots=True)
class OfJob:
    """Something that happens to one of the jobs."""

    at_s: float
    place: int
    event: Event

    def happen(self, world: BrainWorld, audit: BrainAudit) -> None:
        jobs = [job for name, job in world.jobs.items() if job.goes_on and world.answers(name)]
        if jobs:
            job = jobs[self.place % len(jobs)]
            self.event.happen(job.world, job.audit)


@dataclass(frozen=True, slots=True)
class KillBrain:
    """A brain is killed, and another one of its host begins later."""

    at_s: float
    place: int
    away_s: float

    def happen(self, world: BrainWorld, audit: BrainAudit) -> None:
        name = f"brain-{self.place % world.case.n_brain}"
        world.kill_brain(name)
        world.begin_brain(name, in_s=self.away_s)


@dataclass(frozen=True, slots=True)
class StopBrain:
    """A brain is stopped, and goes on later where it was."""

    at_s: float
    place: int
    seconds: float

    def happen(self, world: BrainWorld, audit: BrainAudit) -> None:
        world.stop_brain(f"brain-{self.place % world.case.n_brain}", self.seconds)


@dataclass(frozen=True, slots=True)
class LoseDatabase:
    """Nobody can take or renew a lease for some time."""

    at_s: float
    seconds: float

    def happen(self, world: BrainWorld, audit: BrainAudit) -> None:
        world.leases.away_until_s = world.elapsed_s + self.seconds


def scenario(seed: int) -> BrainScenario:
    """Return what a seed stands for."""
    rng = random.Random(seed)
    cores = rng.choice([1.75, 2.0, 3.0])
    jobs = tuple(
        (round(rng.choice([0.0, 0.0, rng.uniform(0.0, 10.0)]), 2), _job(rng, i))
        for i in range(rng.choice([2, 3, 3]))
    )
    settings = BrainSettings(
        method=rng.choice(["weighted", "weighted", "greedy", "qore"]),
        shrink=rng.random() < 0.4,
        order=rng.choice(["first come", "shortest", "priority", "fair share", "qore"]),
        start_share=rng.choice([0.5, 1.0]),
    )
    events = drawn(rng, KINDS, limit_s=rng.choice([3.0, 6.0]), span_s=SPAN_S)
    return BrainScenario(
        seed,
        events,
        tuple(sorted(jobs, key=lambda each: each[0])),
        n_train=rng.randrange(200, 800),
        n_brain=rng.choice([1, 2, 2]),
        settings=settings,
        cores=cores,
        lost=rng.choice([0.0, 0.02, 0.1]),
        late=rng.choice([0.0, 0.02, 0.2]),
    )


def _job(rng: random.Random, number: int) -> dict[str, Any]:
    is_queued = rng.random() < 0.6
    return {
        "name": f"job-{number}",
        "owner": rng.choice(["ada", "bob"]),
        "plan": plan(rng.randrange(1, 4), 1, worker_cpu=rng.choice([0.25, 0.25, 0.5]), ps_cpu=0.2),
        "admission": Admission.QUEUE if is_queued else Admission.AT_ONCE,
        "mode": rng.choice([Mode.MANUAL, Mode.AUTO, Mode.AUTO]),
        "n_epoch": rng.choice([1, 2]),
        "priority": rng.choice([1.0, 2.0]),
        "heartbeat_timeout_s": 3.0,
        "checkpoint_every_s": 3.0,
        "seed": rng.randrange(100),
    }


def _away_s(rng: random.Random, limit_s: float) -> float:
    return rng.choice([0.0, 0.5, 1.5, 5.0]) * limit_s


KINDS: dict[Draw, float] = {
    lambda rng, at_s, lim: KillBrain(at_s, rng.randrange(2), _away_s(rng, lim)): 4,
    lambda rng, at_s, lim: StopBrain(at_s, rng.randrange(2), _away_s(rng, lim)): 5,
    lambda rng, at_s, lim: LoseDatabase(at_s, _away_s(rng, lim)): 2,
    lambda rng, at_s, lim: OfJob(at_s, rng.randrange(3), KillMaster(at_s, _away_s(rng, lim))): 5,
    lambda rng, at_s, lim: OfJob(at_s, rng.randrange(3), StallMaster(at_s, _away_s(rng, lim))): 2,
    lambda rng, at_s, _: OfJob(at_s, rng.randrange(3), End(at_s, Role.WORKER, rng.randrange(3), -9)): 2,
}

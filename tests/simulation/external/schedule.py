"""What a seed of an external job stands for: programs of others, and what befalls them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulation.events import (
    Answer,
    BusyMachine,
    CutLink,
    DamageCheckpoint,
    End,
    Evict,
    FullDisk,
    KillMaster,
    Limit,
    LoseHost,
    OutOfMemory,
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
from simulation.external.pods import PlayedPods, ResizingPlayedPods
from simulation.schedule import Scenario, drawn
from support.driver.driver_world import plan

from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.external import ExternalRole, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.schedule import Draw

    from dlrover_nb.core.structs.plan.resources import ResourcePlan

SPAN_S = 40.0  # in which things happen: pods take seconds to come up, and to be told their peers
SAVING_SPAN_S = 25.0  # of one process, which ends sooner
RUN = ExternalRole(("run",))
BATCH = 8


@dataclass(frozen=True, slots=True)
class ExternalScenario(Scenario):
    """A job of programs that get their rows from its master.

    Parameters
    ----------
    n_row
        Of one pass.
    lost
        Share of requests that are lost, or whose answers are.
    cores
        Of the one machine.
    keeps_every_s
        Seconds between checkpoints of programs that keep them.
    timeout_s
        Of elastic programs: seconds after which a member that does not answer is lost.
    saves
        Whether it is a program of one process that keeps checkpoints.
    own_files
        Whether it keeps them in a form of its own.
    """

    n_row: int
    spec: JobSpec
    backend: type[PlayedPods] = PlayedPods
    lost: float = 0.0
    cores: float = 3.0
    poison: frozenset[int] = frozenset()
    keeps_every_s: float = 0.0
    timeout_s: float = 30.0
    saves: bool = False
    own_files: bool = False

    @property
    def words(self) -> str:
        spec, place = self.spec, f"{self.backend.__name__} with {self.cores:g} cores"
        return (
            f"external, {self.n_row} rows x {spec.n_epoch}, {spec.foreign.framework} on {spec.plan.short}, {spec.mode}, "
            f"{place}, {self.lost:.0%} of requests are lost"
            f"{self._kept}"
        )

    @property
    def _kept(self) -> str:
        form = "its own" if self.own_files else "the client's"
        return f", {form} checkpoints every {self.keeps_every_s:g} s" if self.saves else ""


def scenario(seed: int) -> ExternalScenario:
    """Return what a seed stands for."""
    rng = random.Random(seed)
    framework = rng.choice([Framework.TENSORFLOW, Framework.TENSORFLOW, Framework.TORCH])
    n_row, n_epoch = rng.randrange(150, 1500), rng.choice([1, 2, 2])
    foreign = ExternalSpec(
        RUN,
        n_row * n_epoch,
        ps=RUN,
        framework=framework,
        chief=rng.random() < 0.7,
        dynamic_workers=framework is Framework.TENSORFLOW and rng.random() < 0.5,
    )
    spec = JobSpec(
        "foreign",
        plan=_plan(rng, framework),
        foreign=foreign,
        n_epoch=n_epoch,
        batch_size=BATCH,
        shard_batches=rng.choice([1, 2, 4]),
        mode=rng.choice([Mode.MANUAL, Mode.MANUAL, Mode.SUGGEST, Mode.AUTO]),
        seed=rng.randrange(100),
    )
    poison = frozenset(rng.sample(range(n_row), 1)) if rng.random() < 0.06 else frozenset()
    lost, cores = rng.choice([0.0, 0.02, 0.2]), rng.choice([2.5, 3.0, 6.0])
    backend = ResizingPlayedPods if rng.random() < 0.25 else PlayedPods
    kinds = TF_KINDS if framework is Framework.TENSORFLOW else KINDS
    events = drawn(rng, kinds, limit_s=rng.choice([3.0, 10.0, 30.0]), span_s=SPAN_S)
    return ExternalScenario(seed, events, n_row, spec, backend, lost, cores, poison)


def elastic_scenario(seed: int) -> ExternalScenario:
    """Return what a seed of an elastic job stands for."""
    rng = random.Random(seed)
    n_row, n_epoch = rng.randrange(150, 1000), rng.choice([1, 2])
    spec = JobSpec(
        "foreign",
        plan=_plan(rng, Framework.DDP),
        foreign=ExternalSpec(RUN, n_row * n_epoch, framework=Framework.DDP),
        n_epoch=n_epoch,
        batch_size=BATCH,
        shard_batches=rng.choice([1, 2, 4]),
        mode=rng.choice([Mode.MANUAL, Mode.MANUAL, Mode.SUGGEST, Mode.AUTO]),
        seed=rng.randrange(100),
    )
    return ExternalScenario(
        seed,
        drawn(rng, DDP_KINDS, limit_s=rng.choice([3.0, 10.0, 30.0]), span_s=SPAN_S),
        n_row,
        spec,
        ResizingPlayedPods if rng.random() < 0.25 else PlayedPods,
        lost=rng.choice([0.0, 0.02, 0.2]),
        cores=rng.choice([2.5, 3.0, 6.0]),
        poison=frozenset(rng.sample(range(n_row), 1)) if rng.random() < 0.06 else frozenset(),
        keeps_every_s=rng.choice([0.0, 2.0, 10.0]),
        timeout_s=rng.choice([3.0, 30.0]),
    )


def saving_scenario(seed: int) -> ExternalScenario:
    """Return what a seed of a program of one process that keeps checkpoints stands for."""
    rng = random.Random(seed)
    n_row, n_epoch = rng.randrange(300, 900), rng.choice([1, 2])
    spec = JobSpec(
        "foreign",
        plan=_one_process(rng),
        foreign=ExternalSpec(RUN, n_row * n_epoch, framework=Framework.TORCH),
        n_epoch=n_epoch,
        batch_size=BATCH,
        shard_batches=rng.choice([1, 2, 4]),
        mode=rng.choice([Mode.MANUAL, Mode.MANUAL, Mode.SUGGEST, Mode.AUTO]),
        bounds=PlanBounds(max_workers=1, max_ps=1),
        seed=rng.randrange(100),
    )
    return ExternalScenario(
        seed,
        drawn(rng, SAVING_KINDS, limit_s=rng.choice([3.0, 10.0, 30.0, 30.0]), span_s=SAVING_SPAN_S),
        n_row,
        spec,
        ResizingPlayedPods if rng.random() < 0.25 else PlayedPods,
        lost=rng.choice([0.0, 0.02, 0.2]),
        poison=frozenset(rng.sample(range(n_row), 1)) if rng.random() < 0.06 else frozenset(),
        keeps_every_s=rng.choice([0.0, 1.0, 5.0]),
        saves=True,
        own_files=rng.random() < 0.3,
    )


def _one_process(rng: random.Random) -> ResourcePlan:
    return plan(1, 1, worker_cpu=rng.choice([0.25, 0.25, 0.5]), ps_cpu=0.2)


def _plan(rng: random.Random, framework: Framework) -> ResourcePlan:
    n_ps = 1 if framework.has_store else rng.randrange(1, 3)
    ps_cpu = 0.2 if framework.has_store else rng.choice([0.2, 0.2, 0.4])
    return plan(rng.randrange(1, 4), n_ps, worker_cpu=rng.choice([0.25, 0.25, 0.5]), ps_cpu=ps_cpu)


def _role(rng: random.Random) -> Role:
    return rng.choice([Role.WORKER, Role.WORKER, Role.WORKER, Role.PS])


def _for_s(rng: random.Random, limit_s: float) -> float:
    return rng.choice([0.3, 0.8, 1.5, 3.0]) * limit_s


def _kill_master(rng: random.Random, at_s: float, limit_s: float) -> KillMaster:
    damage_seed = rng.randrange(10**6) if rng.random() < 0.2 else None
    away_s = rng.choice([0.0, 0.25, 1.0, limit_s])
    return KillMaster(at_s, away_s, damage_seed, rng.random() < 0.15, rng.choice([0.0, 0.25, 1.0]))


def _client(rng: random.Random) -> tuple[str, float]:
    return rng.choice(["ada", "bob"]), rng.choice([0.0, 0.0, 0.5, 2.0])


def _kinds(
    framework: Framework, plan_of: Callable[[random.Random], ResourcePlan] | None = None
) -> dict[Draw, float]:
    plan_of = plan_of or (lambda rng: _plan(rng, framework))
    return {
        lambda rng, at_s, _: End(at_s, _role(rng), rng.randrange(4), rng.choice([-9, -9, -11, 1, -15])): 5,
        lambda rng, at_s, _: OutOfMemory(at_s, _role(rng), rng.randrange(4)): 1,
        lambda rng, at_s, lim: Stop(at_s, Role.WORKER, rng.randrange(4), _for_s(rng, lim)): 4,
        lambda rng, at_s, lim: BusyMachine(at_s, _for_s(rng, lim)): 1,
        lambda rng, at_s, _: Slow(at_s, rng.randrange(4), rng.choice([3.0, 10.0])): 1,
        lambda rng, at_s, lim: CutLink(
            at_s, Role.WORKER, rng.randrange(4), _for_s(rng, lim), rng.random() < 0.5
        ): 4,
        lambda rng, at_s, _: ResetLink(at_s, Role.WORKER, rng.randrange(4), 0.0): 2,
        lambda rng, at_s, _: Evict(at_s, _role(rng), rng.randrange(4), rng.choice([0.5, 3.0, 30.0])): 2,
        lambda rng, at_s, _: LoseHost(at_s, rng.randrange(2)): 1,
        lambda rng, at_s, lim: Limit(at_s, rng.choice([0.2, 0.3]), _for_s(rng, lim)): float(
            framework is Framework.DDP
        ),
        lambda rng, at_s, _: FullDisk(at_s, rng.choice([0.5, 2.0, 8.0])): 1,
        lambda rng, at_s, _: SetClock(at_s, rng.choice([-86400.0, -5.0, 5.0, 86400.0])): 0.5,
        lambda rng, at_s, lim: StallMaster(at_s, _for_s(rng, lim)): 2,
        _kill_master: 6,
        lambda rng, at_s, _: Scale(at_s, *_client(rng), plan_of(rng)): 6,
        lambda rng, at_s, _: Undo(at_s, *_client(rng)): 2,
        lambda rng, at_s, _: Answer(
            at_s, *_client(rng), rng.choice([Verdict.ACCEPT, Verdict.OVERRIDE]), plan_of(rng)
        ): 1,
        lambda rng, at_s, _: SetMode(at_s, *_client(rng), rng.choice(list(Mode))): 0.5,
        lambda rng, at_s, _: StopJob(at_s, "ada"): 0.3,
    }


KINDS, TF_KINDS, DDP_KINDS = map(_kinds, (Framework.TORCH, Framework.TENSORFLOW, Framework.DDP))
SAVING_KINDS: dict[Draw, float] = {
    **_kinds(Framework.TORCH, _one_process),
    lambda rng, at_s, _: DamageCheckpoint(at_s, rng.randrange(10**6), rng.random() < 0.7): 4,
}

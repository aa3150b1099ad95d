"""The cluster of ``server --demo``: thirty simulated jobs of a team, in every state that a list knows.

The controllers are the real ones, and so are proposals, answers, outcomes and warnings; only the machines and
the training are simulated. README's picture of the dashboard shows it. Nothing of it reaches this machine's
jobs, its history or its alerts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.backends.simulated.cluster import SimulatedCluster
from dlrover_nb.core.commands.requests import Accept
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.simulator import MemoryGrowth, SimulatedJob, SimulatedWorld, TermsTruth, WorldSettings
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.client.handle import JobHandle

KEY = "demo"
SPEED = 20.0  # virtual seconds in a real one: a proposal waits long enough to be read
MACHINES = NodeShape(16.0, 65_536, 12)
REPORT_S = 15.0
BEFORE_S = 800.0  # until the jobs of before have ended
MEANWHILE_S, AFTER_S = 750.0, 600.0  # until the others propose something, until the answers to that show
N_SAMPLE = {Mode.AUTO: 4_000_000_000}  # of a job that trains for hours on its best plan
N_SAMPLE_SLOW = 900_000_000  # and on its first one
BOUNDS = PlanBounds(max_workers=6, max_ps=3, worker_cpus=(1.0, 2.0), ps_cpus=(1.0, 2.0))
WORKER_MIB, PS_MIB = 2048, 2048
TRUTH = TermsTruth(grad_s=2e-5, update_s=1e-4, lookup_s=2e-6, constant_s=1e-3, contention_s=5e-5)
SLOW_PS = TermsTruth(grad_s=8e-6, update_s=2e-3, lookup_s=6e-6, constant_s=1e-3, contention_s=2e-4)
STEADY = MemoryGrowth(700.0)
FILLS = MemoryGrowth(900.0, 900.0, n_scale=1.2e8, exponent=0.9)  # of a PS: full within an hour or two
TOO_LARGE = MemoryGrowth(WORKER_MIB * 1.2)  # of a worker: more than it gets, from the start


@dataclass(frozen=True, slots=True)
class DemoJob:
    """One job of the demo; `workers` and `ps` are those of its first plan."""

    name: str
    owner: str
    mode: Mode = Mode.SUGGEST
    workers: int = 1
    ps: int = 1
    truth: TermsTruth = TRUTH
    n_sample: int = 0  # 0: hours on the plan that its mode keeps it on
    worker_memory: MemoryGrowth = STEADY
    ps_memory: MemoryGrowth = STEADY

    @property
    def tags(self) -> tuple[str, ...]:
        """What it trains for, and whether it runs each night."""
        team, _, rest = self.name.partition("-")
        return (team, "nightly") if rest.endswith("nightly") else (team,)

    @property
    def simulated(self) -> SimulatedJob:
        """It as the simulator takes it."""
        plan = ResourcePlan(RolePlan(self.workers, 1.0, WORKER_MIB), RolePlan(self.ps, 1.0, PS_MIB))
        return SimulatedJob(
            JobSpec(self.name, owner=self.owner, plan=plan, bounds=BOUNDS, mode=self.mode, tags=self.tags),
            self.truth,
            self.n_sample or N_SAMPLE.get(self.mode, N_SAMPLE_SLOW),
            worker_memory=self.worker_memory,
            ps_memory=self.ps_memory,
        )


OF_BEFORE = (  # that have ended when the server begins
    DemoJob("ads-ctr-nightly", "ada", n_sample=20_000_000),
    DemoJob("feed-rank-nightly", "bob", workers=2, n_sample=30_000_000),
    DemoJob("mail-spam-weekly", "eva", Mode.AUTO, n_sample=25_000_000),
    DemoJob("shop-recall-v1", "kim", Mode.MANUAL, n_sample=15_000_000),
    DemoJob("video-like-wide", "bob", worker_memory=TOO_LARGE),
    DemoJob("search-cvr-deep", "kim", worker_memory=TOO_LARGE),
    DemoJob("map-eta-try", "eva"),
)
STOPPED = "map-eta-try"
ANSWERED = ("ads-ctr", "feed-rank", "search-ctr", "news-click")  # whose first proposal is accepted
RUNNING = (
    DemoJob("ads-ctr", "ada"),
    DemoJob("ads-cvr", "ada", truth=SLOW_PS),
    DemoJob("ads-bid", "ada", Mode.AUTO),
    DemoJob("ads-lookalike", "ada", ps_memory=FILLS),
    DemoJob("feed-rank", "bob", workers=2),
    DemoJob("feed-dwell", "bob", Mode.AUTO, workers=2, truth=SLOW_PS),
    DemoJob("feed-share", "bob"),
    DemoJob("video-like", "bob", Mode.AUTO),
    DemoJob("video-finish", "bob", ps_memory=FILLS),
    DemoJob("mail-spam", "eva"),
    DemoJob("mail-open", "eva", Mode.MANUAL),
    DemoJob("map-eta", "eva", Mode.AUTO, truth=SLOW_PS),
    DemoJob("map-poi", "eva", workers=3, ps=2),
    DemoJob("search-ctr", "kim", workers=2),
    DemoJob("search-cvr", "kim", Mode.AUTO, workers=3),
    DemoJob("search-suggest", "kim", truth=SLOW_PS),
    DemoJob("shop-recall", "kim", Mode.MANUAL, workers=2),
    DemoJob("shop-basket", "kim", Mode.AUTO),
    DemoJob("shop-price", "kim", ps_memory=FILLS, workers=2),
    DemoJob("news-click", "lea"),
    DemoJob("news-read", "lea", Mode.AUTO, workers=2),
    DemoJob("music-skip", "lea", truth=SLOW_PS, workers=2),
    DemoJob("music-next", "lea", Mode.AUTO),
)


def demo_cluster(*, seed: int = 1) -> Cluster:
    """Start the cluster of the demo; it takes some seconds to come to its present moment."""
    world = SimulatedWorld(
        [MACHINES], rng=np.random.default_rng(seed), settings=WorldSettings(report_s=REPORT_S)
    )
    cluster = SimulatedCluster(world, SETTINGS, _refuse, speed=SPEED)
    cluster.add_all(job.simulated for job in OF_BEFORE)
    cluster.run_ahead(60.0)
    cluster.job(STOPPED).stop(why="wrong data")
    cluster.run_ahead(BEFORE_S)
    cluster.add_all(job.simulated for job in RUNNING)
    cluster.run_ahead(MEANWHILE_S)
    for name in ANSWERED:
        _accept_open(cluster.job(name))
    cluster.run_ahead(AFTER_S)
    return cluster


def _accept_open(job: JobHandle) -> None:
    """Accept what a job proposes, if anything."""
    proposal = job.snapshot().open_proposal
    if proposal is not None:
        job.decide(Accept(proposal.id, why="worth a try"))


def _refuse(spec: JobSpec) -> SimulatedJob:
    raise InvalidValueError(
        f"the demo takes no further jobs, got {spec.name}; connect sim simulates your own"
    )

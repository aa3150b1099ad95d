"""Descriptions of simulated jobs and worlds: true speed, growth of memory, and changes of plan."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.simulator.faults import Faults, Pending
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.job.spec_choices import Migration
from dlrover_nb.core.structs.views.events import JobSubmitted

if TYPE_CHECKING:
    from dlrover_nb.core.simulator.truth import SpeedTruth
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.past_jobs import FitSummary, JobTraits
    from dlrover_nb.core.structs.views.schema import DataSchema


class GrowthLaw(StrEnum):
    """How memory follows the samples trained."""

    POWER = "power"  # scale * (n / n_scale)**exponent: distinct ids of click data
    LOG = "log"  # scale * log(1 + n / n_scale)


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """Memory of a node in MiB against the samples that the job has trained.

    Parameters
    ----------
    base_mib
        Before the first sample.
    scale_mib
        Size of the growing part: of the whole job for PS, which share it, of each node for workers. 0: none.
    n_scale
        Samples at which the power law reaches `scale_mib`, or at which the logarithm bends.
    exponent
        Of the power law.
    """

    base_mib: float
    scale_mib: float = 0.0
    n_scale: float = 1e6
    exponent: float = 0.7
    law: GrowthLaw = GrowthLaw.POWER

    def __post_init__(self) -> None:
        _check.at_least("base_mib", self.base_mib, 0)
        _check.at_least("scale_mib", self.scale_mib, 0)
        _check.above_zero("n_scale", self.n_scale)
        _check.above_zero("exponent", self.exponent)

    def at(self, n_sample: float, share: float = 1.0) -> float:
        """Return the memory of a node that holds `share` of the growing part."""
        x = n_sample / self.n_scale
        grown = math.log1p(x) if self.law is GrowthLaw.LOG else x**self.exponent
        return self.base_mib + share * self.scale_mib * grown

    def reached_at(self, memory_mib: float, share: float = 1.0) -> float:
        """Return after how many samples a node reaches `memory_mib`; infinite when it never does."""
        if memory_mib <= self.base_mib:
            return 0.0
        if share * self.scale_mib == 0:
            return math.inf
        grown = (memory_mib - self.base_mib) / (share * self.scale_mib)
        if self.law is GrowthLaw.LOG:
            return self.n_scale * math.expm1(grown) if grown < 700 else math.inf
        return self.n_scale * float(grown ** (1 / self.exponent))


@dataclass(frozen=True, slots=True)
class Transition:
    """What changes of plan cost.

    Parameters
    ----------
    seamless_s
        Pause to hand over after the new nodes are up.
    restart_s
        Pause to save and to load, beside the start of the nodes, where these replace the old ones: by the
        choice of `migration`, or because both do not find room at once.
    restore_s
        Pause until a lost PS, up again, has loaded its part.
    plan_limit_s
        A change that is not in place so long after it began, or after the old nodes have left for it, is
        given up.
    """

    migration: Migration = Migration.SEAMLESS
    seamless_s: float = 15.0
    restart_s: float = 120.0
    restore_s: float = 30.0
    plan_limit_s: float = 600.0

    def __post_init__(self) -> None:
        for name in ("seamless_s", "restart_s", "restore_s"):
            _check.at_least(name, getattr(self, name), 0)
        _check.above_zero("plan_limit_s", self.plan_limit_s)

    def pause_s(self, *, is_restart: bool) -> float:
        """Return the pause after all nodes are up."""
        return self.restart_s if is_restart else self.seamless_s


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job and its truth, which is hidden from its controller.

    Parameters
    ----------
    spec
        What the user asked for.
    truth
        The true speed of any plan.
    n_sample
        Samples to train, all epochs together.
    dense_bytes, embedding_dim
        M of Eq. 4 and D of Eq. 5.
    worker_memory, ps_memory
        How memory grows; the PS share the growing part of `ps_memory`.
    hot_ps
        How much more than its even share the fullest PS holds: 0.1 is a tenth more.
    traits, prior, why
        What is known of it before it runs, and the reason of its first plan.
    schema
        What its submit took of the data.
    """

    spec: JobSpec
    truth: SpeedTruth
    n_sample: int
    dense_bytes: int = 1 << 22
    embedding_dim: int = 256
    worker_memory: MemoryGrowth = field(default_factory=lambda: MemoryGrowth(256.0))
    ps_memory: MemoryGrowth = field(default_factory=lambda: MemoryGrowth(256.0))
    hot_ps: float = 0.05
    traits: JobTraits | None = None
    prior: FitSummary | None = None
    why: str = ""
    schema: DataSchema | None = None

    def __post_init__(self) -> None:
        _check.at_least("n_sample", self.n_sample, 1)
        _check.fraction("hot_ps", self.hot_ps)

    def submitted(self, at_s: float, capacity: Capacity) -> JobSubmitted:
        """Return the first event of the job: what its controller knows of it."""
        return JobSubmitted(
            at_s,
            self.spec,
            capacity,
            self.n_sample,
            self.dense_bytes,
            self.embedding_dim,
            self.traits,
            self.prior,
            self.why,
        )


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """Rates and times of a simulated world.

    Parameters
    ----------
    report_s
        Time between two reports of a node.
    room_every_s, room_change
        Least interval, and least relative change, of reported capacity.
    max_lost
        Nodes of a role that may be lost one after the other, without a sample trained between, before
        the job has failed.
    """

    report_s: float = 30.0
    pending: Pending = field(default_factory=Pending)
    faults: Faults = field(default_factory=Faults)
    transition: Transition = field(default_factory=Transition)
    room_every_s: float = 600.0
    room_change: float = 0.1
    max_lost: int = 5

    def __post_init__(self) -> None:
        _check.above_zero("report_s", self.report_s)
        _check.at_least("room_every_s", self.room_every_s, 0)
        _check.at_least("room_change", self.room_change, 0)
        _check.at_least("max_lost", self.max_lost, 1)

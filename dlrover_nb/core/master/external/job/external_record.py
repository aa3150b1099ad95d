"""State of the master of an external job for its restart in another pod."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dlrover_nb.core.deadline.loss_windows import LossWindows
from dlrover_nb.core.master.external.job.shard_account import ProcessesRecord, RestoredRecord
from dlrover_nb.core.master.external.job.worlds import World
from dlrover_nb.core.structs.job.external import StepsDone  # noqa: TC001 - a record is decoded by its annotations
from dlrover_nb.core.structs.job.job import JobPhase  # noqa: TC001 - as above
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role  # noqa: TC001 - as above
from dlrover_nb.core.structs.training.failures import CountedError  # noqa: TC001 - as above
from dlrover_nb.core.structs.training.reported import TrainerStatus  # noqa: TC001 - as above
from dlrover_nb.core.structs.views.snapshot import Evaluation, EvaluationRound  # noqa: TC001 - as above


@dataclass(frozen=True, slots=True)
class ExternalNodeRecord:
    """A live node, as `core.master.external.job.node_set.ExternalNode`."""

    id: str
    role: Role
    cpu: float
    memory_mib: int
    since_s: float
    address: str
    is_finished: bool
    has_worked: bool
    told: str = ""  # variables of a role beside the world: those of members follow from their addresses


@dataclass(frozen=True, slots=True)
class StopRecord:
    """A stop that was asked for: since when programs are told, and its message."""

    since_s: float
    message: str


@dataclass(frozen=True, slots=True)
class QualityRecord:
    """What was measured so far.

    Parameters
    ----------
    rounds
        Evaluations after passes, oldest first.
    losses
        Of training, where the rule reads them.
    ended
        Why no more rows are trained, though some are left; empty: they are.
    """

    rounds: tuple[EvaluationRound, ...] = ()
    losses: LossWindows = field(default_factory=LossWindows)
    ended: str = ""

    @property
    def lasting(self) -> QualityRecord:
        """It without the open window of losses, which changes with each report; a master begins it anew."""
        return replace(self, losses=LossWindows(self.losses.points))


@dataclass(frozen=True, slots=True)
class Replaced:
    """A slow node in whose place another one starts, by which decision."""

    node: str
    decision: str


@dataclass(frozen=True, slots=True)
class ServicesRecord:
    """The lasting state of services for programs, beside the ledger of shards, which has a log of its own."""

    has_ledger: bool = False
    restored: RestoredRecord = field(default_factory=RestoredRecord)
    processes: ProcessesRecord = field(default_factory=ProcessesRecord)
    batch_sizes: tuple[tuple[str, int], ...] = ()
    stop: StopRecord | None = None
    world: World = field(default_factory=World)
    left: tuple[tuple[str, bool], ...] = ()
    evaluation: Evaluation | None = None
    reported: TrainerStatus | None = None
    batch_times: tuple[tuple[str, int], ...] = ()
    quality: QualityRecord = field(default_factory=QualityRecord)


@dataclass(frozen=True, slots=True)
class ExternalRecord:
    """The lasting state of an `ExternalMaster`."""

    target: ResourcePlan
    applied: ResourcePlan | None
    change_since_s: float | None  # None: the target runs
    is_fallback: bool
    pause_s: float
    meeting: int
    members: tuple[str, ...]
    heard: tuple[str, ...]
    met_at_s: float
    phase: JobPhase
    message: str
    n_named: tuple[tuple[Role, int], ...]
    nodes: tuple[ExternalNodeRecord, ...]
    n_done: int
    told: tuple[StepsDone, ...]
    errors: tuple[CountedError, ...] = ()
    services: ServicesRecord = field(default_factory=ServicesRecord)
    is_queued: bool = False
    replaced: Replaced | None = None

    @property
    def latest_s(self) -> float:
        """The latest time that it mentions; the journal may end earlier, on a full disk."""
        since_s = [node.since_s for node in self.nodes]
        if self.change_since_s is not None:
            since_s.append(self.change_since_s)
        if self.services.stop is not None:
            since_s.append(self.services.stop.since_s)
        return max([self.met_at_s, *since_s])

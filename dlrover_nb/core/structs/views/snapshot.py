"""The state of a job for clients: one frozen snapshot, complete enough to draw every view."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.cluster.host_load import HostLoad
from dlrover_nb.core.structs.cluster.host_wish import HostWish
from dlrover_nb.core.structs.cluster.queue_quota import QueueQuota
from dlrover_nb.core.structs.decisions.candidates import ParetoFront, Prediction
from dlrover_nb.core.structs.decisions.decisions import Decision, Mitigation, Outcome, Proposal, version_of
from dlrover_nb.core.structs.job.early_stopping import StopForecast
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec, run_name
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.job.start_from import BeganFrom
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.structs.plan.budget import BudgetOutlook
from dlrover_nb.core.structs.plan.capacity import Capacity
from dlrover_nb.core.structs.plan.deadline import DeadlineOutlook
from dlrover_nb.core.structs.plan.queued_jobs import QueuePlace
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role
from dlrover_nb.core.structs.training.gradient_ages import MeanAges
from dlrover_nb.core.structs.training.reported import TrainerStatus
from dlrover_nb.core.structs.training.samples import NodeSample, ProfileSample
from dlrover_nb.core.structs.training.shards import QuarantinedShard, ShardCounts, SkippedBatch
from dlrover_nb.core.structs.training.stragglers import NodeErrors, Straggler
from dlrover_nb.core.structs.views.fit import Curve, FitReport

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.training.batch_cost import BatchCost


class NodePhase(StrEnum):
    """Phase of a node."""

    PENDING = "pending"  # ordered, not up yet
    READY = "ready"
    PAUSED = "paused"
    DRAINING = "draining"
    GONE = "gone"


ROOM = "room"  # reason of a wait for free capacity


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node.

    `waits_for` says what its start waits for: `ROOM`, or a reason from the cluster; empty: nothing. `wish` is
    its preferred host; None: its cluster alone chose.
    """

    id: str
    role: Role
    phase: NodePhase
    cpu: float
    memory_mib: int
    cpu_enforced: bool
    since_s: float
    pid: int | None = None
    last: NodeSample | None = None
    memory_enforced: bool = False
    waits_for: str = ""
    wish: HostWish | None = None

    @property
    def state(self) -> str:
        """Its phase in one word, `waiting` when its start waits for something."""
        return "waiting" if self.waits_for else str(self.phase)


def is_for_room(why: str) -> bool:
    """Whether a reason of a wait is a lack of free capacity: `ROOM`, or what Kubernetes says of one."""
    return why == ROOM or "Insufficient " in why or "exceeded quota" in why


def waits_told(nodes: Iterable[NodeView]) -> tuple[str, ...]:
    """Return what nodes wait for as text: one line per reason with its nodes."""
    names_of: dict[str, list[str]] = {}
    for node in nodes:
        if node.waits_for:
            names_of.setdefault(node.waits_for, []).append(node.id)
    return tuple(
        f"waiting for {ROOM}: {', '.join(names)}" if why == ROOM else f"waiting: {why} ({', '.join(names)})"
        for why, names in names_of.items()
    )


@dataclass(frozen=True, slots=True)
class FanPoint:
    """The memory forecast for one time ahead: middle and 90 % interval of a report."""

    in_s: float
    mid_mib: float
    low_mib: float
    high_mib: float


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """Memory of a role: the largest node's use, its forecast, and the limit of the plan.

    `law` names the growth law that the reports support, "as now" where they support none. None is
    unknown: too few reports, or an unknown end of the job.
    """

    role: Role
    limit_mib: int
    now_mib: float
    mib_per_hour: float
    at_end_mib: float | None
    full_in_s: float | None  # None: not before the end, by more than even odds
    law: str = "as now"
    at_end_low_mib: float | None = None
    at_end_high_mib: float | None = None
    full_in_low_s: float | None = None  # with a probability of 5 % it is full by then
    full_in_high_s: float | None = None  # with one of 95 %; None: it may well not fill up
    oom_probability: float | None = None  # before the end
    fan: tuple[FanPoint, ...] = ()  # from now to the end


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Quality on the held-out rows."""

    auc: float
    log_loss: float  # mean, in nats
    n_sample: int

    def __str__(self) -> str:
        return f"AUC {self.auc:.4f}, log loss {self.log_loss:.4f} on {self.n_sample:,} held-out rows"


@dataclass(frozen=True, slots=True)
class EvaluationRound:
    """Quality after `n_pass` passes, measured during training."""

    n_pass: int
    at_s: float
    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class PlanMarker:
    """The time at which a plan started to run, for markers in charts."""

    at_s: float
    plan: ResourcePlan
    pause_s: float
    predicted: Prediction | None


@dataclass(frozen=True, slots=True)
class SeriesChunk:
    """Rows of telemetry since a cursor, as columns of equal length.

    Job columns: at_s, samples_per_s, workers, ps, and of the shards to train todo, doing, done (NaN where
    they were not counted). Node columns: at_s, node, role, memory_mib, cpu_cores, iter_s, samples_per_s (0
    for a PS), the parts of iter_s by the names of `TimeSplit`, and of a worker's report n_sample and
    batch_size (samples in all, and of its mean mini-batch). Columns of `ages`: at_s, node (a worker), age,
    n_update, unit (an `AgeUnit`), ps and of_first (1: it is the first PS; 0): so many of its gradients were
    `age` units old, or up to the next class (`gradient_ages`), when the PS applied them in the seconds before
    at_s. Of earlier releases the first four come alone, of updates on the first PS.

    Pass `cursor` to the next call; `lost` counts rows that had left the ring.
    """

    cursor: int
    job: dict[str, list[float]]
    node: dict[str, list[float | str]]
    lost: int = 0
    ages: dict[str, list[float | str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MasterRestart:
    """A master continues the job since `at_s`; `how_ended` are the words after "the one before it"."""

    at_s: float
    how_ended: str

    @property
    def words(self) -> str:
        """Return it for people; what trains has not changed by it."""
        return f"the job's master was started again; the one before it {self.how_ended}"


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """The state of a job at one moment."""

    at_s: float
    spec: JobSpec
    capacity: Capacity
    phase: JobPhase
    message: str
    mode: Mode
    started_at_s: float
    ended_at_s: float | None
    target: ResourcePlan
    running: ResourcePlan | None  # None while nodes are missing or being replaced
    samples_per_s: float
    loss: float | None
    nodes: tuple[NodeView, ...]
    train: ShardCounts
    evaluate: ShardCounts
    fit: FitReport | None
    curves: tuple[Curve, ...]
    samples: tuple[ProfileSample, ...]
    front: ParetoFront | None
    memory: tuple[MemoryLine, ...]
    proposals: tuple[Proposal, ...]
    decisions: tuple[Decision, ...]
    outcomes: tuple[Outcome, ...]
    markers: tuple[PlanMarker, ...]
    evaluation: Evaluation | None
    story: tuple[str, ...]  # one line per fact, oldest first
    n_dropped_message: int = 0
    n_refused_client: int = 0  # refused by the master's socket because of their key
    pins: Pins = field(default_factory=Pins)
    quarantined: tuple[QuarantinedShard, ...] = ()  # shards that wait for a decision of the user
    simulated: bool = False  # no real node trains; every view shows that
    rounds: tuple[
        EvaluationRound, ...
    ] = ()  # evaluations between passes, oldest first; of early stopping alone
    folder: str = ""  # the run folder, on the master's host; empty: there is none
    undo: Decision | None = (
        None  # the decision that would revert the latest change; None: none can be reverted
    )
    memory_needs: tuple[str, ...] = ()  # why nodes are likely to run out of memory
    under_way: str = ""  # id of the decision whose plan is being applied; empty: none is
    skipped_batches: tuple[SkippedBatch, ...] = ()  # that could not be trained: the last ones
    began_from: BeganFrom | None = None  # None: the job began with untrained parameters
    measuring: str = ""  # id of the decision whose applied plan is compared with its prediction; empty: none
    deadline: DeadlineOutlook | None = None  # None: the job has none, or nothing is known of its speed
    stragglers: tuple[Straggler, ...] = ()  # nodes that are slow now
    mitigations: tuple[Mitigation, ...] = ()  # actions against them: the last ones
    node_errors: tuple[NodeErrors, ...] = ()  # recent ones; empty of an older master
    series: SeriesChunk | None = None  # of what is kept of an ended job: its telemetry, thinned; else None
    queue: QueuePlace | None = None  # where it waits in the queue of its cluster; None: it does not
    reported: TrainerStatus | None = None  # the newest by the protocol of Kubeflow Trainer
    resizes_in_place: bool | None = False  # whether the cluster resizes nodes; None: it is not known yet
    stop: StopForecast | None = None  # where it is likely to stop early; None: it has no such rule
    host: HostLoad | None = None  # what other work on its hosts leaves to it; None: not known
    quota: QueueQuota | None = None  # of its queue in the cluster, which admits nodes; None: it has none
    damage: str = ""  # what was wrong with files of its run, and what that cost; empty: nothing
    budget: BudgetOutlook | None = None  # what is spent of its total budget; None: it has none
    restart: MasterRestart | None = None  # of its master; None: it is the first, or this is not known
    ages: MeanAges | None = None  # of its gradients so far; None: none were counted

    @property
    def batch_costs(self) -> dict[str, BatchCost]:
        """What mini-batches cost, by the workers that have measured it."""
        return {n.id: n.last.batch_cost for n in self.nodes if n.last and n.last.batch_cost}

    @property
    def ran(self) -> ResourcePlan | None:
        """The plan that runs, or ran last: during a change it may train on; None before the first one ran."""
        return self.running or (self.markers[-1].plan if self.markers else None)

    @property
    def version(self) -> str:
        """The version of plan, mode and pins: the id of the decision that changed one of them last."""
        return version_of(self.undo)

    @property
    def undo_cancels(self) -> bool:
        """Whether an undo now would cancel the change of plan under way."""
        return self.undo is not None and self.undo.undoes == self.under_way

    @property
    def run(self) -> str:
        """Id of the run, which tells the job from others of its name."""
        return run_name(self.spec.name, self.started_at_s)

    @property
    def title(self) -> str:
        """The job's name for headings, marked if simulated."""
        return f"{self.spec.name} (simulated)" if self.simulated else self.spec.name

    @property
    def open_mitigation(self) -> Mitigation | None:
        """The action against stragglers that waits for a decision."""
        return next((each for each in reversed(self.mitigations) if each.is_open), None)

    @property
    def open_proposal(self) -> Proposal | None:
        """The proposal that waits for a decision."""
        return next((p for p in reversed(self.proposals) if p.status == "pending"), None)

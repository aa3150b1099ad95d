"""The state of the job master, and the stages of its parameter servers.

A job passes through the stages at its start, at each checkpoint, at each change of its PS and after the loss
of one. `NEXT_STAGES` is the whole graph:

ASSEMBLING  PS are started until as many are up as the plan requires
LOADING     the group reads its parts from the source checkpoint (or starts without one)
SERVING     workers train; meanwhile the last checkpoint is copied and written to the disk, and parameters
            migrate to other PS
PAUSING     workers finish the current iteration
COPYING     PS fix the content of their parts of a checkpoint; workers are paused no longer than that
SAVING      training waits for the disk: the job is to stop, or other PS will read what is written
SWITCHING   parameters change owners: the last rows are sent, and other PS take over
ENDED       final
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.deadline.loss_windows import LossWindows
from dlrover_nb.core.master.own.state.roster import Node, Roster
from dlrover_nb.core.master.own.state.state_records import (
    JOBS_OWN,
    Fence,
    OpenMitigation,
    RateRamp,
    WithoutScore,
    take_size,
)
from dlrover_nb.core.master.shared.orders import Emit, Order, Send, StartNode, StopNode
from dlrover_nb.core.master.shared.restarts import RestartBudget
from dlrover_nb.core.models.score_sums import ScoreSums
from dlrover_nb.core.sharding.manifest import Manifest  # noqa: TC001 - as the next line says
from dlrover_nb.core.sharding.split import Split
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role, RolePlan
from dlrover_nb.core.structs.training.checkpoints import MemoryPart, PeerCopy  # noqa: TC001 - an entry of the log is decoded by its annotations
from dlrover_nb.core.structs.training.shards import Purpose
from dlrover_nb.core.structs.views.events import MitigationEnded, NodeLeft, PhaseChanged, PlanFailed
from dlrover_nb.core.structs.wire.messages import Adjust, Forget, Stop
from dlrover_nb.core.structs.wire.mitigation_messages import Backups
from dlrover_nb.core.structs.wire.pod_contract import outlives_node

if TYPE_CHECKING:
    from dlrover_nb.core.sharding.ledger import ShardLedger
    from dlrover_nb.core.sharding.split import LedgerCheckpoint
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.decisions.actions import SetSize
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.failures import CountedError
    from dlrover_nb.core.structs.training.shards import Lease, SkippedBatch
    from dlrover_nb.core.structs.views.snapshot import Evaluation, EvaluationRound
    from dlrover_nb.core.structs.wire.messages import Copied, Moved, Saved, ToNode


ByWorker = tuple[tuple[str, int], ...]
ORIGIN = 0  # number of the checkpoint that a job began from; its own ones count from 1


class Stage(StrEnum):
    """Stage of the PS group; see the module."""

    ASSEMBLING = "assembling"
    LOADING = "loading"
    SERVING = "serving"
    PAUSING = "pausing"
    COPYING = "copying"
    SAVING = "saving"
    SWITCHING = "switching"
    ENDED = "ended"


NEXT_STAGES: dict[Stage, frozenset[Stage]] = {
    Stage.ASSEMBLING: frozenset({Stage.LOADING, Stage.ENDED}),
    Stage.LOADING: frozenset({Stage.SERVING, Stage.ASSEMBLING, Stage.ENDED}),
    Stage.SERVING: frozenset({Stage.PAUSING, Stage.ASSEMBLING, Stage.ENDED}),
    Stage.PAUSING: frozenset({Stage.SERVING, Stage.COPYING, Stage.SWITCHING, Stage.ASSEMBLING, Stage.ENDED}),
    Stage.COPYING: frozenset({Stage.SERVING, Stage.SAVING, Stage.ASSEMBLING, Stage.ENDED}),
    Stage.SAVING: frozenset({Stage.SERVING, Stage.ASSEMBLING, Stage.ENDED}),
    Stage.SWITCHING: frozenset({Stage.SERVING, Stage.ASSEMBLING, Stage.ENDED}),
    Stage.ENDED: frozenset(),
}


@dataclass(slots=True)
class UnfinishedPauses:
    """Pauses that workers could not follow, as they wait for a PS that they do not reach."""

    n: int = 0  # in a row
    again_s: float = float("-inf")  # when the next one may begin
    drops: bool = False  # whether the present one lets workers drop their exchanges


@dataclass(frozen=True, slots=True)
class PsGroup:
    """The PS that serve together under one epoch, in index order."""

    ps_epoch: int
    nodes: tuple[str, ...]
    shape: RolePlan
    bucket_owner: tuple[int, ...]


@dataclass(slots=True)
class Move:
    """A migration of parameters to the next group, while the current one serves."""

    group: PsGroup
    since_s: float
    sources: set[str] = field(default_factory=set)
    reports: dict[str, Moved] = field(default_factory=dict)  # the last report of each source
    is_rebalance: bool = False  # the members of both groups are the same


@dataclass(frozen=True, slots=True)
class RestorableCheckpoint:
    """A checkpoint that a group can load: from memory, from the disk, or from both.

    While it `is_on_disk` not yet, the files of its manifest have no names. `nodes` are the PS that copied its
    parts, `peers` what other nodes keep of them, in the same order; empty where no node was asked.
    """

    manifest: Manifest
    memory: tuple[MemoryPart | None, ...]
    is_on_disk: bool = False
    nodes: tuple[str, ...] = ()
    peers: tuple[PeerCopy | None, ...] = ()

    @property
    def number(self) -> int:
        """Of the checkpoint."""
        return self.manifest.number

    @property
    def is_origin(self) -> bool:
        """Whether it is the checkpoint of another run from which the job began."""
        return self.number == ORIGIN


@dataclass(slots=True)
class Writing:
    """A checkpoint that is not on the disk yet."""

    number: int
    since_s: float
    group: PsGroup
    ledger: LedgerCheckpoint  # at the pause in which it was copied
    is_final: bool  # all rows are trained
    is_awaited: bool  # a stop or a change of plan waits for it
    is_ordered: bool = False  # there is a folder, and its PS were ordered to save
    is_in_memory: bool = False  # it gets no files: peers keep copies of it
    holders: tuple[str, ...] | None = None  # of these copies, which outlast a change of PS; None: any peers
    copied: dict[str, Copied] = field(default_factory=dict)
    saved: dict[str, Saved] = field(default_factory=dict)
    manifest: Manifest | None = None  # set when it was ordered to be written
    cut: set[str] = field(default_factory=set)  # PS whose part is fixed, if not copied

    @property
    def is_cut(self) -> bool:
        """Whether every PS may change its part again."""
        return all(node in self.cut or node in self.copied for node in self.group.nodes)

    @property
    def is_copied(self) -> bool:
        """Whether every PS has copied its part."""
        return all(node in self.copied for node in self.group.nodes)


@dataclass(slots=True)
class CopyRound:
    """Copies of one checkpoint that peers were told to keep; a restarted master tells them again."""

    number: int
    since_s: float
    pending: dict[int, str] = field(default_factory=dict)  # part and the node that is to keep it
    failed: dict[tuple[int, str], str] = field(default_factory=dict)  # the same, and why it does not
    why: str = ""  # parts have no copy, as last noted; empty: all had one


@dataclass(slots=True)
class PlanChange:
    """A target that does not run yet. A fallback restores the previous plan and is not reported."""

    since_s: float
    is_fallback: bool = False
    pause_s: float = 0.0
    to_replace: tuple[str, ...] = ()  # nodes that could not be resized in place


def train_split(spec: JobSpec, features: FeatureSpec) -> Split:
    """Return the shards to train: all passes over the first `n_train` rows, or a stream without an end."""
    n_row = None if features.is_stream else features.n_train
    batches = spec.batch_size, 1 if spec.deterministic else spec.shard_batches
    return Split(
        n_row,
        *batches,
        spec.n_epoch,
        spec.seed,
        is_stream=features.is_stream,
        step_shards=spec.step_batches,
        block_shards=spec.shard_batches if spec.deterministic else 1,
    )


def evaluation_split(spec: JobSpec, features: FeatureSpec) -> Split:
    """Return the shards to evaluate: the held-out rows after the training rows, once."""
    return Split(
        features.n_eval,
        spec.batch_size,
        spec.shard_batches,
        first_row=features.n_train,
        purpose=Purpose.EVALUATE,
    )


@dataclass(slots=True)
class JobState:
    """The mutable state of a job, private to its `JobMaster` and the modules of this room."""

    spec: JobSpec
    features: FeatureSpec
    capacity: Capacity
    folder: str
    target: ResourcePlan
    train: ShardLedger
    evaluate: ShardLedger
    roster: Roster = field(default_factory=Roster)
    stage: Stage = Stage.ASSEMBLING
    stage_since_s: float = 0.0
    group: PsGroup | None = None
    n_group: int = 0  # the last epoch in use
    move: Move | None = None
    bucket_owner: tuple[int, ...] = ()
    source: RestorableCheckpoint | None = None  # what the next group loads; None: starts from nothing
    checkpoints: list[RestorableCheckpoint] = field(default_factory=list)  # newest last
    writing: dict[int, Writing] = field(default_factory=dict)
    copying: CopyRound | None = None  # the last round
    n_checkpoint: int = 0
    n_pause: int = 0
    unfinished_pauses: UnfinishedPauses = field(default_factory=UnfinishedPauses)
    last_checkpoint_s: float = 0.0
    n_checkpoint_failed: int = 0  # in a row
    is_settled: bool = False  # the final checkpoint is on the disk, or its failure was reported
    not_saved: str = ""  # why there is no final checkpoint, once that is known
    applied: ResourcePlan | None = None  # the last plan that ran
    change: PlanChange | None = None
    is_evaluating: bool = False
    scores: ScoreSums = field(default_factory=ScoreSums)  # of the evaluation that is under way
    without_score: WithoutScore = field(default_factory=WithoutScore)  # its rows without a finite one
    rounds: tuple[EvaluationRound, ...] = ()  # evaluations between passes
    round_tried: int = 0  # the last pass that was evaluated, with or without a result
    losses: LossWindows = field(default_factory=LossWindows)  # where early stopping is by them
    round_of: int = 0  # the pass whose evaluation is under way; 0: none is
    evaluation: Evaluation | None = None  # of all that was trained, at the end
    stopped_early: str = ""  # why no more rows are trained
    still_since_s: float | None = None  # since when no worker trains; None: at least one does
    steady_since_s: float | None = None  # since when the target runs; None: nodes are missing or paused
    stop_reason: str = ""  # who requested the stop and why; empty: no stop was requested
    phase: JobPhase = JobPhase.STARTING
    message: str = ""
    restarts: dict[Role, RestartBudget] = field(default_factory=lambda: {r: RestartBudget() for r in Role})
    errors: tuple[CountedError, ...] = ()  # of programs, that ended nodes within a day
    fences: tuple[Fence, ...] = ()  # workers that were given up and hold shards until PS refuse them
    skipped: tuple[SkippedBatch, ...] = ()  # batches that could not be trained, the newest last
    n_skipped: int = 0  # all of them
    skipped_in_pass: tuple[int, int] = (0, 0)  # the latest pass with one, and how many in it
    resizes_in_place: bool | None = False  # whether the backend can do that; None: not known yet
    n_dropped: int = 0  # messages that nodes could not decode
    usual_rows_per_s: float = 0.0  # of the median worker; 0: not known
    waits_for: str = ""  # text: what keeps nodes from starting; empty: nothing
    short_since_s: float | None = None  # since when nodes are missing that do not fit; None: none are
    made_room_s: float = float("-inf")  # when a node was last stopped for a PS without room
    last_step_s: float = 0.0  # time of the last progress of any node; limits of time count from here
    progress_emitted: tuple[float, int] = (float("-inf"), 0)  # when, and how many samples were done
    ticked_s: float = float("inf")  # when this master last checked limits of time; infinite: not yet
    batch_sizes: dict[str, int] = field(default_factory=dict)  # of workers with a size other than the job's
    batch_times: dict[str, int] = field(default_factory=dict)  # mini-batches of those, where not one
    sizes_emitted: tuple[ByWorker, ByWorker] = ((), ())  # those of living workers, as last emitted
    node_sizes_emitted: tuple[SetSize, ...] | None = ()  # None: by an earlier master, if any
    backups: int = 0  # workers without which a round may end (BSP)
    rates: dict[str, float] = field(default_factory=dict)  # factors of workers' learning rates
    ramp: RateRamp = JOBS_OWN  # of the job's learning rate
    rates_of_ps: dict[str, float] = field(default_factory=dict)  # factors that were sent to PS last; none: 1
    mitigations: tuple[OpenMitigation, ...] = ()  # that were begun and are not in effect yet
    is_held: bool = False  # whether it waits to be admitted: no node starts
    silent: dict[str, Node] = field(
        default_factory=dict
    )  # lost nodes whose exit the backend has not reported
    n_coordinated: int = 0  # the group whose coordinator has these sizes
    n_step_announced: int | None = None  # steps that workers know to be complete (deterministic training)
    n_step_paused: int | None = None  # steps that were complete in the last pause
    waits_for_step: bool = False  # a pause waits for the end of a step
    orders: list[Order] = field(default_factory=list)

    @property
    def is_ended(self) -> bool:
        """Whether the job has ended."""
        return self.stage is Stage.ENDED

    def enter(self, stage: Stage, at_s: float) -> None:
        """Go to a stage; only along `NEXT_STAGES`."""
        assert stage in NEXT_STAGES[self.stage], f"{self.stage} -> {stage}"
        self.stage, self.stage_since_s = stage, at_s
        if stage is Stage.SERVING and self.group is not None and self.group.ps_epoch != self.n_coordinated:
            self.n_coordinated = self.group.ps_epoch
            self.instruct_coordinator()

    def send(self, node: Node, message: ToNode) -> None:
        """Order a message to a node."""
        self.orders.append(Send(node.id, message))

    def start_nodes(self, role: Role, n_node: int, at_s: float) -> None:
        """Order nodes of the target's shape, unless the job waits in the queue, or has restarted too many."""
        plan = self.target.role(role)
        if self.is_held or self.restarts[role].not_before_s(at_s, plan.count) > at_s:
            return
        for _ in range(n_node):
            node = self.roster.add(role, plan, at_s)
            if self.change is None:
                take_size(node, self.mitigations, self.roster.nodes)
            gently = role is Role.PS and self.stage is Stage.SERVING  # it joins those that serve
            avoid = self._slow_nodes()
            self.orders.append(StartNode(node.id, role, node.cpu, node.memory_mib, avoid, gently))

    def _slow_nodes(self) -> tuple[str, ...]:
        """Return the nodes that are replaced as they are slow, not for another size."""
        slow = (each.node for each in self.mitigations if each.replaces and each.size is None)
        return tuple(node for node in slow if self.roster.get(node) is not None)

    def stop_node(self, node: Node, at_s: float) -> None:
        """Order the end of a node, remove it and take back its shards."""
        self.remove_node(node, at_s)
        self.take_back(node.id)

    def remove_node(self, node: Node, at_s: float, error: str = "", *, is_retryable: bool = True) -> None:
        """Order the end of a node and remove it, after an `error` or none; PS refuse a worker then."""
        self.send(node, Stop())  # it may be alive behind a broken connection, and a PS outlives SIGTERM
        self.orders.append(StopNode(node.id))
        self.roster.remove(node.id)
        self.orders.append(Emit(NodeLeft(at_s, node.id, node.role, error, is_retryable)))
        if node.role is Role.WORKER:
            for ps in self.group_nodes:
                self.send(ps, Forget(node.id))

    @property
    def group_nodes(self) -> tuple[Node, ...]:
        """Living PS of the group that serves; none without a group."""
        names = () if self.group is None else self.group.nodes
        return tuple(node for name in names if (node := self.roster.get(name)) is not None)

    @property
    def coordinator(self) -> Node | None:
        """The PS that coordinates synchronous training; None: there is none."""
        if not self.spec.sync.waits or self.group is None:
            return None
        return self.roster.get(self.group.nodes[0])

    def coordinate(self, message: Adjust | Backups) -> None:
        """Send a message to the coordinator, if there is one."""
        if (first := self.coordinator) is not None:
            self.send(first, message)

    def instruct_coordinator(self) -> None:
        """Send the coordinator what an earlier one, or an earlier master, was told."""
        if self.batch_sizes:
            self.coordinate(
                Adjust(tuple(sorted(self.batch_sizes.items())), tuple(sorted(self.batch_times.items())))
            )
        if self.backups:
            self.coordinate(Backups(self.backups))

    def leases(self, node: Node) -> tuple[Lease, ...]:
        """Return the shards that a node holds."""
        return (*self.train.leases(node.id), *self.evaluate.leases(node.id))

    def take_back(self, node: str, *, killed: bool = False) -> None:
        """Take back the shards that a node holds."""
        self.train.release(node, killed=killed)
        self.evaluate.release(node, killed=killed)

    @property
    def n_sample_done(self) -> int:
        """Progress of the job in samples trained and evaluated."""
        return self.train.counts().n_sample_done + self.evaluate.counts().n_sample_done

    def note(self, text: str, at_s: float) -> None:
        """Emit a message; the phase stays."""
        self.message = text
        self.orders.append(Emit(PhaseChanged(at_s, self.phase, text)))

    def set_phase(self, phase: JobPhase, at_s: float, message: str = "") -> None:
        """Enter a phase of the job and emit it, unless it is current."""
        if phase is not self.phase:
            self.phase = phase
            self.note(message, at_s)

    def set_target(self, target: ResourcePlan, at_s: float, *, is_fallback: bool = False) -> None:
        """Set another target plan."""
        self.roster.drop_sizes(self.target, None if is_fallback else target, self.capacity)
        self.target, self.last_step_s = target, at_s
        self.change = PlanChange(at_s, is_fallback)
        for budget in self.restarts.values():
            budget.clear()

    @property
    def keeps_checkpoints(self) -> bool:
        """Whether checkpoint files outlive the nodes that wrote them."""
        return outlives_node(self.spec, self.folder)

    @property
    def has_way_back(self) -> bool:
        """Whether a change is under way from a plan that ran."""
        is_change = self.change is not None and not self.change.is_fallback
        return is_change and self.applied not in {None, self.target}

    def fail_plan(self, why: str, at_s: float) -> None:
        """Return to the plan that ran before; the job fails when there is none or that one fails too."""
        if not self.has_way_back:
            self.end(JobPhase.FAILED, why, at_s)
            return
        assert self.applied is not None
        self.orders.append(Emit(PlanFailed(at_s, self.target, why)))
        self.set_target(self.applied, at_s, is_fallback=True)

    def end(self, phase: JobPhase, message: str, at_s: float) -> None:
        """End the job and stop all of its nodes."""
        self.group = self.move = None  # no PS need refuse anyone any more
        for node in self.roster.nodes:
            self.stop_node(node, at_s)
        for each in self.mitigations:
            self.orders.append(Emit(MitigationEnded(at_s, each.decision, "the job ended before")))
        self.mitigations = ()
        self.enter(Stage.ENDED, at_s)
        self.set_phase(phase, at_s, message)

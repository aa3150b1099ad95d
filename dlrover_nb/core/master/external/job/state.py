"""State of the master of an external job, its public view, and its plan and phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.external.job.external_record import ExternalRecord, QualityRecord, ServicesRecord
from dlrover_nb.core.master.external.job.node_set import ExternalNodes, is_worker, trains
from dlrover_nb.core.master.external.job.shard_account import ShardAccount
from dlrover_nb.core.master.external.job.step_rates import OwnWork, StepRates
from dlrover_nb.core.master.external.job.step_shares import Speeds, even
from dlrover_nb.core.master.external.job.worlds import Worlds
from dlrover_nb.core.master.shared.orders import Emit, StopNode, WriteManifest
from dlrover_nb.core.master.shared.restarts import RestartBudget
from dlrover_nb.core.structs.job.external import CHIEF, Counting, ExternalSpec, Framework
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import ShardCounts, why_waits
from dlrover_nb.core.structs.views.events import (
    BatchSizesSet,
    MitigationEnded,
    NodeLeft,
    NodeOutOfMemory,
    NodeReported,
    PhaseChanged,
    PlanApplied,
    PlanFailed,
    ProgressMade,
    QualityMeasured,
)

if TYPE_CHECKING:
    from dlrover_nb.core.master.external.job.external_record import Replaced, StopRecord
    from dlrover_nb.core.master.external.job.node_set import ExternalNode
    from dlrover_nb.core.master.external.job.step_shares import Part
    from dlrover_nb.core.master.external.orders import ExternalOrder
    from dlrover_nb.core.sharding.manifest import Manifest
    from dlrover_nb.core.structs.job.external import StepsDone
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.failures import CountedError
    from dlrover_nb.core.structs.training.reported import TrainerStatus
    from dlrover_nb.core.structs.training.shards import QuarantinedShard, SkippedBatch
    from dlrover_nb.core.structs.views.snapshot import Evaluation, EvaluationRound, NodeView
    from dlrover_nb.core.structs.wire.services import Caller


def external_of(spec: JobSpec) -> ExternalSpec:
    """Return the programs of an external job; raises InvalidValueError for another one."""
    if spec.foreign is None:
        raise InvalidValueError(f"job {spec.name} has no programs of its own; add an external group")
    return spec.foreign


class ExternalState:
    """All mutable state of an external job; `ExternalMaster` changes it.

    Parameters
    ----------
    spec
        What to run.
    capacity
        Upper bound: no node gets more memory than a machine has.
    """

    def __init__(self, spec: JobSpec, capacity: Capacity) -> None:
        self._spec, self._external, self._capacity = spec, external_of(spec), capacity
        self._node_set, self._meter = ExternalNodes(self._external), StepRates(self._external)
        self._restarts = {role: RestartBudget() for role in self._external.every}
        self._errors: tuple[CountedError, ...] = ()
        self._orders: list[ExternalOrder] = []
        self.phase, self.message = JobPhase.STARTING, ""
        self.is_queued = False  # whether it waits to be admitted: no node starts
        self.target: ResourcePlan = spec.plan
        self._applied: ResourcePlan | None = None
        self._change_since_s: float | None = None
        self._is_fallback = False
        self._pause_s, self._trained_until_s = 0.0, float("inf")
        self._n_rendezvous, self._members, self._met_at_s = 0, tuple[str, ...](), 0.0
        self._heard: set[str] = set()  # workers that reported steps since the rendezvous
        self._before: set[tuple[str, str]] = set()  # of the previous rendezvous: may still report
        self._callers_before: set[str] = set()  # the same, of those that use the services
        self._is_in_place = False
        self._waits_since_s: float | None = None
        self._progress_told = float("-inf"), 0
        self.account = ShardAccount(spec)
        self.batch_sizes: tuple[tuple[str, int], ...] = ()  # of workers whose size was set
        self.batch_times: tuple[tuple[str, int], ...] = ()  # mini-batches that they accumulate, where set too
        self.size_askers: set[str] = set()  # nodes whose programs follow the sizes that they are told
        self.memory = ""  # prefix of the names of the job's shared memory, which programs are told
        self.replaced: Replaced | None = None  # the slow node whose successor does not train yet
        self.own_work = OwnWork()
        self._stop: StopRecord | None = None  # None: the job was not asked to stop
        self.evaluation: Evaluation | None = None  # as a program told it
        self.quality = QualityRecord()  # of early stopping
        self.reported: TrainerStatus | None = None  # the same, by the protocol of Kubeflow Trainer
        self.worlds = Worlds()  # of an elastic job
        self.parts: dict[str, Part] = {}  # of a step, by node, where they follow speeds
        self.speeds = Speeds()
        self.outdated_world = 0  # its number; 0: the present world is right
        self.resizes_in_place: bool | None = False  # whether the cluster does; None: it is not known yet
        self._left: list[tuple[str, bool]] = []  # gone of the present world, and whether it was killed

    # public view

    @property
    def running(self) -> ResourcePlan | None:
        """The plan that runs, None while nodes are missing or no worker trains."""
        return self.target if self._is_in_place else None

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """All live nodes."""
        return tuple(node.view(is_member=node.id in self._members) for node in self._node_set.nodes)

    @property
    def train_counts(self) -> ShardCounts:
        """Samples trained and to train; exact with the shards of those programs that use ours."""
        if (counts := self.account.counts()) is not None:
            return counts
        total = self._external.n_sample
        return ShardCounts(n_sample_done=min(self._meter.n_done, total), n_sample_total=total)

    @property
    def evaluation_counts(self) -> ShardCounts:
        """Nothing: external programs evaluate by themselves."""
        return ShardCounts()

    @property
    def quarantined(self) -> tuple[QuarantinedShard, ...]:
        """Shards whose holders died repeatedly, of programs that use ours."""
        return () if self.account.ledger is None else self.account.ledger.quarantined()

    @property
    def skipped_batches(self) -> tuple[SkippedBatch, ...]:
        """Nothing: there are no batches of ours."""
        return ()

    @property
    def rounds(self) -> tuple[EvaluationRound, ...]:
        """Evaluations after passes, of programs that are told to."""
        return self.quality.rounds

    @property
    def told(self) -> tuple[StepsDone, ...]:
        """The last totals of each program."""
        return self._meter.told

    @property
    def record(self) -> ExternalRecord:
        """All state that the next master needs."""
        return ExternalRecord(
            target=self.target,
            applied=self._applied,
            change_since_s=self._change_since_s,
            is_fallback=self._is_fallback,
            pause_s=self._pause_s,
            meeting=self._n_rendezvous,
            members=self._members,
            heard=tuple(sorted(self._heard)),
            met_at_s=self._met_at_s,
            phase=self.phase,
            message=self.message,
            n_named=self._node_set.n_named,
            nodes=self._node_set.records(),
            n_done=self._meter.n_done,
            told=self._meter.told,
            errors=self._errors,
            services=self.services,
            is_queued=self.is_queued,
            replaced=self.replaced,
        )

    @property
    def starts_nodes(self) -> bool:
        """Whether this master starts and ends the job's nodes."""
        return True

    @property
    def services(self) -> ServicesRecord:
        """The state of services for programs, beside the ledger, which has a log of its own."""
        return ServicesRecord(
            self.account.ledger is not None,
            self.account.restored,
            self.account.processes,
            self.batch_sizes,
            self._stop,
            self.worlds.now,
            tuple(self._left),
            self.evaluation,
            self.reported,
            self.batch_times,
            self.quality.lasting,
        )

    # what handlers of programs' calls and of users' choices may know

    @property
    def spec(self) -> JobSpec:
        """The job."""
        return self._spec

    @property
    def external(self) -> ExternalSpec:
        """Its programs."""
        return self._external

    @property
    def node_set(self) -> ExternalNodes:
        """Its nodes."""
        return self._node_set

    @property
    def waits_since_s(self) -> float | None:
        """Since when some of its nodes wait for room; None: none does."""
        return self._waits_since_s

    @property
    def name(self) -> str:
        """The job's name."""
        return self._spec.name

    @property
    def seed(self) -> int:
        """Seed of the order of rows within their shards."""
        return self._spec.seed

    @property
    def n_rendezvous(self) -> int:
        """How many rendezvous there were."""
        return self._n_rendezvous

    @property
    def is_over(self) -> bool:
        """Whether an elastic job is trained: all rows are done, and a program has ended well."""
        workers = [node for node in self._node_set.nodes if node.role is Role.WORKER]
        return self.account.is_over and any(node.is_finished for node in workers)

    @property
    def should_stop(self) -> bool:
        """Whether programs should save their work and end."""
        return self._stop is not None or self.phase.is_final

    @property
    def is_changing(self) -> bool:
        """Whether programs will restart for another plan."""
        return self._change_since_s is not None and not self._is_in_place and self._applied is not None

    @property
    def has_callers(self) -> bool:
        """Whether programs use the services, and were heard lately."""
        return bool(self.account.heard_s.keys() - self.account.silent)

    def serves(self, node: str) -> bool:
        """Whether the programs of a node may get shards: it is there, and has not ended."""
        job_node = self._node_set.get(node)
        return job_node is not None and not job_node.is_finished

    def has_gone(self, node: str) -> bool:
        """Whether a node was one of the job, which goes on without it; False of one that is not known yet."""
        was_there = self._node_set.get(node) is not None or self._node_set.was_named(node)
        return was_there and not self.serves(node) and not self.phase.is_final

    def note_work(self, caller: Caller) -> None:
        """Note that a process trains rows: its node works, and since the last rendezvous if it began then."""
        if (node := self._node_set.get(caller.node)) is not None:
            node.has_worked = True
            if caller.owner not in self._callers_before and trains(caller.node):
                self._heard.add(caller.node)

    def keep(self, manifest: Manifest) -> None:
        """Order that a checkpoint is complete, whose parts a program wrote."""
        self._orders.append(WriteManifest(manifest))

    # derived values

    @property
    def _workers(self) -> tuple[str, ...]:
        """Live nodes that train together, the chief or the first worker first."""
        return tuple(name for name in self._members if trains(name) and self._node_set.get(name) is not None)

    @property
    def _all_heard(self) -> bool:
        workers = [name for name in self._workers if is_worker(name)]
        needed = self._workers[:1] if self._external.counting is Counting.JOB else workers
        return bool(workers) and all(name in self._heard for name in needed)

    @property
    def _has_succeeded(self) -> bool:
        workers = [self._node_set.get(name) for name in self._members if is_worker(name)]
        roles = [each for each in self._external.roles if each.is_awaited]
        awaited = [node for each in roles for node in self._node_set.of(each.role)]
        if len(awaited) < sum(each.count for each in roles) or not all(n.is_finished for n in awaited):
            return False
        if self._external.framework is Framework.DDP:
            living = [node for node in workers if node is not None]
            return self.is_over and all(node.is_finished for node in living)
        if any(each.role is CHIEF for each in roles):
            return True
        needed = workers[:1] if self._external.first_worker_leads else workers
        return bool(needed) and all(node is not None and node.is_finished for node in needed)

    def _revive(self, record: ExternalRecord, at_s: float) -> None:
        """Restore the state of an earlier master."""
        self.target, self._applied = record.target, record.applied
        self._change_since_s, self._is_fallback = record.change_since_s, record.is_fallback
        self._errors, self.replaced = record.errors, record.replaced
        self._pause_s, self._met_at_s = record.pause_s, record.met_at_s
        self._n_rendezvous, self._members = record.meeting, record.members
        self._heard = set(record.heard)
        self.phase, self.message, self.is_queued = record.phase, record.message, record.is_queued
        self._node_set.adopt(record.nodes, record.n_named, at_s)
        self._meter = StepRates(self._external, record.n_done, record.told)
        services = record.services
        self.batch_sizes, self._stop = services.batch_sizes, services.stop
        self.worlds = Worlds(services.world)
        self.evaluation, self.reported = services.evaluation, services.reported
        self.batch_times, self.quality = services.batch_times, services.quality
        self.parts = even(self._spec, services.world.members)
        self._left = list(services.left)
        self.account.revive(services.restored, services.processes, at_s)
        running = [node.id for node in record.nodes if not node.is_finished]
        self.account.release_unknown([*running, *(node for node, _ in self._left)])

    # plans and phases

    def _aim(self, target: ResourcePlan, at_s: float, *, is_fallback: bool = False) -> None:
        self.target, self._change_since_s, self._is_fallback = target, at_s, is_fallback
        self._pause_s, self._waits_since_s = 0.0, None
        for budget in self._restarts.values():
            budget.clear()

    def _give_up(self, why: str, at_s: float) -> None:
        """Emit that a pending plan will not run; nothing for a first plan or a fallback."""
        if self._change_since_s is not None and not self._is_fallback and self._applied is not None:
            self.emit(PlanFailed(at_s, self.target, why))

    @property
    def _has_way_back(self) -> bool:
        """Whether a change is under way from a plan that ran."""
        is_change = self._change_since_s is not None and not self._is_fallback
        return is_change and self._applied not in {None, self.target}

    def _fail_plan(self, why: str, at_s: float) -> None:
        """Roll back to the plan that ran before; without one, or when it fails too, the job fails."""
        if not self._has_way_back:
            self._end(JobPhase.FAILED, why, at_s)
            return
        assert self._applied is not None
        self.emit(PlanFailed(at_s, self.target, why))
        self._aim(self._applied, at_s, is_fallback=True)

    def _note_training(self, at_s: float) -> None:
        """Note that all nodes are in place: the job trains, or waits for a person's decision about rows."""
        blocked = why_waits(self.name, self.train_counts, self.quarantined)
        self._set_phase(JobPhase.BLOCKED if blocked else JobPhase.TRAINING, at_s, blocked)

    def _end(self, phase: JobPhase, message: str, at_s: float) -> None:
        if self.phase.is_final:
            return
        for node in self._node_set.nodes:
            self._stop_node(node)
        self._is_in_place = False
        self._set_phase(phase, at_s, message)

    def _stop_node(self, node: ExternalNode) -> None:
        self._orders.append(StopNode(node.id))
        self._release(node.id)
        self._node_set.remove(node.id)
        self._meter.forget(node.id)

    def _release(self, node: str, *, killed: bool = False) -> None:
        """Take back the shards of a node; of a member of a world when the next one is made."""
        if self._external.framework is not Framework.DDP or node not in self.worlds.now.members:
            self.account.release_node(node, killed=killed)
        elif node not in dict(self._left):
            self._left.append((node, killed))
        self.worlds.lose(node)

    def release_left(self) -> None:
        """Take back the shards of those who left the last world: what they trained is counted."""
        for node, killed in self._left:
            self.account.release_node(node, killed=killed)
        self._left.clear()

    def _forget_finished(self) -> None:
        for node in self._node_set.nodes:
            if node.is_finished and node.role in self._external.world:
                self._stop_node(node)

    def _measure_pause(self, from_s: float, until_s: float) -> None:
        """Add up, for the pending plan, how long no worker trained."""
        if self._change_since_s is not None:
            self._pause_s += max(0.0, from_s - max(self._trained_until_s, self._change_since_s))
        self._trained_until_s = until_s

    # losses

    def _set_phase(self, phase: JobPhase, at_s: float, message: str = "") -> None:
        if phase is not self.phase:
            self.phase = phase
            self._note(message, at_s)

    def tell(self, text: str, at_s: float) -> None:
        """Tell users what happens."""
        self._note(text, at_s)

    def _note(self, text: str, at_s: float) -> None:
        self.message = text
        self.emit(PhaseChanged(at_s, self.phase, text))

    def emit(
        self,
        event: BatchSizesSet
        | MitigationEnded
        | NodeLeft
        | NodeOutOfMemory
        | NodeReported
        | PhaseChanged
        | PlanApplied
        | PlanFailed
        | ProgressMade
        | QualityMeasured,
    ) -> None:
        """Tell the controller a fact."""
        self._orders.append(Emit(event))

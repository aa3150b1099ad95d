"""The job master: events in, orders out. It owns the data queue, the nodes and the changes of plan.

Sans-IO: time is an argument, messages arrive decoded, and all effects are returned as a tuple of `orders`. So
a test can play every interleaving of deaths, late messages and new decisions, and a real job differs from the
test by its driver only.

Messages of nodes are handled in `node_messages`, actions against stragglers in `mitigations`. After each
event the state is reconciled (`_settle`): parameter servers in `ps_group`, workers in `worker_set`. No step
waits for particular messages in a particular order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.master.own.checkpoints import checkpoint_coordinator, copy_coordinator
from dlrover_nb.core.master.own.nodes import (
    fencing,
    liveness,
    mitigations,
    node_messages,
    oom_recovery,
    shard_requests,
)
from dlrover_nb.core.master.own.nodes.worker_set import reconcile_workers
from dlrover_nb.core.master.own.recovery_record import StateRecord, record_of, revive
from dlrover_nb.core.master.own.rows import evaluation, quarantine
from dlrover_nb.core.master.own.servers import ps_group, rebalancing
from dlrover_nb.core.master.own.state import batch_sizes, learning_rate, node_sizes, resizing, target_plan
from dlrover_nb.core.master.own.state.batch_sizes import set_sizes
from dlrover_nb.core.master.own.state.state import JobState, Stage, evaluation_split, train_split
from dlrover_nb.core.master.shared.orders import Emit, Order, Send
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Admission
from dlrover_nb.core.structs.plan.queued_jobs import HELD
from dlrover_nb.core.structs.training.shards import BatchChoice, FinishChoice, ShardChoice
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.wire.messages import Alive, Left, Report, ShardAsked, ShardFinished, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from dlrover_nb.core.master.own.nodes.liveness import SilentNode
    from dlrover_nb.core.master.own.state.state import RestorableCheckpoint
    from dlrover_nb.core.models.score_sums import ScoreSums
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.decisions.actions import MitigationChoice
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity, NodeLimits
    from dlrover_nb.core.structs.plan.resources import ResourcePlan, Size
    from dlrover_nb.core.structs.training.failures import ProgramError
    from dlrover_nb.core.structs.training.shards import (
        QuarantinedShard,
        ShardCounts,
        SkippedBatch,
        UserChoice,
    )
    from dlrover_nb.core.structs.views.snapshot import Evaluation, EvaluationRound, NodeView
    from dlrover_nb.core.structs.wire.messages import FromNode


def apply_choice(state: JobState, choice: UserChoice, at_s: float) -> None:
    """Apply a decision of the user.

    Raises
    ------
    InvalidValueError
        When there is no such shard in quarantine, no such worker, or a batch size is below 1.
    StaleDecisionError
        When the job is ending already.
    """
    match choice:
        case ShardChoice():
            quarantine.resolve(state, choice, at_s)
        case BatchChoice():
            _adjust(state, choice, at_s)
        case FinishChoice():
            _finish(state, choice, at_s)
        case _ as never:
            assert_never(never)


def _adjust(state: JobState, choice: BatchChoice, at_s: float) -> None:
    sizes = dict(choice.sizes)
    batch_sizes.check_may_differ(state)
    _check(state, sizes)
    text = and_list(f"{worker} {size}" for worker, size in sorted(sizes.items()))
    state.note(f"{choice.by} sets batch sizes: {text}" + (f": {choice.why}" if choice.why else ""), at_s)
    set_sizes(state, sizes)


def _finish(state: JobState, choice: FinishChoice, at_s: float) -> None:
    """Grant no more rows, as early stopping does; shards at hand are completed."""
    if state.is_ended or state.is_evaluating or state.stop_reason:
        raise StaleDecisionError(f"job {state.spec.name} is already ending, so it cannot be finished early")
    state.stopped_early = str(choice)
    state.train.close()
    state.note(f"{choice}; the current shards are trained, then the model is evaluated", at_s)


def _check(state: JobState, sizes: Mapping[str, int]) -> None:
    workers = [worker.id for worker in state.roster.workers]
    if not sizes or not set(sizes) <= set(workers):
        raise InvalidValueError(
            f"expected batch sizes of {', '.join(workers) or 'no workers'}, got {dict(sizes)}"
        )
    if min(sizes.values()) < 1:
        raise InvalidValueError(f"batch sizes must be >= 1, got {dict(sizes)}")


class JobMaster:
    """The master of one job.

    Parameters
    ----------
    spec, features, capacity
        The job, its data, and the capacity that it may use.
    folder
        The job's run folder as a path on the nodes; it is not accessed here.
    evaluate
        Quality of the scores of the held-out rows.
    origin
        The checkpoint `ORIGIN` to begin from, with this job's account of rows; None: untrained parameters.
    resizes_in_place
        Whether the backend can resize nodes in place; None: `set_resizes_in_place` tells later.
    """

    def __init__(  # noqa: PLR0913 - parts of a job, all but three by keyword
        self,
        spec: JobSpec,
        features: FeatureSpec,
        capacity: Capacity,
        *,
        folder: str,
        evaluate: Callable[[ScoreSums], Evaluation],
        origin: RestorableCheckpoint | None = None,
        resizes_in_place: bool | None = False,
    ) -> None:
        self._state = JobState(
            spec,
            features,
            capacity,
            folder,
            target=spec.plan,
            train=ShardLedger(train_split(spec, features)),
            evaluate=ShardLedger(evaluation_split(spec, features)),
            resizes_in_place=resizes_in_place,
        )
        if origin is not None:
            self._state.source, self._state.checkpoints = origin, [origin]
            self._state.train.restore(origin.manifest.ledger)
        self._evaluate = evaluate

    # read access

    @property
    def phase(self) -> JobPhase:
        """Phase of the job."""
        return self._state.phase

    @property
    def message(self) -> str:
        """The last message."""
        return self._state.message

    @property
    def target(self) -> ResourcePlan:
        """The target plan."""
        return self._state.target

    @property
    def running(self) -> ResourcePlan | None:
        """The plan that runs; None while nodes are missing, migrating or paused."""
        return None if self._state.steady_since_s is None else self._state.target

    @property
    def stage(self) -> Stage:
        """Stage of the PS group."""
        return self._state.stage

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """All living nodes, oldest first."""
        return tuple(node.view for node in self._state.roster.nodes)

    @property
    def train_counts(self) -> ShardCounts:
        """Exact accounting of the training shards."""
        return self._state.train.counts()

    @property
    def rounds(self) -> tuple[EvaluationRound, ...]:
        """Evaluations between passes, oldest first."""
        return self._state.rounds

    @property
    def evaluation_counts(self) -> ShardCounts:
        """Exact accounting of the evaluation shards."""
        return self._state.evaluate.counts()

    @property
    def evaluation(self) -> Evaluation | None:
        """Quality on the held-out rows, once the job has succeeded."""
        return self._state.evaluation

    @property
    def reported(self) -> None:
        """Nothing: our own workers tell their steps."""
        return

    @property
    def resizes_in_place(self) -> bool | None:
        """Whether the cluster resizes nodes in place; None: it is not known yet."""
        return self._state.resizes_in_place

    @property
    def n_dropped(self) -> int:
        """Messages that nodes could not decode."""
        return self._state.n_dropped

    @property
    def quarantined(self) -> tuple[QuarantinedShard, ...]:
        """Shards that killed their workers and wait for a decision."""
        return quarantine.isolated(self._state)

    @property
    def skipped_batches(self) -> tuple[SkippedBatch, ...]:
        """The last batches that could not be trained."""
        return self._state.skipped

    @property
    def balanced_owner(self) -> tuple[int, ...] | None:
        """Owners of buckets for `rebalance`, by measured load; None: not known, or too little to gain."""
        return rebalancing.balanced_owner(self._state)

    # recovery

    @property
    def record(self) -> StateRecord:
        """The persistent state without ledgers and checkpoints."""
        return record_of(self._state)

    @property
    def checkpoints(self) -> tuple[RestorableCheckpoint, ...]:
        """All restorable checkpoints, with the one that the next group loads."""
        source = self._state.source
        return (*([source] if source else []), *self._state.checkpoints)

    @property
    def ledgers(self) -> tuple[ShardLedger, ShardLedger]:
        """Ledgers of training and evaluation."""
        return self._state.train, self._state.evaluate

    @ledgers.setter
    def ledgers(self, ledgers: tuple[ShardLedger, ShardLedger]) -> None:
        self._state.train, self._state.evaluate = ledgers

    # events

    def start(self, at_s: float) -> tuple[Order, ...]:
        """Order the nodes of the first plan, unless the job waits to be admitted."""
        state = self._state
        state.set_target(state.spec.plan, at_s)
        state.is_held = state.spec.admission is Admission.QUEUE
        state.message = HELD if state.is_held else ""
        state.orders.append(Emit(PhaseChanged(at_s, JobPhase.STARTING, state.message)))
        return self._settle(at_s)

    def resume(
        self, record: StateRecord, checkpoints: Iterable[RestorableCheckpoint], at_s: float
    ) -> tuple[Order, ...]:
        """Continue a job of an earlier master, instead of `start`; its ledgers are set already."""
        revive(self._state, record, checkpoints, at_s)
        return self._settle(at_s)

    def set_target(self, plan: ResourcePlan, at_s: float) -> tuple[Order, ...]:
        """Set the target plan; a change of plan in progress is given up."""
        target_plan.order_plan(self._state, plan, at_s)
        return self._settle(at_s)

    def stop(self, by: str, why: str, at_s: float) -> tuple[Order, ...]:
        """Save a checkpoint, then end the job."""
        state = self._state
        if not state.stop_reason and not state.is_ended:
            state.stop_reason, state.last_step_s = f"stopped by {by}" + (f": {why}" if why else ""), at_s
        return self._settle(at_s)

    def choose(self, choice: UserChoice, at_s: float) -> tuple[Order, ...]:
        """Apply a decision of the user about a shard in quarantine or batch sizes.

        Raises
        ------
        InvalidValueError
            When there is no such shard in quarantine, no such worker, or a batch size is below 1.
        """
        apply_choice(self._state, choice, at_s)
        return self._settle(at_s)

    def rebalance(self, owner: Sequence[int], at_s: float) -> tuple[Order, ...]:
        """Move buckets to these owners within the present PS group; raises as `rebalancing.rebalance`."""
        rebalancing.rebalance(self._state, owner, at_s)
        return self._settle(at_s)

    def mitigate(self, choice: MitigationChoice, at_s: float) -> tuple[Order, ...]:
        """Begin an action against a straggler; raises as `mitigations.begin`, then nothing has changed."""
        mitigations.begin(self._state, choice, at_s)
        return self._settle(at_s)

    def fail(self, why: str, at_s: float) -> tuple[Order, ...]:
        """End the job at once after a failure of its driver or backend."""
        if not self._state.is_ended:
            self._state.end(JobPhase.FAILED, why, at_s)
        return self._settle(at_s)

    def on_exit(  # noqa: PLR0913 - what is known of it, by keyword
        self,
        node: str,
        why: str,
        at_s: float,
        *,
        retryable: bool = True,
        refused: NodeLimits | None = None,
        was_killed: bool = False,
        out_of_memory: bool = False,
        by_its_work: bool = False,
        error: ProgramError | None = None,
    ) -> tuple[Order, ...]:
        """Handle the exit of a node; of one that was given up, only a crash and a lack of memory count.

        It was killed by this master then, which says nothing of its work.
        """
        fencing.on_gone(self._state, node, at_s, crashed=by_its_work and not (was_killed or out_of_memory))
        member, silent = self._state.roster.get(node), self._state.silent.pop(node, None)
        if member is None and silent is not None and out_of_memory:
            oom_recovery.raise_memory(self._state, silent, at_s)
        if member is not None:
            liveness.node_lost(
                self._state,
                member,
                why,
                at_s,
                retryable=retryable,
                refused=refused,
                by_its_work=by_its_work,
                error=error,
            )
            if out_of_memory or (was_killed and oom_recovery.is_suspect(member)):
                oom_recovery.raise_memory(self._state, member, at_s)
        return self._settle(at_s)

    def knows(self, node: str) -> bool:
        """Whether a node of this name belongs to the job and has not exited."""
        return self._state.roster.get(node) is not None

    def on_message(
        self, sender: str, message: FromNode, at_s: float, arrays: Sequence[NDArray[np.generic]] = ()
    ) -> tuple[Order, ...]:
        """Handle a message of a node; an unknown node is ordered to stop."""
        node = self._state.roster.get(sender)
        if node is None:
            return (Send(sender, Stop()),) if not isinstance(message, Left) else ()
        liveness.record_message(self._state, node, message, at_s)
        node_messages.handle_message(self._state, node, message, at_s, arrays)
        if isinstance(message, Report | Alive | ShardAsked | ShardFinished) and shard_requests.is_calm(
            self._state, node
        ):
            return self._take_orders()
        return self._settle(at_s)

    def set_capacity(self, capacity: Capacity, at_s: float) -> tuple[Order, ...]:
        """Set the capacity that the job may use."""
        self._state.capacity = capacity
        return self._settle(at_s)

    def set_waiting(self, reasons: Mapping[str, str], at_s: float) -> tuple[Order, ...]:
        """Set which nodes cannot start yet, and why; an empty reason means no free capacity."""
        liveness.set_waiting(self._state, reasons, at_s)
        return self._settle(at_s)

    def set_resizes_in_place(self, at_s: float, *, resizes: bool) -> tuple[Order, ...]:
        """Set whether the backend can resize nodes in place."""
        self._state.resizes_in_place = resizes
        return self._settle(at_s)

    def on_allotted(self, node: str, need: Size, at_s: float, why: str = "") -> tuple[Order, ...]:
        """Record that the backend lets a node use other cores and memory, or why it does not."""
        resizing.on_allotted(self._state, node, need, why, at_s)
        return self._settle(at_s)

    def checkpoint_prepared(self, number: int, at_s: float, dropped: Sequence[int] = ()) -> tuple[Order, ...]:
        """Record that there is a folder for a checkpoint, for which those of `dropped` made room."""
        checkpoint_coordinator.on_prepared(self._state, number, dropped)
        return self._settle(at_s)

    def manifest_written(self, number: int, at_s: float) -> tuple[Order, ...]:
        """Record that a checkpoint is complete on disk."""
        checkpoint_coordinator.on_written(self._state, number, at_s)
        return self._settle(at_s)

    def checkpoint_failed(self, number: int, why: str, at_s: float) -> tuple[Order, ...]:
        """Record that a checkpoint could not be written."""
        checkpoint_coordinator.on_failed(self._state, number, why, at_s)
        return self._settle(at_s)

    def silent_nodes(self, at_s: float) -> tuple[SilentNode, ...]:
        """Return the nodes that have missed some heartbeats."""
        return liveness.silent_nodes(self._state, at_s)

    def on_waits(self, waits: Mapping[str, float], pressure: float | None, at_s: float) -> tuple[Order, ...]:
        """Take for how long silent nodes of one host got no processor; see `liveness.record_waits`."""
        liveness.record_waits(self._state, waits, pressure, at_s)
        return self._settle(at_s)

    def tick(self, at_s: float) -> tuple[Order, ...]:
        """Check limits of time: silent nodes, plans and stages without progress."""
        liveness.check_time(self._state, at_s)
        shard_requests.update_speeds(self._state)
        fencing.repeat(self._state)
        shard_requests.emit_progress(self._state, at_s)
        return self._settle(at_s)

    # reconcile

    def _take_orders(self) -> tuple[Order, ...]:
        shard_requests.open_step(self._state)
        orders, self._state.orders = tuple(self._state.orders), []
        return orders

    def _settle(self, at_s: float) -> tuple[Order, ...]:
        state = self._state
        fencing.advance(state, at_s)
        evaluation.advance(state, self._evaluate, at_s)
        resizing.advance(state, at_s)
        mitigations.give_up_hopeless(state, at_s)
        copy_coordinator.advance(state, at_s)
        ps_group.advance(state, at_s)
        reconcile_workers(state, at_s)
        is_over = state.is_evaluating and state.evaluate.finished and state.is_settled
        if is_over and state.stage is Stage.SERVING:
            evaluation.end_job(state, self._evaluate, at_s)
        target_plan.measure_pause(state, at_s)
        target_plan.update_running(state, at_s)
        node_sizes.emit(state, at_s)
        mitigations.end_done(state, at_s)
        batch_sizes.emit(state, at_s)
        learning_rate.advance(state, at_s)
        liveness.update_phase(state, at_s)
        return self._take_orders()

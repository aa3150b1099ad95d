"""The job master: facts in, orders out; it owns the data queue, the nodes and the way to the next plan.

Sans-IO: time is an argument, messages come decoded, and whatever must happen is returned as a tuple of
`orders`. So every interleaving of deaths, late words and changes of mind can be played through in a test,
and a real job differs from it by its driver alone.

After each fact everything is reconciled anew (`_settle`): parameter servers in `rollout`, workers by
`crew`. Nothing waits for a particular message in a particular order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import numpy as np

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.runtime import rollout, watch
from dlrover_nb.core.runtime.crew import reconcile_crew
from dlrover_nb.core.runtime.orders import Order, Send, Tell
from dlrover_nb.core.runtime.state import JobState, Stage, evaluation_split, train_split
from dlrover_nb.core.sharding.ledger import ShardLedger
from dlrover_nb.core.structs.events import NodeReported, PhaseChanged, PlanApplied, PlanFailed, ProgressMade
from dlrover_nb.core.structs.job import JobPhase
from dlrover_nb.core.structs.messages import (
    Granted,
    Hello,
    Left,
    Loaded,
    NodeFailed,
    NoShard,
    Paused,
    Report,
    Saved,
    ShardAsked,
    ShardFinished,
    Stop,
)
from dlrover_nb.core.structs.shards import Purpose

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.roster import Node
    from dlrover_nb.core.structs.job import FeatureSpec, JobSpec
    from dlrover_nb.core.structs.messages import FromNode
    from dlrover_nb.core.structs.resources import Capacity, ResourcePlan
    from dlrover_nb.core.structs.shards import Lease, ShardCounts
    from dlrover_nb.core.structs.snapshot import Evaluation, NodeView

    Floats = NDArray[np.float32]

WAIT_S = 0.3  # a worker without a shard asks again after this long
IN_FLIGHT_S = 5.0  # a grant may be on its way for this long
PROGRESS_EVERY_S = 1.0


class JobMaster:
    """Runs one job from its first node to its end.

    Parameters
    ----------
    spec, features, capacity
        What to run, on which rows, within what.
    folder
        The job's run folder, as the nodes see it; only names are made of it here.
    evaluate
        Quality from scores and labels of the held-out rows.
    """

    def __init__(
        self,
        spec: JobSpec,
        features: FeatureSpec,
        capacity: Capacity,
        *,
        folder: str,
        evaluate: Callable[[Floats, Floats], Evaluation],
    ) -> None:
        self._state = JobState(
            spec,
            features,
            capacity,
            folder,
            target=spec.plan,
            train=ShardLedger(train_split(spec, features)),
            evaluate=ShardLedger(evaluation_split(spec, features)),
        )
        self._evaluate = evaluate
        self._scored: dict[int, tuple[Floats, Floats]] = {}
        self._still_since_s: float | None = None
        self._steady_since_s: float | None = None
        self._progress_told = (float("-inf"), 0)
        self.evaluation: Evaluation | None = None

    # what others see

    @property
    def phase(self) -> JobPhase:
        """Where the job is in its life."""
        return self._state.phase

    @property
    def message(self) -> str:
        """What happened last, in words."""
        return self._state.message

    @property
    def target(self) -> ResourcePlan:
        """What should run."""
        return self._state.target

    @property
    def running(self) -> ResourcePlan | None:
        """What runs, once everything is in place; None while nodes are missing, moving or standing still."""
        return None if self._steady_since_s is None else self._state.target

    @property
    def stage(self) -> Stage:
        """Where the PS group is."""
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
    def evaluation_counts(self) -> ShardCounts:
        """Exact accounting of the evaluation shards."""
        return self._state.evaluate.counts()

    # facts

    def start(self, at_s: float) -> tuple[Order, ...]:
        """Begin: order the nodes of the first plan."""
        self._state.aim(self._state.spec.plan, at_s)
        self._state.orders.append(Tell(PhaseChanged(at_s, JobPhase.STARTING)))
        return self._settle(at_s)

    def set_target(self, plan: ResourcePlan, at_s: float) -> tuple[Order, ...]:
        """Work towards `plan` from now on; a plan that was on its way is given up for it."""
        state = self._state
        if state.is_ended or state.is_evaluating or state.is_stopping:
            why = "the job is about to end" if not state.is_evaluating else "all rows are trained already"
            state.orders.append(Tell(PlanFailed(at_s, plan, why)))
        elif state.change is None or state.target != plan or state.change.is_fallback:
            if state.change is not None and not state.change.is_fallback and state.applied is not None:
                state.orders.append(Tell(PlanFailed(at_s, state.target, "a newer decision replaced it")))
            state.aim(plan, at_s)
        return self._settle(at_s)

    def stop(self, by: str, why: str, at_s: float) -> tuple[Order, ...]:
        """Save what was learnt, then end the job."""
        state = self._state
        if not state.is_stopping and not state.is_ended:
            state.is_stopping, state.last_step_s = f"stopped by {by}" + (f": {why}" if why else ""), at_s
        return self._settle(at_s)

    def fail(self, why: str, at_s: float) -> tuple[Order, ...]:
        """End the job at once, because its surroundings failed."""
        if not self._state.is_ended:
            self._state.end(JobPhase.FAILED, why, at_s)
        return self._settle(at_s)

    def on_exit(self, node: str, why: str, at_s: float, *, retryable: bool = True) -> tuple[Order, ...]:
        """Hear from the backend that a node is gone."""
        known = self._state.roster.get(node)
        if known is not None:
            watch.node_lost(self._state, known, why, at_s, retryable=retryable)
        return self._settle(at_s)

    def on_message(
        self, sender: str, message: FromNode, at_s: float, arrays: Sequence[NDArray[np.generic]] = ()
    ) -> tuple[Order, ...]:
        """Hear from a node; one that is not, or no longer, known is told to stop."""
        node = self._state.roster.get(sender)
        if node is None:
            return (Send(sender, Stop()),) if not isinstance(message, Left) else ()
        node.heard_s = at_s
        self._hear(node, message, at_s, arrays)
        return self._settle(at_s)

    def see_waiting(self, nodes: Collection[str], at_s: float) -> tuple[Order, ...]:
        """Hear from the backend which nodes it has no room for yet."""
        watch.see_waiting(self._state, nodes, at_s)
        return self._settle(at_s)

    def manifest_written(self, number: int, at_s: float) -> tuple[Order, ...]:
        """Hear that a checkpoint is complete on disk."""
        rollout.manifest_written(self._state, number, at_s)
        return self._settle(at_s)

    def checkpoint_failed(self, number: int, why: str, at_s: float) -> tuple[Order, ...]:
        """Hear that a checkpoint could not be written."""
        rollout.checkpoint_failed(self._state, number, why, at_s)
        return self._settle(at_s)

    def tick(self, at_s: float) -> tuple[Order, ...]:
        """Time passed: look for the silent and the stuck."""
        watch.check_time(self._state, at_s)
        self._tell_progress(at_s)
        return self._settle(at_s)

    # messages

    def _hear(
        self, node: Node, message: FromNode, at_s: float, arrays: Sequence[NDArray[np.generic]]
    ) -> None:
        match message:
            case Hello():
                self._on_hello(node, message, at_s)
            case Report():
                self._on_report(node, message, at_s)
            case ShardAsked():
                self._on_asked(node, at_s)
            case ShardFinished():
                self._on_finished(node, message.lease, at_s, arrays)
            case Paused():
                self._on_paused(node, message, at_s)
            case Saved():
                self._on_saved(node, message, at_s)
            case Loaded():
                self._on_loaded(node, message, at_s)
            case Left():
                self._state.stop_node(node)
                self._state.last_step_s = at_s
            case NodeFailed():
                watch.node_lost(self._state, node, message.why, at_s, retryable=message.retryable)
            case _ as never:
                assert_never(never)

    def _on_hello(self, node: Node, hello: Hello, at_s: float) -> None:
        if not node.is_up:  # a second Hello of one node says nothing new
            self._state.roster.greet(node, hello, at_s)
            self._state.last_step_s = at_s

    def _on_report(self, node: Node, report: Report, at_s: float) -> None:
        node.last = report.sample
        if report.lease is not None and report.n_row_done:
            ledger = self._ledger(report.lease)
            node.has_worked |= ledger.progress(node.id, report.lease, report.n_row_done)
        since_s = self._steady_since_s
        is_steady = since_s is not None and at_s - report.sample.window_s >= since_s
        plan = self._state.target if is_steady else None
        self._state.orders.append(Tell(NodeReported(at_s, report.sample, plan)))

    def _on_asked(self, node: Node, at_s: float) -> None:
        """Answer a worker that has no shard.

        When one was granted a moment ago, question and grant crossed on the way, and a second grant would
        only make one of them stale. A grant that is older was lost: that shard goes back first.
        """
        state = self._state
        if state.roster.get(node.id) is None:
            return
        if state.train.is_holder(node.id) or state.evaluate.is_holder(node.id):
            if at_s < node.granted_at_s + IN_FLIGHT_S:
                return
            state.take_back(node)
        self._grant(node, at_s)

    def _grant(self, node: Node, at_s: float) -> None:
        state = self._state
        ledger = state.evaluate if state.is_evaluating else state.train
        may_work = state.stage is Stage.SERVING and node.is_training and not node.is_draining
        shard = ledger.grant(node.id) if may_work else None
        node.granted_at_s = at_s
        state.send(node, NoShard(WAIT_S) if shard is None else Granted(shard))

    def _on_finished(
        self, node: Node, lease: Lease, at_s: float, arrays: Sequence[NDArray[np.generic]]
    ) -> None:
        """Count a shard, and grant the next; who finished a stale one may have a grant on its way already."""
        if lease.purpose is Purpose.EVALUATE:
            self._keep_scores(node, lease, at_s, arrays)
        else:
            node.has_worked |= self._state.train.complete(node.id, lease)
        self._on_asked(node, at_s)

    def _keep_scores(
        self, node: Node, lease: Lease, at_s: float, arrays: Sequence[NDArray[np.generic]]
    ) -> None:
        """Take the scores of a shard, whole; a worker that scored anything else cannot be trusted."""
        ledger = self._state.evaluate
        if not ledger.holds(node.id, lease):
            ledger.complete(node.id, lease)  # refused, and counted as such
            return
        n_row, shapes = ledger.split.n_row(lease.shard), [array.shape for array in arrays]
        if shapes != [(n_row,)] * 2:
            why = f"it scored {shapes} rows in shard {lease.shard}, expected {n_row}"
            watch.node_lost(self._state, node, why, at_s)
            return
        scores, labels = (np.array(array, np.float32) for array in arrays)
        self._scored[lease.shard] = scores, labels
        node.has_worked |= ledger.complete(node.id, lease)

    def _on_paused(self, node: Node, paused: Paused, at_s: float) -> None:
        if paused.lease is not None:
            is_held = self._ledger(paused.lease).progress(node.id, paused.lease, paused.n_row_done)
            node.must_drop = node.must_drop or not is_held
        if self._state.stage is Stage.PAUSING and paused.ps_epoch == self._state.n_group:
            node.is_training, self._state.last_step_s = False, at_s

    def _on_saved(self, node: Node, saved: Saved, at_s: float) -> None:
        if saved.error:
            rollout.checkpoint_failed(self._state, saved.checkpoint, f"{node.id}: {saved.error}", at_s)
        elif saved.checkpoint == self._state.n_checkpoint:
            self._state.saved[node.id] = saved

    def _on_loaded(self, node: Node, loaded: Loaded, at_s: float) -> None:
        if loaded.error:
            rollout.load_failed(self._state, loaded.ps_epoch, f"{node.id}: {loaded.error}", at_s)
        else:
            node.loaded_epoch, self._state.last_step_s = loaded.ps_epoch, at_s

    def _ledger(self, lease: Lease) -> ShardLedger:
        return self._state.evaluate if lease.purpose is Purpose.EVALUATE else self._state.train

    # reconcile

    def _settle(self, at_s: float) -> tuple[Order, ...]:
        state = self._state
        rollout.advance(state, at_s)
        reconcile_crew(state, at_s)
        if state.is_evaluating and state.evaluate.finished and state.stage is Stage.SERVING:
            self._succeed(at_s)
        self._measure_pause(at_s)
        self._see_plan(at_s)
        watch.see_phase(state, at_s)
        orders, state.orders = tuple(state.orders), []
        return orders

    def _succeed(self, at_s: float) -> None:
        text = "trained; no rows were held out to evaluate on"
        if self._scored:
            pairs = [self._scored[shard] for shard in sorted(self._scored)]
            scores, labels = (np.concatenate(column) for column in zip(*pairs, strict=True))
            text = self._score(scores, labels)
        self._state.end(JobPhase.SUCCEEDED, text, at_s)

    def _score(self, scores: Floats, labels: Floats) -> str:
        try:
            self.evaluation = self._evaluate(scores, labels)
        except InvalidValueError as error:  # the rows are of one class: trained all the same
            return f"trained; no quality: {error}"
        return f"trained; {self.evaluation}"

    def _measure_pause(self, at_s: float) -> None:
        """Add up, for the plan on its way, how long nobody trained."""
        trains = self._state.stage is Stage.SERVING and any(w.is_training for w in self._state.roster.workers)
        if self._still_since_s is not None and self._state.change is not None:
            since_s = max(self._still_since_s, self._state.change.since_s)
            self._state.change.pause_s += at_s - since_s
        self._still_since_s = None if trains else at_s

    def _see_plan(self, at_s: float) -> None:
        """Note whether the target runs, and tell it once."""
        state = self._state
        if not watch.is_in_place(state):
            self._steady_since_s = None
            return
        if self._steady_since_s is None:
            self._steady_since_s = at_s
        if state.change is None:
            return
        if not state.change.is_fallback:
            is_first = state.applied is None  # a first start interrupts nothing
            pause_s = 0.0 if is_first else state.change.pause_s
            state.orders.append(Tell(PlanApplied(at_s, state.target, pause_s)))
            self._steady_since_s = at_s
        state.applied, state.change = state.target, None

    def _tell_progress(self, at_s: float) -> None:
        told_at_s, told = self._progress_told
        n_done = self._state.train.counts().n_sample_done
        if n_done != told and at_s >= told_at_s + PROGRESS_EVERY_S:
            self._progress_told = at_s, n_done
            self._state.orders.append(Tell(ProgressMade(at_s, n_done)))

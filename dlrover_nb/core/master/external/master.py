"""The master of an external job: facts in, orders out; it runs as many programs as the plan has.

The programs are not ours: they keep their own state, and get their peers from variables that are set before
they begin. So membership changes in one way alone, a *rendezvous*: once all nodes of the plan have an
address, each of them gets its variables, and its program restarts where these changed, which follows from the
framework (`restarts`; it reads its own checkpoint). A
lost node is replaced, followed by a new rendezvous; a plan with other replicas is a rendezvous of other
nodes. Without changes no orders are sent, so a restarted master does not disturb training.

Torch programs that lost a member cannot continue and are ended at once; those of TensorFlow train on with
their parameter servers until the rendezvous.

The job has succeeded when its chief, if there is one, or else all of its workers have ended well, and so have
the programs of all other roles that it waits for.
After each fact all state is reconciled (`_settle`); nothing waits for a particular message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.master.external.changes import (
    early_stop,
    other_roles,
    service_calls,
    shapes,
    user_choices,
)
from dlrover_nb.core.master.external.changes.losses import LossState
from dlrover_nb.core.master.external.job.external_record import Replaced, StopRecord
from dlrover_nb.core.master.external.job.node_set import trains
from dlrover_nb.core.master.shared.orders import StartNode
from dlrover_nb.core.master.shared.takeover import takeover_words
from dlrover_nb.core.structs.decisions.actions import AdjustBatches, KillRestart
from dlrover_nb.core.structs.job.external import Framework
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Admission
from dlrover_nb.core.structs.plan.queued_jobs import HELD
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import in_quarantine
from dlrover_nb.core.structs.views.events import (
    BatchSizesSet,
    MitigationEnded,
    NodeLeft,
    NodeReported,
    PhaseChanged,
    PlanApplied,
    PlanFailed,
    ProgressMade,
)
from dlrover_nb.core.structs.wire.services import WorldLater

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.master.external.job.external_record import ExternalRecord
    from dlrover_nb.core.master.external.job.node_set import ExternalNode
    from dlrover_nb.core.master.external.orders import ExternalOrder
    from dlrover_nb.core.structs.decisions.actions import MitigationChoice
    from dlrover_nb.core.structs.job.external import StepsDone
    from dlrover_nb.core.structs.plan.capacity import Capacity, NodeLimits
    from dlrover_nb.core.structs.plan.resources import ResourcePlan, Size
    from dlrover_nb.core.structs.training.failures import ProgramError
    from dlrover_nb.core.structs.training.shards import UserChoice
    from dlrover_nb.core.structs.wire.services import ServiceAnswer, ServiceCall

START_LIMIT_S = 900.0  # until a pod runs: users' images are large, and pulled over slow lines
ROOM_LIMIT_S = 120.0  # that a change of plan waits for room before it is given up
QUIET_S = 120.0  # after a rendezvous: programs without reports count as training
PROGRESS_EVERY_S = 1.0
STOP_LIMIT_S = 60.0  # for programs that are told to stop, until their nodes are ended


class ExternalMaster(LossState):
    """Runs one job from its first node to its end.

    Parameters
    ----------
    spec
        What to run.
    capacity
        Upper bound: no node gets more memory than a machine has.
    """

    # facts

    def start(self, at_s: float) -> tuple[ExternalOrder, ...]:
        """Begin: order the nodes of the first plan, unless the job waits to be admitted."""
        self._aim(self._spec.plan, at_s)
        self.is_queued = self._spec.admission is Admission.QUEUE
        self.message = HELD if self.is_queued else ""
        self.emit(PhaseChanged(at_s, JobPhase.STARTING, self.message))
        return self._settle(at_s)

    def resume(self, record: ExternalRecord, at_s: float) -> tuple[ExternalOrder, ...]:
        """Continue where an earlier master stopped, instead of `start`."""
        self._revive(record, at_s)
        if not self.phase.is_final:
            self._send_environments()  # the orders of the last rendezvous may not have been carried out
            self._orders += other_roles.tell_again(self)
            n_running = sum(bool(node.address) for node in record.nodes)
            has_begun = record.applied is not None or any(n for _, n in record.n_named)
            n_waiting = len(record.nodes) - n_running
            words = takeover_words(n_running, n_waiting, has_begun=has_begun)
            self._note(f"the master restarted; the job {HELD}" if self.is_queued else words, at_s)
        return self._settle(at_s)

    def set_target(self, plan: ResourcePlan, at_s: float) -> tuple[ExternalOrder, ...]:
        """Work towards `plan` from now on; a pending plan is given up for it. A job in the queue starts."""
        if self.should_stop:
            self.emit(PlanFailed(at_s, plan, "the job is about to end"))
        elif self.is_queued or self._change_since_s is None or self.target != plan or self._is_fallback:
            if self.is_queued:
                self.is_queued = False  # who orders a plan admits the job
                self._note(f"admitted with {plan.short}", at_s)
            self._give_up("a newer decision replaced it", at_s)
            self._aim(plan, at_s)
        return self._settle(at_s)

    def stop(self, by: str, why: str, at_s: float) -> tuple[ExternalOrder, ...]:
        """End the job; state that its programs did not save is lost.

        Programs that use the services are told first, and have `STOP_LIMIT_S` to save it and to end.
        """
        message = f"stopped by {by}" + (f": {why}" if why else "")
        if self._stop is None and self.has_callers and not self.phase.is_final:
            self._stop = StopRecord(at_s, message)
            self._note(f"{message}; its programs have {STOP_LIMIT_S:g} s to save their work", at_s)
        elif self._stop is None:
            self._end(JobPhase.STOPPED, message, at_s)
        return self._settle(at_s)

    def fail(self, why: str, at_s: float) -> tuple[ExternalOrder, ...]:
        """End the job at once, because its surroundings failed."""
        self._end(JobPhase.FAILED, why, at_s)
        return self._settle(at_s)

    def choose(self, choice: UserChoice, at_s: float) -> tuple[ExternalOrder, ...]:
        """Apply a user's choice about shards or batch sizes, where programs get them from here.

        Raises
        ------
        InvalidValueError
            When they do not, or there is no such shard or worker.
        """
        before = self.batch_sizes
        self._note(user_choices.apply_choice(self, choice), at_s)
        if self.batch_sizes != before:
            self.emit(BatchSizesSet(at_s, self.batch_sizes, self._accumulated()))
        return self._settle(at_s)

    def mitigate(self, choice: MitigationChoice, at_s: float) -> tuple[ExternalOrder, ...]:
        """Give workers other batch sizes, if their programs ask, or let another node take a slow one's place.

        Raises
        ------
        InvalidValueError, StaleDecisionError
            As `user_choices.adjust_batches` and `check_replaceable`; for any other action.
        """
        match choice.action.action:
            case AdjustBatches() as action:
                self._note(user_choices.adjust_batches(self, action, choice), at_s)
                self.emit(BatchSizesSet(at_s, self.batch_sizes, self._accumulated()))
                self.emit(MitigationEnded(at_s, choice.decision))
            case KillRestart() as action:
                user_choices.check_replaceable(self, action, choice)
                self._note(user_choices.decided_words(choice), at_s)
                self._replace(action.node, choice.decision, at_s)
            case _:
                raise user_choices.refusal_of(self, choice)
        return self._settle(at_s)

    def _replace(self, name: str, decision: str, at_s: float) -> None:
        """End a slow node; another one takes its place, which uses up no restart of the job."""
        node = self._node_set.get(name)
        assert node is not None
        self.replaced = Replaced(name, decision)
        self._stop_node(node)
        self._part()
        self.emit(NodeLeft(at_s, name, node.role))

    def _end_replacing(self, at_s: float) -> None:
        """Note that the successor of a slow node trains."""
        if self.replaced is not None and self._is_in_place:
            self._note(f"{self.replaced.node} was replaced", at_s)
            self.emit(MitigationEnded(at_s, self.replaced.decision))
            self.replaced = None

    def _accumulated(self) -> tuple[tuple[str, int], ...]:
        return tuple((node, times) for node, times in self.batch_times if times > 1)

    def on_exit(  # noqa: PLR0913 - what is known of it, by keyword
        self,
        node: str,
        why: str,
        at_s: float,
        *,
        succeeded: bool = False,
        retryable: bool = True,
        refused: NodeLimits | None = None,
        out_of_memory: bool = False,
        by_its_work: bool = False,
        error: ProgramError | None = None,
    ) -> tuple[ExternalOrder, ...]:
        """Handle the exit of a node, reported by the backend, with the error of its program, if it failed."""
        ended = self._node_set.get(node)
        if ended is None:
            return self._settle(at_s)
        if succeeded and self.worlds.asks(node):
            self._stop_node(ended)  # it was not needed any more: that says nothing of the job's end
        elif (
            succeeded and ended.role is not Role.PS and (ended.id in self._members or self._is_beside(ended))
        ):
            ended.is_finished = True
            ended.coming = ended.asked_size_s = None  # its pod has ended: no cluster resizes it
            self._release(node)
        else:
            reason = "it ended before the job did" if succeeded else why
            self._lost(
                ended,
                reason,
                at_s,
                retryable=retryable,
                refused=refused,
                by_its_work=by_its_work,
                error=error,
            )
            if out_of_memory:
                self._feed(ended, at_s)
        return self._settle(at_s)

    def on_steps(self, totals: StepsDone, at_s: float) -> tuple[ExternalOrder, ...]:
        """Handle a program's totals; those of an unknown node are ignored."""
        node = self._node_set.get(totals.node)
        if node is None or self.phase.is_final:
            return ()
        for each in self._meter.record(totals, self._workers, node.role, at_s):
            sample = self.own_work.divided(each)
            reporter = self._node_set.get(sample.node)
            if reporter is None:
                continue
            reporter.last, reporter.has_worked = sample, True
            if sample.role not in set(Role):
                continue  # what plans size is measured alone
            if trains(totals.node) and (totals.node, totals.program) not in self._before:
                self._heard |= {sample.node, totals.node}
            self._measure_pause(at_s - sample.window_s, at_s)
            self._check_plan_applied(at_s)
            self.emit(NodeReported(at_s, sample, self.running))
            early_stop.add_loss(self, sample, at_s)
        return self._settle(at_s)

    def on_call(self, call: ServiceCall, at_s: float) -> tuple[ServiceAnswer, tuple[ExternalOrder, ...]]:
        """Answer a program's call; the state behind the answer must be lasting before it is sent.

        Nothing but worlds is reconciled: calls are many, and no node depends on them.
        """
        answer = service_calls.answer(self, call, at_s)
        if isinstance(answer, WorldLater):
            self.settle_world(at_s)
            answer = service_calls.answer(self, call, at_s)
        orders, self._orders = tuple(self._orders), []
        return answer, orders

    def update_addresses(self, addresses: Mapping[str, str], at_s: float) -> tuple[ExternalOrder, ...]:
        """Handle the running pods' addresses, reported by the backend."""
        for node in self._node_set.nodes:
            if not node.address and addresses.get(node.id):
                node.address, node.since_s, node.waits_for = addresses[node.id], at_s, ""
                self._send_own_environment(node)
        return self._settle(at_s)

    def set_waiting(self, nodes: Mapping[str, str], at_s: float) -> tuple[ExternalOrder, ...]:
        """Handle the nodes that cannot begin yet, and why, reported by the backend."""
        for node in self._node_set.nodes:
            is_waiting = node.id in nodes and not node.address
            node.waits_for = (nodes[node.id] or "room") if is_waiting else ""
            if is_waiting:
                node.asked_s = at_s
        waits = any(node.waits_for for node in self._node_set.nodes)
        self._waits_since_s = (self._waits_since_s or at_s) if waits else None
        return self._settle(at_s)

    def set_resizes_in_place(self, *, resizes: bool, at_s: float) -> tuple[ExternalOrder, ...]:
        """Note whether the cluster resizes nodes in place."""
        self.resizes_in_place = resizes
        return self._settle(at_s)

    def on_allotted(self, node: str, need: Size, why: str, at_s: float) -> tuple[ExternalOrder, ...]:
        """Handle what became of a node's other size; `why` says why it was refused."""
        self._orders += shapes.allotted(self, node, need, why, at_s)
        return self._settle(at_s)

    def set_capacity(self, capacity: Capacity, at_s: float) -> tuple[ExternalOrder, ...]:
        """Note a change of machines."""
        self._capacity = capacity
        return self._settle(at_s)

    def tick(self, at_s: float) -> tuple[ExternalOrder, ...]:
        """Handle a tick: check timeouts, and emit the job's progress."""
        self._check_late_nodes(at_s)
        if self._waits_since_s is not None and at_s > self._waits_since_s + ROOM_LIMIT_S:
            self._give_up_waiting(at_s)
        self.account.note_silent(at_s, protected=self.worlds.now.programs)
        told_at_s, n_told = self._progress_told
        n_done = self.train_counts.n_sample_done
        if n_done != n_told and at_s >= told_at_s + PROGRESS_EVERY_S:
            self._progress_told = at_s, n_done
            self.emit(ProgressMade(at_s, n_done))
        return self._settle(at_s)

    def _check_late_nodes(self, at_s: float) -> None:
        for node in self._node_set.nodes:
            if not node.address and at_s > node.asked_s + START_LIMIT_S:
                self._lost(node, f"it did not start within {START_LIMIT_S:g} s", at_s)

    # reconcile

    def _settle(self, at_s: float) -> tuple[ExternalOrder, ...]:
        self._check_end(at_s)
        if not self.phase.is_final and self._stop is None:
            self._orders += shapes.advance(self, at_s)
            self._start_missing(at_s)
            self._meet(at_s)
            self._orders += other_roles.tell(self, self._members)
            self._check_plan_applied(at_s)
            self._end_replacing(at_s)
        orders, self._orders = tuple(self._orders), []
        return orders

    def _check_end(self, at_s: float) -> None:
        """End the job when its programs have ended well, or were told to stop and had their time."""
        if self.phase.is_final:
            return
        if self._stop is not None:
            workers = [node for node in self._node_set.nodes if trains(node.id)]
            if all(node.is_finished for node in workers) or at_s > self._stop.since_s + STOP_LIMIT_S:
                self._end(JobPhase.STOPPED, self._stop.message, at_s)
        elif self._has_succeeded:
            self._end(JobPhase.SUCCEEDED, self.quality.ended or self._not_reported, at_s)

    @property
    def _not_reported(self) -> str:
        """What is missing of the samples of a job whose programs ended well; it may be that none reported."""
        counts = self.train_counts
        if counts.n_sample_done >= counts.n_sample_total:
            return ""
        return (
            f"its programs ended with exit code 0, and reported {counts.n_sample_done:,} of "
            f"{counts.n_sample_total:,} samples; `logs` shows whether they trained more"
        )

    def _start_missing(self, at_s: float) -> None:
        if self.is_queued or (self._external.framework is Framework.DDP and self.is_over):
            return
        for role in self._external.every:
            plan = self._plan_of(role)
            n_missing = shapes.n_to_start(self, role)
            if n_missing and self._restarts[role].not_before_s(at_s, plan.count) <= at_s:
                for _ in range(n_missing):
                    node = self._node_set.add(role, plan, at_s)
                    self._orders.append(StartNode(node.id, role, node.cpu, node.memory_mib))

    def _meet(self, at_s: float) -> None:
        """Start a rendezvous once all desired nodes are up, and end surplus nodes."""
        for node in shapes.in_the_way(self):
            self._stop_node(node)
        if self._external.framework is Framework.DDP:
            self.settle_world(at_s)
            return
        wanted = self._node_set.wanted(self.target)
        if wanted is None:
            return
        members = tuple(node.id for node in wanted)
        if members != self._members:
            new = self._new_texts(wanted, self._n_rendezvous + 1)
            if finished := [node for node in wanted if node.is_finished and node.id in new]:
                for node in finished:
                    self._stop_node(node)
                self._start_missing(at_s)
                self._meet(at_s)  # those that are left may be all that is wanted: else the next event would
                return
            self._members, self._met_at_s = members, at_s
            self._n_rendezvous += 1
            self._heard = {name for name in self._heard if name in members and name not in new}
            self._before = {(t.node, t.program) for t in self._meter.told if t.node in new}
            self._callers_before = {o for o in self.account.heard_s if o.partition("/")[0] in new}
            self._send_environments()
        for node in self._node_set.nodes:
            if node.id not in members and not self._is_beside(node):
                self._stop_node(node)

    def _check_plan_applied(self, at_s: float) -> None:
        """Note whether the target runs, and emit it once."""
        wanted = self._node_set.wanted(self.target)
        is_there = wanted is not None and {node.id for node in wanted} == set(self._members)
        is_there = is_there and all(node.coming is None for node in wanted or ())
        self._is_in_place = is_there and (self._all_heard or at_s > self._met_at_s + QUIET_S)
        if self._is_in_place and self._change_since_s is not None:
            pause_s = 0.0 if self._applied is None else self._pause_s
            if not self._is_fallback:
                self.emit(PlanApplied(at_s, self.target, pause_s))
            self._applied, self._change_since_s = self.target, None
        if self._is_in_place:
            self._note_training(at_s)
        elif self._applied is not None:
            self._set_phase(JobPhase.RESCALING, at_s)

    def _lost(  # noqa: PLR0913 - what is known of it, by keyword
        self,
        node: ExternalNode,
        why: str,
        at_s: float,
        *,
        retryable: bool = True,
        refused: NodeLimits | None = None,
        by_its_work: bool = False,
        error: ProgramError | None = None,
    ) -> None:
        if self.phase.is_final:
            return
        was_member, before = node.id in self._members, self.quarantined
        self._release(node.id, killed=by_its_work)
        self._stop_node(node)
        if self._stop is not None:
            return  # it is not replaced, however it ended
        if was_member:
            self._part()
        if not retryable:
            self._hopeless(node, why, refused, at_s, never_ran=not node.address and error is None)
            return
        if error is not None and (loop := self._count(node, error, at_s)):
            self._fail_plan(loop, at_s)
            return
        budget, n_planned = self._restarts[node.role], self._plan_of(node.role).count
        n_done = self.train_counts.n_sample_done
        budget.record(at_s, has_worked=node.has_worked, n_sample_done=n_done)
        if isolated := [each for each in self.quarantined if each not in before]:
            budget.forgive(len(isolated[0].killed), n_sample_done=n_done)
            self._note(in_quarantine(self.name, isolated[0]), at_s)
            return
        if budget.exhausted(at_s, n_planned):
            failure = f"{node.role} nodes keep failing; last {node.id}: {why}"
            self._fail_plan(failure, at_s)
            return
        self._note(f"{node.id} {'was lost' if node.address else 'did not start'}: {why}", at_s)

    def _give_up_waiting(self, at_s: float) -> None:
        """Roll back a plan that finds no room; a job without another plan waits indefinitely."""
        if not self._has_way_back:
            return
        waiting = next((n for n in self._node_set.nodes if n.waits_for), None)
        why = f" ({waiting.id}: {waiting.waits_for})" if waiting else ""
        self._fail_plan(f"no room was found within {ROOM_LIMIT_S:g} s{why}; choose a smaller plan", at_s)

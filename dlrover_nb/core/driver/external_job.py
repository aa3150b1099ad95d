"""The driver of a foreign job: one thread, one loop, one command queue around its sans-IO master.

It does for programs of others what `core.driver.own_job` does for ours, with the same controller, journal,
history and pictures, so that views, magics and decisions know no difference. What it lacks is the wire: the
programs are told nothing but their variables, and tell their steps over HTTP (`report`) or in their logs.

What the master knows is written down before an order leaves, in one small file: a driver that comes back in
another pod goes on with the pods that run, and counts nothing twice.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from dlrover_nb.core.controller import ControllerSettings
from dlrover_nb.core.driver import job_snapshot
from dlrover_nb.core.driver.capacity_watcher import CapacityWatcher
from dlrover_nb.core.driver.command_queue import CommandQueue
from dlrover_nb.core.driver.external_logs import ExternalLogs
from dlrover_nb.core.driver.published import PublishedState
from dlrover_nb.core.driver.recorded_controller import RecordedController
from dlrover_nb.core.errors import BackendError, StaleDecisionError
from dlrover_nb.core.external import ExternalMaster, ExternalOrder, Gather, planned
from dlrover_nb.core.files import writing_to
from dlrover_nb.core.rundir.external_state import SavedState, StateFile
from dlrover_nb.core.rundir.job_file import JobFile, MasterLock, read_job, write_job
from dlrover_nb.core.runtime.orders import Emit, StartNode, StopNode
from dlrover_nb.core.structs.capacity import check_fits
from dlrover_nb.core.structs.decisions import Decision
from dlrover_nb.core.structs.events import Decided, JobSubmitted, Remember, RoomChanged, Scale, Ticked
from dlrover_nb.core.structs.job import FeatureSpec
from dlrover_nb.core.structs.messages import NodeConfig
from dlrover_nb.core.structs.resources import Role
from dlrover_nb.core.structs.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.driver.backend import ExternalBackend
    from dlrover_nb.core.structs.events import Event, Instruction
    from dlrover_nb.core.structs.external import StepsDone
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.questions import Explanation, LogLine, Weighed
    from dlrover_nb.core.structs.resources import ResourcePlan
    from dlrover_nb.core.structs.shards import UserChoice
    from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.core.structs.summary import JobSummary

logger = logging.getLogger(__name__)

TICK_S, SECOND_S, PUBLISH_S = 0.25, 1.0, 0.5
NO_FEATURES = FeatureSpec("", (), (), n_train=0, n_eval=0)  # rows of others are not ours to know
# Steps of others may take many seconds, and their logs tell of some at once: windows wait for them.
SETTINGS = ControllerSettings(max_window_s=120.0, min_window_iter=2)
UNKNOWN_SIZE = 1  # of dense parameters and embeddings: any constant does, for what is fitted beside it


class ExternalDriver:
    """Runs one foreign job on a backend; fits `core.client.link.MasterLink`.

    Parameters
    ----------
    spec
        What to run.
    backend
        Where nodes run; the driver closes it at the end of the job.
    folder
        The job's run folder, made if missing.
    history_url
        Of the history; None for the user's own file.
    clock
        The time.
    url
        Where programs report their steps, as their pods reach it.
    job
        The job of a driver before this one, which this one goes on with; None: a new one.
    """

    def __init__(  # noqa: PLR0913 - what a job is made of, all but the first by keyword
        self,
        spec: JobSpec,
        backend: ExternalBackend,
        *,
        folder: Path,
        history_url: str | None,
        clock: Clock,
        url: str,
        job: JobFile | None = None,
    ) -> None:
        self.spec = spec = planned(spec)
        assert spec.foreign is not None
        self._n_sample_total = spec.foreign.n_sample
        self._backend, self._folder, self._clock = backend, folder, clock
        self._url, self._job = url, job
        self._capacity = backend.capacity()
        self._master = self._new_master()
        self._hearing = RecordedController(spec.name, folder, history_url, SETTINGS)
        self._words = ExternalLogs(spec, folder, lambda: self._master.told)
        self._state = StateFile(folder)
        self._reports: queue.SimpleQueue[StepsDone] = queue.SimpleQueue()
        self._commands = CommandQueue(
            f"the master of job {spec.name}",
            over=lambda: StaleDecisionError(f"job {spec.name} has ended: nothing to do"),
        )
        self._held = contextlib.ExitStack()
        self._first: tuple[ExternalOrder, ...] = ()
        self._broken = ""
        self._lookout = CapacityWatcher(spec.name, backend, self._capacity)
        self._ticked_at_s = self._second_at_s = self._published_at_s = clock.now_s()
        self._started_at_s = job.started_at_s if job else self._ticked_at_s
        self._shown = PublishedState(spec.name)
        self._thread = threading.Thread(target=self._run, name=f"driver-{spec.name}", daemon=True)

    @classmethod
    def resume(
        cls, backend: ExternalBackend, *, folder: Path, history_url: str | None, clock: Clock, url: str
    ) -> ExternalDriver:
        """Return a driver that goes on with the job of a run folder; `CheckpointError` when it is of none."""
        job = read_job(folder)
        return cls(job.spec, backend, folder=folder, history_url=history_url, clock=clock, url=url, job=job)

    # for any thread

    def start(self) -> None:
        """Begin the job, or go on with it, and return; raises as `JobDriver.start`."""
        if self._job is None:
            check_fits(self.spec.plan, self._capacity)
        with writing_to(self._folder):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._held.callback(MasterLock(self._folder).release)
        try:
            self._first = self._begin() if self._job is None else self._come_back()
        except BaseException:
            self._held.close()
            raise
        self._backend.follow(self._words.read_ns)
        self._publish()
        self._thread.start()

    def report(self, told: StepsDone) -> None:
        """Hear from a program what it has done; nothing waits for it."""
        self._reports.put(told)

    def snapshot(self) -> JobSnapshot:
        """Return the newest picture of the job."""
        return self._shown.snapshot

    def summary(self) -> JobSummary:
        """Return the one line that a list of jobs shows."""
        return summarize(self.snapshot())

    def series(self, cursor: int = 0) -> SeriesChunk:
        """Return telemetry newer than `cursor`."""
        return self._hearing.series(cursor)

    def decide(self, decision: Decision) -> Decision:
        """Hand in a decision and wait for the verdict; raises as `JobDriver.decide`."""
        return self._commands.ask(lambda: self._decide(decision))

    def weigh(self, plans: tuple[ResourcePlan, ...]) -> tuple[Weighed, ...]:
        """Say of each plan what it would bring, and why it would be refused; see `PlanQueries`."""
        return self._shown.counsel.weigh(plans)

    def explain(self, proposal: str | None) -> Explanation:
        """Say why a proposal was made, the open one by default; `NotFoundError` when there is no such one."""
        return self._shown.counsel.explain(proposal)

    def logs(self, node: str | None, n_line: int) -> tuple[LogLine, ...]:
        """Return the newest lines that a node, dead ones included, or any node wrote; see `logs.newest`."""
        return self._words.lines(node, n_line, there=(each.id for each in self.snapshot().nodes))

    def choose(self, choice: UserChoice) -> None:
        """Refuse: shards and batch sizes are not ours here."""
        self._master.choose(choice)

    def stop(self, by: str, why: str = "") -> None:
        """End the job; nothing happens when it has ended."""
        if not self.snapshot().phase.is_final:
            self._commands.ask(lambda: self._carry_out(self._master.stop(by, why, self._now_s())))

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until the job has ended and all is put away; whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """End the job at once if it runs, and wait for the end."""
        if self._thread.is_alive():
            self._commands.put(
                lambda: self._carry_out(self._master.fail("its driver was closed", self._now_s()))
            )
            self._thread.join()

    # beginning

    def _begin(self) -> tuple[ExternalOrder, ...]:
        job = JobFile(self.spec, NO_FEATURES, self._started_at_s, self._url, "", "")
        write_job(self._folder, job)
        self._submit()
        return self._master.start(self._now_s())

    def _come_back(self) -> tuple[ExternalOrder, ...]:
        saved = self._state.read()
        self._hearing.again()
        self._words.again([node.id for node in saved.record.nodes], saved.read_ns)
        self._backend.adopt([node.id for node in saved.record.nodes if not node.is_finished])
        self._backend.meet(self._url)
        if not self._hearing.is_submitted:
            self._submit()
        orders = self._master.resume(saved.record, self._now_s())
        if (plan := self._hearing.controller.under_way) is not None:
            orders += self._master.set_target(plan, self._now_s())
        return orders

    def _submit(self) -> None:
        told = JobSubmitted(
            at_s=self._now_s(),
            spec=self.spec,
            capacity=self._capacity,
            n_sample_total=self._n_sample_total,
            dense_bytes=UNKNOWN_SIZE,
            embedding_dim=UNKNOWN_SIZE,
        )
        self._tell(told)

    # the loop's thread

    def _run(self) -> None:
        try:
            self._carry_out(self._first)
            while not self._master.phase.is_final:
                self._turn()
        except Exception as error:
            logger.exception("the driver of job %s failed", self.spec.name)
            self._fail(f"the job master failed: {type(error).__name__}: {error}")
        finally:
            self._put_away()

    def _turn(self) -> None:
        """See to commands, words of programs, nodes and time."""
        wait_s = max(0.0, self._ticked_at_s + TICK_S - self._now_s())
        while self._commands.run_next(wait_s):
            wait_s = 0.0
            self._publish()
        self._hear()
        self._see_time()

    def _hear(self) -> None:
        while not self._reports.empty():
            self._carry_out(self._master.on_steps(self._reports.get(), self._now_s()))
        self._hear_words()

    def _hear_words(self) -> None:
        for told in self._words.hear(self._backend.written()):
            self._carry_out(self._master.on_steps(told, self._now_s()))

    def _see_time(self) -> None:
        at_s = self._now_s()
        if at_s >= self._ticked_at_s + TICK_S:
            self._ticked_at_s = at_s
            self._see_exits(at_s)
            self._see_pods(at_s)
            self._carry_out(self._master.tick(at_s))
        if at_s >= self._second_at_s + SECOND_S:
            self._second_at_s = at_s
            self._carry_out(self._master.see_waiting(self._backend.waiting(), at_s))
            self._tell(Ticked(at_s))
            self._record(at_s)
            self._save()
            self._see_room(at_s)
        if at_s >= self._published_at_s + PUBLISH_S:
            self._publish()

    def _new_master(self) -> ExternalMaster:
        return ExternalMaster(self.spec, self._capacity)

    def _see_pods(self, at_s: float) -> None:
        self._carry_out(self._master.see_addresses(self._backend.addresses(), at_s))

    def _see_exits(self, at_s: float) -> None:
        for exited in self._backend.poll():
            self._hear_words()  # its last ones first
            self._words.see_gone(exited.node, at_s)
            orders = self._master.on_exit(
                exited.node,
                self._words.told(exited.node, exited.why),
                at_s,
                succeeded=exited.succeeded,
                retryable=exited.retryable,
                out_of_memory=exited.out_of_memory,
            )
            self._carry_out(orders)

    def _see_room(self, at_s: float) -> None:
        seen = self._lookout.look(at_s, is_running=self._master.running is not None)
        if seen is not None and seen.capacity is not None:
            self._capacity = seen.capacity
            self._master.see_capacity(seen.capacity)
        if seen is not None and seen.room is not None:
            self._tell(RoomChanged(at_s, seen.room))

    def _record(self, at_s: float) -> None:
        nodes = self._master.nodes
        n_worker = sum(node.role is Role.WORKER for node in nodes)
        speed = job_snapshot.samples_per_s(nodes, at_s)
        shards = self._master.train_counts
        self._hearing.record_job(at_s, speed, n_worker=n_worker, n_ps=len(nodes) - n_worker, shards=shards)

    def _publish(self) -> None:
        at_s = self._published_at_s = self._now_s()
        snapshot = job_snapshot.build_snapshot(
            at_s,
            spec=self.spec,
            capacity=self._capacity,
            started_at_s=self._started_at_s,
            ended_at_s=at_s if self._master.phase.is_final else None,
            loss=self._shown.loss,
            samples_per_s=job_snapshot.samples_per_s(self._master.nodes, at_s),
            master=self._master,
            controller=self._hearing.controller,
            folder=str(self._folder),
        )
        self._shown.show(snapshot, self._hearing.controller.counsel())

    # orders

    def _carry_out(self, orders: Iterable[ExternalOrder]) -> None:
        orders = tuple(orders)
        if any(not isinstance(order, Emit) for order in orders):
            self._save()
        for order in orders:
            self._do(order)

    def _do(self, order: ExternalOrder) -> None:
        match order:
            case StartNode():
                self._start_node(order)
            case StopNode(node):
                self._backend.stop_node(node)
            case Gather(node, text):
                self._backend.gather(node, text)
            case Emit(event):
                self._tell(event)
            case _ as never:
                assert_never(never)

    def _start_node(self, order: StartNode) -> None:
        config = NodeConfig(
            node=order.node,
            role=order.role,
            spec=self.spec,
            features=NO_FEATURES,
            cpu=order.cpu,
            memory_mib=order.memory_mib,
            master=self._url,
            listen="",
            folder=str(self._folder),
            public_key="",
            secret_key="",
        )
        try:
            self._backend.start_node(config)
        except BackendError as error:
            self._carry_out(self._master.on_exit(order.node, str(error), self._now_s()))

    def _tell(self, event: Event) -> tuple[Instruction, ...]:
        """Hand a fact to the controller and do what it orders; what it refuses has not happened."""
        instructions = self._hearing.tell(event)
        for instruction in instructions:
            if isinstance(instruction, Scale):
                self._carry_out(self._master.set_target(instruction.target, self._now_s()))
        return instructions

    def _decide(self, decision: Decision) -> Decision:
        at_s = self._now_s()  # not as the client's clock has it
        instructions = self._tell(Decided(at_s, replace(decision, at_s=at_s)))
        self._shown.counsel = self._hearing.controller.counsel()
        taken = [i.record for i in instructions if isinstance(i, Remember)]
        return next(record for record in taken if isinstance(record, Decision))

    def _save(self) -> None:
        self._state.save(SavedState(self._master.record, self._words.read_ns))

    # the end

    def _fail(self, why: str) -> None:
        """End the job though something is broken: what can still be carried out, is."""
        self._broken = why
        for order in self._master.fail(why, self._now_s()):
            try:
                self._do(order)
            except Exception:
                logger.exception("%s could not be carried out", order)

    def _put_away(self) -> None:
        self._backend.close()
        self._hear_words()
        self._words.close(self._now_s())
        self._commands.close()
        self._publish_end()
        self._save()
        self._hearing.close()
        self._held.close()

    def _publish_end(self) -> None:
        """Publish the last picture; after a failure that no picture can be drawn of, the one before."""
        try:
            self._publish()
        except Exception:
            logger.exception("no last picture of job %s could be drawn", self.spec.name)
        self._shown.end(self._broken or "the job master ended without a reason", self._now_s())

    def _now_s(self) -> float:
        return self._clock.now_s()

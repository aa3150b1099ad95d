"""The driver of a job: one thread, one loop, one command queue around the sans-IO master and controller.

Everything that happens to a job happens in this loop, one thing at a time: a message, the end of a node, a
tick, a command of a user. So neither the master nor the controller needs a lock, and what they decide
depends on nothing but the order of these facts, which the journal keeps.

What follows is carried out by its `hands`, once it is in the job's diary, and what the controller hears is
in the journal (`hearing`). So a driver that was killed is followed by one that goes on in the same run
folder, at the same endpoint, with the same nodes (`resume`).

Other threads read the last published picture (a frozen record, exchanged whole), and hand in commands with a
future that the loop answers. An error that nobody foresaw ends the job as FAILED with its nodes stopped: a
master that goes on after a bug it does not understand is worse than none.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.driver import job_snapshot
from dlrover_nb.core.driver.capacity_watcher import CapacityWatcher
from dlrover_nb.core.driver.command_queue import CommandQueue
from dlrover_nb.core.driver.executor import OrderExecutor
from dlrover_nb.core.driver.history_writer import examples
from dlrover_nb.core.driver.job_start import InitialPlan, initial_plan, submitted, traits_of
from dlrover_nb.core.driver.published import PublishedState
from dlrover_nb.core.driver.recorded_controller import RecordedController
from dlrover_nb.core.driver.transport import MasterSocket
from dlrover_nb.core.errors import StaleDecisionError
from dlrover_nb.core.files import writing_to
from dlrover_nb.core.models.metrics import evaluate
from dlrover_nb.core.rundir.job_file import (
    JobFile,
    MasterLock,
    listen_again,
    read_job,
    read_write_ahead_log,
    write_job,
)
from dlrover_nb.core.rundir.node_logs import NodeLogs
from dlrover_nb.core.runtime.flash import MemoryClaim, free_memory
from dlrover_nb.core.runtime.master import JobMaster
from dlrover_nb.core.runtime.orders import Emit, Order
from dlrover_nb.core.runtime.wire import JobKeys, new_keys
from dlrover_nb.core.runtime.write_ahead_log import read_back
from dlrover_nb.core.structs.capacity import check_fits
from dlrover_nb.core.structs.decisions import Decision
from dlrover_nb.core.structs.events import Decided, Remember, RoomChanged, Ticked
from dlrover_nb.core.structs.messages import LinesWritten
from dlrover_nb.core.structs.resources import Role
from dlrover_nb.core.structs.summary import summarize

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.clock import Clock
    from dlrover_nb.core.driver.backend import Backend
    from dlrover_nb.core.structs.job import FeatureSpec, JobSpec
    from dlrover_nb.core.structs.questions import Explanation, LogLine, Weighed
    from dlrover_nb.core.structs.resources import ResourcePlan
    from dlrover_nb.core.structs.shards import UserChoice
    from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.core.structs.summary import JobSummary

logger = logging.getLogger(__name__)

TICK_S = 0.25
SECOND_S = 1.0
PUBLISH_S = 0.5


class JobDriver:
    """Runs one job on a backend; fits `core.client.link.MasterLink`.

    Parameters
    ----------
    spec, features
        What to run, and how its rows become numbers.
    backend
        Where nodes run; the driver closes it at the end of the job.
    folder
        The job's run folder, made if missing, closed to other users.
    history_url
        Of the history; None for the user's own file.
    clock
        The time.
    job
        The job of a driver before this one, which this one goes on with; None: a new one.
    keys
        Of a new job, where its nodes have them already; None: made here.
    """

    def __init__(  # noqa: PLR0913 - what a job is made of, all but the first by keyword
        self,
        spec: JobSpec,
        features: FeatureSpec,
        backend: Backend,
        *,
        folder: Path,
        history_url: str | None,
        clock: Clock,
        job: JobFile | None = None,
        keys: JobKeys | None = None,
    ) -> None:
        self._features, self._backend = features, backend
        self._folder, self._clock = folder, clock
        self._capacity, self._job, traits = backend.capacity(), job, traits_of(spec, features)
        if job is None:
            self._begun = initial_plan(spec, traits, self._capacity, examples(history_url))
        else:
            self._begun = InitialPlan(spec, traits, None, "")
        self._spec = spec = self._begun.spec
        self._master = JobMaster(spec, features, self._capacity, folder=str(folder), evaluate=evaluate)
        self._hearing = RecordedController(spec.name, folder, history_url)
        self._keys = JobKeys(job.public_key, job.secret_key) if job else keys or new_keys()
        self._logs = NodeLogs(folder, secrets=(self._keys.secret, self._keys.public))
        self._held = contextlib.ExitStack()  # what no other process may have while this one lives
        self._commands = CommandQueue(
            f"the master of job {spec.name}",
            over=lambda: StaleDecisionError(f"job {spec.name} has ended: nothing to do"),
            wake=lambda: self._line.wake(),  # noqa: PLW0108 - the line comes later
        )
        self._first: tuple[Order, ...] = ()
        self._broken = ""
        self._lookout = CapacityWatcher(spec.name, backend, self._capacity)
        self._ticked_at_s = self._second_at_s = self._published_at_s = clock.now_s()
        self._started_at_s = job.started_at_s if job else self._ticked_at_s
        self._shown = PublishedState(spec.name)
        self._thread = threading.Thread(target=self._run, name=f"driver-{spec.name}", daemon=True)

    @classmethod
    def resume(cls, backend: Backend, *, folder: Path, history_url: str | None, clock: Clock) -> JobDriver:
        """Return a driver that `start` lets go on with the job of a run folder.

        Raises
        ------
        CheckpointError
            When the folder is of no job.
        """
        job = read_job(folder)
        return cls(
            job.spec, job.features, backend, folder=folder, history_url=history_url, clock=clock, job=job
        )

    # for any thread

    def start(self) -> None:
        """Begin the job, or go on with it, and return.

        Raises
        ------
        CapacityError
            When the first plan does not fit.
        BackendError, InvalidValueError
            When the run folder cannot be written to, the master's endpoint cannot be bound, for example in a
            folder that others may enter, or another master of the job lives.
        CheckpointError
            When there is nothing to go on from.
        """
        if self._job is None:
            check_fits(self._spec.plan, self._capacity)
        with writing_to(self._folder):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._held.callback(MasterLock(self._folder).release)
        try:
            self._held.callback(MemoryClaim(self._spec.name, self._folder).close)
            self._first = self._begin() if self._job is None else self._come_back(self._job)
            self._hands.begin_diary()
        except BaseException:
            self._held.close()
            raise
        self._publish()
        self._thread.start()

    def _begin(self) -> tuple[Order, ...]:
        """Make a new job; return its first orders."""
        self._line = MasterSocket(self._backend.listen(), self._folder, self._keys)
        keys, endpoint = self._keys, self._line.endpoint
        job = JobFile(self._spec, self._features, self._started_at_s, endpoint, keys.public, keys.secret)
        write_job(self._folder, job)
        self._hands = self._hands_for(job)
        self._submit()
        return self._master.start(self._now_s())

    def _come_back(self, job: JobFile) -> tuple[Order, ...]:
        """Go on with a job whose master died; return the first orders.

        The endpoint is bound first: nodes that are connected again wait for as long as it takes. Where this
        host has another address, nodes learn the new endpoint from the backend.
        """
        record, kept = read_back(self._master, read_write_ahead_log(self._folder))
        self._line = MasterSocket(listen_again(job, self._backend.listen()), self._folder, self._keys)
        if job.endpoint != self._line.endpoint:
            job = replace(job, endpoint=self._line.endpoint)
            write_job(self._folder, job)
        self._hearing.again()
        self._hands = self._hands_for(job)
        self._logs.again([node.id for node in record.nodes])
        self._backend.adopt([node.id for node in record.nodes])
        self._backend.meet(self._line.endpoint)  # unchanged too: a master before this may have died before it
        orders = self._master.resume(record, kept, self._now_s())
        if not self._hearing.is_submitted:
            self._submit()
        if (
            plan := self._hearing.controller.under_way
        ) is not None:  # one of the two had not heard of the other
            orders += self._master.set_target(plan, self._now_s())
        return orders

    def _hands_for(self, job: JobFile) -> OrderExecutor:
        return OrderExecutor(
            job,
            self._folder,
            master=self._master,
            hearing=self._hearing,
            backend=self._backend,
            line=self._line,
            clock=self._clock,
        )

    def _submit(self) -> None:
        self._hands.tell(submitted(self._begun, self._capacity, self._now_s()))

    @property
    def spec(self) -> JobSpec:
        """What runs: what was asked for, completed by what past jobs taught."""
        return self._spec

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
        """Hand in a decision and wait for the verdict.

        Raises
        ------
        StaleDecisionError, NotFoundError, InvalidValueError, CapacityError
            Why it cannot be; then nothing changed.
        BackendError
            When the loop does not answer.
        """
        return self._commands.ask(lambda: self._decide(decision))

    def weigh(self, plans: tuple[ResourcePlan, ...]) -> tuple[Weighed, ...]:
        """Say of each plan what it would bring, and why it would be refused; see `PlanQueries`."""
        return self._shown.counsel.weigh(plans)

    def explain(self, proposal: str | None) -> Explanation:
        """Say why a proposal was made, the open one by default; `NotFoundError` when there is no such one."""
        return self._shown.counsel.explain(proposal)

    def logs(self, node: str | None, n_line: int) -> tuple[LogLine, ...]:
        """Return the newest lines that a node, dead ones included, or any node wrote; see `logs.newest`."""
        return self._logs.lines(node, n_line, there=(each.id for each in self.snapshot().nodes))

    def choose(self, choice: UserChoice) -> None:
        """Do what the user says with a shard in quarantine or with batch sizes; raises as `decide` does."""
        self._commands.ask(lambda: self._hands.carry_out(self._master.choose(choice, self._now_s())))

    def stop(self, by: str, why: str = "") -> None:
        """Save what was learnt and end the job; nothing happens when it has ended."""
        if not self.snapshot().phase.is_final:
            self._commands.ask(lambda: self._hands.carry_out(self._master.stop(by, why, self._now_s())))

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until the job has ended and all is put away; whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """End the job at once if it runs, and wait for the end."""
        if self._thread.is_alive():
            self._commands.put(
                lambda: self._hands.carry_out(self._master.fail("its driver was closed", self._now_s()))
            )
            self._thread.join()

    # the loop's thread

    def _run(self) -> None:
        try:
            self._hands.carry_out(self._first)
            while not self._master.phase.is_final:
                self._turn()
        except Exception as error:
            logger.exception("the driver of job %s failed", self._spec.name)
            self._fail(f"the job master failed: {type(error).__name__}: {error}")
        finally:
            self._put_away()

    def _turn(self) -> None:
        """Hear what there is, then see to commands, ended nodes and time.

        What follows from all that was heard is written down at once, and carried out after it.
        """
        wait_s = self._ticked_at_s + TICK_S - self._now_s()
        orders: list[Order] = []
        for sender, message, arrays in self._line.hear(wait_s if self._commands.is_empty else 0):
            if isinstance(message, LinesWritten):
                self._logs.hear(message)
            else:
                orders += self._master.on_message(sender, message, self._now_s(), arrays)
        self._hands.carry_out(orders)
        while self._commands.run_next():
            self._publish()
        self._see_time()

    def _see_time(self) -> None:
        at_s = self._now_s()
        if at_s >= self._ticked_at_s + TICK_S:
            self._ticked_at_s = at_s
            self._see_exits(at_s)
            self._hands.carry_out(self._master.tick(at_s))
        if at_s >= self._second_at_s + SECOND_S:
            self._second_at_s = at_s
            self._hands.carry_out(self._master.set_waiting(self._backend.waiting(), at_s))
            self._hands.carry_out((Emit(Ticked(at_s)),))
            self._record(at_s)
            self._hands.keep_diary()
            self._see_room(at_s)
        if at_s >= self._published_at_s + PUBLISH_S:
            self._publish()

    def _see_room(self, at_s: float) -> None:
        seen = self._lookout.look(at_s, is_running=self._master.running is not None)
        if seen is not None and seen.capacity is not None:
            self._capacity = seen.capacity
            self._hands.carry_out(self._master.set_capacity(seen.capacity, at_s))
        if seen is not None and seen.room is not None:
            self._hands.tell(RoomChanged(at_s, seen.room))

    def _see_exits(self, at_s: float) -> None:
        for exited in self._backend.poll():
            self._logs.see_gone(exited.node, at_s)
            told = self._master.on_exit(
                exited.node,
                self._logs.told(exited.node, exited.why),
                at_s,
                retryable=exited.retryable,
                was_killed=exited.was_killed,
                out_of_memory=exited.out_of_memory,
            )
            self._hands.carry_out(told)

    def _record(self, at_s: float) -> None:
        nodes = self._master.nodes
        n_worker = sum(node.role is Role.WORKER for node in nodes)
        speed = job_snapshot.samples_per_s(nodes, at_s)
        n_ps, shards = len(nodes) - n_worker, self._master.train_counts
        self._hearing.record_job(at_s, speed, n_worker=n_worker, n_ps=n_ps, shards=shards)

    def _publish(self) -> None:
        at_s = self._published_at_s = self._now_s()
        snapshot = job_snapshot.build_snapshot(
            at_s,
            spec=self._spec,
            capacity=self._capacity,
            started_at_s=self._started_at_s,
            ended_at_s=at_s if self._master.phase.is_final else None,
            loss=self._shown.loss,
            samples_per_s=job_snapshot.samples_per_s(self._master.nodes, at_s),
            master=self._master,
            controller=self._hearing.controller,
            n_dropped=self._line.n_dropped + self._master.n_dropped,
            n_refused=self._line.n_refused,
            folder=str(self._folder),
        )
        self._shown.show(snapshot, self._hearing.controller.counsel())

    def _fail(self, why: str) -> None:
        """End the job though something is broken: what can still be carried out, is."""
        self._broken = why
        self._hands.carry_out_what_works(self._master.fail(why, self._now_s()))

    def _put_away(self) -> None:
        self._backend.close()
        self._logs.close(self._now_s())
        free_memory(self._spec.name, self._folder)
        self._commands.close()
        self._publish_end()
        self._line.close()
        self._hearing.close()
        self._hands.close()
        self._held.close()

    def _publish_end(self) -> None:
        """Publish the last picture; after a failure that no picture can be drawn of, the one before."""
        try:
            self._publish()
        except Exception:
            logger.exception("no last picture of job %s could be drawn", self._spec.name)
        self._shown.end(self._broken or "the job master ended without a reason", self._now_s())

    def _decide(self, decision: Decision) -> Decision:
        at_s = self._now_s()  # not as the client's clock has it: other machines' may be hours off
        instructions = self._hands.tell(Decided(at_s, replace(decision, at_s=at_s)))
        self._shown.counsel = (
            self._hearing.controller.counsel()
        )  # who hears the answer asks about what followed
        taken = [i.record for i in instructions if isinstance(i, Remember)]
        return next(record for record in taken if isinstance(record, Decision))

    def _now_s(self) -> float:
        return self._clock.now_s()

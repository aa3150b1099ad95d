"""The loop that drives a job: one thread, one command queue, around a sans-IO master and the controller.

Everything that happens to a job happens in this loop, one thing at a time: a message, the exit of a node, a
tick, a user's command. So neither the master nor the controller needs a lock, and their decisions depend only
on the order of these facts, which the journal keeps.

The loop is the same for all kinds of jobs; `core.driver.loop.parts` says what differs. `own_job`,
`external_job` and `operator_managed_job` compose the parts, for a new job or for one whose master died.

Other threads read the last published snapshot (a frozen record, replaced as a whole), and submit commands
with a future that the loop answers. An unexpected error ends the job as FAILED with its nodes stopped: to
continue after an error of unknown effect does more harm.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from dlrover_nb.core.basics import numerics
from dlrover_nb.core.basics.redaction import Redactor
from dlrover_nb.core.client.submit_again import submit_again
from dlrover_nb.core.driver.backend import PlacingBackend, QueuedBackend
from dlrover_nb.core.driver.loop import job_snapshot
from dlrover_nb.core.driver.loop.capacity_watcher import CapacityWatcher
from dlrover_nb.core.driver.loop.command_queue import CommandQueue
from dlrover_nb.core.driver.loop.computing import Computing
from dlrover_nb.core.driver.loop.executor import OrderExecutor, begun
from dlrover_nb.core.driver.loop.own_actions import OwnActions
from dlrover_nb.core.driver.loop.parts import ActionT
from dlrover_nb.core.driver.loop.published import PublishedState
from dlrover_nb.core.errors import StaleDecisionError
from dlrover_nb.core.master.shared.orders import Emit
from dlrover_nb.core.structs.decisions.decisions import Decision
from dlrover_nb.core.structs.job.fixed_roles import capacity_left
from dlrover_nb.core.structs.job.secrets import secret_values
from dlrover_nb.core.structs.plan.budget import STOPPED_BY, per_hour
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import (
    CostChanged,
    CurvesMeasured,
    Decided,
    PhaseChanged,
    Remember,
    RoomChanged,
    Ticked,
    quota_changed,
)
from dlrover_nb.core.structs.views.summary import holding, need_of, summarize
from dlrover_nb.core.telemetry import thinned

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterator

    from dlrover_nb.core.driver.loop.parts import Parts
    from dlrover_nb.core.structs.decisions.actions import MitigationChoice
    from dlrover_nb.core.structs.decisions.query_answers import Explanation, LogLine, Weighed
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.offers import Allotment, Offer
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.quality import QualityCurve
    from dlrover_nb.core.structs.training.shards import UserChoice
    from dlrover_nb.core.structs.views.events import JobSubmitted
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.core.structs.views.summary import JobSummary

logger = logging.getLogger(__name__)

T = TypeVar("T")

TICK_S = 0.25
SECOND_S = 1.0
PUBLISH_S = 0.5


class JobLoop(Generic[ActionT]):
    """Runs one job on a backend; fits `core.client.link.protocols.MasterLink`.

    Made by `opened`, with the job's files and socket open and its first snapshot published; `start` lets its
    thread run.

    Parameters
    ----------
    parts
        Its parts; it closes the backend at the end of the job.
    first
        The master's first orders.
    held
        Resources held exclusively by this process; closed at the end.
    """

    def __init__(
        self, parts: Parts[ActionT], first: tuple[ActionT | Emit, ...], resources: contextlib.ExitStack
    ) -> None:
        self._parts, self._first, self._resources = parts, first, resources
        self._spec, self._clock, self._capacity = parts.spec, parts.clock, parts.capacity
        self._backend, self._master, self._inputs = parts.backend, parts.master, parts.inputs
        self._persistence, self._recorded = parts.persistence, parts.recorded
        self._own = OwnActions(parts.spec)
        self._executor = OrderExecutor(
            write_ahead=parts.persistence.write_ahead,
            perform=parts.perform,
            record=parts.recorded.emit,
            set_target=lambda plan: parts.master.set_target(plan, parts.clock.now_s()),
            choose=lambda choice: parts.master.choose(choice, parts.clock.now_s()),
            mitigate=self._mitigate,
            stop=lambda why: parts.master.stop(STOPPED_BY, why, parts.clock.now_s()),
            now_s=parts.clock.now_s,
        )
        self._commands = CommandQueue(
            f"the master of job {self._spec.name}",
            over=lambda: StaleDecisionError(
                f"job {self._spec.name} has ended: nothing to do; {submit_again(self._spec)}"
            ),
            wake=parts.inputs.wake,
        )
        self._computing = Computing(
            self._spec.name,
            reviews=lambda: parts.recorded.controller.reviews,
            n_node=lambda: len(parts.master.nodes),
            emit=self._executor.emit,
            put=self._commands.put,
            now_s=parts.clock.now_s,
        )
        self._without_secrets = Redactor(secret_values(self._spec))
        self._watcher = CapacityWatcher(self._spec.name, parts.backend, parts.capacity)
        self._broken = self._denied = ""
        self._cost_per_hour: float | None = None  # as the controller was told last
        self._ticked_at_s = self._second_at_s = self._published_at_s = self._now_s()
        self._published = PublishedState(self._master, self._recorded.controller, self._snapshot)
        self._loading: threading.Thread | None = None
        self._thread = threading.Thread(target=self._run, name=f"driver-{self._spec.name}", daemon=True)

    # for any thread

    def start(self) -> None:
        """Let the loop run, and return."""
        self._thread.start()

    @property
    def spec(self) -> JobSpec:
        """The job as it runs: the submitted one, completed from past jobs."""
        return self._spec

    def snapshot(self) -> JobSnapshot:
        """Return the newest snapshot of the job."""
        return self._published.snapshot

    def last_snapshot(self) -> JobSnapshot:
        """Return what is kept of a job that has ended: its snapshot, with its telemetry, thinned."""
        return replace(self.snapshot(), series=thinned(self.series()))

    def summary(self) -> JobSummary:
        """Return the job's line in a list of jobs."""
        return summarize(self.snapshot())

    def series(self, cursor: int = 0) -> SeriesChunk:
        """Return telemetry newer than `cursor`."""
        return self._recorded.series(cursor)

    def decide(self, decision: Decision) -> Decision:
        """Submit a decision and wait for the answer.

        Raises
        ------
        StaleDecisionError, NotFoundError, InvalidValueError, CapacityError
            Why it is refused; then nothing changed.
        BackendError
            When the loop does not answer.
        """
        return self._ask(lambda: self._decide(decision))

    def weigh(self, plans: tuple[ResourcePlan, ...]) -> tuple[Weighed, ...]:
        """Return for each plan its predicted effect, and why it would be refused; see `PlanQueries`."""
        return self._published.queries.weigh(tuple(map(self._spec.on_gpus, plans)))

    def explain(self, proposal: str | None) -> Explanation:
        """Return why a proposal was made; `NotFoundError` when it does not exist."""
        return self._published.queries.explain(proposal)

    def offer(self) -> Offer:
        """Return the plans that the job could use, for a choice among jobs; or why it takes no part."""
        return self._published.queries.offer()

    def allot(self, allotment: Allotment) -> None:
        """Set what auto mode may plan with beside other jobs; raises as `decide` does."""
        self._ask(lambda: self._executor.emit(quota_changed(allotment, self._now_s())))

    def learn_curves(self, curves: tuple[QualityCurve, ...]) -> None:
        """Plan with these curves of quality from now on; raises as `decide` does."""
        self._ask(lambda: self._executor.emit(CurvesMeasured(self._now_s(), curves)))

    def logs(self, node: str | None, n_line: int) -> tuple[LogLine, ...]:
        """Return the newest lines of a node, ended ones included, or of all nodes; see `node_logs.newest`."""
        return self._inputs.lines(node, n_line, there=(each.id for each in self.snapshot().nodes))

    def choose(self, choice: UserChoice) -> None:
        """Apply a user's choice about a quarantined shard or batch sizes; raises as `decide` does."""
        bare = replace(choice, why=self._without_secrets(choice.why))
        self._ask(lambda: self._executor.carry_out(self._master.choose(bare, self._now_s())))

    def stop(self, by: str, why: str = "") -> None:
        """Save the trained state and end the job; nothing happens when it has ended."""
        if not self.snapshot().phase.is_final:
            why = self._without_secrets(why)
            self._ask(lambda: self._executor.carry_out(self._master.stop(by, why, self._now_s())))

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended, though its nodes may still end and its last snapshot be to come."""
        return self._master.phase.is_final

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until the job has ended and everything is closed; return whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """End the job at once if it runs, and wait for the end."""
        if self._thread.ident is None:
            self._put_away()  # it never ran: only files and sockets are open
        elif self._thread.is_alive():
            self._commands.put(
                lambda: self._executor.carry_out(self._master.fail("its driver was closed", self._now_s()))
            )
            self._thread.join()

    def _ask(self, command: Callable[[], T]) -> T:
        """Run a command in the loop's thread; once answered, snapshots and plan queries show what it did."""

        def run() -> T:
            done = command()
            self._publish()
            return done

        return self._commands.ask(run)

    # the loop's thread

    def _run(self) -> None:
        for _ in self.turns():
            pass

    def turns(self) -> Iterator[None]:
        """Run the job in the caller's thread, one turn at each step, and close everything after the last.

        In the place of `start`, where time is virtual: its owner decides when the next turn comes.
        """
        try:
            if (choice := self._recorded.controller.acting) is not None:
                self._own.begin(choice)  # a master may have died meanwhile
            self._executor.carry_out(self._first)
            while not self._master.phase.is_final:
                yield
                self._turn()
        except Exception as error:
            logger.exception("the driver of job %s failed", self._spec.name)
            self._fail(f"the job master failed: {type(error).__name__}: {error}")
        finally:
            self._put_away()

    def _turn(self) -> None:
        """Publish what others wait for; process input, then commands, then one thing that is due.

        The orders from all input of one turn are written ahead together, and carried out after it.
        """
        if self._published.is_outdated:
            self._publish()
        wait_s = max(0.0, min(due_s for due_s, _ in self._duties()) - self._now_s())
        self._executor.carry_out(self._inputs.receive(wait_s if self._commands.is_empty else 0.0))
        self._computing.attend()
        while self._commands.run_next():
            pass
        self._pass_time()
        self._computing.attend()

    def _duties(self) -> tuple[tuple[float, Callable[[float], None]], ...]:
        """Return what is done at intervals, and when each is due."""
        return (
            (self._ticked_at_s + TICK_S, self._tick),
            (self._second_at_s + SECOND_S, self._pass_second),
            (self._published_at_s + PUBLISH_S, lambda _: self._publish()),
        )

    def _pass_time(self) -> None:
        """Do what is due for longest, and no more: nodes wait for their answers meanwhile."""
        at_s = self._now_s()
        due_s, duty = min(self._duties(), key=lambda each: each[0])
        if at_s >= due_s:
            duty(at_s)

    def _tick(self, at_s: float) -> None:
        self._ticked_at_s = at_s
        for exited in self._backend.poll():
            if exited.refused is not None:  # what is learned of sizes goes before the advice that it leads to
                self._watcher.look_soon()
                self._check_capacity(at_s)
            self._executor.carry_out(self._inputs.on_exit(exited, at_s))
        self._executor.carry_out(self._inputs.observe(at_s))
        for event in self._own.ended(at_s):
            self._executor.emit(event)
        self._executor.carry_out(self._master.tick(at_s))

    def _mitigate(self, choice: MitigationChoice, at_s: float) -> tuple[ActionT | Emit, ...]:
        """Return the master's orders for an action; none for that of a package, which begins at once."""
        return () if self._own.begin(choice) else self._master.mitigate(choice, at_s)

    def _pass_second(self, at_s: float) -> None:
        self._second_at_s = at_s
        self._executor.carry_out(self._master.set_waiting(self._backend.waiting(), at_s))
        self._note_denied(at_s)
        self._note_cost(at_s)
        self._executor.emit(Ticked(at_s))
        self._record_job(at_s)
        self._persistence.keep()
        self._check_capacity(at_s)
        self._load_numerics()

    def _load_numerics(self) -> None:
        """Let a thread import what fits need, once all nodes train: they wait for no import then."""
        if self._loading is None and self._master.running is not None:
            self._loading = threading.Thread(target=numerics.load, name="numerics")
            self._loading.start()

    def _note_denied(self, at_s: float) -> None:
        """Tell that a right is missing, though the job trains: it cannot be changed or mended meanwhile."""
        denied = self._backend.denied()
        if denied == self._denied or self._master.phase.is_final:
            return
        why = denied or "the missing right is back"
        self._denied = denied
        self._executor.emit(PhaseChanged(at_s, self._master.phase, why))

    def _note_cost(self, at_s: float) -> None:
        """Tell what the nodes that are up cost, where that has changed; nothing while a price is unknown."""
        nodes = holding(self._master.nodes)
        cost = per_hour(self._spec.prices, (need_of(node, self._spec) for node in nodes))
        if cost is not None and cost != self._cost_per_hour:
            self._cost_per_hour = cost
            self._executor.emit(CostChanged(at_s, cost))

    def _check_capacity(self, at_s: float) -> None:
        change = self._watcher.check(at_s, is_running=self._master.running is not None)
        if change is not None and change.capacity is not None:
            self._capacity = change.capacity
            self._executor.carry_out(self._master.set_capacity(change.capacity, at_s))
        if change is not None and change.room is not None:
            self._executor.emit(RoomChanged(at_s, capacity_left(self._spec, change.room)))

    def _record_job(self, at_s: float) -> None:
        nodes = self._master.nodes
        n_worker, n_ps = (sum(node.role is role for node in nodes) for role in Role)
        speed, shards = job_snapshot.samples_per_s(nodes, at_s), self._master.train_counts
        self._recorded.record_job(at_s, speed, n_worker=n_worker, n_ps=n_ps, shards=shards)

    def _decide(self, decision: Decision) -> Decision:
        at_s = self._now_s()  # not the client's clock: other machines' may be hours off
        plan = None if decision.plan is None else self._spec.on_gpus(decision.plan)
        why = self._without_secrets(decision.why)
        decision = replace(decision, at_s=at_s, why=why, plan=plan)
        instructions = self._executor.emit(Decided(at_s, decision))
        records = [i.record for i in instructions if isinstance(i, Remember)]
        return next(record for record in records if isinstance(record, Decision))

    # publishing

    def _publish(self) -> None:
        """Publish a snapshot; the last one comes with the end, once all nodes have ended."""
        if not self._master.phase.is_final:
            self._published.publish()

    def _snapshot(self, loss: float | None) -> JobSnapshot:
        at_s = self._published_at_s = self._now_s()
        snapshot = job_snapshot.build_snapshot(
            at_s,
            spec=self._spec,
            capacity=self._capacity,
            started_at_s=self._parts.started_at_s,
            ended_at_s=at_s if self._master.phase.is_final else None,
            loss=loss,
            samples_per_s=job_snapshot.samples_per_s(self._master.nodes, at_s),
            master=self._master,
            controller=self._recorded.controller,
            n_dropped=self._inputs.n_dropped,
            n_refused=self._inputs.n_refused,
            folder=str(self._parts.folder),
            began_from=self._parts.began_from,
            damage=self._parts.damage,
            restart=self._parts.restart,
        )
        snapshot = replace(snapshot, ages=self._recorded.mean_ages)
        if isinstance(self._backend, PlacingBackend):
            wishes = self._backend.host_wishes()
            nodes = tuple(replace(node, wish=wishes.get(node.id)) for node in snapshot.nodes)
            snapshot = replace(snapshot, nodes=nodes)
        if isinstance(self._backend, QueuedBackend):
            snapshot = replace(snapshot, quota=self._backend.queue())
        is_told = self._denied and not snapshot.phase.is_final
        return replace(snapshot, message=self._denied) if is_told else snapshot

    # the end

    def _fail(self, why: str) -> None:
        """End the job after an error; orders are carried out as far as possible."""
        self._broken = why
        self._executor.carry_out_despite_errors(self._master.fail(why, self._now_s()))

    def _put_away(self) -> None:
        self._backend.close()
        self._computing.close()
        self._inputs.finish(self._now_s())
        self._commands.close()
        self._publish_end()
        self._persistence.close()
        if self._loading is not None:
            self._loading.join()
        self._resources.close()

    def _publish_end(self) -> None:
        """Publish the last snapshot; where a failure prevents that, mark the one before as the end."""
        try:
            self._published.publish()
        except Exception:
            logger.exception("the last snapshot of job %s could not be built", self._spec.name)
        self._published.end(self._broken or "the job master ended without a reason", self._now_s())

    def _now_s(self) -> float:
        return self._clock.now_s()


def opened(
    parts: Parts[ActionT],
    fact: JobSubmitted,
    first: Callable[[float], tuple[ActionT | Emit, ...]],
    resources: contextlib.ExitStack,
) -> JobLoop[ActionT]:
    """Return the loop of a job whose parts are ready.

    Parameters
    ----------
    fact
        The first fact of the job, unless its controller knows it from the journal.
    first
        Starts or resumes the master at a time, and returns its orders.
    resources
        Open resources; the loop takes them over.
    """
    orders = first(parts.clock.now_s())
    if parts.recorded.is_submitted:
        parts.recorded.emit(CostChanged(parts.clock.now_s(), None))
    else:
        parts.recorded.emit(fact)
    if (plan := parts.recorded.controller.under_way) is not None:  # a master may have died between the two
        orders += parts.master.set_target(plan, parts.clock.now_s())
    choice = parts.recorded.controller.acting
    if choice is not None and choice.action.own is None:  # as above; an own one begins with the loop
        orders += begun(choice, parts.master.mitigate, parts.clock.now_s())
    for words in filter(None, ("" if parts.restart is None else parts.restart.words, parts.damage)):
        logger.warning("job %s: %s", parts.spec.name, words)
        orders += (Emit(PhaseChanged(parts.clock.now_s(), parts.master.phase, words)),)
    if why := parts.recorded.controller.ending:  # as above
        orders += parts.master.stop(STOPPED_BY, why, parts.clock.now_s())
    parts.persistence.begin()
    return JobLoop(parts, orders, resources.pop_all())

"""The world of one simulated external job: the real loop, master and files, among played pods that run the real client.

The cluster tells pods their variables late, and programs restart by them, as the script in a pod has it. Requests of programs
and their answers are lost, late or repeated. What a program did and did not report is its own account (`simulation.rows`).
"""

from __future__ import annotations

import queue
import random
import shutil
from collections import deque
from contextlib import ExitStack, nullcontext
from itertools import count
from typing import TYPE_CHECKING

from simulation.disk import full_disk
from simulation.external.collectives import PlayedCollectives
from simulation.external.elastic import States, played_torch, train_together
from simulation.external.programs import PlayedSession, played_client, train
from simulation.external.saving import Copies, SavingSaver, free_memory, train_and_save
from simulation.rows import Row, RowAccount
from simulation.rules import Rules
from simulation.tasks import Task, Tasks
from support.driver.damaged_world import Case, damage
from support.driver.driver_world import START_S, ManualMachine

from dlrover_nb.client.link import ServiceError
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.codec import Tagged
from dlrover_nb.core.driver.backend import NodeExited
from dlrover_nb.core.driver.calls.service_queue import ServiceQueue
from dlrover_nb.core.driver.external import external_job
from dlrover_nb.core.driver.external.external_inputs import ExternalInputs
from dlrover_nb.core.driver.external.external_logs import ExternalLogs
from dlrover_nb.core.master.external.job.shard_account import SILENT_S
from dlrover_nb.core.master.external.launch.pod_script import LINGER_S
from dlrover_nb.core.master.external.master import ExternalMaster
from dlrover_nb.core.rundir.job_file import JOB, WRITE_AHEAD_LOG
from dlrover_nb.core.structs.job.external import Framework, StepsDone
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.services import (
    ANSWER_NAMES,
    CALL_NAMES,
    CallRefused,
    ServiceAnswer,
    ServiceCall,
    ShardGranted,
    WorldLater,
    WorldMade,
    WorldOver,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from simulation.external.pods import Pod
    from simulation.external.schedule import ExternalScenario

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.core.structs.wire.services import Caller

CALLS, ANSWERS = Tagged(ServiceCall, written=CALL_NAMES), Tagged(ServiceAnswer, written=ANSWER_NAMES)
MASTER_LIMIT_S = 30.0  # that the master's HTTP waits for the loop
STEP_S, STEPS_EVERY_S = 0.25, 1.0
NETWORK, CLUSTER = "the network", "the cluster"


class PlayedCalls(ServiceQueue):
    """Calls of programs that wait in tasks, not in threads."""

    def __init__(self, world: ExternalWorld) -> None:
        super().__init__()
        self._world = world
        self._callers: dict[int, Task] = {}
        self._said: dict[int, tuple[ServiceCall, str, int]] = {}

    @property
    def is_waiting(self) -> bool:
        return bool(self._calls)

    def ask_for(self, body: bytes, owner: str, n_pushed: int) -> bytes | None:
        """Return the answer to a call, for a task; None: there is none in time."""
        call = CALLS.from_line(body)
        self._n_call = ticket = self._n_call + 1
        self._said[ticket] = call, owner, n_pushed
        self._calls.append((ticket, call))
        self._callers[ticket] = self._world.tasks.present
        try:
            answer: bytes | None = self._world.tasks.park(MASTER_LIMIT_S)
            return answer
        finally:
            self._callers.pop(ticket, None)

    def answer(self, ticket: int, answer: ServiceAnswer) -> None:
        self._world.note_answer(*self._said.pop(ticket), answer)
        if (task := self._callers.pop(ticket, None)) is not None:
            self._world.tasks.wake(task, ANSWERS.to_line(answer))

    def close(self) -> None:
        """Answer nobody any more: connections break with the master."""
        for task in self._callers.values():
            self._world.tasks.wake(task, None)
        self._callers.clear()
        self._calls.clear()


class PlayedInputs(ExternalInputs):
    """Inputs that wait in virtual time."""

    world: ExternalWorld

    def receive(self, wait_s: float) -> list:  # type: ignore[type-arg]
        self.world.wait(wait_s, until=lambda: self.world.calls.is_waiting)
        return super().receive(0.0)


class ExternalWorld:
    """One job; whatever befalls it is carried out by `events`.

    Parameters
    ----------
    folder
        Of the run folder and the history.
    case
        The job and its surroundings.
    """

    def __init__(self, folder: Path, case: ExternalScenario) -> None:
        self.case, self.spec, self.folder = case, case.spec, folder / "run"
        self._history = f"sqlite:///{folder / 'history.db'}"
        self.machine, self.capacity = ManualMachine(), Capacity((NodeShape(case.cores, 16384),))
        self.rng, self.counts, self._addresses = random.Random(case.seed), count(), count(1)
        self.tasks = Tasks(self.machine, self._is_frozen)
        self.account = RowAccount(self._is_lost, self._is_excused)
        self.learnt: dict[Row, int] = {}
        self.pods: dict[str, Pod] = {}
        self.without_room: list[str] = []
        self.rules = Rules()
        self.stopped_nodes: set[str] = set()
        self.cut_until_s: dict[str, float] = {}
        self.broken_links: set[str] = set()
        self.unreachable: set[str] = set()
        self.stopped_until_s: dict[str, float] = {}
        self.busy_until_s = self.full_until_s = 0.0
        self.slow: dict[str, float] = {}
        self.ends_at_s: dict[str, float] = {}
        self.seen: deque[JobSnapshot] = deque(maxlen=64)
        self.skipped: set[Row] = set()
        self.wrong: list[str] = []  # who took part and should not
        self.n_crash = self.n_loss = 0
        self.master_is_up = self._is_turning = False
        self.master_since_s = 0.0  # since when the present master has been at work
        self._heard_s: dict[str, float] = {}
        self._silent: set[str] = set()
        self._newest: dict[str, int] = {}  # number of the newest process of each place that the master heard
        self.kept = folder / "of programs"  # their checkpoints
        self.states, self.collectives = States(), PlayedCollectives(self)
        self.copies = Copies(self.kept)
        self.is_elastic = self.spec.foreign.framework is Framework.DDP
        self.keeps_states = self.is_elastic or case.saves
        self._worlds: dict[int, tuple[str, ...]] = {}
        self.waits_since_s: dict[str, float] = {}  # of nodes whose programs wait for a world
        self._open = ExitStack()
        self._open.enter_context(played_client(self))
        if self.is_elastic:
            self._open.enter_context(played_torch(self))
        self._turns: Iterator[None] = iter(())
        self.calls = PlayedCalls(self)
        self.backend = case.backend(self)
        self.driver = external_job.begin_composed(self.spec, self.backend, self._around(), self._compose)

    def _around(self) -> external_job.Surroundings:
        self.reports: external_job.StepReports = queue.SimpleQueue()
        clock = SystemClock(self.machine)
        return external_job.Surroundings(
            self.folder, self._history, clock, "http://master", self.reports, calls=self.calls
        )

    def _compose(self, spec, capacity, _recorded, around) -> external_job.Composed:  # type: ignore[no-untyped-def]
        master = ExternalMaster(spec, capacity)
        logs = ExternalLogs(spec, around.folder, lambda: master.told)
        inputs = PlayedInputs(
            master, self.backend, logs=logs, reports=around.reports, calls=around.calls, clock=around.clock
        )
        inputs.world, inputs.wake = self, self.wake
        return master, logs, inputs

    # what is read

    @property
    def elapsed_s(self) -> float:
        return self.machine.passed_s

    @property
    def at_s(self) -> float:
        return START_S + self.machine.passed_s

    @property
    def now(self) -> JobSnapshot:
        return self.driver.snapshot()

    @property
    def is_over(self) -> bool:
        return self.now.phase.is_final

    @property
    def n_excused(self) -> int:
        return self.account.n_excused

    @property
    def end_phase(self) -> str:
        return str(self.now.phase)

    def up(self, role: Role) -> list[str]:
        """The pods of a role that run, oldest first."""
        return [name for name, pod in self.pods.items() if pod.role is role and pod.is_alive and pod.address]

    # time

    def start(self) -> None:
        self.master_is_up, self.master_since_s = True, self.elapsed_s
        self._turns = self.driver.turns()
        self.turn_loop()

    def wake(self) -> None:
        """Let the loop run the command that waits, unless it is at work already."""
        if not self._is_turning:
            self.turn_loop()

    def turn_loop(self) -> bool:
        self._is_turning = True
        try:
            with self._disk():
                goes_on = next(self._turns, self) is None
        finally:
            self._is_turning = False
        if goes_on and (not self.seen or self.seen[-1] is not self.now):
            self.seen.append(self.now)
        return goes_on

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass."""
        self._end_evicted()
        self.tasks.run(self.elapsed_s + seconds, until=until)

    def pass_alone(self, seconds: float) -> None:
        """Let time pass without a turn of the master."""
        end_s = self.elapsed_s + seconds
        while self.elapsed_s < end_s:
            self.wait(min(STEP_S, end_s - self.elapsed_s))
        self.master_since_s = self.elapsed_s

    def _end_evicted(self) -> None:
        for name, at_s in list(self.ends_at_s.items()):
            if at_s <= self.elapsed_s:
                del self.ends_at_s[name]
                self.end_pod(name, NodeExited(name, "evicted"))
        for name in sorted(self.unreachable & self.stopped_nodes):
            if self.cut_until_s[name] <= self.elapsed_s:
                self.end_pod(name, NodeExited(name, "it was ended"))

    def _disk(self) -> AbstractContextManager[None]:
        return full_disk() if self.full_until_s > self.elapsed_s else nullcontext()

    def abandon(self) -> None:
        """Close what is open of a job, however far it came."""
        self.full_until_s = 0.0
        self._turns.close()  # type: ignore[attr-defined]  # a generator
        for pod in self.pods.values():
            self._end_program(pod)
        self._open.close()

    def _is_frozen(self, name: str) -> bool:
        is_busy = self.busy_until_s > self.elapsed_s and name.startswith(Role.WORKER)
        return is_busy or self.stopped_until_s.get(name, 0.0) > self.elapsed_s

    # pods

    def begin(self, pod: Pod) -> None:
        self.pods[pod.node] = pod
        self.without_room.append(pod.node)
        self.tasks.begin(lambda: self._come_up(pod), CLUSTER)

    def _come_up(self, pod: Pod) -> None:
        while pod.is_alive and self._used_cpu(pod) + pod.cpu > self.capacity.total_cpu + 1e-6:
            self.tasks.sleep(STEP_S)
        self.without_room.remove(pod.node)
        self.tasks.sleep(self.rng.choice([0.5, 1.0, 4.0]))
        if pod.is_alive:
            pod.address = f"10.0.0.{next(self._addresses)}"

    def _used_cpu(self, other: Pod) -> float:
        return sum(
            pod.cpu
            for pod in self.pods.values()
            if pod.is_alive and pod is not other and pod.node not in self.without_room
        )

    def send_environment(self, node: str, text: str) -> None:
        pod = self.pods[node]
        pod.n_told += 1
        number = pod.n_told
        self.tasks.begin(lambda: self._told(pod, text, number), CLUSTER)

    def _told(self, pod: Pod, text: str, number: int) -> None:
        self.tasks.sleep(self.rng.choice([0.25, 1.0, 3.0]))
        if (left_s := self.cut_until_s.get(pod.node, 0.0) - self.elapsed_s) > 0:
            self.tasks.sleep(left_s)
        if not pod.is_alive or pod.n_told != number or pod.environment == text:
            return
        self._end_program(pod)
        pod.environment = text
        if text and pod.role is Role.WORKER:
            self._begin_program(pod)

    def _begin_program(self, pod: Pod) -> None:
        pod.n_start += 1
        joined = PlayedSession(self, pod)
        pod.sessions = [joined]
        self.run_in(pod, joined, lambda: self._run_program(pod, joined))
        self.run_in(pod, joined, lambda: self._report_steps(pod, joined))

    def run_in(self, pod: Pod, joined: PlayedSession, run: Callable[[], None]) -> None:
        task = self.tasks.begin(run, pod.node)
        task.greenlet.session = joined
        pod.tasks.append(task)

    def _run_program(self, pod: Pod, joined: PlayedSession) -> None:
        try:
            self._program(self, pod, joined)
        except ServiceError:
            self.fail_program(pod, 1)
            return
        self.end_pod(pod.node, NodeExited(pod.node, "exit code 0", succeeded=True))

    @property
    def _program(self) -> Callable[[ExternalWorld, Pod, PlayedSession], None]:
        if self.is_elastic:
            return train_together
        return train_and_save if self.case.saves else train

    def _report_steps(self, pod: Pod, joined: PlayedSession) -> None:
        while True:
            self.tasks.sleep(STEPS_EVERY_S)
            n_iter = joined.n_step or self.account.n_pushed(joined.owner)
            if n_iter and self.master_is_up and self.cut_until_s.get(pod.node, 0.0) <= self.elapsed_s:
                self.reports.put(
                    StepsDone(
                        pod.node,
                        joined.caller["program"],
                        0,
                        self.at_s,
                        n_iter,
                        n_iter * self.spec.batch_size,
                    )
                )

    def fail_program(self, pod: Pod, code: int) -> None:
        """End a program by an error; its pod waits for a while whether it shall restart."""
        self._count_loss(pod, code)
        self.tasks.begin(lambda: self._linger(pod, pod.n_start, code), CLUSTER)
        self._end_program(pod)

    def _linger(self, pod: Pod, n_start: int, code: int) -> None:
        """Wait for other variables, or let the pod's own script begin the program anew; not in one that has ended."""
        if self.is_elastic and self.rng.random() < 0.5:
            if pod.is_alive and pod.n_start == n_start:
                self._begin_program(pod)
            return
        self.tasks.sleep(LINGER_S)
        if pod.n_start == n_start:
            self.end_pod(pod.node, NodeExited(pod.node, f"exit code {code}", failed=True))

    def _end_program(self, pod: Pod) -> None:
        """End the tasks of a pod, its own last: nothing follows in it."""
        for joined in pod.sessions:
            self.collectives.leave(joined)
        tasks, pod.tasks, pod.sessions = pod.tasks, [], []
        for task in sorted(tasks, key=lambda each: each is self.tasks.present_or_none):
            self.tasks.kill(task)

    def _count_loss(self, pod: Pod, code: int) -> None:
        self.n_loss += 1
        if pod.role is Role.WORKER and code not in {-15, 143}:
            self.n_crash += 1

    def end_pod(self, name: str, how: NodeExited) -> None:
        pod = self.pods[name]
        if pod.is_alive:
            pod.is_alive, pod.exit, pod.address = False, how, ""
            self._end_program(pod)
            self.waits_since_s.pop(name, None)
            free_memory(self, name)

    def stop(self, name: str) -> None:
        """End a pod, as its master orders."""
        if name not in self.pods:
            return
        self.stopped_nodes.add(name)
        if name not in self.unreachable:
            self.end_pod(name, NodeExited(name, "it was ended"))

    # what befalls pods

    def lose_node(self, name: str, code: int, _errors: str = "") -> None:
        pod = self.pods[name]
        if code in {1, -11} and pod.tasks:
            self.fail_program(pod, code)
            return
        self._count_loss(pod, code)
        was_killed = code == -9
        self.end_pod(
            name, NodeExited(name, f"exit code {code}", was_killed=was_killed, failed=code in {1, -11})
        )

    def end_for_memory(self, name: str) -> None:
        self.end_pod(name, NodeExited(name, "it ran out of memory", was_killed=True, out_of_memory=True))

    def evict(self, _name: str) -> None:
        """Do nothing yet: it ends when its time is over (`ends_at_s`)."""
        self.n_loss += 1

    def lose_host(self, host: int) -> None:
        for name, pod in list(self.pods.items()):
            if pod.address and int(name.rpartition("-")[2]) % 2 == host:
                self.n_loss += 1
                self.end_pod(name, NodeExited(name, "its machine is gone"))

    def lose_nodes(self) -> None:
        for host in (0, 1):
            self.lose_host(host)

    # rows

    def push(self, owner: str, epoch: int, rows: range) -> None:
        """Let the job's parameters learn rows."""
        self.account.push(owner, epoch, rows, self.learnt)
        for row in rows:
            self.learnt[epoch, row] = self.learnt.get((epoch, row), 0) + 1

    def _is_lost(self, owner: str) -> bool:
        pod = self.pods[owner.partition("/")[0]]
        return owner not in {each.owner for each in pod.sessions} or pod.node in self.stopped_nodes

    def _is_excused(self, owner: str) -> bool:
        """Whether the master may have given a program up that lives."""
        is_silent = self.elapsed_s > self._heard_s.get(owner, self.elapsed_s) + SILENT_S - 2
        return is_silent or owner in self._silent or owner.partition("/")[0] in self.stopped_nodes

    # programs with checkpoints

    def saver_of(self, joined: PlayedSession) -> SavingSaver:
        """Return what a program saves and loads with."""
        if joined.saver is None:
            joined.saver = SavingSaver(self, joined)
        return joined.saver

    # elastic jobs

    def wake_later(self, seconds: float, task: Task, number: int) -> None:
        """Wake a task later, if it is in its wait of this number still."""

        def wake() -> None:
            self.tasks.sleep(seconds)
            self.tasks.wake_if(task, number, value=True)

        self.tasks.begin(wake, NETWORK)

    def count_step(self) -> None:
        """Count a step of the program that runs."""
        self.tasks.present.greenlet.session.n_step += 1

    def _check_world(self, caller: Caller, made: WorldMade) -> None:
        """Check that all members of a world are told the same, and that their ranks are without gap and repeat."""
        if caller.node in self.stopped_nodes and made.number not in self._worlds:
            self.wrong.append(f"{caller.owner} is in world {made.number}, its node was ended")
        owners = self._worlds.setdefault(made.number, made.owners)
        if made.owners != owners or len(set(owners)) < len(owners):
            self.wrong.append(f"world {made.number} is {owners} and {made.owners}")
        if made.rank >= len(owners) or owners[made.rank] != caller.owner:
            self.wrong.append(f"{caller.owner} has rank {made.rank} of {owners} in world {made.number}")
        if max(self._worlds) > made.number:
            self.wrong.append(f"{caller.owner} gets world {made.number}, which {max(self._worlds)} follows")

    # calls

    def later(self, seconds: float, body: bytes, owner: str, n_pushed: int) -> None:
        """Let a request arrive late, when nobody waits for its answer."""

        def arrive() -> None:
            self.tasks.sleep(seconds)
            if self.master_is_up:
                self.calls.ask_for(body, owner, n_pushed)

        self.tasks.begin(arrive, NETWORK)

    def note_answer(self, call: ServiceCall, owner: str, n_pushed: int, answer: ServiceAnswer) -> None:
        """Note what a program was answered, and that it takes part rightly."""
        if self.elapsed_s > self._heard_s.get(owner, self.elapsed_s) + SILENT_S - 2:
            self._silent.add(owner)
        is_taken = not isinstance(answer, CallRefused) and not getattr(answer, "stale", ())
        if is_taken:
            self._heard_s[owner] = self.elapsed_s
        if is_taken and hasattr(call, "done"):
            self.account.heard(owner, n_pushed)
        if isinstance(answer, ShardGranted):
            self._check_takes_part(call.caller)
        if isinstance(answer, WorldMade):
            self._check_world(call.caller, answer)
        if isinstance(answer, WorldLater):
            self.waits_since_s.setdefault(call.caller.node, self.elapsed_s)
        elif isinstance(answer, WorldMade | WorldOver):
            self.waits_since_s.pop(call.caller.node, None)

    def _check_takes_part(self, caller: Caller) -> None:
        number = int(caller.program.rpartition("-")[2])
        if caller.node in self.stopped_nodes:
            self.wrong.append(f"{caller.owner} gets rows, its node was ended")
        if number < self._newest.get(caller.place, 0):
            self.wrong.append(f"{caller.owner} gets rows, it was replaced")
        self._newest[caller.place] = number

    # the master

    def damage(self, seed: int) -> tuple[Case, ...]:
        return (damage(self.folder, seed),) if (self.folder / WRITE_AHEAD_LOG).exists() else ()

    def crash(self) -> None:
        """Kill the master, with what it has written to its files."""
        image = self.folder.with_name("at its end")
        shutil.copytree(self.folder, image)
        self.backend.has_gone, self.master_is_up = True, False
        self._turns.close()  # type: ignore[attr-defined]  # a generator
        shutil.rmtree(self.folder)
        image.rename(self.folder)

    def restart(self) -> None:
        """Let another master go on; where there is no job file, it begins the job."""
        self.calls, before = PlayedCalls(self), self.backend
        self.backend = self.case.backend(self)
        try:
            with self._disk():
                is_there = (self.folder / JOB).exists()
                self.driver = (
                    external_job.resume_composed(self.backend, self._around(), self._compose)
                    if is_there
                    else external_job.begin_composed(self.spec, self.backend, self._around(), self._compose)
                )
        except BaseException:
            self.backend = before
            raise
        self.start()

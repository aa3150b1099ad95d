"""Real parameter servers and workers in tasks, with a played model, played data and a played line to their master."""

from __future__ import annotations

import math
import traceback
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
from simulation.exchange.network import PlayedContext
from simulation.exchange.steps import gradients as step_gradients
from simulation.promises import PromiseBrokenError
from simulation.tasks import LONGEST_S

from dlrover_nb.core.data import Batch
from dlrover_nb.core.errors import BackendError, DlroverError, WireError
from dlrover_nb.core.models.learner import Gradients
from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
from dlrover_nb.core.runtime.ps import server as servers
from dlrover_nb.core.runtime.ps.migration import PsMigration
from dlrover_nb.core.runtime.ps.server import ParameterServer
from dlrover_nb.core.runtime.ps.serving import Serving
from dlrover_nb.core.runtime.worker import trainer as trainers
from dlrover_nb.core.runtime.worker.worker import Worker
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.resize_messages import Resized
from dlrover_nb.core.structs.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dlrover_nb.core.structs.samples import NodeSample
    from simulation.exchange.world import ExchangeWorld
    from simulation.tasks import Task
    from support.master.played_nodes import FakeNode

    from dlrover_nb.core.structs.wire.node_config import NodeConfig

N_COMMON = 3  # rows of the table that rows of the data share
N_DENSE = 5  # of a model with these columns
REPORT_EVERY_S = 1.0
BATCH_S = 0.25
MOST_WAITS = 1000  # of a node at one moment: chunks of a move take some
Floats = np.ndarray


@dataclass(frozen=True, slots=True)
class NodeClock:
    """The time of the job, as a node reads it."""

    world: ExchangeWorld

    def now_s(self) -> float:
        return self.world.at_s


class SteadyAccounting(TimeAccounting):
    """One whose figures depend on nothing but virtual time."""

    def take(self, node: str, role: Role) -> NodeSample:
        quiet = {"cpu_cores": 0.1, "throttled_s": None, "starved_s": None, "host_cores": None}
        return replace(super().take(node, role), **quiet)


class PlayedAgent:
    """What an `Agent` is to a node: its line to the master, and the only place where it waits."""

    def __init__(
        self, world: ExchangeWorld, node: FakeNode, config: NodeConfig, accounting: TimeAccounting
    ) -> None:
        self._world, self._node, self._accounting = world, node, accounting
        self._watched: list[Any] = []
        self._task: tuple[Task, int] | None = None
        self._doing, self._n_step = "", 0
        self._at_s, self._n_wait = -1.0, 0  # of its last wait, and how many were at that time
        self.report_at_s = math.inf
        self.obey = self.describe = self.introduce = lambda value: value
        self.describe = m.Report
        self.sleep = None
        self.make_way = int
        self.memory_mib = config.memory_mib

    # of the product's nodes

    def watch(self, socket: Any) -> None:
        self._watched.append(socket)

    def unwatch(self, socket: Any) -> None:
        self._watched.remove(socket)

    def wait(self, timeout_s: float) -> set[Any]:
        sockets = [each for each in self._watched if not isinstance(each, int)]
        for each in sockets:
            each.may_read = True
        self._world.look(self._node.id)
        self._check_rests()
        if not self._node.inbox and not any(each.is_ready for each in sockets):
            tasks = self._world.tasks
            self._task = tasks.present, tasks.present.number + 1
            tasks.park(max(0.0, min(timeout_s, self.report_at_s - self._world.at_s)))
            self._task = None
        ready = {each for each in sockets if each.is_ready}
        while self._node.inbox:
            order = self._node.inbox.popleft()
            self._node.heard.append(order)
            self._world.on_order(self._node, order)
            self.obey(order)
            self._world.on_obeyed(self._node, order)
        self.tick()
        return ready

    def _check_rests(self) -> None:
        """Notice a node that waits for something that is there already, and does not take it."""
        self._n_wait = self._n_wait + 1 if self._world.at_s == self._at_s else 0
        self._at_s = self._world.at_s
        if self._n_wait > MOST_WAITS:
            words = f"{self._node.id} waits {self._n_wait} times at one moment"
            self._world.account.wrong.append(PromiseBrokenError("a node never rests", words))
            self._world.tasks.park(LONGEST_S)

    def tick(self) -> None:
        self._n_step += 1
        if self._world.at_s >= self.report_at_s:
            self.report_at_s = self._world.at_s + REPORT_EVERY_S
            sample = self._accounting.take(self._node.id, self._node.order.role)
            self.send(replace(self.describe(sample), doing=self._doing))

    def send(self, message: m.FromNode, arrays: Iterable[Floats] = ()) -> None:
        self._node.say(message, *(np.array(each) for each in arrays))

    @contextmanager
    def long_work(self, doing: str) -> Iterator[None]:
        self._doing = doing
        yield
        self._doing = ""

    def leave(self) -> None:
        """Do nothing: the world ends it when its time is over."""

    def resize(self, order: Any) -> None:
        if not order.is_ahead:
            self._world.applied[self._node.id] = order.cpu, order.memory_mib
            self.send(Resized(self._node.id, order.cpu, order.memory_mib, False, False))

    # of the world

    def wake(self) -> None:
        """Let the node see what has come."""
        if self._task is not None:
            self._world.tasks.wake_if(*self._task, value=None)

    def beat(self) -> None:
        """Say that it lives, while its report is overdue."""
        if self._world.at_s > self.report_at_s + REPORT_EVERY_S:
            self.send(m.Alive(self._node.id, self._n_step, self._doing, 0.0, 0.0))


class PlayedModel:
    """What a `Learner` is to a trainer: each batch takes 1 from the first number of its rows, its own mark from the second."""

    shares = np.empty(0, np.float32)

    def __init__(self, world: ExchangeWorld, node: FakeNode) -> None:
        self._world, self._node = world, node
        self.values = np.zeros(N_DENSE, np.float32)
        self.gradients = np.zeros(N_DENSE, np.float32)
        self.parameter_gradients = self.gradients

    def reseed(self, _seed: int, _number: int) -> None:
        """Do nothing: it draws nothing."""

    def step(self, rows: Floats, inverse: Floats, dense: Floats, _labels: Floats) -> Gradients:
        world, account = self._world, self._world.account
        world.tasks.sleep(BATCH_S * world.slow.get(self._node.id, 1.0))
        ids = np.empty(len(rows), np.int64)
        ids[inverse] = table_rows(dense[:, 0].astype(np.int64), world.n_row).ravel()
        account.look_up(self._node.id, ids, rows)
        mark = account.compute(self._node.id, dense[:, 0].astype(int).tolist(), ids)
        if world.job.deterministic:
            of_rows, self.gradients[:] = step_gradients(ids, rows, self.values)
            return Gradients(float(mark), of_rows)
        gradients = np.ones_like(rows)
        gradients[:, 1] = mark / account.MARKS
        self.gradients[:] = mark / account.MARKS
        return Gradients(float(mark), gradients)

    def logits(self, _rows: Floats, _inverse: Floats, dense: Floats) -> Floats:
        return np.zeros(len(dense), np.float32)

    def scores(self, _rows: Floats, _inverse: Floats, dense: Floats) -> Floats:
        self._world.tasks.sleep(BATCH_S)
        return (0.1 + 0.8 * (dense[:, 0] % 2)).astype(np.float32)


def table_rows(rows: Floats, n_row: int) -> Floats:
    """Return the rows of the table that rows of the data have: one of its own, and one that it shares with others."""
    return np.stack([rows, n_row + rows % N_COMMON], axis=1)


def reader_of(n_row: int) -> Any:
    """Return what reads rows of data whose row i has the number i, an id of its own, and one of few."""

    def read(start: int, stop: int) -> Batch:
        rows = np.arange(start, stop)
        return Batch(table_rows(rows, n_row), rows[:, None].astype(np.float32), (rows % 2).astype(np.float32))

    return read


def _noted(kind: type[Any], parts: list[Any]) -> Any:
    """Return what makes parts of a node of this kind, and notes each."""

    def make(*args: Any, **more: Any) -> Any:
        parts.append(kind(*args, **more))
        return parts[-1]

    return make


class RealNode:
    """A worker or a parameter server of the product, and its tasks."""

    def __init__(self, world: ExchangeWorld, node: FakeNode, config: NodeConfig) -> None:
        self._world, self._node, self.config = world, node, config
        clock = NodeClock(world)
        accounting = SteadyAccounting(clock, n_byte=lambda: 50 << 20)
        self.agent = PlayedAgent(world, node, config, accounting)
        self._context = PlayedContext(world.network_of_data, node.id, self.agent.wake)
        self._parts = self._context, accounting, clock
        self.program: Worker | ParameterServer | None = None
        self.serving: Serving | None = None  # of a server
        self.migration: PsMigration | None = None
        self.tasks = [world.tasks.begin(self._run, node.id), world.tasks.begin(self._beat, node.id)]

    @property
    def endpoint(self) -> str:
        return self.program.endpoint if isinstance(self.program, ParameterServer) else ""

    def hello(self) -> None:
        """Say Hello with what the master may not have heard."""
        pid = self._world.pid_of(self._node.id)
        said = m.Hello(self._node.id, self._node.order.role, pid, "host", self.endpoint, False)
        self.agent.send(self.agent.introduce(said))

    def _compose(self) -> Worker | ParameterServer:
        context, accounting, clock = self._parts
        if self._node.order.role is Role.PS:
            parts: list[Any] = []
            with (
                mock.patch.object(servers, "Serving", _noted(Serving, parts)),
                mock.patch.object(servers, "PsMigration", _noted(PsMigration, parts)),
            ):
                server = ParameterServer(context, self.config, self.agent, accounting)
            self.serving, self.migration = parts
            return server
        config, account = self.config, self._world.account
        reader = SimpleNamespace(read=reader_of(self._world.n_row))
        model = PlayedModel(self._world, self._node)
        with mock.patch.object(trainers, "Learner", return_value=model):
            trainer = trainers.Trainer(
                config.spec, config.features, reader, accounting,
                on_loss=lambda loss: account.acknowledge(self._node.id, int(loss)),
            )  # fmt: skip
        return Worker(context, config, agent=self.agent, accounting=accounting, clock=clock, trainer=trainer)

    def _run(self) -> None:
        try:
            with closing(self._compose()) as self.program:
                self.hello()
                self.agent.report_at_s = self._world.at_s + REPORT_EVERY_S
                self.program.run()
        except Exception as error:  # noqa: BLE001 - as a node's own process reports it
            self._fail(error)
        else:
            self._world.look(self._node.id)
            self._node.is_alive = False

    def _fail(self, error: Exception) -> None:
        is_lasting = isinstance(error, DlroverError) and not isinstance(error, BackendError | WireError)
        why = str(error) if isinstance(error, DlroverError) else f"{type(error).__name__}: {error}"
        self._world.failures.append(f"{self._node.id}: {why}\n{traceback.format_exc()}")
        by_its_work = not isinstance(error, BackendError | WireError)
        self.agent.send(m.NodeFailed(self._node.id, why, not is_lasting, False, "", by_its_work))
        self._world.fail(self._node.id)

    def _beat(self) -> None:
        while True:
            self._world.tasks.sleep(REPORT_EVERY_S)
            self.agent.beat()

    def end(self) -> None:
        """Let nothing follow of it."""
        for socket in self._context.sockets:
            socket.closed = True
        for task in reversed(self.tasks):
            self._world.tasks.kill(task)
        self.tasks = []

    def leave(self) -> None:
        """Get SIGTERM."""
        if self.program is not None:
            self.program.leave()

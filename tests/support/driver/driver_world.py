"""A world for the loop of a job: the real loop with its files and records, among played nodes, in virtual time.

`DriverWorld` composes an own job as a master's process does: loop, job master, controller, write-ahead log, journal,
history, logs and the folder of checkpoints are the real ones. Played are its surroundings: a backend whose nodes
live in the process of the test (`played_nodes`), and the socket between them, over which real messages go as real
frames. Time passes only while the loop waits for its nodes, so a test waits for nothing, and what it sees depends on
nothing else that the machine does.

A command of a client is carried out at once, as the loop takes a turn when it is woken.
"""

from __future__ import annotations

import math
import shutil
import threading
from collections import deque
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from dlrover_nb.core.backends.programs.exits import exited
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.driver.backend import NodeAllotted, NodeExited
from dlrover_nb.core.driver.own import own_job
from dlrover_nb.core.driver.own.transport import MasterSocket, Received
from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.master.shared.orders import StartNode
from dlrover_nb.core.runtime.exchange.message_decoder import MessageDecoder
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.runtime.process.output import output_path
from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.wire import messages as m
from support.master.played_nodes import FakeNode, PlayedNodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from dlrover_nb.core.runtime.exchange.sockets import JobKeys
    from dlrover_nb.core.structs.plan.capacity import Need
    from dlrover_nb.core.structs.training.shards import Shard
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

START_S = 1_000_000.0
STEP_S = 0.125  # in which a worker trains a batch; it divides all intervals of the loop, without a rest
REPORT_EVERY_S = 1.0
MOST_S = 900.0  # of virtual time that anything takes
N_CHUNK = 6  # that a PS sends in a step


def plan(workers: int = 1, ps: int = 1, *, worker_cpu: float = 0.5, ps_cpu: float = 0.4) -> ResourcePlan:
    return ResourcePlan(RolePlan(workers, worker_cpu, 512), RolePlan(ps, ps_cpu, 256))


def features(n_train: int = 395, n_eval: int = 45) -> FeatureSpec:
    return FeatureSpec("label", (), (CategoricalColumn("c", 0, 8),), n_train, n_eval)


class ManualMachine:
    """The clocks of a machine, which a test moves."""

    boot = "its only boot"

    def __init__(self) -> None:
        self.passed_s = self.set_by_s = 0.0

    def wall_s(self) -> float:
        return START_S + self.passed_s + self.set_by_s

    def up_s(self) -> float:
        return self.passed_s


class PlayedSocket(MasterSocket):
    """The master's end of what played nodes say and hear; messages are decoded as from any socket."""

    def __init__(self, world: DriverWorld, listen: str, folder: Path) -> None:
        self._world, self.endpoint, self._n_refused = world, f"{listen}://{folder}/master", 0
        self._decoder = MessageDecoder("the job master", m.FromNode | m.LinesWritten)

    def wake(self) -> None:
        self._world.wake()

    def receive(self, timeout_s: float) -> Iterator[Received]:
        for sender, frames in self._world.messages(timeout_s):
            if (received := self.read(sender.encode(), frames)) is not None:
                yield received

    def send(self, node: str, message: m.ToNode) -> None:
        order, _ = decode([bytes(frame) for frame in encode(message)])
        self._world.hear_order(node, order)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class PlayedBackend:
    """Starts and ends played nodes; fits `core.driver.backend.Backend`."""

    def __init__(self, world: DriverWorld) -> None:
        self._world, self._exits = world, deque[NodeExited]()
        self._living: set[str] = set()
        self.started: dict[str, NodeConfig] = {}
        self.missing = self.endpoint = ""
        self.has_gone = False  # with its master: it does nothing any more

    def capacity(self) -> Capacity:
        return self._world.capacity

    def room(self) -> Capacity:
        return self._world.capacity

    def listen(self) -> str:
        return "ipc"

    def start_node(self, config: NodeConfig) -> None:
        if config.node in self._world.nodes:
            raise InvalidValueError(f"node ids must be new, got {config.node} again; use the next number")
        self._living.add(config.node)
        self.started[config.node] = config
        self._world.begin(StartNode(config.node, config.role, config.cpu, config.memory_mib))

    def adopt(self, nodes: Mapping[str, Need]) -> None:
        there = set(self._world.living(Role.WORKER) + self._world.living(Role.PS))
        self._living = there & nodes.keys()
        for node in there - nodes.keys():
            self._world.nodes[node].is_alive = False
        gone = sorted(nodes.keys() - there)
        self._exits.extend(NodeExited(node, "it ended while its master was away") for node in gone)

    def stop_node(self, node: str) -> None:
        if node in self._living and node not in self._world.unreachable:
            self._world.nodes[node].is_alive = False

    def poll(self) -> tuple[NodeExited, ...]:
        ended = sorted(node for node in self._living if not self._world.nodes[node].is_alive)
        self._living.difference_update(ended)
        exits, self._exits = tuple(self._exits), deque()
        return (*exits, *(self._world.exit_of(node) for node in ended))

    def set_master_endpoint(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def waiting(self) -> Mapping[str, str]:
        return {}

    def denied(self) -> str:
        return self.missing

    def close(self) -> None:
        for node in () if self.has_gone else self._world.nodes.values():
            node.is_alive = False


class ResizingPlayedBackend(PlayedBackend):
    """One that gives running nodes other cores and memory; `refusals` says for which it cannot, and why."""

    def __init__(self, world: DriverWorld) -> None:
        super().__init__(world)
        self.resizings: dict[str, Need] = {}
        self.n_answer = 1_000  # requests that are answered
        self.refusals: dict[str, str] = {}

    def resizes_in_place(self) -> bool:
        return True

    def resize_node(self, node: str, need: Need) -> None:
        self.resizings[node] = need

    def allotted(self) -> tuple[NodeAllotted, ...]:
        answered = list(self.resizings)[: self.n_answer]
        self.n_answer -= len(answered)
        return tuple(
            NodeAllotted(node, self.resizings.pop(node), self.refusals.get(node, "")) for node in answered
        )


class DriverWorld(PlayedNodes):
    """A job in a folder of its own, of which a test takes one turn after the other.

    Parameters
    ----------
    folder
        Of the run folder and the history.
    rows
        The encoding of its rows; None: a small one.
    backend
        Where its nodes run.
    history
        URL of the history; empty: a file in `folder`.
    bind
        Binds the master's socket; None: a played one.
    changes
        Of the job.
    """

    def __init__(
        self,
        folder: Path,
        rows: FeatureSpec | None = None,
        *,
        backend: type[PlayedBackend] = PlayedBackend,
        history: str = "",
        bind: Callable[[str, Path, JobKeys], MasterSocket] | None = None,
        **changes: Any,
    ) -> None:
        fields = {
            "name": "real",
            "plan": plan(),
            "mode": Mode.MANUAL,
            "batch_size": 10,
            "shard_batches": 4,
            "checkpoint_every_s": 0.0,
        }
        super().__init__(JobSpec(**(fields | changes)), rows or features())
        self.spec, self.features, self.folder = self.job, self.rows, folder / "run"
        self.history = history or f"sqlite:///{folder / 'history.db'}"
        self.machine, self.capacity = ManualMachine(), Capacity((NodeShape(3.0, 8192),))
        self.unreachable: set[str] = set()  # nodes that the backend cannot end
        self.frozen: set[str] = set()  # nodes that do nothing
        self.messages_of_others: deque[tuple[str, list[bytes]]] = deque()
        self._exits: dict[str, NodeExited] = {}
        self.n_turn = 0
        self.last_seen: JobSnapshot | None = None  # the last snapshot of a killed master
        self._pids, self._thread, self._is_turning = count(1000), threading.current_thread(), False
        self._pid_of: dict[str, int] = {}
        self._trained: dict[str, list[int]] = {}  # rows of each batch since the last report
        self._reported_at_s: dict[str, float] = {}
        self._trains_at_s: dict[str, float] = {}
        self._bind = bind or (lambda listen, folder, _: PlayedSocket(self, listen, folder))
        self.backend = backend(self)
        self.driver = own_job.begin(self.spec, self.features, self._setup())
        self._turns: Iterator[None] = iter(())

    def _setup(self) -> own_job.RunSetup:
        return own_job.RunSetup(
            self.backend,
            self.folder,
            history_url=self.history,
            clock=SystemClock(self.machine),
            bind=self._bind,
            in_threads=False,
        )

    # of the loop

    @property
    def at_s(self) -> float:
        """The time of the job."""
        return START_S + self.machine.passed_s

    @property
    def now(self) -> JobSnapshot:
        return self.driver.snapshot()

    def start(self) -> None:
        """Let the loop carry out its first orders."""
        self._turns = self.driver.turns()
        self.turn_loop()

    def turn_loop(self) -> bool:
        """Let the loop take a turn; return whether the job goes on."""
        self._is_turning = True
        self.n_turn += 1
        try:
            return next(self._turns, self) is None
        finally:
            self._is_turning = False

    def wake(self) -> None:
        """Let the loop run the command that waits, unless it is at work already."""
        if not self._is_turning and threading.current_thread() is self._thread:
            self.turn_loop()

    def until(self, condition: Callable[[JobSnapshot], object]) -> JobSnapshot:
        """Take turns until a published snapshot is as asked; return it."""
        end_s = self.at_s + MOST_S
        while not condition(now := self.now):
            assert not now.phase.is_final, f"{now.phase}: {now.message}"
            assert self.at_s < end_s, f"{now.phase}: {now.message} {now.nodes} {now.train} {tuple(now.story)}"
            self.turn_loop()
        return now

    def pass_time(self, seconds: float) -> JobSnapshot:
        """Take turns for so long."""
        end_s = self.at_s + seconds
        return self.until(lambda _: self.at_s >= end_s)

    def until_end(self) -> JobSnapshot:
        end_s = self.at_s + MOST_S
        while self.turn_loop():
            assert self.at_s < end_s, self.now
        return self.now

    def close(self) -> None:
        """End it, and see that no node is left, unless its master was killed and none came after it."""
        self._turns.close()  # type: ignore[attr-defined]  # a generator
        assert self.backend.has_gone or not [node for node in self.nodes.values() if node.is_alive]

    def story_has(self, *words: str) -> bool:
        """Whether one line of the story holds all these words."""
        return any(all(word in line for word in words) for line in self.now.story)

    def scale(self, target: ResourcePlan) -> Decision:
        return self.driver.decide(Decision(Verdict.SCALE, "ada", self.at_s, plan=target))

    # of the master's end and its successor

    def cut_off(self) -> None:
        """Note what the master's files hold now: all that is left of it when it is killed at this moment."""
        shutil.copytree(self.folder, self._image)
        self.last_seen, self.backend.has_gone = self.now, True

    def crash(self) -> None:
        """Kill the master, with what it has written to its files and with the messages that it did not read."""
        if not self._image.exists():
            self.cut_off()
        self._turns.close()  # type: ignore[attr-defined]  # a generator
        shutil.rmtree(self.folder)
        self._image.rename(self.folder)
        for node in self.nodes.values():
            node.outbox.clear()

    @property
    def _image(self) -> Path:
        return self.folder.with_name("at its end")

    def resume(self) -> None:
        """Compose the loop of another master of the job."""
        backend, self.backend = self.backend, type(self.backend)(self)
        try:
            self.driver = own_job.resume(self._setup())
        except DlroverError:
            self.backend = backend
            raise

    def come_back(self) -> None:
        """Let another master continue the job; the nodes that live say Hello to it."""
        self.resume()
        for name, node in self.nodes.items():
            if node.is_alive and node.has_come_up:
                self.hello(name)
        self.start()

    # of the nodes

    def messages(self, limit_s: float) -> Iterator[tuple[str, list[bytes]]]:
        """Let time pass until a node says something, at most so long; yield all that was said."""
        end_s = self.at_s + limit_s
        while not self._has_message() and self.at_s < end_s:
            self._step(min(STEP_S, end_s - self.at_s))
        while self.messages_of_others:
            yield self.messages_of_others.popleft()
        for node in self.nodes.values():
            while node.outbox:
                message, arrays = node.outbox.popleft()
                yield node.id, [bytes(frame) for frame in encode(message, arrays)]

    def _has_message(self) -> bool:
        return bool(self.messages_of_others) or any(node.outbox for node in self.nodes.values())

    def hear_order(self, node: str, order: m.ToNode) -> None:
        """Pass a message of the master to a node; to one that is gone it is lost."""
        if node in self.nodes and self.nodes[node].is_alive:
            self.nodes[node].inbox.append(order)

    def _step(self, seconds: float) -> None:
        self.machine.passed_s += seconds
        for name in list(self.nodes):
            if name not in self.frozen:
                self._act(self.nodes[name])
        for _ in range(N_CHUNK):
            while busy := self.network.busy:
                self.deliver(busy[0])
            for name in self.living(Role.PS):
                if self.ps[name].migration.wait_s(self.at_s) == 0 and name not in self.frozen:
                    self.turn(name)
        for name, node in self.nodes.items():
            if node.is_alive and node.has_come_up and name not in self.frozen:
                self._report_when_due(name)

    def _act(self, node: FakeNode) -> None:
        """Come up, or obey all orders and then work."""
        if node.is_alive and not node.has_come_up:
            self.hello(node.id)
            return
        while node.is_alive and node.inbox:
            self.turn(node.id)
        if self._trains_at_s.get(node.id, 0.0) <= self.at_s:
            self.turn(node.id)

    def hello(self, name: str) -> None:
        node = self.nodes[name]
        if not node.has_come_up:
            node.has_come_up, node.iter_s = True, node.iter_s or STEP_S
            self._pid_of[name] = next(self._pids)
            self._reported_at_s[name] = self.at_s
        node.say(node.hello(self._pid_of[name]))

    def _train_batch(self, node: FakeNode, shard: Shard) -> None:
        before, n_end = node.n_done, shard.end
        super()._train_batch(node, shard)
        n_row = (n_end if node.shard is None else node.n_done) - before
        self._trained.setdefault(node.id, []).append(n_row)
        self._trains_at_s[node.id] = self.at_s + max(node.iter_s, STEP_S)

    def _scores(self, shard: Shard) -> tuple[np.ndarray, np.ndarray]:
        """Return scores of a model that has learnt its rows, whose labels alternate."""
        labels = (np.arange(shard.start, shard.stop) % 2).astype(np.float32)
        return 0.1 + 0.8 * labels, labels

    def _copy(self, node: FakeNode, save: m.Save) -> None:
        self.saving = self.copies.setdefault(save.checkpoint, dict(self.learnt))
        super()._copy(node, save)

    def _report_when_due(self, name: str) -> None:
        window_s = self.at_s - self._reported_at_s[name]
        if window_s >= REPORT_EVERY_S:
            self._reported_at_s[name] = self.at_s
            node = self.nodes[name]
            lease = node.shard.lease if node.shard else None
            sample = self._sample(node, window_s)
            node.say(m.Report(sample, lease, node.n_done, is_leaving=node.is_leaving))
            if node.left is not None:
                node.say(node.left)

    def _sample(self, node: FakeNode, window_s: float) -> NodeSample:
        rows = self._trained.pop(node.id, [])
        iter_s = window_s / len(rows) if rows else STEP_S
        sample = NodeSample(
            node.id, node.order.role, self.at_s, window_s, len(rows), sum(rows), iter_s,
            TimeSplit(compute_s=iter_s), node.order.cpu, 100.0, loss=0.3,
        )  # fmt: skip
        if node.order.role is Role.WORKER:
            return sample
        return replace(sample, n_iter=8, loss=None, parameter_mib=1.0, split=TimeSplit(idle_s=iter_s))

    # of what befalls nodes

    def evict(self, *names: str) -> None:
        """Send SIGTERM: a PS serves on until its part has moved, and a worker ends after its shard."""
        for name in names:
            node = self.nodes[name]
            node.is_leaving = node.order.role is Role.PS
            node.is_draining = node.order.role is Role.WORKER

    def kill(self, name: str) -> None:
        """End a node by SIGKILL."""
        self.end(name, -9)

    def lose(self, role: Role) -> str:
        """Kill a node of a role by SIGKILL; return its name."""
        name = next(node.id for node in self.now.nodes if node.role is role and node.pid)
        self.kill(name)
        return name

    def end(self, name: str, code: int, errors: str = "") -> None:
        """End a node's process with an exit code, after it has written to standard error."""
        if errors:
            self.write(name, errors)
        self.nodes[name].is_alive = False
        self._exits[name] = exited(self.job.name, name, None, code, output_path(self.folder, name, "stderr"))

    def end_for_memory(self, name: str) -> None:
        """End a node as the kernel does that has no memory for it."""
        self.nodes[name].is_alive = False
        self._exits[name] = NodeExited(name, "it ran out of memory", was_killed=True, out_of_memory=True)

    def write(self, name: str, text: str, stream: str = "stderr") -> None:
        """Let a node write lines, which its master has not been sent."""
        path = output_path(self.folder, name, stream)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with path.open("a") as file:
            file.write(text)

    def exit_of(self, name: str) -> NodeExited:
        return self._exits.pop(name, None) or exited(
            self.job.name, name, None, 0, output_path(self.folder, name, "stderr")
        )

    def n_trained(self) -> set[int]:
        """Return how often rows were trained, by what the PS that serve last hold."""
        last = [order for node in self.nodes.values() for order in node.heard if isinstance(order, m.Train)]
        group = max(last, key=lambda order: order.ps_epoch)
        taught = [self.ps[each.removeprefix("ipc://")].taught() for each in group.endpoints]
        times = {row: n for part in taught for row, n in part.items()}
        assert times == {e * self.rows.n_train + row: n for (e, row), n in self.learnt.items()}
        assert len(times) == self.rows.n_train * self.job.n_epoch
        return set(times.values())


def succeeded(world: DriverWorld, *, exactly_once: bool = True) -> JobSnapshot:
    """Assert that the job trained every row, counted exactly, and that its PS hold what was trained."""
    end = world.until_end()
    assert end.phase is JobPhase.SUCCEEDED, end.message
    n_shard = math.ceil(world.features.n_train / (world.spec.batch_size * world.spec.shard_batches))
    assert end.train.done == end.train.total == n_shard * world.spec.n_epoch
    assert end.train.n_sample_done == world.features.n_train * world.spec.n_epoch
    assert end.evaluation is not None
    assert end.evaluation.n_sample == world.features.n_eval
    assert not end.nodes
    n_trained = world.n_trained()
    assert not exactly_once or n_trained == {1}
    return end

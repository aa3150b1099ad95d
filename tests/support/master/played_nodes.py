"""Nodes of a job that are played in the process of a test: they answer as real ones do, message by message.

A worker trains one batch per turn, and a PS holds a real store (`ps_world`). Who hears them, who tells them what to
do and when, is up to the world that plays them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.training.checkpoints import MemoryPart, PartSource
from dlrover_nb.core.structs.training.resize_messages import Resize, Resized
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.training.shards import MOST_HELD, Purpose, Shard, ShardProgress, SkippedBatch
from dlrover_nb.core.structs.wire import messages as m
from dlrover_nb.core.structs.wire.copy_messages import Cut
from support.master.ps_world import FakePs, Network

if TYPE_CHECKING:
    from dlrover_nb.core.master.shared.orders import StartNode
    from dlrover_nb.core.runtime.store import StorePart
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec

ASK_AGAIN_S = 30.0  # a worker's patience with an answer that may have been lost with a master


@dataclass
class FakeNode:
    """A worker trains one batch per turn; for a PS there is a `FakePs` of the same name too."""

    order: StartNode
    cuts: deque[tuple[m.Save, StorePart, dict[tuple[int, int], int]]] = field(default_factory=deque)
    writes: deque[m.Save] = field(default_factory=deque)
    inbox: deque[m.ToNode] = field(default_factory=deque)
    outbox: deque[tuple[m.FromNode, tuple[np.ndarray, ...]]] = field(default_factory=deque)
    train: m.Train | None = None
    is_paused: bool = False
    is_draining: bool = False
    wants_shard: bool = True
    asked_at_s: float = 0.0
    shard: Shard | None = None
    granted: deque[Shard] = field(default_factory=deque)
    n_done: int = 0
    skipped: tuple[SkippedBatch, ...] = ()  # of its shard
    released: deque[ShardProgress] = field(default_factory=lambda: deque(maxlen=2 * MOST_HELD))
    left: m.Left | None = None  # said again until its master answers
    ps_epoch: int = 0
    iter_s: float = 0.1
    memory_mib: float = 100.0
    is_alive: bool = True
    heard: list[m.ToNode] = field(default_factory=list)
    has_come_up: bool = False
    is_leaving: bool = False  # it got SIGTERM; a PS serves on
    is_stuck: bool = False  # a worker: a PS that it does not reach has yet to answer it

    @property
    def id(self) -> str:
        return self.order.node

    @property
    def unfinished(self) -> tuple[ShardProgress, ...]:
        return () if self.shard is None else _progress(self.shard, self.n_done, self.skipped)

    def has_had(self, shard: Shard) -> bool:
        """Whether it holds this grant, or has let it go."""
        held = [*self.granted, *([self.shard] if self.shard else [])]
        return shard.lease in {each.lease for each in (*held, *self.released)}

    def say(self, message: m.FromNode, *arrays: np.ndarray) -> None:
        self.outbox.append((message, arrays))

    def hello(self, pid: int) -> m.Hello:
        """Return what it says when it connects."""
        is_ps = self.order.role is Role.PS
        said = m.Hello(self.id, self.order.role, pid, "host", f"ipc://{self.id}", False)
        if is_ps:
            return replace(said, ps_epoch=self.ps_epoch)
        unfinished = [
            *self.unfinished,
            *(each for shard in self.granted for each in _progress(shard, shard.offset)),
        ]
        return replace(said, released=tuple(self.released), unfinished=tuple(unfinished))

    def let_go(self) -> None:
        """Hold its shard no longer."""
        self.released.extend(self.unfinished)
        self.shard, self.n_done, self.skipped = None, 0, ()


class PlayedNodes:
    """All nodes of one job, and what they hold."""

    at_s: float

    def __init__(self, job: JobSpec, rows: FeatureSpec) -> None:
        self.job, self.rows = job, rows
        self.nodes: dict[str, FakeNode] = {}
        self.ps: dict[str, FakePs] = {}
        self.network = Network()
        self.learnt: dict[tuple[int, int], int] = {}  # what the PS together should hold
        self.saving: dict[tuple[int, int], int] = {}
        self.copies: dict[int, dict[tuple[int, int], int]] = {}
        self.memory: dict[int, dict[tuple[int, int], int]] = {}
        self.parts: dict[tuple[str, int], StorePart] = {}
        self.files: dict[str, StorePart] = {}
        self.folders: set[int] = set()  # of checkpoints, complete or not
        self.has_memory = True
        self.stream_end: int | None = None  # where a stream ends; None: rows are as many as the job says
        self.writes_nothing = self.copies_nothing = False
        self.fails_to_save = ""
        self.damaged: set[int] = set()
        self.broken: set[int] = set()  # rows whose batch cannot be trained
        self.without_score: set[int] = set()  # rows that are scored NaN
        self.poison: set[int] = set()  # rows that end who trains or scores them
        self.applied: dict[str, tuple[float, int]] = {}  # what nodes made of other limits
        self.refused: list[str] = []  # workers that PS did not listen to
        self.granted: list[tuple[str, Shard]] = []

    def begin(self, order: StartNode) -> None:
        """Let a node come into being; it does nothing yet."""
        self.nodes[order.node] = FakeNode(order)
        if order.role is Role.PS:
            self.ps[order.node] = FakePs(order.node, self.job.n_epoch * self.rows.n_train, self.network)

    def kill(self, name: str) -> None:
        """End a node by force."""
        raise NotImplementedError

    def _living(self, role: Role) -> list[FakeNode]:
        return [n for n in self.nodes.values() if n.is_alive and n.order.role is role]

    def living(self, role: Role) -> list[str]:
        return [n.id for n in self._living(role)]

    @property
    def n_training(self) -> int:
        """Workers that train."""
        return sum(n.train is not None and not n.is_paused for n in self._living(Role.WORKER))

    def hello(self, name: str) -> None:
        node = self.nodes[name]
        node.has_come_up = True
        node.say(node.hello(1))

    def turn(self, name: str) -> bool:
        """Let a living node handle one order, or train one batch; whether it did anything."""
        node = self.nodes[name]
        if not node.is_alive:
            return False
        if node.inbox:
            self._obey(node, node.inbox.popleft())
            return True
        if node.order.role is Role.PS:
            told = self.ps[name].step(self.at_s)
            for message in told:
                node.say(message)
            return self._end_copy(node) or self._persist(node) or bool(told)
        return not node.is_stuck and self._work(node)

    def deliver(self, pair: tuple[str, str]) -> None:
        """Let the oldest chunk or answer between two PS arrive; the dead hear nothing."""
        item = self.network.links[pair].popleft()
        source, target = pair
        if self.nodes[target].is_alive:
            self.ps[target].hear(source, item, self.at_s)

    def _copy(self, node: FakeNode, save: m.Save) -> None:
        """Cut at once, copy and write some turns later; without memory for a copy, write at once."""
        self.copies_nothing, held = False, self.copies_nothing
        while self._end_copy(node):
            pass
        self.copies_nothing = held
        part = self.ps[node.id].copy()
        if self.has_memory:
            node.cuts.append((save, part, dict(self.saving)))
            node.say(Cut(node.id, save.checkpoint))
            return
        self.parts[node.id, save.checkpoint] = part
        node.say(m.Copied(node.id, save.checkpoint))
        node.writes.append(save)
        self._persist(node)

    def _end_copy(self, node: FakeNode) -> bool:
        if not node.cuts or self.copies_nothing:
            return False
        save, part, learnt = node.cuts.popleft()
        self.parts[node.id, save.checkpoint] = part
        self.memory[save.checkpoint] = learnt
        self.memory.pop(save.checkpoint - 2, None)  # there are two buffers
        node.say(m.Copied(node.id, save.checkpoint, MemoryPart(node.id, save.checkpoint, "", 8)))
        node.writes.append(save)
        return True

    def _persist(self, node: FakeNode) -> bool:
        if not node.writes or self.writes_nothing:
            return False
        save = node.writes.popleft()
        self.folders.add(save.checkpoint)  # made anew, if it was dropped meanwhile
        self.files[save.file] = self.parts[node.id, save.checkpoint]
        node.say(m.Saved(node.id, save.checkpoint, save.file, "0" * 64, 1, 8, self.fails_to_save))
        return True

    def _obey(self, node: FakeNode, message: m.ToNode) -> None:  # noqa: C901, PLR0912 - one flat branch per order
        node.heard.append(message)
        match message:
            case m.Load():
                self._load(node, message)
            case m.Save():
                self._copy(node, message)
            case m.MoveOut() | m.MoveEnd() | m.MoveCancel():
                for told in self.ps[node.id].obey_move(message, self.at_s):
                    node.say(told)
            case m.Forget(worker):
                self.ps[node.id].forgotten.add(worker)
                node.say(m.Forgotten(node.id, worker))
            case m.Train():
                self._begin_to_train(node, message)
            case m.Pause(drops=False) if node.is_stuck:
                pass  # until it has its answer, or may drop the exchange
            case m.Pause():
                node.is_paused = True
                lease = node.shard.lease if node.shard else None
                paused = m.Paused(node.id, message.ps_epoch, lease, node.n_done, message.number)
                node.say(replace(paused, released=tuple(node.released)))
            case m.Granted(shard):
                if not node.has_had(shard):
                    node.granted.append(shard)
                    self.granted.append((node.id, shard))
            case m.NoShard():
                node.wants_shard = True
            case m.Drain(at_once):
                node.is_draining = True
                if at_once:
                    self._leave(node)
            case Resize(cpu, memory_mib, is_ahead):
                if not is_ahead:
                    self.applied[node.id] = cpu, memory_mib
                    node.say(Resized(node.id, cpu, memory_mib, False, False))
            case m.Stop():
                node.is_alive = False

    def _leave(self, node: FakeNode) -> None:
        """Leave, and say so until the master has heard it."""
        lease = node.shard.lease if node.shard is not None else None
        node.left = m.Left(node.id, lease, node.n_done if node.shard else 0, tuple(node.released))
        node.say(node.left)

    def _begin_to_train(self, node: FakeNode, train: m.Train) -> None:
        if train == node.train and not node.granted:
            node.wants_shard = True  # the answer may have been lost with a master
        node.train, node.is_paused = train, False
        if train.drop_shard:
            node.shard, node.n_done, node.wants_shard = None, 0, True
            node.granted.clear()
            node.released.clear()

    def _load(self, node: FakeNode, load: m.Load) -> None:
        """Take the parameters from memory, else from the files, or none; those that it has already it keeps."""
        if node.ps_epoch == load.ps_epoch:
            node.say(m.Loaded(node.id, load.ps_epoch))
            return
        parts = [self._found(part) for part in load.parts]
        self.ps[node.id].migration.hold(None, None, load.ps_epoch)
        self.ps[node.id].epoch = -1
        if None in parts:
            node.say(m.Loaded(node.id, load.ps_epoch, "it is damaged"))
            return
        node.ps_epoch = load.ps_epoch
        node.writes.clear()
        for save, *_ in node.cuts:
            node.say(m.Copied(node.id, save.checkpoint))
            node.say(m.Saved(node.id, save.checkpoint, save.file, "", 0, 0, "other parameters are loaded"))
        node.cuts.clear()
        self.ps[node.id].load(load, [part for part in parts if part is not None])
        node.say(m.Loaded(node.id, load.ps_epoch))
        if load.index == 0:
            first = load.parts[0] if load.parts else None
            number = 0 if first is None else first.memory.number if first.memory else _number(first.url)
            self.learnt = dict(self.copies[number]) if number else {}

    def _found(self, part: PartSource) -> StorePart | None:
        if part.memory is not None and part.memory.number in self.memory:
            return self.parts.get((part.memory.name, part.memory.number))
        if part.url and _number(part.url) not in self.damaged:
            return self.files[part.url]
        return None

    def _work(self, node: FakeNode) -> bool:
        if node.train is None or node.is_paused or node.left is not None:
            return False
        if any(not self._serves(name, node.train.ps_epoch) for name in _names(node.train)):
            return False  # its PS does not answer, or serves others
        if node.shard is None:
            return self._ask(node)
        self._train_batch(node, node.shard)
        return True

    def _ask(self, node: FakeNode) -> bool:
        if node.is_draining:
            self._leave(node)
            return True
        if node.granted:
            node.shard = node.granted.popleft()
            if (n_row := self._n_coming(node.shard)) is not None:
                node.say(m.StreamEnded(node.id, node.shard.lease, n_row))
                node.shard, node.wants_shard = None, False
                return True
            node.n_done, node.wants_shard, node.skipped = node.shard.offset, True, ()
            return True
        if node.wants_shard or self.at_s > node.asked_at_s + ASK_AGAIN_S:
            node.wants_shard, node.asked_at_s = False, self.at_s
            node.say(m.ShardAsked(node.id, (), tuple(node.released)))
            return True
        return False

    def _n_coming(self, shard: Shard) -> int | None:
        """Return how many rows of a shard a stream still has; None: all."""
        if (
            self.stream_end is None
            or shard.lease.purpose is not Purpose.TRAIN
            or shard.stop <= self.stream_end
        ):
            return None
        return max(0, self.stream_end - shard.start)

    def _ask_early(self, node: FakeNode, shard: Shard) -> None:
        if node.wants_shard and not node.granted and not node.is_draining and 2 * node.n_done >= shard.end:
            node.wants_shard, node.asked_at_s = False, self.at_s
            node.say(m.ShardAsked(node.id, (shard.lease,), tuple(node.released)))

    def _train_batch(self, node: FakeNode, shard: Shard) -> None:
        start = shard.start + node.n_done
        stop = min(start + self.job.batch_size, shard.start + shard.end)
        if any(node.id in self.ps[name].forgotten for name in _names(node.train) if node.train):
            node.is_alive = False
            self.refused.append(node.id)
            return
        if self.poison.intersection(range(start, stop)):
            self.kill(node.id)
            return
        if shard.lease.purpose is Purpose.TRAIN and self.broken.intersection(range(start, stop)):
            node.skipped = (*node.skipped, self._skipped(shard, range(start, stop)))
            node.say(m.BatchSkipped(node.id, shard.lease, node.skipped[-1]))
        elif shard.lease.purpose is Purpose.TRAIN and node.train:
            self._push(node.train, shard.epoch, range(start, stop))
        node.n_done = stop - shard.start
        if node.n_done < shard.end:
            self._ask_early(node, shard)
            return
        is_scored = shard.lease.purpose is Purpose.EVALUATE
        arrays = self._scores(shard) if is_scored else ()
        node.let_go()
        node.say(m.ShardFinished(node.id, shard.lease), *arrays)
        node.wants_shard, node.asked_at_s = False, self.at_s

    def _scores(self, shard: Shard) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores and labels of an evaluation, which is all or nothing."""
        n_row = shard.stop - shard.start
        scores = np.full(n_row, 0.5, np.float32)
        scores[[row in self.without_score for row in range(shard.start, shard.stop)]] = np.nan
        return scores, np.full(n_row, 0.5, np.float32)

    def _skipped(self, shard: Shard, rows: range) -> SkippedBatch:
        broken = tuple(sorted(self.broken.intersection(rows)))
        number, why = shard.lease.shard, "its loss is nan"
        return SkippedBatch(number, len(rows), rows[0], rows[-1], why, len(broken), broken)

    def _serves(self, name: str, epoch: int) -> bool:
        return self.nodes[name].is_alive and self.ps[name].epoch == epoch

    def _push(self, train: m.Train, epoch: int, rows: range) -> None:
        ids = np.array(rows) + epoch * self.rows.n_train
        owner = np.array(train.bucket_owner)[ids % N_BUCKET]
        for index, name in enumerate(_names(train)):
            self.ps[name].push(ids[owner == index])
        for row in rows:
            self.learnt[epoch, row] = self.learnt.get((epoch, row), 0) + 1

    def report(self, name: str) -> None:
        node = self.nodes[name]
        measured = node.iter_s, TimeSplit(), 0.5, node.memory_mib
        sample = NodeSample(name, node.order.role, self.at_s, 1.0, 1, 10, *measured)
        lease = node.shard.lease if node.shard else None
        node.say(m.Report(sample, lease, node.n_done, is_leaving=node.is_leaving))
        if node.left is not None:
            node.say(node.left)

    def evict(self, *names: str) -> None:
        """Send SIGTERM to PS that are up; others end by it."""
        for name in names:
            assert self.nodes[name].order.role is Role.PS
            assert self.nodes[name].has_come_up
            self.nodes[name].is_leaving = True


def _progress(shard: Shard, n_done: int, skipped: tuple[SkippedBatch, ...] = ()) -> tuple[ShardProgress, ...]:
    """Return what is done of a training shard; nothing is of another."""
    trains = shard.lease.purpose is Purpose.TRAIN
    return (ShardProgress(shard.lease, n_done, skipped),) if trains else ()


def _names(train: m.Train) -> list[str]:
    return [endpoint.removeprefix("ipc://") for endpoint in train.endpoints]


def _number(path: str) -> int:
    return int(path.split("/")[-2])

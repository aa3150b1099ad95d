"""A world for the job master: nodes that answer as real ones do, message by message, in any order.

`World` carries orders out on simulated nodes and queues what these say; a test decides who is heard next,
who dies, and what time it is. Per pair, messages keep their order, as on a socket.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest
from ps_world import FakePs, Network

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.runtime.master import JobMaster
from dlrover_nb.core.runtime.orders import (
    DropCheckpoint,
    Emit,
    Manifest,
    Order,
    PrepareCheckpoint,
    ResizeNode,
    Send,
    StartNode,
    StopNode,
    SweepCheckpoints,
    WriteManifest,
)
from dlrover_nb.core.runtime.state import Stage
from dlrover_nb.core.runtime.write_ahead_log import Entry, WriteAheadLog, read_back
from dlrover_nb.core.structs import messages as m
from dlrover_nb.core.structs.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.checkpoints import MemoryPart, PartSource
from dlrover_nb.core.structs.copy_messages import Cut
from dlrover_nb.core.structs.features import CategoricalColumn, FeatureSpec
from dlrover_nb.core.structs.job import JobSpec
from dlrover_nb.core.structs.resizing import Resize, Resized
from dlrover_nb.core.structs.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.shards import Purpose, Shard, SkippedBatch
from dlrover_nb.core.structs.snapshot import Evaluation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.models.score_sums import ScoreSums
    from dlrover_nb.core.runtime.store import StorePart
    from dlrover_nb.core.structs.events import Event

ASK_AGAIN_S = 30.0  # a worker's patience with an answer that may have been lost with a master


def plan(workers: int = 1, ps: int = 1, *, worker_cpu: float = 0.5, ps_cpu: float = 0.25) -> ResourcePlan:
    return ResourcePlan(RolePlan(workers, worker_cpu, 512), RolePlan(ps, ps_cpu, 512))


def spec(first: ResourcePlan | None = None, **changes: object) -> JobSpec:
    fields = {"plan": first or plan(), "batch_size": 10, "shard_batches": 4, "checkpoint_every_s": 0.0}
    return JobSpec("job", **(fields | changes))  # type: ignore[arg-type]


def features(n_train: int = 395, n_eval: int = 45) -> FeatureSpec:
    return FeatureSpec("label", (), (CategoricalColumn("c", 0, 8),), n_train, n_eval)


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
    ps_epoch: int = -1
    iter_s: float = 0.1
    is_alive: bool = True
    heard: list[m.ToNode] = field(default_factory=list)
    has_come_up: bool = False
    is_leaving: bool = False  # it got SIGTERM; a PS serves on

    @property
    def id(self) -> str:
        return self.order.node

    def say(self, message: m.FromNode, *arrays: np.ndarray) -> None:
        self.outbox.append((message, arrays))


class World:
    """One job master among simulated nodes."""

    folder = "/run"

    def __init__(
        self,
        job: JobSpec,
        rows: FeatureSpec | None = None,
        *,
        cpu: float = 8.0,
        capacity: Capacity | None = None,
    ) -> None:
        self.job, self.rows, self.at_s = job, rows or features(), 0.0
        self.resizes = False  # whether the cluster resizes nodes in place
        self.capacity = capacity or Capacity((NodeShape(cpu, 65536),))
        self.master = self._new_master()
        self.log = WriteAheadLog(self.master)
        self.entries = [to_json(self.log.first())]
        self.nodes: dict[str, FakeNode] = {}
        self.ps: dict[str, FakePs] = {}
        self.network = Network()
        self.learnt: dict[tuple[int, int], int] = {}  # what the PS together should hold
        self.disk: dict[int, tuple[Manifest, dict[tuple[int, int], int]]] = {}
        self.saving: dict[tuple[int, int], int] = {}
        self.copies: dict[int, dict[tuple[int, int], int]] = {}
        self.memory: dict[int, dict[tuple[int, int], int]] = {}
        self.parts: dict[tuple[str, int], StorePart] = {}
        self.files: dict[str, StorePart] = {}
        self.n_step = 6  # chunks that a PS sends in a round
        self.has_memory = True
        self.stream_end: int | None = None  # where a stream ends; None: rows are as many as the job says
        self.writes_nothing = self.copies_nothing = False
        self.events: list[Event] = []
        self.dropped: list[int] = []
        self.folders: set[int] = set()  # of checkpoints, complete or not
        self.hangs = False  # the disk does not answer; what it was asked for comes later
        self.asked: list[int] = []
        self.refuses_drops = False  # the disk is read-only for a while
        self.fails_to_write = ""
        self.fails_to_save = ""
        self.damaged: set[int] = set()
        self.starts: list[StartNode] = []
        self.broken: set[int] = set()  # rows whose batch cannot be trained
        self.without_score: set[int] = set()  # rows that are scored NaN
        self.poison: set[int] = set()  # rows that end who trains or scores them
        self.resizings: dict[str, tuple[float, int]] = {}  # asked of the cluster, and not answered
        self.allotted: dict[str, tuple[float, int]] = {}  # what it gave nodes in place
        self.applied: dict[str, tuple[float, int]] = {}  # what these made of it
        self.cannot_resize: dict[str, str] = {}  # nodes that it does not resize, and why
        self.refused: list[str] = []  # workers that PS did not listen to
        self.granted: list[tuple[str, Shard]] = []
        self.do(self.master.start(self.at_s))

    def _new_master(self) -> JobMaster:
        return JobMaster(
            self.job,
            self.rows,
            self.capacity,
            folder=self.folder,
            evaluate=self._evaluate,
            resizes_in_place=None if self.resizes else False,
        )

    def crash(self, *, n_kept: int = 0, dead: Iterable[str] = ()) -> None:
        """Kill the master, and let another one continue from the write-ahead log.

        Of what each node had said and nobody had read, the last `n_kept` messages are still to come; nodes
        that died meanwhile are told of when the backend is asked.
        """
        for name in dead:
            self.nodes[name].is_alive = False
        for node in self.nodes.values():
            while len(node.outbox) > n_kept:
                node.outbox.popleft()
        self.resizings.clear()  # the backend of its successor knows of none
        self.master = self._new_master()
        entries = [from_json(entry, Entry) for entry in self.entries]
        record, kept = read_back(self.master, entries)
        self.log = WriteAheadLog(self.master)
        self.do(self.master.resume(record, kept, self.at_s))
        for node in self.nodes.values():
            if node.is_alive and node.has_come_up:
                self.hello(node.id)
        for name in dead:
            self.do(self.master.on_exit(name, "it was gone when the master came back", self.at_s))

    def _evaluate(self, scores: ScoreSums) -> Evaluation:
        self.check_scores(scores)
        return Evaluation(0.5, 0.1, scores.n_row)

    def check_scores(self, scores: ScoreSums) -> None:
        """Each scored row counts once; of a skipped shard, some may have been scored."""
        n_row = scores.n_row + self.master._state.without_score.n_row
        counts = self.master.evaluation_counts
        assert n_row == counts.n_sample_done or (counts.skipped and n_row < counts.n_sample_done)
        with pytest.raises(InvalidValueError, match=f"got 0 positive and {scores.n_row} negative"):
            scores.evaluate()  # as they are labelled

    # orders

    def do(self, orders: Iterable[Order]) -> None:  # noqa: C901, PLR0912 - one flat branch per order
        orders = tuple(orders)
        if entry := self.log.entry(orders):
            self.entries.append(to_json(entry))
        for order in orders:
            match order:
                case StartNode():
                    self._check_start(order)
                    self.starts.append(order)
                    self.nodes[order.node] = FakeNode(order)
                    if order.role is Role.PS:
                        n_id = self.job.n_epoch * self.rows.n_train
                        self.ps[order.node] = FakePs(order.node, n_id, self.network)
                case StopNode(node):
                    if node in self.nodes:
                        self.nodes[node].is_alive = False
                case ResizeNode(node, cpu, memory_mib):
                    assert self.resizes
                    if self.nodes[node].is_alive:
                        self.resizings[node] = cpu, memory_mib
                case Send(node, message):
                    if node in self.nodes and self.nodes[node].is_alive:
                        self.nodes[node].inbox.append(message)
                case PrepareCheckpoint(number, _, spare):
                    assert set(spare) < self.disk.keys() or not spare, "one always stays"
                    assert all(n.is_paused or not n.train for n in self._living(Role.WORKER))
                    self.saving = dict(self.learnt)
                    self.copies[number] = self.saving
                    if self.hangs:
                        self.asked.append(number)
                    elif self.fails_to_write:
                        self.do(self.master.checkpoint_failed(number, self.fails_to_write, self.at_s))
                    else:
                        self.folders.add(number)
                        self.do(self.master.checkpoint_prepared(number, self.at_s))
                case WriteManifest(manifest):
                    self.disk[manifest.number] = manifest, self.copies[manifest.number]
                    self.do(self.master.manifest_written(manifest.number, self.at_s))
                case DropCheckpoint(number):
                    self.dropped.append(number)
                    self._delete(number)
                case SweepCheckpoints(kept, last):
                    assert self.master._state.writing.keys() <= set(kept)
                    for number in {n for n in self.folders if n <= last} - set(kept):
                        self._delete(number)
                case Emit(event):
                    self.events.append(event)

    def resize_in_place(self) -> None:
        """Let the cluster resize nodes in place from now on, as a restarted master is told too."""
        self.resizes = True
        self.do(self.master.set_resizes_in_place(self.at_s, resizes=True))

    def allot(self, node: str, why: str | None = None) -> None:
        """Let the cluster answer what it was last asked for a node."""
        need = self.resizings.pop(node)
        why = self.cannot_resize.get(node, "") if why is None else why
        if not why:
            self.allotted[node] = need
        self.do(self.master.on_allotted(node, need, self.at_s, why))

    def _delete(self, number: int) -> None:
        if not self.refuses_drops:
            self.disk.pop(number, None)
            self.folders.discard(number)

    def _check_start(self, order: StartNode) -> None:
        """A node is started under a new name, and only where the target asks for one more."""
        assert order.node not in self.nodes
        want = self.master.target.role(order.role)
        same = [n for n in self.master._state.roster.nodes if n.role is order.role and n.has_shape(want)]
        assert sum(not n.is_draining for n in same) <= want.count

    def _living(self, role: Role) -> list[FakeNode]:
        return [n for n in self.nodes.values() if n.is_alive and n.order.role is role]

    def living(self, role: Role) -> list[str]:
        return [n.id for n in self._living(role)]

    # nodes

    def hello(self, name: str) -> None:
        node = self.nodes[name]
        node.has_come_up = True
        node.say(m.Hello(name, node.order.role, 1, "host", f"ipc://{name}", False))

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
        return self._work(node)

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
            case m.Pause():
                node.is_paused = True
                lease = node.shard.lease if node.shard else None
                node.say(m.Paused(node.id, message.ps_epoch, lease, node.n_done, message.number))
            case m.Granted(shard):
                node.granted.append(shard)
                self.granted.append((node.id, shard))
            case m.NoShard():
                node.wants_shard = True
            case m.Drain(at_once):
                node.is_draining = True
                if at_once:
                    self._leave_at_once(node)
            case Resize(cpu, memory_mib, is_ahead):
                if not is_ahead:
                    self.applied[node.id] = cpu, memory_mib
                    node.say(Resized(node.id, cpu, memory_mib, False, False))
            case m.Stop():
                node.is_alive = False

    def _leave_at_once(self, node: FakeNode) -> None:
        lease = node.shard.lease if node.shard is not None else None
        node.say(m.Left(node.id, lease, node.n_done if node.shard else 0))
        node.is_alive = node.is_draining = False

    def _begin_to_train(self, node: FakeNode, train: m.Train) -> None:
        if train == node.train and not node.granted:
            node.wants_shard = True  # the answer may have been lost with a master
        node.train, node.is_paused = train, False
        if train.drop_shard:
            node.shard, node.n_done, node.wants_shard = None, 0, True
            node.granted.clear()

    def _load(self, node: FakeNode, load: m.Load) -> None:
        """Take the parameters from memory, else from the files, or none."""
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
        if node.train is None or node.is_paused:
            return False
        if any(not self._serves(name, node.train.ps_epoch) for name in _names(node.train)):
            return False  # its PS does not answer, or serves others
        if node.shard is None:
            return self._ask(node)
        self._train_batch(node, node.shard)
        return True

    def _ask(self, node: FakeNode) -> bool:
        if node.is_draining:
            node.say(m.Left(node.id))
            node.is_alive, node.is_draining = False, False
            return True
        if node.granted:
            node.shard = node.granted.popleft()
            if (n_row := self._n_coming(node.shard)) is not None:
                node.say(m.StreamEnded(node.id, node.shard.lease, n_row))
                node.shard, node.wants_shard = None, False
                return True
            node.n_done, node.wants_shard = node.shard.offset, True
            return True
        if node.wants_shard or self.at_s > node.asked_at_s + ASK_AGAIN_S:
            node.wants_shard, node.asked_at_s = False, self.at_s
            node.say(m.ShardAsked(node.id))
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
            node.say(m.ShardAsked(node.id, (shard.lease,)))

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
            node.say(m.BatchSkipped(node.id, shard.lease, self._skipped(shard, range(start, stop))))
        elif shard.lease.purpose is Purpose.TRAIN and node.train:
            self._push(node.train, shard.epoch, range(start, stop))
        node.n_done = stop - shard.start
        if node.n_done < shard.end:
            self._ask_early(node, shard)
            return
        n_row = shard.stop - shard.start  # an evaluation is all or nothing
        scores = np.full(n_row, 0.5, np.float32)
        scores[[row in self.without_score for row in range(shard.start, shard.stop)]] = np.nan
        is_scored = shard.lease.purpose is Purpose.EVALUATE
        arrays = (scores, np.full(n_row, 0.5, np.float32)) if is_scored else ()
        node.say(m.ShardFinished(node.id, shard.lease), *arrays)
        node.shard, node.n_done = None, 0
        node.wants_shard, node.asked_at_s = False, self.at_s

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

    def check_parameters(self) -> None:
        """While PS serve, each bucket has one owner, and together they hold what was trained, exactly."""
        group = self.master._state.group
        if self.master.stage is not Stage.SERVING or group is None:
            return
        members = [self.ps[name] for name in group.nodes]
        assert {ps.epoch for ps in members} == {group.ps_epoch}
        owned = np.array([ps.migration.owned for ps in members])
        np.testing.assert_array_equal(owned.argmax(axis=0), group.bucket_owner)
        np.testing.assert_array_equal(owned.sum(axis=0), 1)
        held = {i: n for ps in members for i, n in ps.taught().items()}
        assert held == {e * self.rows.n_train + row: n for (e, row), n in self.learnt.items()}
        if all(ps.store.dense_ready for ps in members):
            dense = np.concatenate([ps.store.dense for ps in members])
            assert len(set(dense.tolist())) == 1, dense

    def report(self, name: str) -> None:
        node = self.nodes[name]
        sample = NodeSample(
            name, node.order.role, self.at_s, 1.0, 1, 10, node.iter_s, TimeSplit(), 0.5, 100.0
        )
        lease = node.shard.lease if node.shard else None
        node.say(m.Report(sample, lease, node.n_done, is_leaving=node.is_leaving))

    def hear(self, name: str) -> bool:
        """Deliver one message of a node, dead or not; whether there was one."""
        node = self.nodes[name]
        if not node.outbox:
            return False
        message, arrays = node.outbox.popleft()
        self.do(self.master.on_message(name, message, self.at_s, arrays))
        return True

    def evict(self, *names: str) -> None:
        """Send SIGTERM to PS that are up; others end by it."""
        for name in names:
            assert self.nodes[name].order.role is Role.PS
            assert self.nodes[name].has_come_up
            self.nodes[name].is_leaving = True

    def kill(self, name: str, why: str = "exit code -9") -> None:
        self.nodes[name].is_alive = False
        self.do(self.master.on_exit(name, why, self.at_s))

    def tick(self, seconds: float) -> None:
        self.at_s += seconds
        self.do(self.master.tick(self.at_s))

    # a well-behaved cluster

    def round(self, seconds: float = 0.1) -> None:
        """Let every node come up, act, report and be heard; then time passes."""
        self._act()
        for _ in range(self.n_step):
            while busy := self.network.busy:
                self.deliver(busy[0])
            for name in self.living(Role.PS):
                if self.ps[name].migration.wait_s(self.at_s) == 0 and not self.nodes[name].inbox:
                    self.turn(name)
        for name in list(self.nodes):
            if self.nodes[name].is_alive:
                self.report(name)
            while self.hear(name):
                pass
        if self.resizes and self.master._state.resizes_in_place is None:
            self.resize_in_place()  # the backend of a restarted master finds out while nodes say Hello
        self.tick(seconds)

    def _act(self) -> None:
        for name in list(self.nodes):
            node = self.nodes[name]
            if node.is_alive and node.train is None and node.ps_epoch < 0 and not node.outbox:
                self.hello(name)
            self.turn(name)
        for name in list(self.resizings):
            self.allot(name)

    def run_until(self, condition: object, n_round: int = 400) -> None:
        """Run rounds until `condition()` holds."""
        for _ in range(n_round):
            if condition():  # type: ignore[operator]
                return
            self.round()
        raise AssertionError(f"not reached in {n_round} rounds: {self.master.phase} {self.master.message}")

    def run_to_end(self) -> None:
        self.run_until(lambda: self.master.stage is Stage.ENDED, 3000)

    def told(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def _names(train: m.Train) -> list[str]:
    return [endpoint.removeprefix("ipc://") for endpoint in train.endpoints]


def _number(path: str) -> int:
    return int(path.split("/")[-2])


def in_place(world: World, target: object) -> bool:
    return world.master.running == target


def trained_every_row(world: World, *, exactly_once: bool = True) -> None:
    counts = world.master.train_counts
    rows = world.rows.n_train * world.job.n_epoch
    assert counts.done == math.ceil(world.rows.n_train / 40) * world.job.n_epoch
    assert counts.finished
    assert counts.n_sample_done == rows
    assert len(world.learnt) == rows
    if exactly_once:
        assert set(world.learnt.values()) == {1}

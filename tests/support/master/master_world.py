"""A world for the job master: nodes that answer as real ones do, message by message, in any order.

`World` carries orders out on simulated nodes and queues what these say; a test decides who is heard next,
who dies, and what time it is. Per pair, messages keep their order, as on a socket.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.master.own.master import JobMaster
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.master.own.write_ahead_log import Entry, WriteAheadLog, read_back
from dlrover_nb.core.master.shared.orders import (
    DropCheckpoint,
    Emit,
    Order,
    PrepareCheckpoint,
    ResizeNode,
    Send,
    StartNode,
    StopNode,
    SweepCheckpoints,
    WriteManifest,
)
from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.views.events import PhaseChanged
from dlrover_nb.core.structs.views.snapshot import Evaluation
from support.master.played_nodes import PlayedNodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dlrover_nb.core.models.score_sums import ScoreSums
    from dlrover_nb.core.sharding.manifest import Manifest
    from dlrover_nb.core.structs.views.events import Event


def plan(workers: int = 1, ps: int = 1, *, worker_cpu: float = 0.5, ps_cpu: float = 0.25) -> ResourcePlan:
    return ResourcePlan(RolePlan(workers, worker_cpu, 512), RolePlan(ps, ps_cpu, 512))


def spec(first: ResourcePlan | None = None, **changes: object) -> JobSpec:
    fields = {"plan": first or plan(), "batch_size": 10, "shard_batches": 4, "checkpoint_every_s": 0.0}
    return JobSpec("job", **(fields | changes))  # type: ignore[arg-type]


def features(n_train: int = 395, n_eval: int = 45) -> FeatureSpec:
    return FeatureSpec("label", (), (CategoricalColumn("c", 0, 8),), n_train, n_eval)


class World(PlayedNodes):
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
        super().__init__(job, rows or features())
        self.at_s = 0.0
        self.resizes = False  # whether the cluster resizes nodes in place
        self.capacity = capacity or Capacity((NodeShape(cpu, 65536),))
        self.master = self._new_master()
        self.log = WriteAheadLog(self.master)
        self.entries = [to_json(self.log.first())]
        self.disk: dict[int, tuple[Manifest, dict[tuple[int, int], int]]] = {}
        self.evaluate: Callable[[ScoreSums], Evaluation] = lambda scores: Evaluation(0.5, 0.1, scores.n_row)
        self.n_step = 6  # chunks that a PS sends in a round
        self.events: list[Event] = []
        self.dropped: list[int] = []
        self.hangs = False  # the disk does not answer; what it was asked for comes later
        self.asked: list[int] = []
        self.refuses_drops = False  # the disk is read-only for a while
        self.fails_to_write = ""
        self.starts: list[StartNode] = []
        self.resizings: dict[str, tuple[float, int]] = {}  # asked of the cluster, and not answered
        self.allotted: dict[str, tuple[float, int]] = {}  # what it gave nodes in place
        self.cannot_resize: dict[str, str] = {}  # nodes that it does not resize, and why
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
        return self.evaluate(scores)

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
                    self.begin(order)
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
                case SweepCheckpoints(numbers, last):
                    assert set(self.master.record.writing) <= set(numbers)
                    for number in {n for n in self.folders if n <= last} - set(numbers):
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
        staying = [
            n
            for n in self.master.record.nodes
            if n.role is order.role and not (n.is_draining or n.is_leaving or n.is_replaced or n.resizing)
        ]
        planned = want.cpu, want.memory_mib
        assert sum((n.cpu, n.memory_mib) == (n.size or planned) for n in staying) <= want.count

    def check_parameters(self) -> None:
        """While PS serve, each bucket has one owner, and together they hold what was trained, exactly."""
        group = self.master.record.group
        if self.master.stage is not Stage.SERVING or group is None:
            return
        members = [self.ps[name] for name in group.nodes]
        assert {ps.epoch for ps in members} == {group.ps_epoch}
        owned = np.array([ps.migration.owned for ps in members])
        np.testing.assert_array_equal(owned.argmax(axis=0), group.bucket_owner)
        np.testing.assert_array_equal(owned.sum(axis=0), 1)
        held = {i: n for ps in members for i, n in ps.taught().items()}
        assert held == {e * self.rows.n_train + row: n for (e, row), n in self.learnt.items()}
        if all(ps.store.export().dense.size for ps in members):
            dense = np.concatenate([ps.store.dense for ps in members])
            assert len(set(dense.tolist())) == 1, dense

    def hear(self, name: str) -> bool:
        """Deliver one message of a node, dead or not; whether there was one."""
        node = self.nodes[name]
        if not node.outbox:
            return False
        message, arrays = node.outbox.popleft()
        self.do(self.master.on_message(name, message, self.at_s, arrays))
        return True

    def kill(self, name: str, why: str = "exit code -9", *, by_its_work: bool = True) -> None:
        self.nodes[name].is_alive = False
        self.do(self.master.on_exit(name, why, self.at_s, by_its_work=by_its_work))

    def tick(self, seconds: float) -> None:
        self.at_s += seconds
        self.do(self.master.tick(self.at_s))

    # a well-behaved cluster

    def round(self, seconds: float = 0.1) -> None:
        """Let every node come up, act, report and be heard; then time passes."""
        self.act()
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
        if self.resizes and self.master.resizes_in_place is None:
            self.resize_in_place()  # the backend of a restarted master finds out while nodes say Hello
        self.tick(seconds)

    def act(self) -> None:
        for name in list(self.nodes):
            node = self.nodes[name]
            if node.is_alive and not node.has_come_up:
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

    def said(self, about: str) -> str:
        """Return the sentences of the story that have some words, each once, in the order in which they came."""
        notes = (event.message for event in self.told(PhaseChanged) if about in event.message)
        return "\n".join(dict.fromkeys(notes))


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

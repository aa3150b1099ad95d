"""The world of one simulated job: played nodes on hosts, links that fail as TCP does, and clocks that are set.

A link delivers in order, or not at all: while it is cut, messages wait on both sides. When it is reset, some of those on
their way had arrived and the others are lost; the node says Hello again, behind what it said before it noticed. So nothing
is doubled, and only messages of different nodes change places.
"""

from __future__ import annotations

import random
from collections import deque
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from simulation.disk import full_disk
from simulation.rows import Row, RowAccount
from simulation.rules import Rules
from support.driver.damaged_world import Case, FilesWorld, damage
from support.driver.driver_world import STEP_S

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.rundir.job_file import WRITE_AHEAD_LOG
from dlrover_nb.core.runtime.exchange.wire import encode
from dlrover_nb.core.runtime.process.output import STREAMS
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.shards import Purpose
from dlrover_nb.core.structs.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from support.driver.driver_world import PlayedBackend
    from support.master.played_nodes import FakeNode

    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.training.shards import Shard
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

GONE_AFTER_HEARTBEATS = 4  # so long a node lives without its master
SEEN_S = 5.0  # so old may be what a client acts on
BATCH_S = 0.25
NOTICES_FIRST = 0.5  # share of nodes that notice the loss of a master before they say more
SAY_ROWS = (
    m.Hello | m.Report | m.ShardFinished | m.Paused | m.Left
)  # each acknowledges all that was pushed before it


class OwnWorld(FilesWorld):
    """One job; whatever befalls it is carried out by `schedule`.

    Parameters
    ----------
    folder, rows, backend, changes
        As of a `DriverWorld`.
    order_seed
        Of the order in which messages of different nodes arrive.
    batch_s
        That a worker takes for a batch.
    """

    def __init__(
        self,
        folder: Path,
        rows: FeatureSpec,
        *,
        order_seed: int,
        backend: type[PlayedBackend],
        batch_s: float = BATCH_S,
        **changes: Any,
    ) -> None:
        self.account = RowAccount(self._is_lost)
        self._orders_rng, self._batch_s = random.Random(order_seed), batch_s
        self.cut_until_s: dict[str, float] = {}  # links between the master and nodes
        self.broken_links: set[str] = set()  # cut ones that are reset when they are not cut any more
        self._late_orders: dict[str, deque[m.ToNode]] = {}
        self._apart_s: dict[str, float] = {}  # nodes without a master, since when
        self._notes: dict[
            int, tuple[m.FromNode, int]
        ] = {}  # messages, and what their nodes had pushed before
        self._pushing = ""
        self._ps_epoch = -1
        self._last_train: m.Train | None = None
        self.stopped_until_s: dict[str, float] = {}
        self.busy_until_s = 0.0
        self.full_until_s = 0.0
        self.rules = Rules()
        self.master_is_up = False
        self.slow: dict[str, float] = {}
        self.ends_at_s: dict[str, float] = {}  # of evicted nodes
        self.seen: deque[JobSnapshot] = deque(maxlen=64)
        self.untrained: set[Row] = set()  # rows of batches without a finite loss
        self.skipped: set[Row] = set()  # rows that a person left out
        self.n_crash = self.n_loss = 0
        super().__init__(folder, rows, backend=backend, **changes)

    @property
    def elapsed_s(self) -> float:
        return self.machine.passed_s

    @property
    def is_over(self) -> bool:
        return self.now.phase.is_final

    @property
    def n_excused(self) -> int:
        return self.account.n_excused

    @property
    def end_phase(self) -> str:
        return str(self.now.phase)

    def host_of(self, name: str) -> int:
        return int(name.rpartition("-")[2]) % 2

    def up(self, role: Role) -> list[str]:
        """The nodes of a role that live and have come up, oldest first."""
        return [name for name in self.living(role) if self.nodes[name].has_come_up]

    # time

    def turn_loop(self) -> bool:
        self._free_stopped()
        self.master_is_up = True
        with self._disk():
            goes_on = super().turn_loop()
        if goes_on and (not self.seen or self.seen[-1] is not self.now):
            self.seen.append(self.now)
        return goes_on

    def pass_alone(self, seconds: float) -> None:
        """Let time pass without a turn of the master."""
        self.master_is_up, end_s = False, self.elapsed_s + seconds
        while self.elapsed_s < end_s:
            self._free_stopped()
            with self._disk():
                self._step(STEP_S)

    def _free_stopped(self) -> None:
        self.frozen = {name for name, until_s in self.stopped_until_s.items() if until_s > self.elapsed_s}
        if self.busy_until_s > self.elapsed_s:
            self.frozen |= {name for name in self.up(Role.WORKER) if self.nodes[name].shard is not None}

    def _step(self, seconds: float) -> None:
        super()._step(seconds)
        for name in [*self.living(Role.WORKER), *self.living(Role.PS)]:
            if self.ends_at_s.get(name, self.elapsed_s) < self.elapsed_s:
                self.end(name, -15)
            self._notice_master(name)

    def _notice_master(self, name: str) -> None:
        """End a node that has been without its master for too long, as nodes do by themselves."""
        if self.master_is_up and not self.is_cut(name):
            self._apart_s.pop(name, None)
            return
        since_s = self._apart_s.setdefault(name, self.elapsed_s)
        if self.elapsed_s > since_s + GONE_AFTER_HEARTBEATS * self.job.heartbeat_timeout_s:
            self.lose_node(name, 1)

    def _disk(self) -> AbstractContextManager[None]:
        return full_disk() if self.full_until_s > self.elapsed_s else nullcontext()

    def abandon(self) -> None:
        """Close what is open of a job, however far it came."""
        self.full_until_s = 0.0
        self._turns.close()  # type: ignore[attr-defined]  # a generator

    # links

    def is_cut(self, name: str) -> bool:
        return self.cut_until_s.get(name, 0.0) > self.elapsed_s

    def _reset_link(self, name: str) -> None:
        """Lose part of what is on its way between a node and the master; the node connects again."""
        node, orders = self.nodes[name], self._late_orders.pop(name, deque())
        for _ in range(self._orders_rng.randint(0, len(node.outbox))):
            node.outbox.popleft()
        n_arrived = self._orders_rng.randint(0, len(orders))
        node.inbox.extend(list(orders)[:n_arrived])
        self.hello(name)

    def _reset_broken_links(self) -> None:
        for name in sorted(self.broken_links):
            if not self.is_cut(name):
                self.broken_links.remove(name)
                if self.nodes[name].is_alive:
                    self._reset_link(name)

    def messages(self, limit_s: float) -> Iterator[tuple[str, list[bytes]]]:
        end_s = self.at_s + limit_s
        while not self._has_message() and self.at_s < end_s:
            self._step(min(STEP_S, end_s - self.at_s))
        self._reset_broken_links()
        for name, orders in list(self._late_orders.items()):
            if not self.is_cut(name):
                self.nodes[name].inbox.extend(self._late_orders.pop(name) if orders else ())
        nodes = [node for node in self.nodes.values() if node.outbox and not self.is_cut(node.id)]
        self._orders_rng.shuffle(nodes)
        for node in nodes:
            while node.outbox:
                message, arrays = node.outbox.popleft()
                _, n_pushed = self._notes.pop(id(message), (None, 0))
                if n_pushed and self.driver._master.knows(node.id):
                    self.account.heard(node.id, n_pushed)
                yield node.id, [bytes(frame) for frame in encode(message, arrays)]

    def _has_message(self) -> bool:
        is_reset = any(not self.is_cut(name) for name in self.broken_links)
        return is_reset or any(node.outbox and not self.is_cut(node.id) for node in self.nodes.values())

    def hear_order(self, node: str, order: m.ToNode) -> None:
        if self.is_cut(node) or self._late_orders.get(node):
            self._late_orders.setdefault(node, deque()).append(order)
        else:
            super().hear_order(node, order)

    # nodes

    def begin(self, order: Any) -> None:
        super().begin(order)
        node = self.nodes[order.node]
        node.iter_s = self._batch_s
        for stream in STREAMS:
            self.write(order.node, "", stream)
        self._note_what_it_says(node)

    def _note_what_it_says(self, node: FakeNode) -> None:
        """Note with each message that tells of rows how many batches were pushed before it."""
        say = node.say

        def noted(message: m.FromNode, *arrays: Any) -> None:
            if isinstance(message, SAY_ROWS):
                self._notes[id(message)] = message, self.account.n_pushed(node.id)
            say(message, *arrays)

        node.say = noted  # type: ignore[method-assign]

    def _train_batch(self, node: FakeNode, shard: Shard) -> None:
        node.iter_s = self._batch_s * self.slow.get(node.id, 1.0)
        self._pushing = node.id
        if shard.lease.purpose is Purpose.TRAIN:
            start = shard.start + node.n_done
            batch = range(start, min(start + self.job.batch_size, shard.start + shard.end))
            if self.broken.intersection(batch):
                self.untrained |= {(shard.epoch, row) for row in batch}
        super()._train_batch(node, shard)

    def _push(self, train: m.Train, epoch: int, rows: range) -> None:
        if train.ps_epoch < self._ps_epoch:  # servers that were given up: what they learn counts nowhere
            learnt, self.learnt = self.learnt, {}
            super()._push(train, epoch, rows)
            self.learnt = learnt
            return
        self.account.push(self._pushing, epoch, rows, self.learnt)
        super()._push(train, epoch, rows)

    def _is_lost(self, name: str) -> bool:
        """Whether the master cannot be told any more what a worker did."""
        return not self.nodes[name].is_alive or not self.driver._master.knows(name)

    def _copy(self, node: FakeNode, save: m.Save) -> None:
        self.account.keep(save.checkpoint)
        super()._copy(node, save)

    def _load(self, node: FakeNode, load: m.Load) -> None:
        is_loaded = node.ps_epoch == load.ps_epoch
        super()._load(node, load)
        if is_loaded:
            return
        if load.index == 0:
            self._ps_epoch = load.ps_epoch
        if load.index == 0 and load.parts and node.ps_epoch == load.ps_epoch:
            memory, url = load.parts[0].memory, load.parts[0].url
            self.account.go_back(memory.number if memory else int(url.split("/")[-2]))

    def _begin_to_train(self, node: FakeNode, train: m.Train) -> None:
        self._last_train = train  # epochs may begin anew where the log is lost
        super()._begin_to_train(node, train)

    def _serves(self, name: str, epoch: int) -> bool:
        return name not in self.frozen and super()._serves(name, epoch)

    def lose_node(self, name: str, code: int, errors: str = "") -> None:
        """End a node's process in the way of its exit code."""
        node = self.nodes[name]
        self.n_loss += 1
        if node.order.role is Role.WORKER and code not in {-15, 143}:
            self.n_crash += 1
        self.end(name, code, errors)

    def lose_host(self, host: int) -> None:
        """End all nodes of a host, and lose what its memory held."""
        for name in [*self.living(Role.WORKER), *self.living(Role.PS)]:
            if self.host_of(name) == host:
                self.lose_node(name, -15)
        self.memory.clear()

    def kill(self, name: str) -> None:
        self.lose_node(name, -9)

    def _persist(self, node: FakeNode) -> bool:
        try:
            return super()._persist(node)
        except CheckpointError as error:
            save = node.writes.popleft()
            node.say(m.Saved(node.id, save.checkpoint, save.file, "", 0, 0, str(error)))
            return True

    def held(self) -> dict[int, int]:
        """How often each row was trained, by what the parameter servers that served last hold."""
        assert self._last_train is not None
        taught = [self.ps[each.removeprefix("ipc://")].taught() for each in self._last_train.endpoints]
        return {row: n for part in taught for row, n in part.items()}

    # the master

    def damage(self, seed: int) -> tuple[Case, ...]:
        """Damage files of the run folder, where there are any; return what was done."""
        return (damage(self.folder, seed),) if (self.folder / WRITE_AHEAD_LOG).exists() else ()

    def crash(self) -> None:
        self._late_orders.clear()
        self.broken_links.clear()
        super().crash()
        self.master_is_up = False

    def come_back(self) -> None:
        with self._disk():
            self.resume()
        for name, node in self.nodes.items():
            if node.is_alive and node.has_come_up:
                self.hello(name)
                if (
                    self._orders_rng.random() < NOTICES_FIRST
                ):  # a node says Hello before what it could not send
                    node.outbox.rotate(1)
        self.start()

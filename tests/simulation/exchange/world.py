"""The world of an own job whose nodes are real: its loop, its workers and its parameter servers, and a played network.

What is between them and the machine is played: sockets, threads, the model and the data. What is between a node and the
master is as in the world of own jobs.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import zmq
from simulation.exchange.account import Account
from simulation.exchange.network import Network
from simulation.exchange.nodes import N_COMMON, N_DENSE, RealNode, reader_of
from simulation.exchange.steps import StepAccount, states
from simulation.exchange.threads import played_threads
from simulation.own.backends import RuledBackend
from simulation.own.world import OwnWorld
from simulation.tasks import Tasks

from dlrover_nb.core.runtime.checkpoints.memory_names import SHM, free_run, run_name
from dlrover_nb.core.runtime.ps.serving import NO_EPOCH
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.wire import messages as m

if TYPE_CHECKING:
    from pathlib import Path

    from simulation.exchange.schedule import ExchangeScenario
    from support.master.played_nodes import FakeNode

    from dlrover_nb.core.runtime.ps.migration import PsMigration

N_EVAL = 40


class ExchangeWorld(OwnWorld):
    """One job with real nodes."""

    def __init__(self, folder: Path, case: ExchangeScenario) -> None:
        self.case, self.n_row = case, case.n_train + N_EVAL
        self.real: dict[str, RealNode] = {}
        self.configs: dict[str, object] = {}
        self.failures: list[str] = []  # of nodes' programs
        column = CategoricalColumn("c", 0, self.n_row + N_COMMON)
        rows = FeatureSpec("label", (), (column,), case.n_train, N_EVAL)
        super().__init__(folder, rows, order_seed=case.seed, backend=RuledBackend, **case.job)
        self.tasks = Tasks(self.machine, lambda name: name in self.frozen)
        self.network_of_data = Network(self.tasks, random.Random(case.seed), case.ways)
        self.network_of_data.on_socket = self.on_socket
        first = self._new_store().pull(np.arange(self.n_row + N_COMMON)).astype(np.float64)
        sync = self.job.sync
        kind = {"is_weighted": sync in {Sync.BSP, Sync.GBA}, "is_gathered": sync is Sync.GBA}
        self.account = Account(first, N_DENSE, self._is_lost, self.n_row, **kind)
        if self.job.deterministic:
            whole = states(self.job, rows, self._new_store(), N_DENSE, reader_of(self.n_row))
            self.account = StepAccount(
                first, N_DENSE, self._is_lost, self.n_row, is_gathered=True, after=list(whole)
            )
        self._served: dict[str, int] = {}  # epoch of each server when it got its last order
        self._played = ExitStack()
        self._played.enter_context(played_threads(self))

    def _new_store(self) -> ParameterStore:
        return ParameterStore(self.job.model, self.n_row + N_COMMON, N_DENSE)

    # time

    def _step(self, seconds: float) -> None:
        self._end_dead()
        for name, node in self.nodes.items():
            if node.is_alive and not node.has_come_up and name not in self.frozen:
                self._come_up(name)
            elif name in self.real and node.inbox:
                self.real[name].agent.wake()
        self.tasks.run(self.elapsed_s + seconds, until=lambda: False)
        self._end_dead()
        for name in [*self.living(Role.WORKER), *self.living(Role.PS)]:
            if self.ends_at_s.get(name, self.elapsed_s) < self.elapsed_s:
                self.end(name, -15)
            self._notice_master(name)

    def _end_dead(self) -> None:
        for name in [each for each in self.real if not self.nodes[each].is_alive]:
            self.real.pop(name).end()

    def abandon(self) -> None:
        for node in self.nodes.values():
            node.is_alive = False
        self._end_dead()
        self._played.close()
        free_run(self._run_name)
        super().abandon()

    @property
    def _run_name(self) -> str:
        return run_name(self.job.name, str(self.folder))

    # nodes

    def begin(self, order: object) -> None:
        super().begin(order)
        self.configs[order.node] = replace(self.backend.started[order.node], listen=self.case.listen)

    def _come_up(self, name: str) -> None:
        self.nodes[name].has_come_up = True
        self._pid_of[name] = next(self._pids)
        self.real[name] = RealNode(self, self.nodes[name], self.configs[name])

    def pid_of(self, name: str) -> int:
        return self._pid_of[name]

    def hello(self, name: str) -> None:
        """Let a node connect to its master again."""
        if (real := self.real.get(name)) is not None and real.program is not None:
            real.hello()

    def fail(self, name: str) -> None:
        """End a node whose program has failed."""
        self.n_loss += 1
        self.n_crash += self.nodes[name].order.role is Role.WORKER
        self.end(name, 1)

    def evict(self, *names: str) -> None:
        for name in names:
            if name in self.real:
                self.real[name].leave()

    def lose_host(self, host: int) -> None:
        super().lose_host(host)
        for name in self.nodes:
            if self.host_of(name) == host:
                self._free_memory(name)

    def lose_nodes(self) -> None:
        super().lose_nodes()
        for name in self.nodes:
            self._free_memory(name)

    def _free_memory(self, name: str) -> None:
        for side in "ab":
            (SHM / f"{self._run_name}-{name}-{side}").unlink(missing_ok=True)

    # what the auditor sees

    def on_socket(self, name: str, kind: int) -> None:
        """Note that a worker connects, by the last order to train that it got."""
        node = self.nodes[name]
        if kind == zmq.DEALER and node.order.role is Role.WORKER:
            trains = [order for order in node.heard if isinstance(order, m.Train)]
            if trains:
                self.account.connect(name, trains[-1].ps_epoch)

    def on_order(self, node: FakeNode, order: m.ToNode) -> None:
        """Note what a server is to load."""
        serving, migration = self.real[node.id].serving, self.real[node.id].migration
        if serving is None or migration is None:
            return
        self.look(node.id)
        self._served[node.id] = serving.epoch
        if isinstance(order, m.Load) and serving.epoch != order.ps_epoch:
            self.account.load(node.id, order.ps_epoch, _checkpoint(order))

    def on_obeyed(self, node: FakeNode, order: m.ToNode) -> None:
        """Note what a server has begun to save, and see that what leaves it is all that its workers count on."""
        serving, migration = self.real[node.id].serving, self.real[node.id].migration
        if serving is None or migration is None or not isinstance(order, m.Save | m.MoveEnd):
            return
        if migration.owned is None or self._served[node.id] == NO_EPOCH:
            return
        numbers, values = self._held(migration)
        self.account.look(node.id, self._served[node.id], numbers, values)
        if isinstance(self.account, StepAccount):
            self.account.check_step(node.id, order.n_step, numbers, values)
        self.account.settle(node.id, numbers.tolist())
        if isinstance(order, m.Save):
            self.account.copy(order.checkpoint, numbers.tolist())

    def look(self, name: str) -> None:
        """Let the auditor see what a server holds, if it serves."""
        real = self.real.get(name)
        if real is not None and real.serving is not None and real.serving.store is not None:
            self.account.look(name, real.serving.epoch, *self._held(real.migration))

    def _held(self, migration: PsMigration) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers that a server owns, dense ones last, and their values."""
        store, owned = migration.store, migration.owned
        part = store.export()
        table = self.account.first.copy()
        table[part.ids] = part.table[:, :2]
        mine = np.flatnonzero(owned[np.arange(len(table)) % N_BUCKET])
        dense = np.zeros((store.answer_shape[1], 2))
        if part.dense.size:
            dense[:, 1] = part.dense[0]
        places = len(table) + part.dense_offset + np.arange(len(dense))
        return np.concatenate([mine, places]), np.concatenate([table[mine], dense])


def _checkpoint(load: m.Load) -> int:
    """Return the number of the checkpoint that is loaded; 0: none is."""
    if not load.parts:
        return 0
    memory, url = load.parts[0].memory, load.parts[0].url
    return memory.number if memory else int(url.split("/")[-2])

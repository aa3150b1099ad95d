"""A hot PS on real processes: measured, relieved, and killed amid that, without a lost or doubled update.

Master and PS are real, with real sockets between them. The worker is part of the test: it pushes 1 for each
row of its batch (SGD of rate 1) and for each dense parameter, so what PS hold says how often each id was
trained. Most of its ids are in buckets of ps-0.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import zmq
from support.waiting import until

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.master.own.master import JobMaster
from dlrover_nb.core.master.own.servers.load_placement import assign_by_load
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.master.shared.orders import Send, StartNode, StopNode
from dlrover_nb.core.models.built_in import dense_parameter_count
from dlrover_nb.core.models.score_sums import ScoreSums
from dlrover_nb.core.runtime.exchange.sockets import bind_router, new_keys
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.runtime.store.batches import PreparedBatch
from dlrover_nb.core.runtime.worker.ps_client import ExchangeDroppedError, Pending, PsClient
from dlrover_nb.core.runtime.worker.trainer import Push
from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Optimizer
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.wire import messages as m
from dlrover_nb.core.structs.wire.node_config import NodeConfig

N_ID, N_HOT, BATCH = 4096, 16, 100
MODEL = ModelSpec(embedding_dim=1, hidden=(1,), optimizer=Optimizer.SGD, learning_rate=1.0)
SPEC = JobSpec(
    "hot",
    model=MODEL,
    plan=ResourcePlan(RolePlan(1, 0.5, 512), RolePlan(2, 0.5, 256)),
    batch_size=BATCH,
    shard_batches=50,
    checkpoint_every_s=0.0,
    heartbeat_timeout_s=600.0,
)
FEATURES = FeatureSpec("label", (), (CategoricalColumn("c", 0, N_ID),), 20_000_000, 100)
N_DENSE = dense_parameter_count(MODEL, 1, 0)
FIRST = ParameterStore(MODEL, N_ID, N_DENSE).pull(np.arange(N_ID))
WORKER = "worker-0"


def ids_of(start: int, stop: int) -> np.ndarray:
    """Return the ids of rows, distinct within a batch: four of five are in the first `N_HOT` buckets."""
    row = np.arange(start, stop)
    hot = row % N_HOT + N_BUCKET * (row // N_HOT % 16)
    cold = N_HOT + row // 5 % (N_BUCKET - N_HOT) + N_BUCKET * (row // 5 % 16)
    return np.where(row % 5 == 0, cold, hot)


class Job:
    """The driver of a real master, and its worker; `step` lets both go on a little."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.keys, self.context = folder, new_keys(), zmq.Context()
        self.router, self.endpoint = bind_router(self.context, "ipc", folder / "m", self.keys)
        self.poller = zmq.Poller()
        self.poller.register(self.router, zmq.POLLIN)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.kill_at: tuple[type, str] | None = None  # at which order to end which PS
        self.killed: list[tuple[Stage, str]] = []
        self.inbox: deque[m.ToNode] = deque()
        self.client: PsClient | None = None
        self.shards: deque[object] = deque()
        self.lease, self.n_done, self.may_train = None, 0, False
        self.learnt, self.n_batch, self.n_client = np.zeros(N_ID, np.int64), 0, 0
        self.at_s = 0.0
        self.master = JobMaster(
            SPEC, FEATURES, Capacity((NodeShape(4.0, 4096),)), folder=str(folder), evaluate=ScoreSums.evaluate
        )
        self.do(self.master.start(self.at_s))

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        if self.client is not None:
            self.client.close()
        self.router.close(linger=0)
        self.context.term()

    # the driver

    def do(self, orders: object) -> None:
        for order in orders:  # type: ignore[attr-defined]
            match order:
                case StartNode(node, Role.PS):
                    self._start_ps(order)
                case StartNode(node):
                    assert node == WORKER
                    self.say(m.Hello(node, Role.WORKER, 1, "host", "", False))
                case Send(node, message) if node == WORKER:
                    self.inbox.append(message)
                case Send(node, message):
                    self.router.send_multipart([node.encode(), *encode(message)])
                    if self.kill_at is not None and isinstance(message, self.kill_at[0]):
                        self._kill(self.kill_at[1])
                case StopNode(node) if node in self.processes:
                    self.processes.pop(node).kill()

    def _start_ps(self, order: StartNode) -> None:
        config = NodeConfig(
            order.node, Role.PS, SPEC, FEATURES, order.cpu, order.memory_mib, self.endpoint, "ipc",
            str(self.folder), self.keys.public, self.keys.secret,
        )  # fmt: skip
        path = self.folder / f"{order.node}.json"
        path.write_bytes(to_json(config))
        command = [sys.executable, "-m", "dlrover_nb.core.runtime.node", str(path)]
        self.processes[order.node] = subprocess.Popen(command)

    def _kill(self, name: str) -> None:
        self.kill_at = None
        self.killed.append((self.master.stage, name))
        self.processes[name].kill()

    def say(self, message: m.FromNode) -> None:
        self.do(self.master.on_message(WORKER, message, self.at_s))

    def pump(self) -> None:
        while self.router.poll(0):
            sender, *frames = self.router.recv_multipart()
            message, _ = decode(frames)
            if not isinstance(message, m.LinesWritten):
                self.do(self.master.on_message(sender.decode(), message, self.at_s))
        for name in [name for name, process in self.processes.items() if process.poll() is not None]:
            code = self.processes.pop(name).returncode
            self.do(self.master.on_exit(name, f"exit code {code}", self.at_s))
        self.at_s += 0.01  # so slowly that no limit of time is reached on a busy machine
        self.do(self.master.tick(self.at_s))

    # what `PsClient` needs of an agent

    def watch(self, socket: object) -> None:
        self.poller.register(socket, zmq.POLLIN)

    def unwatch(self, socket: object) -> None:
        self.poller.unregister(socket)

    def wait(self, timeout_s: float) -> list[object]:
        found = [socket for socket, _ in self.poller.poll(min(timeout_s, 0.05) * 1000)]
        self.pump()
        return [socket for socket in found if socket is not self.router]

    def _pending(self) -> Pending:
        has_other = any(isinstance(order, m.Train) for order in self.inbox)
        return Pending.AT_ONCE if has_other else Pending.NONE

    # the worker

    def step(self) -> None:
        self.poller.poll(0 if self.may_train else 20)
        self.pump()
        while self.inbox:
            self._obey(self.inbox.popleft())
        if self.client is not None and self.may_train and self.lease is not None:
            with contextlib.suppress(ExchangeDroppedError):  # an order to train with others is pending
                self._train()

    def _obey(self, order: m.ToNode) -> None:
        match order:
            case m.Train():
                self._connect(order)
            case m.Pause():
                self.may_train = False
                lease = None if self.lease is None else self.lease.lease
                self.say(m.Paused(WORKER, order.ps_epoch, lease, self.n_done, order.number))
            case m.Granted(shard):
                self.shards.append(shard)
                if self.lease is None:
                    self.lease, self.n_done = self.shards.popleft(), shard.offset
            case m.NoShard():
                self.say(m.ShardAsked(WORKER))

    def _connect(self, train: m.Train) -> None:
        if self.client is not None:
            self.client.close()
        if train.drop_shard:  # without a checkpoint all begins anew
            self.lease, self.n_batch = None, 0
            self.learnt[:] = 0
            self.shards.clear()
        self.n_client += 1
        self.client = PsClient(
            self.context, keys=self.keys, identity=f"{WORKER}/{self.n_client}", agent=self, train=train,
            dense_length=N_DENSE, pending=self._pending,
        )  # fmt: skip
        self.may_train = True
        with contextlib.suppress(ExchangeDroppedError):
            self.client.init_dense(np.zeros(N_DENSE, np.float32))
        if self.lease is None:
            self.say(m.ShardAsked(WORKER))

    def _grouped(self, ids: np.ndarray) -> PreparedBatch:
        layout = self.client.layout
        owner = layout.owner[ids % N_BUCKET]
        bounds = (0, *np.cumsum(np.bincount(owner, minlength=layout.n_ps)).tolist())
        rows = ids[np.argsort(owner, kind="stable")].astype(np.int64)
        none = np.empty(0, np.float32)
        return PreparedBatch(rows, bounds, rows, none, none)

    def _train(self) -> None:
        start = self.lease.start + self.n_done
        batch = self._grouped(ids_of(start, start + BATCH))
        ones = np.ones((BATCH, MODEL.row_width), np.float32)
        self.client.start(Push(batch, ones, np.ones(N_DENSE, np.float32), 0.0), batch)
        self.client.finish(np.empty(N_DENSE, np.float32))
        self.learnt[batch.rows] += 1
        self.n_batch += 1
        self.n_done += BATCH
        if self.n_done >= self.lease.end:
            done, self.lease = self.lease.lease, None
            self.say(m.ShardFinished(WORKER, done))

    # what a test looks at

    @property
    def group(self) -> object:
        return self.master.record.group

    def run_until(self, condition: object) -> None:
        def reached() -> bool:
            for _ in range(50):
                self.step()
            return bool(condition())  # type: ignore[operator]

        until(reached, lambda: f"{self.master.stage}: {self.master.message} {self.master.nodes}")

    def trains(self) -> bool:
        return self.master.running is not None and self.may_train and self.n_batch > 100

    def loads(self) -> list[object]:
        """The loads that all PS measured under the epoch of now; empty: not all have."""
        nodes = self.master._state.group_nodes
        loads = [node.load for node in nodes if node.load and node.load.ps_epoch == self.group.ps_epoch]
        return loads if nodes and len(loads) == len(self.group.nodes) else []

    def check(self) -> None:
        """PS hold what was trained, exactly, and the master has counted the same."""
        self.run_until(self.trains)
        while self.lease is None:  # `run_until` may always look between two shards, which have 50 batches too
            self.step()
        batch = self._grouped(np.arange(N_ID))
        dense = np.empty(N_DENSE, np.float32)
        self.client.start(None, batch)
        values = self.client.finish(dense)
        np.testing.assert_array_equal(np.rint(FIRST[batch.rows] - values)[:, 0], self.learnt[batch.rows])
        np.testing.assert_array_equal(dense, -self.n_batch)
        assert self.learnt.sum() == self.n_batch * BATCH
        sample = NodeSample(WORKER, Role.WORKER, 0.0, 1.0, 1, BATCH, 0.1, TimeSplit(), 0.5, 100.0)
        self.say(m.Report(sample, self.lease.lease, self.n_done))
        assert self.master.train_counts.n_sample_done == self.learnt.sum()


@pytest.fixture
def job() -> object:
    with tempfile.TemporaryDirectory(prefix="dn") as folder:
        job = Job(Path(folder))
        yield job
        job.close()


def rows_per_s(load: object) -> np.ndarray:
    found = np.zeros(N_BUCKET)
    found[list(load.buckets)] = np.array(load.n_served) / load.window_s
    return found


def share_of_first(loads: list[object]) -> float:
    served = [rows_per_s(load).sum() for load in loads]
    return served[0] / sum(served)


@pytest.mark.release
def test_a_hot_ps_is_relieved_of_what_makes_it_hot(job: Job) -> None:
    # windows of one time, which they are not where a process had no turn: the first serves 0.8, and its part of the rest
    job.run_until(lambda: job.loads() and share_of_first(job.loads()) > 0.85)
    for load, owner in zip(job.loads(), (0, 1), strict=True):
        mine = {bucket for bucket in range(N_BUCKET) if job.group.bucket_owner[bucket] == owner}
        assert set(load.buckets) <= mine
        assert sum(load.n_held) == np.count_nonzero(
            job.learnt[[i for i in range(N_ID) if i % N_BUCKET in mine]]
        )
        assert 0 < load.busy_s < load.window_s
    job.check()
    load = sum(rows_per_s(each) for each in job.loads())
    table = assign_by_load(job.group.bucket_owner, load.tolist(), [1.0, 1.0])
    n_moved = sum(a != b for a, b in zip(table, job.group.bucket_owner, strict=True))
    assert 0 < n_moved <= 2 * N_HOT  # half of the hot ones, and what evens out a sample of the others
    job.do(job.master.rebalance(table, job.at_s))
    job.run_until(lambda: job.trains() and job.group.bucket_owner == table)
    job.check()
    # half, to within the sample and the rest of a bucket
    job.run_until(lambda: job.loads() and abs(share_of_first(job.loads()) - 0.5) < 0.05)
    job.check()
    assert job.master.train_counts.returned == 0


@pytest.mark.more
@pytest.mark.parametrize("kind", [m.MoveOut, m.MoveEnd])
@pytest.mark.parametrize("name", ["ps-0", "ps-1"])
def test_a_ps_that_is_killed_amid_a_move_takes_nothing_with_it(job: Job, kind: type, name: str) -> None:
    job.run_until(job.trains)
    job.check()
    job.kill_at = kind, name
    table = tuple(int(bucket >= 4) for bucket in range(N_BUCKET))  # from ps-0 to ps-1
    job.do(job.master.rebalance(table, job.at_s))
    job.run_until(lambda: job.killed and job.master.record.n_group > 2 and job.trains())
    assert job.killed == [(Stage.SERVING if kind is m.MoveOut else Stage.SWITCHING, name)]
    assert set(job.group.nodes) == {"ps-0", "ps-1", "ps-2"} - {name}
    job.check()

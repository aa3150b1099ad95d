"""Real nodes in threads, with real sockets, and a test in the place of their master."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path

import zmq

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.data import ShardReader, make_features
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.runtime.exchange.sockets import bind_router, new_keys
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.runtime.process.agent import Agent
from dlrover_nb.core.runtime.process.limits import Enforced
from dlrover_nb.core.runtime.process.time_accounting import TimeAccounting
from dlrover_nb.core.runtime.ps.server import ParameterServer
from dlrover_nb.core.runtime.store import even_bucket_owner
from dlrover_nb.core.runtime.worker.trainer import Trainer
from dlrover_nb.core.runtime.worker.worker import Worker
from dlrover_nb.core.structs.job.job import JobSpec, ModelSpec
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.checkpoints import PartSource
from dlrover_nb.core.structs.training.shards import MOST_HELD, Lease, Purpose, Shard
from dlrover_nb.core.structs.wire.messages import (
    Granted,
    Hello,
    Load,
    Loaded,
    NoShard,
    Report,
    Save,
    Saved,
    ShardAsked,
    ShardFinished,
    StepOpened,
    Stop,
    Train,
)
from dlrover_nb.core.structs.wire.node_config import NodeConfig
from support.waiting import LIMIT_S

MODEL = ModelSpec(embedding_dim=4, hidden=(16, 8), hash_size=2048, seed=3)
SPEC = JobSpec("test", model=MODEL, batch_size=64, shard_batches=10, seed=1, overlap=False)
FEATURES = make_features(SPEC.data, SPEC.model)
# Of each node: they are threads of the tests' process, so that what all tests before them hold counts as theirs.
MEMORY_MIB = 64 * 1024


def shard(number, n_batch=SPEC.shard_batches, offset=0, grant=1):
    start = number * n_batch * SPEC.batch_size
    return Shard(Lease(Purpose.TRAIN, number, grant), 0, start, start + n_batch * SPEC.batch_size, offset)


class Gate:
    """Stops a worker when it has made so many steps, until it is opened."""

    def __init__(self, at):
        self.losses, self._at, self._step_s = [], at, 0.0
        self._reached, self._open = threading.Event(), threading.Event()

    def __call__(self, loss):
        self.losses.append(loss)
        if len(self.losses) == self._at:
            self._reached.set()
            self._open.wait(LIMIT_S)
        if len(self.losses) >= self._at:
            time.sleep(self._step_s)

    def reached(self):
        assert self._reached.wait(LIMIT_S)

    def open(self, step_s=0.0):
        """Let the worker go on; with `step_s` so slowly that what was sent to it before comes within a few steps.

        Else its shard may be done first: a step takes milliseconds, and so may a message on a busy machine.
        Once more without `step_s`, when the message was answered, the rest of the steps are as fast as before.
        """
        self._step_s = step_s
        self._open.set()


class World:
    """A master without a mind: it says what the test says."""

    def __init__(self, spec=SPEC, listen="ipc"):
        self.spec, self.listen, self.keys = spec, listen, new_keys()
        self._folder = tempfile.TemporaryDirectory(prefix="dn")
        self.folder = Path(self._folder.name)
        self.context = zmq.Context()
        self.router, self.endpoint = bind_router(self.context, listen, self.folder / "m", self.keys)
        self.router_before = self.router
        self.master_file = self.folder / "endpoint"
        self.threads, self.errors = {}, {}
        self.reports = deque(maxlen=1000)
        self._waiting = []
        self.epoch = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in list(self.threads):
            self.end(name)
        self.router.close(linger=0)
        self.router_before.close(linger=0)
        self.context.term()
        self._folder.cleanup()

    def config(self, node, role):
        return NodeConfig(
            node, role, self.spec, FEATURES, 2.0, MEMORY_MIB, self.endpoint, self.listen, str(self.folder),
            self.keys.public, self.keys.secret, str(self.master_file),
        )  # fmt: skip

    def start(self, node, role, on_loss=None):
        """Start a node and return its Hello."""
        serve = _serve_ps if role is Role.PS else _serve_worker
        args = (self.config(node, role), on_loss, self.errors)
        self.threads[node] = threading.Thread(target=serve, args=args, daemon=True)
        self.threads[node].start()
        return self.receive(Hello, node)[0]

    def replace_master(self):
        """Let the master die, and another one listen where it did."""
        self.router.close(linger=0)
        listen = self.endpoint if self.listen.startswith("tcp") else self.listen
        until = time.monotonic() + LIMIT_S
        while self.router.closed:  # ZeroMQ lets go of a port in its own time
            try:
                self.router, endpoint = bind_router(self.context, listen, self.folder / "m", self.keys)
            except BackendError:
                assert time.monotonic() < until
        assert endpoint == self.endpoint
        self._waiting.clear()

    def move_master(self):
        """Let another master listen elsewhere, and be named in the file; that of before is left as it is."""
        self.router_before = self.router
        self.router, self.endpoint = bind_router(self.context, self.listen, self.folder / "m", self.keys)
        self.master_file.write_text(self.endpoint)
        self._waiting.clear()

    def end(self, node):
        """Stop a node; one that has not found a replaced master yet does not get what is sent once."""
        thread, until = self.threads.pop(node), time.monotonic() + LIMIT_S
        while thread.is_alive() and time.monotonic() < until:
            self.send(node, Stop())
            thread.join(1.0)
        assert not thread.is_alive()

    def send(self, node, message):
        self.router.send_multipart([node.encode(), *encode(message)])

    def receive(self, kind, node=None):
        """Return the next message of this kind and its arrays; others are kept, reports apart."""
        until = time.monotonic() + LIMIT_S
        while True:
            for at, (sender, message, arrays) in enumerate(self._waiting):
                if isinstance(message, kind) and node in {None, sender}:
                    del self._waiting[at]
                    return message, arrays
            assert self.router.poll(max(0, until - time.monotonic()) * 1000), (
                f"no {kind.__name__}: {self.errors}"
            )
            identity, *frames = self.router.recv_multipart()
            message, arrays = decode(frames)
            if isinstance(message, Report):
                self.reports.append(message)
                if kind is Report:
                    return message, arrays
            else:
                self._waiting.append((identity.decode(), message, arrays))

    def forget(self):
        """Drop what has been received and not asked for."""
        self._waiting.clear()

    def start_ps(self, n_ps, files=(), first=0):
        """Start PS that serve the next epoch; return the order to train with them."""
        names = [f"ps{first + i}" for i in range(n_ps)]
        endpoints = tuple(self.start(name, Role.PS).endpoint for name in names)
        return self.load(names, endpoints, files)

    def load(self, names, endpoints, files=()):
        self.epoch += 1
        owner = even_bucket_owner(len(names))
        for i, name in enumerate(names):
            self.send(
                name, Load(self.epoch, i, len(names), owner, tuple(PartSource(*file) for file in files))
            )
            assert self.receive(Loaded, name)[0].ps_epoch == self.epoch
        return Train(self.epoch, endpoints, owner)

    def save(self, names, n_step=None):
        """Save and return (path, sha256) of each part."""
        files = []
        for name in names:
            self.send(name, Save(1, str(self.folder / f"{name}.ckpt"), n_step=n_step))
            saved = self.receive(Saved, name)[0]
            assert not saved.error
            files.append((saved.file, saved.sha256))
        return files

    def train_steps(self, workers, ledger):
        """Hand out the shards of a ledger with steps, until all are done."""
        n_step = 0
        while not ledger.finished:
            message, _ = self.receive(ShardAsked | ShardFinished)
            if isinstance(message, ShardFinished):
                ledger.complete(message.node, message.lease)
            if ledger.n_step != n_step:
                n_step = ledger.n_step
                for worker in workers:
                    self.send(worker, StepOpened(n_step))
            may_hold = isinstance(message, ShardAsked) and len(ledger.leases(message.node)) < MOST_HELD
            shard = ledger.grant(message.node) if may_hold else None
            self.send(message.node, NoShard(0.05, n_step) if shard is None else Granted(shard, n_step))

    def train(self, node, shards):
        """Hand out shards one after the other, until the last is finished."""
        self.receive(ShardAsked, node)
        for each in shards:
            self.send(node, Granted(each))
            assert self.receive(ShardFinished, node)[0].lease == each.lease


def _compose(config):
    clock = SystemClock()
    accounting, context = TimeAccounting(clock), zmq.Context()
    return context, Agent(context, config, clock, accounting), accounting, clock


def _serve_ps(config, _on_loss, errors):
    context, agent, accounting, _ = _compose(config)
    server = ParameterServer(context, config, agent, accounting)
    _run(config, context, agent, server, errors, server.endpoint)


def _serve_worker(config, on_loss, errors):
    context, agent, accounting, clock = _compose(config)
    reader = ShardReader(config.spec.data, config.features)
    trainer = Trainer(config.spec, config.features, reader, accounting, on_loss=on_loss)
    worker = Worker(context, config, agent=agent, accounting=accounting, clock=clock, trainer=trainer)
    _run(config, context, agent, worker, errors, "")


def _run(config, context, agent, node, errors, endpoint):
    try:
        agent.hello(endpoint, Enforced(cpu=False, memory=False))
        node.run()
    except Exception as error:  # noqa: BLE001 - a test looks at it
        errors[config.node] = error
    finally:
        node.close()
        agent.close()
        context.term()


def with_heartbeat(seconds):
    return replace(SPEC, heartbeat_timeout_s=seconds)

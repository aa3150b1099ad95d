"""The nodes of a job without a model, in one process; each has its own socket and says what real ones do."""

from __future__ import annotations

import heapq
import math
import multiprocessing
import os
import random
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import zmq

from dlrover_nb.core.runtime.exchange.sockets import JobKeys, connect_dealer
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.structs.decisions.query_answers import LogLine
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET, BucketLoad
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.wire.messages import (
    Granted,
    Hello,
    LinesWritten,
    Load,
    Loaded,
    NoShard,
    Pause,
    Paused,
    Report,
    ShardAsked,
    ShardFinished,
    Stop,
    Train,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from dlrover_nb.core.structs.training.shards import Shard
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

ITER_S, BATCH = 0.05, 512  # a shard of 20 batches takes a second
REPORT_EVERY_S, LOAD_EVERY, LINE_EVERY = 1.0, 10, 10  # the last two in reports
START_LIMIT_S = 120.0
IDLE_S = 0.02


@dataclass
class Node:
    """One node: what it sends, and when it is due to send again."""

    config: NodeConfig
    socket: Any
    rng: random.Random
    next_report_s: float
    n_report: int = 0
    held: deque[Shard] = field(default_factory=deque)
    began_s: float = 0.0  # the present shard
    asked_s: float | None = None  # a request is open since then
    ask_at_s: float = math.inf  # after NoShard
    trains: bool = False
    n_done: int = 0
    n_sent: int = 0
    epoch: int = 0
    due_s: float = 0.0
    answers_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rate = BATCH / ITER_S * self.rng.lognormvariate(0.0, 0.03)
        self.name = self.config.node

    def send(self, message: Any) -> None:
        self.socket.send_multipart(encode(message))
        self.n_sent += 1

    # what it does

    def obey(self, order: Any, now_s: float) -> None:
        match order:
            case Load(ps_epoch=epoch, bucket_owner=owner, index=index):
                self.epoch = epoch
                self.buckets = tuple(bucket for bucket in range(N_BUCKET) if owner[bucket] == index)
                self.send(Loaded(self.name, epoch))
            case Train():
                self.trains = True
                if self.asked_s is None and not self.held:
                    self._ask(now_s)
            case Pause(ps_epoch=epoch, number=number):
                self.trains = False
                self.send(Paused(self.name, epoch, *self._position(now_s), number=number))
            case Granted(shard=shard):
                if self.asked_s is not None:
                    self.answers_s.append(now_s - self.asked_s)
                self.asked_s, self.ask_at_s = None, math.inf
                if not self.held:
                    self.began_s = now_s
                self.held.append(shard)
            case NoShard(wait_s=wait_s):
                self.asked_s, self.ask_at_s = None, now_s + wait_s
            case Stop():
                raise SystemExit(f"the master ended {self.name}")

    def act(self, now_s: float) -> float:
        """Send what is due; return when the next is."""
        if now_s >= self.next_report_s:
            self.next_report_s += REPORT_EVERY_S
            self._report(now_s)
        if not self.trains:
            return self.next_report_s
        if self.held and now_s >= self._end_s:
            self._finish(now_s)
        is_half = len(self.held) == 1 and now_s >= self.began_s + (self._end_s - self.began_s) / 2
        if self.asked_s is None and (now_s >= self.ask_at_s or (is_half and self.ask_at_s == math.inf)):
            self._ask(now_s)
        return min(self.next_report_s, self._next_s())

    def _next_s(self) -> float:
        if not self.held:
            return self.ask_at_s
        half_s = self.began_s + (self._end_s - self.began_s) / 2
        is_to_ask = len(self.held) == 1 and self.asked_s is None
        return min(self._end_s, half_s if is_to_ask and self.ask_at_s == math.inf else self.ask_at_s)

    @property
    def _end_s(self) -> float:
        return self.began_s + (self.held[0].end - self.held[0].offset) / self.rate

    def _position(self, now_s: float) -> tuple[Any, int]:
        if not self.held:
            return None, 0
        shard = self.held[0]
        n_row = int((now_s - self.began_s) * self.rate) // BATCH * BATCH
        return shard.lease, min(shard.offset + n_row, shard.end)

    def _ask(self, now_s: float) -> None:
        self.asked_s, self.ask_at_s = now_s, math.inf
        self.send(ShardAsked(self.name, tuple(shard.lease for shard in self.held)))

    def _finish(self, now_s: float) -> None:
        shard = self.held.popleft()
        self.n_done += 1
        self.began_s = now_s
        if not self.held:
            self.asked_s = now_s
        self.send(ShardFinished(self.name, shard.lease))

    def _report(self, now_s: float) -> None:
        self.n_report += 1
        factor = self.rng.lognormvariate(0.0, 0.03)
        split = TimeSplit(0.0012 * factor, 0.0087 * factor, 0.0312 * factor, 0.0065 * factor, 0.0, 0.0005)
        is_worker = self.config.role is Role.WORKER
        n_iter = round(REPORT_EVERY_S / ITER_S)
        sample = NodeSample(
            self.name,
            self.config.role,
            time.time(),
            window_s=1.0003 * factor,
            n_iter=n_iter,
            n_sample=n_iter * BATCH if is_worker else 0,
            iter_s=ITER_S * factor,
            split=split,
            cpu_cores=0.93 * factor,
            memory_mib=900.0 + 3 * factor,
            parameter_mib=0.0 if is_worker else 512.0,
            n_row=0 if is_worker else 1_000_000,
            loss=0.45 * factor if is_worker else None,
            n_byte_sent=int(1.2e6 * factor),
            n_byte_received=int(1.1e6 * factor),
            carrier="messages" if is_worker else "",
        )
        if is_worker:
            self.send(Report(sample, *self._position(now_s)))
        else:
            self.send(Report(sample, load=self._load()))
        if self.n_report % LINE_EVERY == 0:
            line = LogLine(time.time(), self.name, "INFO", f"{self.name} has trained {self.n_done} shards")
            self.send(LinesWritten(self.name, (line,), (0, 64 * self.n_report)))

    def _load(self) -> BucketLoad | None:
        if self.n_report % LOAD_EVERY or not self.epoch:
            return None
        served = tuple(self.rng.randrange(50_000, 60_000) for _ in self.buckets)
        return BucketLoad(self.epoch, 10.0, 4.0, self.buckets, (4000,) * len(self.buckets), served)


class Nodes:
    """All nodes of a job in this process.

    Parameters
    ----------
    n_worker
        Workers of the job.
    run_master
        Runs its master, in a process of its own, until the pipe to it brings something.
    """

    def __init__(self, n_worker: int, run_master: Callable[[int, Connection], None]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, there = spawn.Pipe()
        self.master = spawn.Process(target=run_master, args=(n_worker, there), daemon=True)
        self.master.start()
        self._context, self._poller = zmq.Context(), zmq.Poller()
        self._context.set(zmq.MAX_SOCKETS, 4 * n_worker + 100)
        self._rng = random.Random(0)
        self.nodes = dict[Any, Node]()
        self._due: list[tuple[float, int, Node]] = []
        self._n = 0
        self._poller.register(self._pipe, zmq.POLLIN)

    def run(self, until_s: float) -> None:
        """Let the nodes work until a time."""
        while (now_s := time.monotonic()) < until_s:
            while self._due and self._due[0][0] <= now_s:
                at_s, _, node = heapq.heappop(self._due)
                if at_s == node.due_s:  # else it was set anew
                    self._act(node)
            wait_s = min(self._due[0][0] - now_s, IDLE_S) if self._due else IDLE_S
            for socket, _ in self._poller.poll(max(0, math.ceil(wait_s * 1000))):
                if socket is self._pipe or not isinstance(socket, zmq.Socket):
                    self._start(self._pipe.recv())
                else:
                    self._read(self.nodes[socket])

    @property
    def workers(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.config.role is Role.WORKER]

    def assemble(self, n_worker: int) -> float:
        """Run until all workers train; return the seconds that it took."""
        began_s = time.monotonic()
        while len(self.workers) < n_worker or not all(node.held for node in self.workers):
            self.run(time.monotonic() + 0.1)
            if time.monotonic() > began_s + START_LIMIT_S:
                n_train = sum(bool(node.held) for node in self.workers)
                raise SystemExit(f"{n_train} of {n_worker} workers train: {self.close()}")
        return time.monotonic() - began_s

    def _start(self, config: NodeConfig) -> None:
        keys = JobKeys(config.public_key, config.secret_key)
        socket = connect_dealer(self._context, config.master, config.node, keys)
        report_at_s = time.monotonic() + self._rng.random()
        node = self.nodes[socket] = Node(config, socket, random.Random(config.node), report_at_s)
        self._poller.register(socket, zmq.POLLIN)
        endpoint = "tcp://127.0.0.1:1" if config.role is Role.PS else ""
        node.send(Hello(config.node, config.role, os.getpid(), "here", endpoint, cpu_enforced=False))
        self._wake(node, report_at_s)

    def _read(self, node: Node) -> None:
        while True:
            try:
                frames = node.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            node.obey(decode(frames)[0], time.monotonic())
        self._act(node)

    def _act(self, node: Node) -> None:
        self._wake(node, node.act(time.monotonic()))

    def _wake(self, node: Node, at_s: float) -> None:
        node.due_s, self._n = at_s, self._n + 1
        heapq.heappush(self._due, (at_s, self._n, node))

    def close(self) -> tuple[int, int, str, str]:
        """End the job; return what the master counted, and in which phase it was."""
        self._pipe.send(None)
        while not isinstance(found := self._pipe.recv(), tuple):
            pass  # a node that would have been started
        for socket in self.nodes:
            socket.close(linger=0)
        self._context.term()
        self.master.join()
        return found

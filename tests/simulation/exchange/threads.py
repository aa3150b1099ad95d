"""Threads of nodes as tasks: those that read shards, and write checkpoints."""

from __future__ import annotations

import sys
from collections import deque
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from simulation.tasks import LONGEST_S, Time

import dlrover_nb.core.runtime.checkpoints.keeper
import dlrover_nb.core.runtime.checkpoints.pair
import dlrover_nb.core.runtime.ps.server
import dlrover_nb.core.runtime.worker.shard_prefetcher
import dlrover_nb.core.runtime.worker.synchronous_clients  # noqa: F401 - looked up by their names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simulation.exchange.world import ExchangeWorld
    from simulation.tasks import Task, Tasks

RUNTIME = "dlrover_nb.core.runtime"
TIMED = ("ps.server", "worker.ps_client", "worker.synchronous_clients")
KEEPER, PAIR, PREFETCHER, PS_CLIENT, SOCKETS, OF_PS, TRAINER = (
    f"{RUNTIME}.{name}"
    for name in (
        "checkpoints.keeper", "checkpoints.pair", "worker.shard_prefetcher", "worker.ps_client",
        "exchange.sockets", "exchange.slab.of_ps", "worker.trainer",
    )
)  # fmt: skip


class TaskQueue:
    """What a `SimpleQueue` is to tasks."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks, self._items = tasks, deque[Any]()
        self._waiting: Task | None = None

    def put(self, item: object) -> None:
        self._items.append(item)
        if self._waiting is not None:
            self._tasks.wake(self._waiting, None)

    def get(self) -> Any:
        while not self._items:
            self._waiting = self._tasks.present
            self._tasks.park(LONGEST_S)
        self._waiting = None
        return self._items.popleft()


class TaskThread:
    """What a `Thread` is to tasks; it belongs to the node whose task starts it."""

    def __init__(self, world: ExchangeWorld, target: Callable[..., object], args: tuple[object, ...] = (),
                 kwargs: dict[str, Any] | None = None, **_: object) -> None:  # fmt: skip
        self._world, self._run = world, lambda: target(*args, **(kwargs or {}))
        self._task: Task | None = None

    def start(self) -> None:
        tasks = self._world.tasks
        self._task = tasks.begin(self._run, tasks.present.of)
        tasks.present.children.append(self._task)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.is_killed and not self._task.greenlet.dead

    def join(self) -> None:
        while self.is_alive():
            self._world.tasks.sleep(0.01)


class TaskCondition:
    """What a `Condition` is to tasks: nothing happens between two of their waits."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, seconds: float) -> None:
        self._tasks.sleep(seconds)

    def notify(self) -> None:
        """Do nothing: who waits looks again."""


@contextmanager
def at_once(_n_thread: int, _name: str) -> Iterator[SimpleNamespace]:
    """Do at once what a pool of threads would do meanwhile."""

    def submit(work: Callable[..., object], *args: object) -> Future[object]:
        future: Future[object] = Future()
        future.set_result(work(*args))
        return future

    yield SimpleNamespace(submit=submit)


def _another_host(*_: object) -> None:
    raise OSError("it is of another host")


@contextmanager
def played_threads(world: ExchangeWorld) -> Iterator[None]:
    """Let the modules of nodes run in tasks."""
    tasks, patched = world.tasks, []

    def replace(module: str, name: str, value: object) -> None:
        patched.append(mock.patch.object(sys.modules[module], name, value))

    threads = SimpleNamespace(
        Thread=lambda **more: TaskThread(world, **more),
        Event=Event,
        Condition=lambda: TaskCondition(tasks),
    )
    for name in TIMED:
        replace(f"{RUNTIME}.{name}", "time", Time(tasks))
    for module in (KEEPER, PAIR, PREFETCHER):
        replace(module, "threading", threads)
    replace(KEEPER, "queue", SimpleNamespace(SimpleQueue=lambda: TaskQueue(tasks)))
    replace(KEEPER, "Pace", lambda *_: lambda: None)
    replace(KEEPER, "lower_priority", lambda: None)
    replace(PREFETCHER, "SimpleQueue", lambda: TaskQueue(tasks))
    replace(TRAINER, "ThreadPoolExecutor", at_once)
    replace(PS_CLIENT, "PROBE_BYTES", 1 << 10)
    replace(SOCKETS, "_start_zap", lambda _context: None)
    replace(OF_PS, "open_bell", _another_host)
    if not world.case.shares_memory:
        replace(OF_PS, "open_slab", _another_host)
    for each in patched:
        each.start()
    try:
        yield
    finally:
        for each in patched:
            each.stop()

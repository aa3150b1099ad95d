"""What every backend must do, tested with real nodes: subclass `BackendConformance`, one class per backend.

A node is the real program with the packaged data. A PS is used throughout: it starts in a fraction of a
second, and to a backend all nodes are alike.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, ClassVar

import psutil
import pytest
import zmq

from dlrover_nb.core.driver.backend import NodeAllotted
from dlrover_nb.core.errors import BackendError, InvalidValueError
from dlrover_nb.core.runtime.exchange.sockets import JobKeys, bind_router, new_keys
from dlrover_nb.core.runtime.exchange.wire import decode, encode
from dlrover_nb.core.structs.data.features import CategoricalColumn, FeatureSpec
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.wire.messages import Hello, Stop
from dlrover_nb.core.structs.wire.node_config import NodeConfig
from support.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dlrover_nb.core.driver.backend import Backend, NodeExited, ResizingBackend

FEATURES = FeatureSpec("label", (), (CategoricalColumn("c", 0, 64),), n_train=100, n_eval=10)


class Master:
    """The least that a node needs: someone to say Hello to."""

    def __init__(self, listen: str, folder: Path, keys: JobKeys | None = None) -> None:
        self.context = zmq.Context()
        self.keys: JobKeys = keys or new_keys()
        self.folder = folder
        self.router, self.endpoint = bind_router(self.context, listen, folder / "master", self.keys)

    def hello(self, limit_s: float) -> Hello:
        """Wait for the next Hello."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if self.router.poll(200):
                message, _ = decode(self.router.recv_multipart()[1:])
                if isinstance(message, Hello):
                    return message
        raise AssertionError(f"no Hello within {limit_s} s")

    def say_stop(self, node: str) -> None:
        self.router.send_multipart([node.encode(), *encode(Stop())])

    def close(self) -> None:
        self.router.close(linger=0)
        self.context.term()


class BackendConformance:
    """The contract of `core.driver.backend.Backend`."""

    start_limit_s: ClassVar[float] = LIMIT_S

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        path = tmp_path / "run"
        path.mkdir(mode=0o700)
        return path

    @pytest.fixture
    def backend(self, folder: Path) -> Iterator[Backend]:
        backend = self.make(folder)
        yield backend
        backend.close()

    @pytest.fixture
    def master(self, backend: Backend, folder: Path) -> Iterator[Master]:
        master = Master(backend.listen(), folder)
        self.prepare(master)
        yield master
        master.close()

    def make(self, folder: Path) -> Backend:
        """Return the backend under test for a job in `folder`."""
        raise NotImplementedError

    def spec(self) -> JobSpec:
        """Return the job whose nodes are started."""
        return JobSpec("conform")

    def prepare(self, master: Master) -> None:
        """Make what nodes find beside their configuration."""

    def pid_of(self, hello: Hello) -> int:
        """Return the id that the process of a node has on this machine."""
        return hello.pid

    def config(self, master: Master, listen: str, node: str = "ps-0") -> NodeConfig:
        return NodeConfig(
            node=node,
            role=Role.PS,
            spec=self.spec(),
            features=FEATURES,
            cpu=0.25,
            memory_mib=256,
            master=master.endpoint,
            listen=listen,
            folder=str(master.folder),
            public_key=master.keys.public,
            secret_key=master.keys.secret,
        )

    def start(self, backend: Backend, master: Master, node: str = "ps-0") -> Hello:
        backend.start_node(self.config(master, backend.listen(), node))
        return master.hello(self.start_limit_s)

    def exits(self, backend: Backend, n_node: int = 1) -> list[NodeExited]:
        """Poll until `n_node` exits were told."""
        told: list[NodeExited] = []
        end = time.monotonic() + self.start_limit_s
        while len(told) < n_node:
            told += backend.poll()
            assert time.monotonic() < end, f"exits told: {told}"
            time.sleep(0.02)
        return told

    def test_it_offers_machines_with_cpu_and_memory(self, backend: Backend) -> None:
        capacity = backend.capacity()
        assert capacity.total_cpu > 0
        assert capacity.total_memory_mib >= 64

    def test_what_nobody_holds_is_room_for_the_job(self, backend: Backend) -> None:
        assert 0 < backend.room().total_cpu <= backend.capacity().total_cpu

    def test_it_listens_on_ipc_or_on_an_address(self, backend: Backend) -> None:
        assert backend.listen() == "ipc" or backend.listen().startswith("tcp://")

    def test_a_started_node_says_hello_from_a_process_of_its_own(
        self, backend: Backend, master: Master
    ) -> None:
        hello = self.start(backend, master)
        assert (hello.node, hello.role) == ("ps-0", Role.PS)
        assert self.pid_of(hello) != os.getpid()
        assert backend.poll() == ()

    def test_a_stopped_node_is_told_once_and_stopping_again_does_nothing(
        self, backend: Backend, master: Master
    ) -> None:
        pid = self.pid_of(self.start(backend, master))
        backend.stop_node("ps-0")
        assert [exited.node for exited in self.exits(backend)] == ["ps-0"]
        backend.stop_node("ps-0")
        backend.stop_node("never-known")
        assert backend.poll() == ()
        until(lambda: not _runs(pid), "the end of a process that was told to be gone")

    def test_a_killed_node_is_told_with_a_reason_and_may_be_tried_again(
        self, backend: Backend, master: Master
    ) -> None:
        pid = self.pid_of(self.start(backend, master))
        os.kill(pid, signal.SIGKILL)
        (exited,) = self.exits(backend)
        assert exited.node == "ps-0"
        assert exited.why
        assert exited.retryable

    def test_a_node_that_ends_by_itself_is_told_too(self, backend: Backend, master: Master) -> None:
        self.start(backend, master)
        master.say_stop("ps-0")
        assert [exited.node for exited in self.exits(backend)] == ["ps-0"]

    def test_a_node_stopped_before_it_is_up_is_told(self, backend: Backend, master: Master) -> None:
        backend.start_node(self.config(master, backend.listen()))
        backend.stop_node("ps-0")
        assert [exited.node for exited in self.exits(backend)] == ["ps-0"]

    def test_an_id_is_never_used_twice(self, backend: Backend, master: Master) -> None:
        self.start(backend, master)
        backend.stop_node("ps-0")
        self.exits(backend)
        with pytest.raises(InvalidValueError, match="ps-0"):
            backend.start_node(self.config(master, backend.listen()))

    def test_close_ends_every_node_and_refuses_new_ones(self, backend: Backend, master: Master) -> None:
        pids = [self.pid_of(self.start(backend, master, node)) for node in ("ps-0", "ps-1")]
        backend.close()
        backend.close()
        until(lambda: not any(map(_runs, pids)), "the end of every node")
        with pytest.raises(BackendError):
            backend.start_node(self.config(master, backend.listen(), "ps-2"))


class ResizingConformance(BackendConformance):
    """The contract of `core.driver.backend.ResizingBackend`, for one that can resize nodes here."""

    def allotted(self, backend: ResizingBackend) -> tuple[NodeAllotted, ...]:
        return until(backend.allotted, "an answer about a node's size")

    def test_a_running_node_gets_another_size_and_that_is_told_once(
        self, backend: ResizingBackend, master: Master
    ) -> None:
        pid = self.pid_of(self.start(backend, master))
        until(backend.resizes_in_place)
        for need in ((0.5, 512), (0.25, 256), (0.25, 256)):  # to ask again is no error
            backend.resize_node("ps-0", need)
            assert self.allotted(backend) == (NodeAllotted("ps-0", need),)
            assert backend.allotted() == ()
        assert backend.poll() == ()
        assert _runs(pid)

    def test_a_node_that_is_gone_or_was_never_known_is_not_answered_for(
        self, backend: ResizingBackend, master: Master
    ) -> None:
        self.start(backend, master)
        backend.stop_node("ps-0")
        self.exits(backend)
        for node in ("ps-0", "never-known"):
            backend.resize_node(node, (0.5, 512))
        self.start(backend, master, "ps-1")
        backend.resize_node("ps-1", (0.5, 512))
        assert [each.node for each in self.allotted(backend)] == ["ps-1"]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

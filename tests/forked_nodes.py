"""Nodes that tests start on this machine are forked from a process that has imported what they need.

A worker imports torch for two seconds of CPU time, a PS what it needs for half a second; a test run starts hundreds.
A forked node is a process like any other: a child of this one, with a session, environment, folder, files, exit code
and limits of its own. It shares the seed of string hashes with the others, and /proc shows the command and the first
environment of the one that forked it.

Forked is only what would be ``python -m dlrover_nb.core.runtime.node FILE`` of this Python, in the environment in which
the run began (libraries read some variables once), with one thread for libraries. All else is started as ever, and so
is each node of a test that is marked `real_start`: those of how nodes start.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from node_parent import N_BYTE, NODE, Order
from waiting import LIMIT_S

from dlrover_nb.core.runtime.limits import thread_count, thread_variables
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.backends.local.backend import LocalBackend
    from dlrover_nb.core.structs.node_config import NodeConfig

MARK = "real_start"
LOCAL = "dlrover_nb.core.backends.local.backend"
PARENT = Path(__file__).with_name("node_parent.py")
IMPORTED = {
    Role.PS: ["dlrover_nb.core.runtime.ps"],
    Role.WORKER: ["dlrover_nb.core.runtime.worker"],  # without pyarrow, which starts a thread
}
ADOPTS_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER in prctl.h


class Forked(subprocess.Popen[bytes]):
    """A child of this process that another one has forked."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode, self.args = pid, None, [NODE]
        self.stdin = self.stdout = self.stderr = None
        self._child_created = True
        self._waitpid_lock = threading.Lock()


class Parent:
    """A process that forks the nodes of a role."""

    def __init__(self, role: Role, environment: dict[str, str]) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, PARENT, str(theirs.fileno()), *IMPORTED[role]],
                env=environment | thread_variables(1.0),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def fork(self, order: Order, files: list[int]) -> Forked:
        """Return the process of a node; this one adopts orphans meanwhile, as the node will be one."""
        with _adopting_orphans():
            socket.send_fds(self._orders, [json.dumps(order).encode()], files)
            pid = int(self._orders.recv(N_BYTE))
        return Forked(pid)

    def close(self) -> None:
        """End it."""
        self._orders.close()
        self._process.wait(LIMIT_S)


@contextlib.contextmanager
def _adopting_orphans() -> Iterator[None]:
    libc = ctypes.CDLL(None)
    libc.prctl(ADOPTS_ORPHANS, 1)
    try:
        yield
    finally:
        libc.prctl(ADOPTS_ORPHANS, 0)


class ForkedNodes:
    """Starts nodes of a `LocalBackend`: forked where they can be, else as ever."""

    is_on = True  # while a test runs that wants them

    def __init__(self) -> None:
        self._environment, self._python = _environment(), sys.executable
        self._parents: dict[Role, Parent] = {}
        self._turn = threading.Lock()

    def start(
        self, backend: LocalBackend, config: NodeConfig, path: Path, outputs: tuple[Path, Path]
    ) -> Forked:
        """Fork a node."""
        order = Order(
            configuration=str(path),
            folder=str(Path.cwd()),
            environment=dict(os.environ),
            outlives=backend._outlive,
            master=os.getpid(),
        )
        with (
            self._turn,
            Path(os.devnull).open("rb") as nothing,
            outputs[0].open("ab") as out,
            outputs[1].open("ab") as err,
        ):
            if config.role not in self._parents:
                self._parents[config.role] = Parent(config.role, self._environment)
            return self._parents[config.role].fork(order, [nothing.fileno(), out.fileno(), err.fileno()])

    def can(self, backend: LocalBackend, config: NodeConfig, path: Path) -> bool:
        """Whether a forked process is the same as one that is started."""
        return (
            self.is_on
            and backend._command(path) == [self._python, "-m", NODE, str(path)]
            and backend._environment(config) is backend._cwd is None
            and thread_count(config.cpu) == 1
            and _environment() == self._environment
        )

    def close(self) -> None:
        """End the parents."""
        for parent in self._parents.values():
            parent.close()


def _environment() -> dict[str, str]:
    """Return the variables of this process, without the one in which pytest names the test."""
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


@pytest.fixture(scope="session", autouse=True)
def forked_nodes(own_home: Path) -> Iterator[ForkedNodes]:
    """Fork nodes where the tests that were collected start any."""
    nodes = ForkedNodes()
    with pytest.MonkeyPatch.context() as patch:
        if (local := sys.modules.get(LOCAL)) is not None:
            as_ever = local.LocalBackend._new_process

            def start(
                backend: LocalBackend, config: NodeConfig, path: Path, outputs: tuple[Path, Path]
            ) -> object:
                how = nodes.start if nodes.can(backend, config, path) else as_ever
                return how(backend, config, path, outputs)

            patch.setattr(local.LocalBackend, "_new_process", start)
        yield nodes
    nodes.close()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start nodes as a user's job does in tests that are marked so."""
    ForkedNodes.is_on = item.get_closest_marker(MARK) is None


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", f"{MARK}: its nodes are started anew, not forked (`forked_nodes`)")

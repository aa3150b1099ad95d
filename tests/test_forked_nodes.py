"""A forked node is a process as a started one is: the same questions to both."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from conformance import Master
from waiting import LIMIT_S, until

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.data import make_features
from dlrover_nb.core.structs.job import JobSpec
from dlrover_nb.core.structs.node_config import NodeConfig
from dlrover_nb.core.structs.resources import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

SPEC = JobSpec("forked")


def worker(master: Master, node: str = "worker-0") -> NodeConfig:
    """Return the configuration of a worker on the packaged rows."""
    return NodeConfig(
        node=node,
        role=Role.WORKER,
        spec=SPEC,
        features=make_features(SPEC.data, SPEC.model),
        cpu=0.5,
        memory_mib=512,
        master=master.endpoint,
        listen="ipc",
        folder=str(master.folder),
        public_key=master.keys.public,
        secret_key=master.keys.secret,
    )


@pytest.fixture(params=["forked", pytest.param("started", marks=pytest.mark.real_start)])
def is_forked(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "forked")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def master(folder: Path) -> Iterator[Master]:
    master = Master("ipc", folder)
    yield master
    master.close()


@pytest.fixture
def backend(folder: Path) -> Iterator[LocalBackend]:
    backend = LocalBackend(folder)
    yield backend
    backend.close()


def test_a_node_is_a_child_of_this_process_with_a_session_folder_and_files_of_its_own(
    backend: LocalBackend, master: Master, folder: Path, *, is_forked: bool
) -> None:
    backend.start_node(worker(master))
    process = psutil.Process(master.hello(LIMIT_S).pid)
    assert process.ppid() == os.getpid()
    assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
    assert ("node_parent.py" in process.cmdline()[1]) == is_forked
    assert process.cwd() == str(Path.cwd())
    files = [str(Path(f"/proc/{process.pid}/fd/{number}").readlink()) for number in range(3)]
    assert files == [os.devnull, *(str(folder / "nodes" / f"worker-0.{end}") for end in ("out", "err"))]
    assert Path(files[2]).stat().st_size > 0


@pytest.mark.usefixtures("is_forked")
def test_a_stopped_node_ends_with_code_0_and_a_killed_one_by_its_signal(
    backend: LocalBackend, master: Master
) -> None:
    backend.start_node(worker(master))
    backend.start_node(worker(master, "worker-1"))
    pids = {hello.node: hello.pid for hello in (master.hello(LIMIT_S), master.hello(LIMIT_S))}
    os.kill(pids["worker-1"], signal.SIGKILL)
    (killed,) = until(backend.poll, "the end of the killed one")
    assert (killed.node, killed.was_killed) == ("worker-1", True)
    master.say_stop("worker-0")
    (stopped,) = until(backend.poll, "the end of the stopped one")
    assert (stopped.node, stopped.was_killed, stopped.failed) == ("worker-0", False, False)
    assert not any(map(psutil.pid_exists, pids.values())), "both were reaped"


@pytest.mark.usefixtures("is_forked")
def test_a_node_that_cannot_run_fails_with_the_last_line_of_its_log(
    backend: LocalBackend, master: Master
) -> None:
    backend.start_node(replace(worker(master), node="ps-0", role=Role.PS, listen="smoke-signals"))
    (exited,) = until(backend.poll, "its end")
    assert exited.why.startswith("exit code 1: ")

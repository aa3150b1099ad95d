"""Spare processes of a local job: they become its next workers, and outlive nobody."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from support.conformance.backend import Master
from support.waiting import LIMIT_S, is_gone, until

from dlrover_nb.core.backends.local import backend as local
from dlrover_nb.core.backends.local import spares
from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.backends.local.spares import SPARE_MIB
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.data import make_features
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.resources import Role, RolePlan
from dlrover_nb.core.structs.wire.node_config import NodeConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPEC = JobSpec("spares")
WORKERS = RolePlan(1, 0.25, 512)
PARENT = """
import sys, time
from pathlib import Path
from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.codec import from_json
from dlrover_nb.core.structs.wire.node_config import NodeConfig
from dlrover_nb.core.structs.plan.resources import RolePlan
backend = LocalBackend(Path(sys.argv[1]), outlive=True)
backend.prepare(RolePlan(1, 0.25, 512))
if len(sys.argv) > 2:
    backend.start_node(from_json(Path(sys.argv[2]).read_bytes(), NodeConfig))
print("done", flush=True)
time.sleep(3600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "jobs" / "run"
    path.mkdir(mode=0o700, parents=True)
    return path


@pytest.fixture
def master(folder: Path) -> Iterator[Master]:
    master = Master("ipc", folder)
    yield master
    master.close()


@pytest.fixture
def backend(folder: Path) -> Iterator[LocalBackend]:
    backend = LocalBackend(folder, outlive=True, keeps_spare=True)
    yield backend
    backend.close()


def worker(master: Master, node: str = "worker-0") -> NodeConfig:
    return NodeConfig(
        node=node,
        role=Role.WORKER,
        spec=SPEC,
        features=make_features(SPEC.data, SPEC.model),
        cpu=WORKERS.cpu,
        memory_mib=WORKERS.memory_mib,
        master=master.endpoint,
        listen="ipc",
        folder=str(master.folder),
        public_key=master.keys.public,
        secret_key=master.keys.secret,
    )


def children(process: psutil.Process | None = None) -> set[int]:
    """Return the processes that a process has started and that run a node's program."""
    found = (process or psutil.Process()).children()
    return {child.pid for child in found if child.status() != psutil.STATUS_ZOMBIE}


@pytest.mark.release
def test_a_spare_becomes_the_worker_and_writes_to_its_log(
    backend: LocalBackend, master: Master, folder: Path
) -> None:
    before = children()
    backend.prepare(WORKERS)
    (spare,) = children() - before
    backend.start_node(worker(master))
    hello = master.hello(LIMIT_S)
    assert (hello.node, hello.pid) == ("worker-0", spare)
    assert children() - before == {spare}
    master.say_stop("worker-0")
    (exited,) = until(backend.poll, what="its end")
    assert (exited.node, exited.was_killed, exited.failed) == ("worker-0", False, False)
    assert (folder / "nodes" / "worker-0.err").exists()


@pytest.mark.more
def test_a_spare_that_died_or_has_other_threads_is_not_used(backend: LocalBackend, master: Master) -> None:
    before = children()
    backend.prepare(RolePlan(1, 2.0, 512))
    (other,) = children() - before
    backend.start_node(worker(master))
    assert master.hello(LIMIT_S).pid != other
    until(lambda: is_gone(other), what="its end")
    before = children()
    backend.prepare(WORKERS)
    (spare,) = children() - before
    psutil.Process(spare).kill()
    until(lambda: spare not in children(), what="its end")
    backend.start_node(worker(master, "worker-1"))
    assert master.hello(LIMIT_S).node == "worker-1"


def test_there_is_no_spare_where_memory_is_short(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "FREE_MIB", 1 << 40)
    before = children()
    backend.prepare(WORKERS)
    assert children() == before


@pytest.mark.more
def test_one_waits_for_the_next_worker_and_counts_among_what_is_held(
    backend: LocalBackend, master: Master, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SETTLED_S", 0.0)
    before, beside = children(), LocalBackend(folder.with_name("another"))
    assert not backend.poll()
    assert children() == before, "nothing has been started yet"
    backend.start_node(worker(master))
    first = master.hello(LIMIT_S).pid
    for _ in range(3):
        assert not backend.poll()
    (spare,) = children() - before - {first}
    held = beside.capacity().total_memory_mib - beside.room().total_memory_mib
    assert held == WORKERS.memory_mib + SPARE_MIB
    assert beside.capacity().total_cpu - beside.room().total_cpu == pytest.approx(WORKERS.cpu)
    backend.start_node(worker(master, "worker-1"))
    assert master.hello(LIMIT_S).pid == spare
    held = beside.capacity().total_memory_mib - beside.room().total_memory_mib
    assert held == 2 * WORKERS.memory_mib
    backend.poll()
    backend.close()
    assert children() == before
    assert beside.room() == beside.capacity()


@pytest.mark.release_variants("a node that was one")
@pytest.mark.more
@pytest.mark.parametrize("is_node", [False, True], ids=["a spare", "a node that was one"])
def test_a_killed_driver_takes_its_spare_along_and_leaves_its_nodes(
    master: Master, folder: Path, tmp_path: Path, *, is_node: bool
) -> None:
    config = tmp_path / "config.json"
    config.write_bytes(to_json(worker(master)))
    words = [sys.executable, "-c", PARENT, str(folder), *([str(config)] if is_node else [])]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"done\n"
        (pid,) = children(psutil.Process(parent.pid))
        process = psutil.Process(pid)
        if is_node:
            assert master.hello(LIMIT_S).pid == pid
        parent.kill()
        parent.wait()
    second = LocalBackend(folder, outlive=True)
    if is_node:
        second.adopt({"worker-0": (WORKERS.cpu, WORKERS.memory_mib)})
        assert not second.poll()
        assert process.is_running()
    else:
        until(lambda: is_gone(pid), what="the spare's end")
    second.close()
    until(lambda: is_gone(pid), what="the end")

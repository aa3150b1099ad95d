"""A real process is slowed and always let go: by the end of the block, of the node, of either process."""

from __future__ import annotations

import io
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.runtime.node_played import PlayedJob, is_stopped, spinner
from support.virtual_time import SlowProcess, VirtualTime, as_shipped
from support.waiting import is_gone, until

from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.testing.faults import CpuShare, Latency, Persistent, restore, slow
from dlrover_nb.testing.faults.holding import held
from dlrover_nb.testing.faults.target import Target
from dlrover_nb.testing.faults.ways import Answer

pytestmark = pytest.mark.more

WAYS = [CpuShare(0.1), Persistent(18.0)]  # the process has no control group of its own: both stop it


@pytest.fixture
def process(tmp_path):
    process = spinner(tmp_path, "worker-0")
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def job(tmp_path, process):
    return PlayedJob(str(tmp_path), process.pid)


def on_record(folder: Path) -> object:
    with held(folder, "worker-0") as file:
        return file.read()


def runs_on(pid: int) -> bool:
    """Whether it is never seen stopped while it uses a moment of CPU: one that is slowed nearly always is."""
    times = Path(f"/proc/{pid}/stat")
    before = int(times.read_text().split()[13])
    while int(times.read_text().split()[13]) < before + 10:  # ticks of 10 ms
        if is_stopped(pid):
            return False
        time.sleep(0.001)
    return True


@pytest.mark.parametrize("way", WAYS)
def test_a_slowed_process_is_stopped_again_and_again_and_runs_after_the_block(job, process, tmp_path, way):
    with slow(job, "worker-0", way) as fault:
        for _ in range(3):
            until(lambda: is_stopped(process.pid))
            until(lambda: not is_stopped(process.pid))
        assert "stopped for" in fault.how
        assert not fault.ended
    assert fault.ended == "it was let go"
    assert is_gone(fault.injector)
    assert runs_on(process.pid)
    assert on_record(tmp_path) is None


@pytest.mark.parametrize("way", WAYS)
def test_a_process_is_let_go_when_the_one_that_asked_is_killed(tmp_path, process, way):
    program = (
        f"import sys, time; sys.path.append({str(Path(__file__).parents[1])!r})\n"
        "from support.runtime.node_played import PlayedJob\n"
        "from dlrover_nb.testing.faults import CpuShare, Persistent, slow\n"
        f"fault = slow(PlayedJob({str(tmp_path)!r}, {process.pid}), 'worker-0', {way!r})\n"
        "print(fault.injector, flush=True)\n"
        "time.sleep(3600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as asker:
        assert asker.stdout is not None
        injector = int(asker.stdout.readline())
        until(lambda: is_stopped(process.pid))
        asker.kill()
    until(lambda: is_gone(injector))
    assert runs_on(process.pid)
    assert on_record(tmp_path) is None


def test_a_process_is_let_go_when_its_injector_is_killed(job, process, tmp_path):
    fault = slow(job, "worker-0", Persistent(100.0))
    until(lambda: is_stopped(process.pid))
    os.kill(fault.injector, signal.SIGKILL)
    assert until(lambda: fault.ended) == "its injector was killed"
    assert runs_on(process.pid)
    assert on_record(tmp_path) is None
    fault.close()


def test_an_injector_that_is_told_to_end_lets_go(job, process):
    with slow(job, "worker-0", CpuShare(0.1)) as fault:
        until(lambda: is_stopped(process.pid))
        os.kill(fault.injector, signal.SIGTERM)
        assert until(lambda: fault.ended) == "its injector was ended"
    assert runs_on(process.pid)


def test_what_killed_processes_left_is_undone_by_restore_and_by_the_next_fault(job, process, tmp_path):
    for undo in (restore, lambda job: slow(job, "worker-0", Persistent(0.0)).close()):
        fault = slow(job, "worker-0", Persistent(100.0))
        with held_by_killed(fault, tmp_path):
            os.kill(process.pid, signal.SIGSTOP)  # as it may have been when both were killed
            until(lambda: is_stopped(process.pid))
        undo(job)
        assert runs_on(process.pid)
        assert restore(job) == ()


class held_by_killed:  # noqa: N801 - reads as words
    """Put the record of a fault back after its end, as if nobody had undone it."""

    def __init__(self, fault, folder) -> None:
        self._fault, self._path = fault, folder / "faults" / "worker-0.json"

    def __enter__(self) -> None:
        record = self._path.read_bytes()
        self._fault.close()
        self._path.write_bytes(record)

    def __exit__(self, *_: object) -> None:
        assert self._path.read_bytes()


def test_a_second_fault_of_a_node_is_refused_with_who_holds_it_and_changes_nothing(job, process):
    with slow(job, "worker-0", CpuShare(0.1)) as fault:
        with pytest.raises(InvalidValueError, match=f"slowed already.*process {fault.injector}") as refused:
            slow(job, "worker-0", Persistent(1.0))
        assert "stopped for 90 %" in str(refused.value)
        until(lambda: is_stopped(process.pid))
        assert restore(job) == ()  # a living injector is left alone
        assert not fault.ended
    with slow(job, "worker-0", CpuShare(0.1)):
        until(lambda: is_stopped(process.pid))


def test_a_fault_ends_with_its_node_and_with_its_job(job, process):
    fault = slow(job, "worker-0", CpuShare(0.5))
    process.kill()
    assert until(lambda: fault.ended) == "worker-0 has ended"
    fault.close()


def test_a_fault_ends_with_its_job(job, process):
    fault = slow(job, "worker-0", CpuShare(0.1))
    job.phase = JobPhase.SUCCEEDED
    assert until(lambda: fault.ended) == "it was let go"
    assert runs_on(process.pid)


def test_a_node_that_does_not_report_runs_freely_until_it_does(job, process):
    job.heartbeat_timeout_s, job.reports = 4.0, False
    with slow(job, "worker-0", CpuShare(0.1)):
        until(lambda: runs_on(process.pid), what="a run without stops")
        job.reports = True
        until(lambda: is_stopped(process.pid), what="a stop after a report")


def test_a_process_that_is_not_the_nodes_is_refused(job, tmp_path):
    job.pid = os.getpid()  # as the number of a process of another machine may be
    with pytest.raises(InvalidValueError, match=f"process {os.getpid()} .* is not worker-0 of job played"):
        slow(job, "worker-0", CpuShare(0.5))
    assert not (tmp_path / "faults").exists()


@pytest.mark.parametrize(
    ("changes", "way", "error", "words"),
    [
        ({"folder": ""}, CpuShare(0.5), InvalidValueError, "runs on another machine; .* pod"),
        ({"simulated": True}, CpuShare(0.5), InvalidValueError, "submit a real job"),
        ({"pid": None}, CpuShare(0.5), InvalidValueError, "wait until it runs"),
        ({"pid": 1 << 22}, CpuShare(0.5), InvalidValueError, "the node has ended"),
        ({"node": "worker-7"}, CpuShare(0.5), NotFoundError, "its nodes are worker-7"),
        ({}, Latency(0.1), InvalidValueError, "only a PS has a socket"),
        ({"role": Role.PS}, Latency(0.1), InvalidValueError, "listens on no unix socket"),
    ],
)
def test_what_cannot_be_slowed_is_refused_with_what_to_do(job, changes, way, error, words):
    for name, value in changes.items():
        setattr(job, name, value)
    with pytest.raises(error, match=words):
        slow(job, "worker-0", way)


@pytest.mark.parametrize("make", [lambda: CpuShare(0.0), lambda: CpuShare(1.0), lambda: Latency(0.0)])
def test_ways_that_change_nothing_are_refused(make):
    with pytest.raises(InvalidValueError):
        make()


@pytest.mark.parametrize(
    ("ends_at_s", "killed_at_s", "ended"),
    [(10.0, math.inf, "its block ended"), (10.1, 10.0, "its injector was killed")],
)
def test_an_injector_that_does_not_let_go_is_killed_and_its_fault_undone(
    tmp_path, ends_at_s, killed_at_s, ended
):
    virtual = VirtualTime()
    injector = SlowProcess(virtual, ends_at_s)
    said = Answer(how="stopped for 1 s"), *[Answer(ended=ended)] * (killed_at_s > ends_at_s)
    injector.stdin, injector.stdout = (
        io.BytesIO(),
        io.BytesIO(b"".join(to_json(each) + b"\n" for each in said)),
    )
    fault = as_shipped("dlrover_nb.testing.faults.fault", virtual)
    fault.subprocess = SimpleNamespace(
        Popen=lambda *_, **__: injector, PIPE=None, TimeoutExpired=subprocess.TimeoutExpired
    )
    undone = []
    fault._restore = lambda _, node: undone.append(node)
    target = Target("ads", "worker-0", Role.WORKER, os.getpid(), 0.0, tmp_path, 30.0, 1.0)
    slowed = fault.Fault(PlayedJob(str(tmp_path), None), target, fault._order(target, Persistent(1.0), 0.0))
    slowed.close()
    assert (injector.killed_at_s, slowed.ended) == (killed_at_s, ended)
    assert undone == ["worker-0"]

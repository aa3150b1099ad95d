"""Real jobs whose run folder lies on a disk that was full for a while, or whose end is cut short."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.conformance.cluster import PLAN
from support.driver.kill_master import kill_for_good
from support.waiting import LIMIT_S, until

from dlrover_nb.core.backends.local.record import read_end, read_master
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.rundir.job_file import WRITE_AHEAD_LOG
from dlrover_nb.core.runtime.checkpoints.memory_names import buffers_of, run_name
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.backends.local.cluster import LocalCluster
    from dlrover_nb.core.client.handle import JobHandle

SIZE_MIB = 64
SPEC = JobSpec(
    "room", plan=PLAN, mode=Mode.MANUAL, n_epoch=1000, checkpoint_every_s=1.0, heartbeat_timeout_s=LIMIT_S
)
SLOW_END = """
import sys, time
from pathlib import Path
from dlrover_nb.core.backends.local import master

folder = Path(sys.argv[1])
close = master.LocalBackend.close

def closed(backend):
    (folder / "closing").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
    close(backend)

master.LocalBackend.close = closed
sys.exit(master.run(folder))
"""


@pytest.fixture
def disk(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Mount a small disk for all state of the user."""
    path = Path(tempfile.mkdtemp(dir=own_home))  # short: sockets lie there
    command = ("mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m,mode=0700", "tmpfs", path)
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no disk of its own can be mounted here: {mounted.stderr.strip()}")
    monkeypatch.setenv("XDG_STATE_HOME", str(path))
    yield path
    subprocess.run(("umount", "--lazy", path), check=True)


@pytest.fixture
def on_disk(disk: Path) -> Iterator[LocalCluster]:
    cluster = connect("local")
    yield cluster
    (disk / "filler").unlink(missing_ok=True)
    cluster.shutdown(force=True)


@pytest.fixture
def local(own_home: Path) -> Iterator[LocalCluster]:
    cluster = connect("local")
    yield cluster
    cluster.shutdown(force=True)


def trains(handle: JobHandle, after: int = 0) -> dict[str, int | None]:
    """Wait until more rows than that are trained; return the processes of the nodes."""
    until(lambda: handle.snapshot().train.n_sample_done > after, what="training")
    return {node.id: node.pid for node in handle.snapshot().nodes}


def kill(handle: JobHandle) -> None:
    kill_for_good(handle.link.folder)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(512)):
            pass
    return filler


@pytest.mark.release
def test_a_job_outlives_its_master_again_after_its_full_disk_was_freed(
    on_disk: LocalCluster, disk: Path
) -> None:
    handle = on_disk.submit(SPEC)
    nodes, log = trains(handle), handle.link.folder / WRITE_AHEAD_LOG
    filler = fill(disk)
    until(lambda: not log.exists(), what="a write-ahead log that cannot be written")
    n_done = handle.snapshot().train.n_sample_done
    assert trains(handle, n_done) == nodes
    filler.unlink()
    until(log.exists, what="another write-ahead log")
    n_done = handle.snapshot().train.n_sample_done
    kill(handle)
    assert trains(handle, n_done) == nodes
    assert not any("was lost" in line for line in handle.snapshot().story)


@pytest.mark.release
def test_a_master_that_cannot_write_its_log_leaves_that_of_its_predecessor(
    on_disk: LocalCluster, disk: Path
) -> None:
    handle = on_disk.submit(SPEC)
    nodes, log = trains(handle), handle.link.folder / WRITE_AHEAD_LOG
    for _ in range(2):  # at the second kill a worker has just connected anew
        n_done = handle.snapshot().train.n_sample_done
        kill(handle)
        before, filler = log.read_bytes(), fill(disk)
        with pytest.raises(BackendError):
            handle.snapshot()
        assert log.read_bytes() == before
        filler.unlink()
        assert trains(handle, n_done) == nodes


@pytest.mark.more
def test_a_master_that_is_asked_to_leave_puts_an_ended_job_away_first(local: LocalCluster) -> None:
    handle = local.submit(replace(SPEC, name="ended"))
    trains(handle)
    folder = handle.link.folder
    kill(handle)
    with subprocess.Popen([sys.executable, "-c", SLOW_END, str(folder)]) as process:
        until(lambda: (record := read_master(folder)) and record.pid == process.pid, what="the next master")
        try:
            handle.link.stop("somebody", "enough")
            until((folder / "closing").exists, what="the end of its nodes")
            process.terminate()
        finally:
            (folder / "go").touch()  # else this would wait for it for ever
        assert process.wait() == 0
    end = read_end(folder)
    assert end is not None
    assert end.phase is JobPhase.STOPPED
    assert not buffers_of(run_name("ended", folder))

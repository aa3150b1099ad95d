"""The job of a soak: real processes of this machine on two small disks, with a clock that is set.

One disk holds all state of the user (run folder, journal, write-ahead log, logs), the other the checkpoints.
Masters and nodes are found by the files that they write; a process is only touched if its command line names
this job's run folder.
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from soak_rows import END, FOLDER_VAR, PIECE, SPOIL, Net, Stream

from dlrover_nb.core.backends.local.record import read_end, read_master
from dlrover_nb.core.commands.requests import RetryShard
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import DlroverError, NotFoundError
from dlrover_nb.core.rundir.job_file import WRITE_AHEAD_LOG
from dlrover_nb.core.runtime.checkpoints.memory_names import buffers_of, run_name
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding, Mode, Optimizer
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.structs.training.shards import SkippedBatch
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

CLOCK_SOURCE = Path(__file__).parents[1] / "tests/core/backends/local/set_clock.c"
STATE_MIB, CHECKPOINTS_MIB = 768, 512
BATCH = 64
HEARTBEAT_S = 10.0
GONE_LIMIT_S = 30.0
_MIB = 1 << 20


def plan(n_worker: int, n_ps: int) -> ResourcePlan:
    """Return a small plan."""
    return ResourcePlan(RolePlan(n_worker, 0.5, 1024), RolePlan(n_ps, 0.25, 512))


def spec_of(checkpoints: Path, rate: float) -> JobSpec:
    """Return the job: rows that never repeat, on two workers and two PS."""
    return JobSpec(
        "soak",
        plan=plan(2, 2),
        mode=Mode.MANUAL,
        data=DataSpec(categorical=("group", "site"), numeric=("first", "second")),
        model=ModelSpec(
            embedding_dim=4, learning_rate=rate, optimizer=Optimizer.SGD, embedding=Embedding.HASH
        ),
        batch_size=BATCH,
        shard_batches=PIECE // BATCH,
        checkpoint_every_s=5.0,
        checkpoint_url=str(checkpoints),
        heartbeat_timeout_s=HEARTBEAT_S,
        max_skipped_batches=10_000,
    )


class Disk:
    """A disk of its own size; only root can mount one."""

    def __init__(self, path: Path, size_mib: int) -> None:
        self.path, self._filler = path, path / "filler"
        path.mkdir(mode=0o700)
        command = ("mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=0700", "soak", str(path))
        self.is_own = subprocess.run(command, capture_output=True, check=False).returncode == 0

    @property
    def is_full(self) -> bool:
        """Whether it was filled."""
        return self._filler.exists()

    def fill(self) -> None:
        """Leave no byte."""
        free = os.statvfs(self.path)
        with self._filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(1, (free.f_bavail - 2) * free.f_frsize))
            file.seek(0, os.SEEK_END)
            while file.write(bytes(512)):
                pass

    def free(self) -> None:
        """Give back what was filled."""
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it."""
        if self.is_own:
            subprocess.run(("umount", "--lazy", str(self.path)), check=True)


class SetClock:
    """The wall clock of all processes that are started from now on, set by a file."""

    def __init__(self, folder: Path) -> None:
        library, self._file = folder / "set_clock.so", folder / "step"
        compiled = subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(CLOCK_SOURCE)], check=False
        )
        self.is_there = compiled.returncode == 0
        self._file.write_bytes(struct.pack("d", 0.0))
        if self.is_there:
            os.environ |= {"LD_PRELOAD": str(library), "SET_CLOCK_FILE": str(self._file)}

    def set(self, step_s: float) -> None:
        """Set it so far from this machine's."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("d", step_s))  # in place: processes have it mapped


class SoakJob:
    """The job, and what happens to it."""

    def __init__(self, home: Path, rate: float) -> None:
        self.home = home
        self.state = Disk(home / "state", STATE_MIB)
        self.checkpoints = Disk(home / "checkpoints", CHECKPOINTS_MIB)
        own = {f"XDG_{kind}_HOME": str(self.state.path / kind.lower()) for kind in ("STATE", "DATA")}
        os.environ |= {**own, FOLDER_VAR: str(home)}
        self._cluster = connect("local")  # before the clock: its own processes keep theirs
        self.clock = SetClock(home)
        self.pids: set[int] = set()
        self.skipped: dict[SkippedBatch, None] = {}
        self.is_master_stopped = False
        self.longest_still_s, self._moved_s, self._n_done = 0.0, time.monotonic(), 0
        self.spec = spec_of(self.checkpoints.path, rate)
        self.handle = self._cluster.submit(self.spec, model=Net, data=Stream)
        self.folder: Path = self.handle.link.folder

    def look(self) -> JobSnapshot | None:
        """Return the job's state; a master that is away is started by that. None: no answer."""
        if self.is_master_stopped:
            return None
        try:
            now = self.handle.snapshot()
        except NotFoundError:
            raise
        except DlroverError as error:
            print(f"      no answer: {error}", flush=True)
            return None
        self.pids |= {node.pid for node in now.nodes if node.pid}
        self.skipped |= dict.fromkeys(now.skipped_batches)
        self._time_stalls(now.train.n_sample_done)
        if (master := read_master(self.folder)) is not None:
            self.pids.add(master.pid)
        for shard in now.quarantined:  # random kills may suspect a shard: its rows are fine
            with contextlib.suppress(DlroverError):
                self.handle.ask(RetryShard(shard.shard, why="killed by the soak"))
        return now

    def _time_stalls(self, n_done: int) -> None:
        """Note how long the count of trained rows stands still; a rollback is a move, too."""
        at_s = time.monotonic()
        if n_done != self._n_done:
            self._n_done, self._moved_s = n_done, at_s
        self.longest_still_s = max(self.longest_still_s, at_s - self._moved_s)

    def process(self, pid: int) -> psutil.Process | None:
        """Return a process of this job; None: it has ended, or the id is another program's."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if any(str(self.folder) in word for word in process.cmdline()):
                return process
        return None

    @property
    def master(self) -> psutil.Process | None:
        """The process of the master; None between two."""
        record = read_master(self.folder)
        return None if record is None or not record.is_alive else self.process(record.pid)

    @property
    def has_log(self) -> bool:
        """Whether a killed master could be replaced now: its write-ahead log is there."""
        return (self.folder / WRITE_AHEAD_LOG).exists()

    def spoil(self) -> None:
        """Let the next reader find a broken row."""
        (self.home / SPOIL).touch()

    @property
    def n_spoilt(self) -> int:
        """Broken rows that a reader took."""
        return len(list(self.home.glob(f"{SPOIL}.*")))

    def end_rows_at(self, row: int) -> None:
        """Let the stream end."""
        new = self.home / "end.new"
        new.write_text(str(row))
        new.rename(self.home / END)

    @property
    def has_ended(self) -> bool:
        """Whether its last snapshot is written."""
        return read_end(self.folder) is not None

    def journal_mb(self) -> float:
        """Return the MB of its journal on the disk."""
        sizes = (_size(path) for path in self.folder.glob("journal*"))
        return sum(sizes) / 1e6

    def close(self) -> dict[str, int]:
        """End all its processes, and return what is left of them."""
        self.state.free()
        self.checkpoints.free()
        self._resume_all()
        with contextlib.suppress(DlroverError):
            self._cluster.shutdown(force=True)
        end_s = time.monotonic() + GONE_LIMIT_S
        while (left := [pid for pid in self.pids if self.process(pid)]) and time.monotonic() < end_s:
            time.sleep(0.1)
        n_file = len(buffers_of(run_name(self.spec.name, self.folder)))
        for process in filter(None, map(self.process, left)):
            process.kill()
        return {"left_processes": len(left), "left_shared_memory": n_file}

    def _resume_all(self) -> None:
        for process in filter(None, map(self.process, self.pids)):
            with contextlib.suppress(psutil.Error):
                process.resume()


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


@contextlib.contextmanager
def soaked(home: Path, rate: float) -> Iterator[SoakJob]:
    """Run the job in a folder of its own; nothing of it stays."""
    job = SoakJob(home, rate)
    try:
        yield job
    finally:
        print(f"left behind: {job.close()}", flush=True)
        job.state.close()
        job.checkpoints.close()


def rss_mib(process: psutil.Process | None) -> float | None:
    """Return the memory of a process; None: it has ended."""
    with contextlib.suppress(psutil.Error):
        return None if process is None else process.memory_info().rss / _MIB
    return None

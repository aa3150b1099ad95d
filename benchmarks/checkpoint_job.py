"""Checkpoints of a real job: how long training waits for each, and how fast it goes on meanwhile.

Two workers train Wide&Deep on Census with one PS, which holds a given size besides. Each worker stamps its
iterations, the job master the stages of each checkpoint. Of each follow

blocking_ms     from the moment at which all workers stand still until they may go on
pause_ms        what the iteration of a worker takes more that spans it than its median one in the seconds
                before, of the worker that waits longest: the end of the iteration of the other worker is in
                it, and the way of all messages. The longest iteration around it less the longest before would
                be negative on a busy machine, as other work makes one of many iterations before long
copy_s, write_s until all of it is in memory, and from then until it is on the disk
step_while_copying, step_while_writing
                iterations per second in that time, over those in the seconds before
cpu_while_copying, cpu_while_writing
                CPU seconds of an iteration in the seconds before, with all of the PS, over those in that
                time: it says the same where others use the machine too
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from migration import STAMPS, Job, stamp_iterations, stamps, wide_features

from dlrover_nb.core.master.own.checkpoints import checkpoint_coordinator
from dlrover_nb.core.master.own.state.state import JobState, Stage
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT_S = 600.0
QUIET_S = 3.0  # before each checkpoint, with nothing on its way to the disk
SETTLED_S = 4.0  # before that, for each GiB: memory for the copy is reserved
LOOK_EVERY_S = 0.02  # CPU times of processes are counted in hundredths of a second
MOST_COPIES = (
    2.6  # memory of the PS, over its parameters: them, one copy and the map; a second copy if it fits
)
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Watch:
    """Begins checkpoints of the job whose master runs in this process, and notes how far each has come."""

    def __init__(self) -> None:
        self.wants = False
        self.at_s: dict[str, float] = {}
        self._before: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Self:
        is_due = checkpoint_coordinator.is_due
        self._replace(checkpoint_coordinator, "is_due", lambda *about: self.wants and is_due(*about))
        self._after(JobState, "enter", self._entered)
        self._after(checkpoint_coordinator, "on_copied", self._copied)
        self._after(checkpoint_coordinator, "on_written", self._written)
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, before in self._before:
            setattr(owner, name, before)

    def take(self, cpu: CpuTime) -> dict[str, float]:
        """Let the job make one checkpoint; return when it passed each stage."""
        self.at_s, self.wants = {}, True
        end_s = time.monotonic() + LIMIT_S
        while "written" not in self.at_s:
            if time.monotonic() > end_s:
                raise TimeoutError(f"the checkpoint came as far as {self.at_s}")
            cpu.note()
            time.sleep(LOOK_EVERY_S)
        return self.at_s

    def _replace(self, owner: Any, name: str, by: Callable[..., object]) -> None:
        self._before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, by)

    def _after(self, owner: Any, name: str, note: Callable[[JobState, Stage], None]) -> None:
        before = getattr(owner, name)

        def noted(state: JobState, *about: object) -> None:
            stage = state.stage
            before(state, *about)
            note(state, stage)

        self._replace(owner, name, noted)

    def _note(self, name: str) -> None:
        self.at_s.setdefault(name, time.monotonic())

    def _entered(self, state: JobState, before: Stage) -> None:
        if state.stage is Stage.COPYING:
            self.wants = False
            self._note("stood")
        elif before is Stage.COPYING:
            self._note("went_on")

    def _copied(self, state: JobState, _stage: Stage) -> None:
        if any(kept.number == state.n_checkpoint for kept in state.checkpoints):
            self._note("copied")

    def _written(self, state: JobState, _stage: Stage) -> None:
        if state.n_checkpoint not in state.writing:
            self._note("written")


class CpuTime:
    """CPU seconds of processes with all their threads, noted again and again."""

    def __init__(self, pids: list[int]) -> None:
        self._paths = [Path(f"/proc/{pid}/stat") for pid in pids]
        self._noted: list[tuple[float, float]] = []

    def note(self) -> None:
        words = [path.read_text().rpartition(")")[2].split() for path in self._paths]
        ticks = sum(int(each[11]) + int(each[12]) for each in words)
        self._noted.append((time.monotonic(), ticks / TICKS_PER_S))

    def between(self, start: float, stop: float) -> float:
        at, used = np.array(self._noted).T
        return float(np.diff(np.interp([start, stop], at, used))[0])


def measured(at_s: dict[str, float], all_stamps: list[np.ndarray], cpu: CpuTime) -> dict[str, float]:
    """Return the figures of one checkpoint."""
    stood, went_on = at_s["stood"], at_s["went_on"]
    copied, written = at_s["copied"], at_s["written"]
    quiet = stood - QUIET_S, stood - 0.1
    rate, cpu_s = _speed(quiet, all_stamps, cpu)
    pause_s = max(_extra_s(each, stood, went_on) for each in all_stamps)
    found = {
        "blocking_ms": round(1e3 * (went_on - stood), 2),
        "pause_ms": round(1e3 * pause_s, 1),
        "copy_s": round(copied - went_on, 2),
        "write_s": round(written - copied, 2),
        "quiet_iter_per_s": round(rate, 1),
    }
    for name, window in (("copying", (went_on, copied)), ("writing", (copied, written))):
        this_rate, this_cpu_s = _speed(window, all_stamps, cpu)
        found |= {
            f"step_while_{name}": round(this_rate / rate, 3),
            f"cpu_while_{name}": round(cpu_s / this_cpu_s, 3),
        }
    return found


def _extra_s(stamped: np.ndarray, stood: float, went_on: float) -> float:
    """Return what the iteration of a worker that spans a stop takes more than its median one before."""
    last, first = stamped[stamped <= stood][-1], stamped[stamped >= went_on][0]
    before = stamped[(stamped >= stood - QUIET_S) & (stamped <= last)]
    return float(first - last - np.median(np.diff(before)))


def _speed(window: tuple[float, float], all_stamps: list[np.ndarray], cpu: CpuTime) -> tuple[float, float]:
    """Return iterations per second, and the CPU seconds of one."""
    start, stop = window
    n = max(1, sum(int(((each >= start) & (each < stop)).sum()) for each in all_stamps))
    return n / (stop - start), cpu.between(start, stop) / n


def run(gib: float, n_checkpoint: int, tmp: str | None = None) -> list[dict[str, float]]:
    """Return the figures of each checkpoint of a job whose PS holds `gib` besides what is trained."""
    stamp_iterations()
    with tempfile.TemporaryDirectory(prefix="dlb", dir=tmp) as name, Watch() as watch:
        os.environ[STAMPS] = name
        memory_mib = int(1024 * (MOST_COPIES * gib + 1))
        plan = ResourcePlan(worker=RolePlan(2, 1.0, 1024), ps=RolePlan(1, 1.0, memory_mib))
        spec = JobSpec("checkpoint", plan=plan, mode=Mode.MANUAL, n_epoch=10_000, checkpoint_every_s=0.5)
        features, n_row = wide_features(spec, gib)
        job = Job(Path(name) / "run", spec, features)
        try:
            job.fill(features.n_table_row - n_row, n_row)
            job.until(lambda _: job.parameter_gib() >= gib)
            cpu = CpuTime([node.pid for node in job.driver.snapshot().nodes if node.pid])
            times = list(_checkpoints(watch, cpu, n_checkpoint, SETTLED_S * gib + QUIET_S))
            found = stamps(Path(name))
        finally:
            job.driver.close()
    return [measured(each, found, cpu) for each in times]


def _checkpoints(watch: Watch, cpu: CpuTime, n: int, every_s: float) -> Iterator[dict[str, float]]:
    for _ in range(n):
        end_s = time.monotonic() + every_s
        while time.monotonic() < end_s:
            cpu.note()
            time.sleep(LOOK_EVERY_S)
        yield watch.take(cpu)

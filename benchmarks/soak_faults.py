"""The faults of a soak: each by its name, with what ends it, if it does not end by itself.

A fault is a function of the job, its last state and a random generator; it returns None where it cannot
happen now. All that is random comes from the generator, so a seed gives the same faults in the same order
(the times of what they meet are the machine's).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
from soak_job import plan

from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from soak_job import Disk, SoakJob

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

HOUR_S, DAY_S = 3600.0, 86_400.0
CLOCK_STEPS_S = (0.0, -60.0, 60.0, -HOUR_S, HOUR_S, -DAY_S, DAY_S)
STOPS_S = (2.0, 20.0)  # some shorter and some longer than the heartbeat's limit
FULL_S = (5.0, 30.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """One that has begun: what it did, and after how many seconds `end` ends it (None: it is over)."""

    what: str
    lasts_s: float = 0.0
    end: Callable[[], None] | None = None


def _pids(now: JobSnapshot, role: Role) -> list[int]:
    return [node.pid for node in now.nodes if node.pid and node.role is role]


def _node(job: SoakJob, now: JobSnapshot, role: Role, rng: random.Random) -> psutil.Process | None:
    pids = _pids(now, role)
    return job.process(rng.choice(pids)) if pids else None


def _killed(process: psutil.Process | None, name: str) -> Fault | None:
    if process is None:
        return None
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
        return Fault(f"kills {name}, process {process.pid}")
    return None


def kill_worker(job: SoakJob, now: JobSnapshot, rng: random.Random) -> Fault | None:
    return _killed(_node(job, now, Role.WORKER, rng), "a worker")


def kill_ps(job: SoakJob, now: JobSnapshot, rng: random.Random) -> Fault | None:
    return _killed(_node(job, now, Role.PS, rng), "a PS")


def kill_master(job: SoakJob, _now: JobSnapshot, _rng: random.Random) -> Fault | None:
    return _killed(job.master, "the master") if job.has_log else None


def kill_all(job: SoakJob, now: JobSnapshot, _rng: random.Random) -> Fault | None:
    """Kill master and nodes in one moment, as a machine that loses power does."""
    if not job.has_log or (master := job.master) is None:
        return None
    pids = [master.pid, *(pid for role in Role for pid in _pids(now, role))]
    for process in filter(None, map(job.process, pids)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return Fault(f"kills the master and all {len(pids) - 1} nodes")


def _stopped(process: psutil.Process | None, name: str, lasts_s: float) -> Fault | None:
    if process is None:
        return None

    def resume() -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()

    with contextlib.suppress(psutil.NoSuchProcess):
        process.suspend()
        return Fault(f"stops {name}, process {process.pid}", lasts_s, resume)
    return None


def stop_worker(job: SoakJob, now: JobSnapshot, rng: random.Random) -> Fault | None:
    return _stopped(_node(job, now, Role.WORKER, rng), "a worker", rng.uniform(*STOPS_S))


def stop_ps(job: SoakJob, now: JobSnapshot, rng: random.Random) -> Fault | None:
    return _stopped(_node(job, now, Role.PS, rng), "a PS", rng.uniform(*STOPS_S))


def stop_master(job: SoakJob, _now: JobSnapshot, rng: random.Random) -> Fault | None:
    begun = _stopped(job.master, "the master", rng.uniform(*STOPS_S))
    if begun is None or begun.end is None:
        return None
    resume, job.is_master_stopped = begun.end, True

    def end() -> None:
        resume()
        job.is_master_stopped = False

    return Fault(begun.what, begun.lasts_s, end)


def _full(disk: Disk, name: str, rng: random.Random) -> Fault | None:
    lasts_s = rng.uniform(*FULL_S)
    if not disk.is_own or disk.is_full:
        return None
    disk.fill()
    return Fault(f"fills the disk of {name}", lasts_s, disk.free)


def fill_checkpoints(job: SoakJob, _now: JobSnapshot, rng: random.Random) -> Fault | None:
    return _full(job.checkpoints, "the checkpoints", rng)


def fill_state(job: SoakJob, _now: JobSnapshot, rng: random.Random) -> Fault | None:
    return _full(job.state, "run folder, journal, write-ahead log and logs", rng)


def set_clock(job: SoakJob, _now: JobSnapshot, rng: random.Random) -> Fault | None:
    if not job.clock.is_there:
        return None
    step_s = rng.choice(CLOCK_STEPS_S)
    job.clock.set(step_s)
    return Fault(f"sets the clock to {step_s:+.0f} s")


def spoil_batch(job: SoakJob, _now: JobSnapshot, _rng: random.Random) -> Fault | None:
    job.spoil()
    return Fault("gives the next reader a row without a finite loss")


def change_plan(job: SoakJob, _now: JobSnapshot, rng: random.Random) -> Fault | None:
    """Change the plan: no fault by itself, but the moment in which one does most harm."""
    target = plan(rng.randint(1, 3), rng.randint(1, 3))
    if job.is_master_stopped:
        return None
    try:
        job.handle.decide(Scale.to(target, why="soak"))
    except DlroverError as error:
        return Fault(f"asks for {target.short}, refused: {error}")
    return Fault(f"changes the plan to {target.short}")


FAULTS: dict[str, Callable[[SoakJob, JobSnapshot, random.Random], Fault | None]] = {
    "kill_worker": kill_worker,
    "kill_ps": kill_ps,
    "kill_master": kill_master,
    "kill_all": kill_all,
    "stop_worker": stop_worker,
    "stop_ps": stop_ps,
    "stop_master": stop_master,
    "fill_checkpoints": fill_checkpoints,
    "fill_state": fill_state,
    "set_clock": set_clock,
    "spoil_batch": spoil_batch,
    "change_plan": change_plan,
}
OFTEN = ("kill_worker", "kill_worker", "kill_ps", "kill_master", "stop_worker", "set_clock", "spoil_batch")


def names(rng: random.Random) -> Callable[[], str]:
    """Return a source of names: each kind comes before any comes too often, in random order."""
    bag: list[str] = []

    def following() -> str:
        if not bag:
            bag.extend([*FAULTS, *OFTEN])
            rng.shuffle(bag)
        return bag.pop()

    return following

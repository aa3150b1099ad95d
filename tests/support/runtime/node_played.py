"""A job of one small process, which a snapshot names as its node; it reports when a test says so."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from pathlib import Path

SPIN = "while True: pass"


def spinner(folder: Path, node: str, program: str = SPIN) -> subprocess.Popen[bytes]:
    """Start a process whose standard error is the node's log, as of a real node."""
    (folder / "nodes").mkdir(exist_ok=True)
    with (folder / "nodes" / f"{node}.err").open("ab") as log:
        return subprocess.Popen([sys.executable, "-c", program], stderr=log)


@dataclass
class PlayedJob:
    """What `slow` asks of a job."""

    folder: str
    pid: int | None
    node: str = "worker-0"
    role: Role = Role.WORKER
    reports: bool = True
    phase: JobPhase = JobPhase.TRAINING
    heartbeat_timeout_s: float = 30.0
    simulated: bool = False
    iter_s: float = 20.0  # as with 18 s of stops in it: nine tenths of the time
    at_s: float = field(default=0.0, init=False)

    def snapshot(self):
        if self.reports:
            self.at_s += 1.0
        last = SimpleNamespace(at_s=self.at_s, iter_s=self.iter_s)
        view = SimpleNamespace(id=self.node, role=self.role, pid=self.pid, last=last, state="starting")
        return SimpleNamespace(
            spec=SimpleNamespace(name="played", heartbeat_timeout_s=self.heartbeat_timeout_s),
            simulated=self.simulated,
            folder=self.folder,
            phase=self.phase,
            nodes=() if self.phase.is_final else (view,),
        )


def is_stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED

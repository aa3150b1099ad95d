"""Make the run folders that tests open as those of an earlier release.

Run with the Python of that release, in an empty folder::

    python make_run_folders.py make INTO

It trains one tiny job to its end and kills the master of a second one in the middle, each in its own process
on local nodes. The modules of release 0.1 are named here, so that the script runs with that release alone.
What is large and never read is left out: sockets, locks, and what nodes wrote to their own files.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from dlrover_nb.core.backends.process import ProcessBackend
from dlrover_nb.core.session.driver import JobDriver

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.data import make_features
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

MODEL = ModelSpec(embedding_dim=2, hidden=(4,), hash_size=64)
PLAN = ResourcePlan(RolePlan(1, 1.0, 512), RolePlan(1, 0.5, 256))
KEPT = ("job.json", "diary.log", "journal.jsonl", "checkpoints", "logs")
WORK = Path("/tmp/dlrover-nb-release-0-1")  # noqa: S108 - files name it: tests put the folders there again


def drive(name: str, folder: Path, n_epoch: int) -> None:
    """Drive one job to its end in this process."""
    driver = JobDriver(
        JobSpec(name, model=MODEL, plan=PLAN, mode=Mode.MANUAL, n_epoch=n_epoch, checkpoint_every_s=1.0),
        make_features(DataSpec(), MODEL),
        ProcessBackend(folder, cpus=3.0, outlive=True),
        folder=folder,
        history_url=f"sqlite:///{folder.parent / 'history.db'}",
        clock=SystemClock(),
    )
    driver.start()
    while not driver.join(0.1):
        pass


def finished(into: Path) -> None:
    """Keep the folder of a job that ended."""
    run = WORK / "finished"
    subprocess.run([sys.executable, __file__, "drive", "finished", str(run), "1"], check=True)
    keep(run, into / "finished")


def interrupted(into: Path) -> None:
    """Keep the folder of a job whose master and nodes were killed after a checkpoint of trained rows."""
    run = WORK / "interrupted"
    master = subprocess.Popen([sys.executable, __file__, "drive", "interrupted", str(run), "8"])
    while not any(json.loads(path.read_bytes())["n_row"] for path in run.glob("checkpoints/*/manifest.json")):
        time.sleep(0.05)
    master.kill()
    master.wait()
    for path in run.glob("nodes/*.pid"):
        os.killpg(json.loads(path.read_bytes())["pid"], signal.SIGKILL)
    keep(run, into / "interrupted")


def keep(run: Path, into: Path) -> None:
    """Pack what belongs to the formats of a run folder."""
    into.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(into.with_suffix(".tar.xz"), "w:xz") as archive:
        for name in KEPT:
            archive.add(run / name, f"{run.name}/{name}")


if __name__ == "__main__":
    if sys.argv[1] == "drive":
        drive(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    else:
        finished(Path(sys.argv[2]))
        interrupted(Path(sys.argv[2]))

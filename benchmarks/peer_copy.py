"""What copies of checkpoints with peers cost, and how long a lost host takes to come back from one.

Real jobs train on this machine, each node with shared memory of its own, as on machines of their own. Jobs
with copies and without take turns; each is measured over the same span, from its first checkpoint on. In the
jobs with copies one PS is then killed with kill -9 and its memory deleted, as a lost host takes it:
`restore_s` is from the kill to the moment at which the new group serves what it read from peers, `back_s` to
the first row that is trained after it. One more job loses a host in the same way and goes on to its end;
`rows_off` is by how many rows its account differs from those of the data.

    python benchmarks/peer_copy.py [--rounds 3 --seconds 20 --epochs 2]

One line of JSON comes last; seconds are medians, lists are in the order measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from lengths import parsed, print_figures

from dlrover_nb.core.backends.local.backend import LocalBackend
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.data import make_features
from dlrover_nb.core.driver.own import own_job
from dlrover_nb.core.master.own.checkpoints.peer_copies import last_whole
from dlrover_nb.core.runtime.checkpoints.memory_names import SHM_VAR, sweep_memory
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.checkpoints import PeerCopies
from dlrover_nb.core.structs.wire.pod_contract import MACHINE_VAR

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.core.structs.wire.node_config import NodeConfig

PLAN = ResourcePlan(worker=RolePlan(1, 0.6, 2048), ps=RolePlan(2, 0.3, 2048))
LIMIT_S = 900.0
LOOK_S = 0.02
ENDLESS = 1000  # passes of a job that is ended when it has been measured
EVERY_S = 3.0  # between checkpoints: far more often than usual, so that their cost shows
KEPT = "kept the copy of"


class SeparateMachines(LocalBackend):
    """Processes of this machine that share no memory."""

    def memory_of(self, node: str) -> Path:
        return self._folder / "shm" / node

    def _environment(self, config: NodeConfig) -> dict[str, str]:
        self.memory_of(config.node).mkdir(parents=True, exist_ok=True)
        return os.environ | {SHM_VAR: str(self.memory_of(config.node)), MACHINE_VAR: config.node}


class Run:
    """One job, until it has trained every row."""

    def __init__(self, copies: PeerCopies, n_epoch: int, folder: Path) -> None:
        spec = JobSpec(
            "peers",
            plan=PLAN,
            mode=Mode.MANUAL,
            n_epoch=n_epoch,
            checkpoint_every_s=EVERY_S,
            model=replace(ModelSpec(), hash_size=1 << 17),
            peer_copies=copies,
        )
        features = make_features(spec.data, spec.model)
        self.n_row = features.n_train * n_epoch
        self.backend = SeparateMachines(folder, cpus=4.0)
        history = f"sqlite:///{folder.with_suffix('.db')}"
        setup = own_job.RunSetup(self.backend, folder, history_url=history, clock=SystemClock())
        self.driver = own_job.begin(spec, features, setup)
        self.story = ""
        self.driver.start()

    @property
    def now(self) -> JobSnapshot:
        return self.driver.snapshot()

    def until(self, condition: Callable[[JobSnapshot], object]) -> JobSnapshot:
        end_s = time.monotonic() + LIMIT_S
        while not condition(now := self.now):
            if now.phase.is_final or time.monotonic() > end_s:
                raise RuntimeError(f"the job {now.phase} before it was due: {now.message}")
            time.sleep(LOOK_S)  # far below what is measured
        return now

    def cpu_s(self) -> float:
        """Return the CPU time of all nodes so far."""
        return sum(sum(psutil.Process(node.pid).cpu_times()[:2]) for node in self.now.nodes if node.pid)

    def measure(self, seconds: float) -> dict[str, float]:
        """Return rows and CPU time per second once checkpoints are made."""
        folder = self.backend.memory_of("ps-0")
        self.until(lambda now: now.train.n_sample_done and list(folder.glob("*-a")))
        begun, cpu_s, at_s = self.now.train.n_sample_done, self.cpu_s(), time.monotonic()
        self.until(lambda _: time.monotonic() > at_s + seconds)
        took_s, n_row = time.monotonic() - at_s, self.now.train.n_sample_done - begun
        return {
            "step_ms": 1e3 * took_s * self.driver.spec.batch_size / n_row,
            "cpu_ms_per_step": 1e3 * (self.cpu_s() - cpu_s) * self.driver.spec.batch_size / n_row,
        }

    def lose_host(self) -> dict[str, float]:
        """Kill a PS with its memory; return the seconds until the group serves and until rows are trained."""
        state = self.driver._master._state  # noqa: SLF001 - when the copies are whole, which no view shows
        self.until(lambda _: last_whole(state) > 0)
        (node,) = (each for each in self.now.nodes if each.id == "ps-1")
        psutil.Process(node.pid).kill()
        at_s = time.monotonic()
        shutil.rmtree(self.backend.memory_of("ps-1"))
        self.story = next(
            line for line in self.until(lambda now: any(map(_is_back, now.story))).story if _is_back(line)
        )
        restore_s, n_row = time.monotonic() - at_s, self.now.train.n_sample_done
        self.until(lambda now: now.train.n_sample_done > n_row)
        return {"restore_s": restore_s, "back_s": time.monotonic() - at_s}

    def end(self) -> int:
        """Wait for the end; return by how many rows the account differs from those of the data."""
        if not self.driver.join(LIMIT_S) or self.now.phase is not JobPhase.SUCCEEDED:
            raise RuntimeError(f"the job {self.now.phase}: {self.now.message}")
        return self.now.train.n_sample_done - self.n_row

    def close(self) -> None:
        self.driver.close()
        for memory in self.backend.memory_of("ps-0").parent.glob("*"):
            sweep_memory(shm=memory)


def _is_back(line: str) -> bool:
    return KEPT in line


def one(copies: PeerCopies, seconds: float, folder: Path) -> dict[str, Any]:
    with closing(Run(copies, ENDLESS, folder)) as run:
        found: dict[str, Any] = run.measure(seconds)
        return found if copies is PeerCopies.NEVER else found | run.lose_host()


def to_the_end(n_epoch: int, folder: Path) -> dict[str, Any]:
    """Lose a host and train on to the end."""
    with closing(Run(PeerCopies.AUTO, n_epoch, folder)) as run:
        lost = run.lose_host()
        return {"rows_off": run.end(), "n_row": run.n_row, "lost": lost, "story": run.story}


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    kinds = {"with": PeerCopies.AUTO, "without": PeerCopies.NEVER}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in kinds}
    for number in range(options.rounds):
        for name, copies in list(kinds.items())[:: 1 if number % 2 else -1]:
            found[name].append(one(copies, options.seconds, folder / f"{name}-{number}"))
            print(f"{number} {name:8}", json.dumps(found[name][-1]), flush=True)
    medians = {
        f"{key}_{name}": round(statistics.median(each[key] for each in runs), 3)
        for name, runs in found.items()
        for key in ("step_ms", "cpu_ms_per_step")
    }
    both = list(zip(found["with"], found["without"], strict=True))
    return {
        **medians,
        **{
            f"over_{key}": round(statistics.median(a[key] / b[key] for a, b in both), 3)
            for key in ("step_ms", "cpu_ms_per_step")
        },
        "restore_s": round(statistics.median(each["restore_s"] for each in found["with"]), 2),
        "back_s": round(statistics.median(each["back_s"] for each in found["with"]), 2),
        **to_the_end(options.epochs, folder / "whole"),
        "rounds": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--epochs", type=int, default=1, help="passes of the job that goes on to its end")
    options = parsed(parser, rounds=3, seconds=20.0, epochs=2)
    with tempfile.TemporaryDirectory(prefix="dlpc") as name:
        found = measure(options, Path(name))
    print_figures("peer_copy", {"cpus": os.cpu_count(), "every_s": EVERY_S, **found})


if __name__ == "__main__":
    main()

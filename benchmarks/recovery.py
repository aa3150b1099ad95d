"""A job under a rain of kill -9: random nodes at random moments, and every shard is trained all the same.

A real job of processes on this machine trains while a seeded killer ends one of its nodes after the other,
workers and parameter servers alike, whatever they do at that moment: starting, training, saving, loading.
What died is replaced; a lost parameter server takes parameters and data queue back to the last checkpoint.

    python benchmarks/recovery.py [--kills 30 --seed 0]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from dlrover_nb.core.backends.process import ProcessBackend
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.data import make_features
from dlrover_nb.core.session.driver import JobDriver
from dlrover_nb.core.structs.job import JobPhase, JobSpec, Mode
from dlrover_nb.core.structs.resources import ResourcePlan, Role, RolePlan

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job import FeatureSpec
    from dlrover_nb.core.structs.snapshot import JobSnapshot

PLAN = ResourcePlan(worker=RolePlan(2, 0.5, 1024), ps=RolePlan(2, 0.25, 512))
LIMIT_S = 600.0
SHORTEST_S, LONGEST_S = 0.5, 6.0  # between two kills


class Killer:
    """Ends random nodes of a job, and notes when all that it ended was replaced."""

    def __init__(self, driver: JobDriver, n_kill: int, seed: int) -> None:
        self._driver, self._n_kill, self._random = driver, n_kill, random.Random(seed)
        self.killed = dict.fromkeys(Role, 0)
        self.pids: set[int] = set()
        self.recovery_s: list[float] = []

    def rage(self) -> None:
        """Kill until the number is reached or the job has ended."""
        while sum(self.killed.values()) < self._n_kill and not self._driver.snapshot().phase.is_final:
            self._rest(self._random.uniform(SHORTEST_S, LONGEST_S))
            self._kill_one()

    def _rest(self, seconds: float) -> None:
        """Wait, and measure how long the job needs until all of its plan runs again."""
        began_s, is_whole = time.monotonic(), not self.pids
        while (passed_s := time.monotonic() - began_s) < seconds:
            now = self._driver.snapshot()
            if not is_whole and now.running and self.pids.isdisjoint(node.pid for node in now.nodes):
                self.recovery_s.append(passed_s)
                is_whole = True
            time.sleep(0.05)

    def _kill_one(self) -> None:
        nodes = [n for n in self._driver.snapshot().nodes if n.pid and n.pid not in self.pids]
        if not nodes:
            return
        victim = self._random.choice(nodes)
        try:
            psutil.Process(victim.pid).kill()
        except psutil.NoSuchProcess:  # it was stopped since the picture was drawn
            return
        self.pids.add(victim.pid or 0)
        self.killed[victim.role] += 1


def run(spec: JobSpec, features: FeatureSpec, n_kill: int, seed: int) -> tuple[JobSnapshot, Killer]:
    """Run the job under the killer to its end."""
    with tempfile.TemporaryDirectory(prefix="dlr") as name:
        folder = Path(name) / "run"
        driver = JobDriver(
            spec,
            features,
            ProcessBackend(folder, cpus=4.0),
            folder=folder,
            history_url=f"sqlite:///{name}/history.db",
            clock=SystemClock(),
        )
        driver.start()
        killer = Killer(driver, n_kill, seed)
        try:
            killer.rage()
            driver.join(LIMIT_S)
            return driver.snapshot(), killer
        finally:
            driver.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args()
    spec = JobSpec(
        "recovery",
        plan=PLAN,
        mode=Mode.MANUAL,
        n_epoch=options.epochs,
        checkpoint_every_s=2.0,
        seed=options.seed,
    )
    features = make_features(spec.data, spec.model)
    began_s = time.monotonic()
    end, killer = run(spec, features, options.kills, options.seed)
    n_shard = math.ceil(features.n_train / (spec.batch_size * spec.shard_batches)) * spec.n_epoch
    result = {
        "benchmark": "recovery",
        "seed": options.seed,
        "n_kill": sum(killer.killed.values()),
        "n_kill_worker": killer.killed[Role.WORKER],
        "n_kill_ps": killer.killed[Role.PS],
        "phase": str(end.phase),
        "shards": n_shard,
        "lost_shards": n_shard - end.train.total,
        "unfinished": end.train.total - end.train.done,
        "returned": end.train.returned,
        "refused": end.train.refused,
        "auc": None if end.evaluation is None else round(end.evaluation.auc, 5),
        "left_processes": sum(map(psutil.pid_exists, killer.pids)),
        "whole_again_s_median": round(sorted(killer.recovery_s)[len(killer.recovery_s) // 2], 2)
        if killer.recovery_s
        else None,
        "seconds": round(time.monotonic() - began_s, 1),
    }
    print(json.dumps(result))
    if end.phase is not JobPhase.SUCCEEDED or end.train.done != n_shard:
        raise SystemExit("\n".join((end.message, *end.story[-12:])))


if __name__ == "__main__":
    main()

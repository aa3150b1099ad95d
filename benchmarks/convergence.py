"""AUC of an elastic distributed run beside a single process on the same rows.

The elastic run is a real job of processes on this machine: it starts with one worker and one parameter
server, is scaled to two of each while it trains, loses a worker to kill -9, and ends with two workers and one
parameter server. The single process trains the same model on the same rows in the same order of shards.

    python benchmarks/convergence.py [--epochs 4 --seeds 0 1 2]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from dlrover_nb.core.backends.process import ProcessBackend
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.data import make_features
from dlrover_nb.core.models.metrics import auc
from dlrover_nb.core.runtime.local import train_single
from dlrover_nb.core.session.client import JobHandle
from dlrover_nb.core.session.driver import JobDriver
from dlrover_nb.core.structs.job import JobPhase, JobSpec, Mode, ModelSpec
from dlrover_nb.core.structs.resources import ResourcePlan, Role, RolePlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.snapshot import JobSnapshot

LIMIT_S = 300.0


def plan(workers: int, ps: int) -> ResourcePlan:
    return ResourcePlan(worker=RolePlan(workers, 0.5, 1024), ps=RolePlan(ps, 0.25, 512))


def job(seed: int, epochs: int) -> JobSpec:
    return JobSpec(
        name=f"convergence-{seed}",
        plan=plan(1, 1),
        mode=Mode.MANUAL,
        n_epoch=epochs,
        seed=seed,
        model=ModelSpec(seed=seed),
    )


def wait(handle: JobHandle, condition: Callable[[JobSnapshot], bool]) -> JobSnapshot:
    end = time.monotonic() + LIMIT_S
    while not condition(snapshot := handle.snapshot()) and not snapshot.phase.is_final:
        if time.monotonic() > end:
            raise TimeoutError(f"{snapshot.phase} {snapshot.message}: {snapshot.story[-5:]}")
        time.sleep(0.1)
    return snapshot


def share_done(snapshot: JobSnapshot) -> float:
    return snapshot.train.n_sample_done / max(snapshot.train.n_sample_total, 1)


def disturb(handle: JobHandle) -> None:
    """Scale out, kill a worker, take a parameter server away: all while it trains."""
    wait(handle, lambda s: share_done(s) > 0.1)
    handle.scale(plan(2, 2))
    wait(handle, lambda s: s.running == plan(2, 2))
    snapshot = wait(handle, lambda s: share_done(s) > 0.4)
    victim = next(n for n in snapshot.nodes if n.role is Role.WORKER and n.phase == "ready" and n.pid)
    psutil.Process(victim.pid).kill()
    wait(handle, lambda s: share_done(s) > 0.6 and s.running == plan(2, 2))
    handle.scale(plan(2, 1))


def elastic(spec: JobSpec) -> JobSnapshot:
    features = make_features(spec.data, spec.model)
    with tempfile.TemporaryDirectory(prefix="dlb") as name:
        driver = JobDriver(
            spec,
            features,
            ProcessBackend(Path(name) / "run"),
            folder=Path(name) / "run",
            history_url=f"sqlite:///{name}/history.db",
            clock=SystemClock(),
        )
        driver.start()
        try:
            handle = JobHandle(spec.name, driver)
            disturb(handle)
            snapshot = wait(handle, lambda s: s.phase.is_final)
        finally:
            driver.close()
    if snapshot.phase is not JobPhase.SUCCEEDED:
        raise RuntimeError(f"{snapshot.phase}: {snapshot.message}: {snapshot.story[-5:]}")
    return snapshot


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    rows = []
    print("seed  AUC elastic  AUC single  difference  shards done  returned")
    for seed in options.seeds:
        spec = job(seed, options.epochs)
        run = elastic(spec)
        alone = train_single(replace(spec), make_features(spec.data, spec.model))
        single = auc(alone.scores, alone.labels)
        assert run.evaluation is not None
        rows.append((run.evaluation.auc, single))
        print(
            f"{seed:4} {run.evaluation.auc:>12.4f} {single:>11.4f} {run.evaluation.auc - single:>+11.4f} "
            f"{run.train.done:>7} of {run.train.total:<4} {run.train.returned:>4}"
        )
    differences = [a - b for a, b in rows]
    print(
        json.dumps(
            {
                "benchmark": "convergence",
                "data": "census, 99,000 training rows, 11,000 held out",
                "epochs": options.epochs,
                "seeds": options.seeds,
                "auc_elastic": round(statistics.mean(r[0] for r in rows), 5),
                "auc_single": round(statistics.mean(r[1] for r in rows), 5),
                "largest_difference": round(max(map(abs, differences)), 5),
            }
        )
    )


if __name__ == "__main__":
    main()

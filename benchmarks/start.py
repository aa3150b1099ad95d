"""How long a job takes from submit to its first step, and to grow by one worker.

A small job (2 workers, 1 PS, the built-in data) is submitted to each kind of cluster several times, and one
worker is added when it has trained for a while. A shard is one batch here, so that the first shard done is
the first step.

ray_submit_to_first_step_s    from the call of `submit` to the first shard done, median of the rounds
local_submit_to_first_step_s  the same on processes of this machine
ray_growth_s                  from the request of one worker more until it trains beside the others
local_growth_s                the same on processes of this machine

The first step also with `_cpu_s`: the CPU time that all of the job's processes took until then, which depends
less on what else the machine does. The cluster is connected and warm: Ray's head runs, and files are cached.

    python benchmarks/start.py [--rounds 5 --kinds ray local --settle 15]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from lengths import parsed

from dlrover_nb.core.commands.requests import Scale
from dlrover_nb.core.connect import connect
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

PLAN = ResourcePlan(worker=RolePlan(2, 0.5, 1024), ps=RolePlan(1, 0.5, 512))
LOOK_S = 0.02
LIMIT_S = 300.0
CPUS = 4.0  # offered, whatever the machine has: three workers and a PS must fit


def cpu_of_all_s(root: str) -> float:
    """Return the CPU seconds of the processes that have the folder `root` in their environment."""
    total = 0.0
    for process in psutil.process_iter():
        try:
            if process.environ().get("XDG_STATE_HOME", "").startswith(root):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        except psutil.Error:
            continue
    return total


def until(handle: JobHandle, holds: Callable[[JobSnapshot], bool]) -> None:
    """Wait until the job's state fulfils a condition."""
    end_s = time.monotonic() + LIMIT_S
    while not holds(now := handle.snapshot()):
        if now.phase.is_final or time.monotonic() > end_s:
            raise SystemExit(f"the job did not come to that: {now.phase}, {now.message}")
        time.sleep(LOOK_S)  # far below what is measured


def once(cluster: Cluster, name: str, root: str, settle_s: float) -> tuple[float, float, float]:
    """Return the seconds to the first step, those of the growth, and the CPU seconds to the first step."""
    spec = JobSpec(name, plan=PLAN, mode=Mode.MANUAL, n_epoch=10_000, shard_batches=1)
    cpu_s, began_s = cpu_of_all_s(root), time.monotonic()
    handle = cluster.submit(spec)
    until(handle, lambda now: now.train.done > 0)
    first_s, cpu_s = time.monotonic() - began_s, cpu_of_all_s(root) - cpu_s
    until(handle, lambda now: now.running == PLAN)
    time.sleep(settle_s)  # so that a spare, where one is kept, is there
    more = replace(PLAN, worker=replace(PLAN.worker, count=PLAN.worker.count + 1))
    began_s = time.monotonic()
    handle.decide(Scale.to(more))
    until(handle, lambda now: now.running == more)
    growth_s = time.monotonic() - began_s
    handle.stop()
    return first_s, growth_s, cpu_s


def measure(kind: str, rounds: int, root: str, settle_s: float) -> dict[str, float]:
    """Return the medians of one kind of cluster."""
    cluster = connect(kind, cpus=CPUS)
    try:
        once(cluster, f"warm-{kind}", root, 0.0)  # files are read and compiled, as on a machine in use
        found = [once(cluster, f"start-{kind}-{i}", root, settle_s) for i in range(rounds)]
    finally:
        cluster.shutdown(force=True)
    for first_s, growth_s, cpu_s in found:
        print(f"  {kind:6} first step {first_s:6.2f} s ({cpu_s:.2f} s on a core), growth {growth_s:5.2f} s")
    first, growth, cpu = (statistics.median(column) for column in zip(*found, strict=True))
    return {
        f"{kind}_submit_to_first_step_s": round(first, 2),
        f"{kind}_growth_s": round(growth, 2),
        f"{kind}_submit_to_first_step_cpu_s": round(cpu, 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--settle", type=float, default=5.0, help="seconds of training before the growth")
    parser.add_argument("--kinds", nargs="+", default=["local"])
    options = parsed(parser, rounds=5, settle=15.0, kinds=["ray", "local"])
    found: dict[str, object] = {"benchmark": "start", "rounds": options.rounds}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # images set it; what is installed is compiled once
    with tempfile.TemporaryDirectory(prefix="dlr") as root:
        os.environ |= {f"XDG_{kind}_HOME": str(Path(root) / kind.lower()) for kind in ("STATE", "DATA")}
        for kind in options.kinds:
            found |= measure(kind, options.rounds, root, options.settle)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

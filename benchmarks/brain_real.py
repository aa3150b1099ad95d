"""Four real jobs on a local Ray, planned together or with equal shares: the part ``--real`` of `brain.py`.

All begin at one moment on plans of an equal share of the cores, and train Wide&Deep on Census. One has a
deadline that its equal share misses: `DEADLINE_SHARE` of the time that it took there. With equal shares
nobody changes anything (manual mode), as where each team has its quota. With the brain the jobs are in auto
mode, and a brain plans for all; it may make no job slower.

jct_s_equal, jct_s_brain       sum of the completion times of all jobs
deadline_met_equal, _brain     whether the job with the deadline ended in time
n_finished_brain               jobs that succeeded, with every row counted once
cost_equal, cost_brain         core hours that all jobs held together
"""

from __future__ import annotations

import os
import threading
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from lengths import end_cleanly

from dlrover_nb.core.brain.cluster_plan import BrainSettings
from dlrover_nb.core.brain.service import Brain, Rhythm
from dlrover_nb.core.connect import connect
from dlrover_nb.core.history.stores.brain_rounds import RoundStore
from dlrover_nb.core.history.stores.leases import LeaseStore
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.structs.views.brain import BrainRound
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

N_CPU = 2
N_EPOCH = {"due": 30, "short": 8, "medium": 16, "long": 30}
EQUAL = ResourcePlan(RolePlan(1, 0.25, 1024), RolePlan(1, 0.25, 512))
BOUNDS = PlanBounds(max_workers=3, max_ps=1, worker_cpus=(0.25, 0.5, 0.75, 1.0), ps_cpus=(0.25, 0.5))
DEADLINE_SHARE = 0.85
LIMIT_S, HOUR_S = 1500.0, 3600.0
FAST = Rhythm(interval_s=5.0, lease_s=15.0)


def measured() -> dict[str, Any]:
    """Return the figures of both ways, on one Ray that is begun for it."""
    cluster = connect("ray", cpus=N_CPU)
    end_cleanly()  # Ray has put its own handler in place
    try:
        equal = _together(cluster, "equal", deadline_s=None)
        deadline_s = DEADLINE_SHARE * _jct_s(equal["due"])
        print(f"equal shares: {_told(equal)}; the deadline is {deadline_s:.0f} s", flush=True)
        planned = _planned(cluster, deadline_s)
        print(f"with the brain: {_told(planned)}", flush=True)
    finally:
        cluster.shutdown(force=True)
    return {
        "jct_s_equal": round(sum(map(_jct_s, equal.values())), 1),
        "jct_s_brain": round(sum(map(_jct_s, planned.values())), 1),
        "deadline_s": round(deadline_s, 1),
        "deadline_met_equal": _jct_s(equal["due"]) <= deadline_s,
        "deadline_met_brain": _jct_s(planned["due"]) <= deadline_s,
        "n_finished_brain": sum(map(_is_exact, planned.values())),
        "cost_equal": round(sum(map(_core_hours, equal.values())), 4),
        "cost_brain": round(sum(map(_core_hours, planned.values())), 4),
    }


def _planned(cluster: Cluster, deadline_s: float) -> dict[str, JobSnapshot]:
    with TemporaryDirectory(prefix="dlrover-brain-") as folder:
        url, stop = f"sqlite:///{Path(folder) / 'history.db'}", threading.Event()
        brain = Brain(
            cluster, "bench", leases=LeaseStore(url), rounds=RoundStore(url), settings=BrainSettings(),
            rhythm=FAST, on_round=_tell,
        )  # fmt: skip
        thread = threading.Thread(target=brain.run, args=(stop,))
        thread.start()
        try:
            return _together(cluster, "brain", deadline_s=deadline_s)
        finally:
            stop.set()
            thread.join()


def _together(cluster: Cluster, way: str, *, deadline_s: float | None) -> dict[str, JobSnapshot]:
    """Run the four jobs at once; return how each ended."""
    handles = {
        name: cluster.submit(
            JobSpec(
                f"{name}-{way}-{os.getpid()}",
                plan=EQUAL,
                bounds=BOUNDS,
                n_epoch=n_epoch,
                mode=Mode.MANUAL if deadline_s is None else Mode.AUTO,
                deadline_s=deadline_s if name == "due" else None,
                checkpoint_every_s=30.0,
            )
        )
        for name, n_epoch in N_EPOCH.items()
    }
    return {name: handle.wait(LIMIT_S) for name, handle in handles.items()}


def _tell(found: BrainRound) -> None:
    moved = [
        f"{s.job.split('-')[0]}: {s.now.short} -> {s.meant.short}" for s in found.shares if s.added_cores
    ]
    if moved:
        print(f"  {time.strftime('%X')} {'; '.join(moved)}", flush=True)


def _jct_s(end: JobSnapshot) -> float:
    return (end.ended_at_s or end.at_s) - end.started_at_s


def _is_exact(end: JobSnapshot) -> bool:
    return end.phase is JobPhase.SUCCEEDED and end.train.n_sample_done == end.train.n_sample_total


def _core_hours(end: JobSnapshot) -> float:
    """Return the cores that a job's plans held, over the time that each ran."""
    marks = [*((mark.at_s, mark.plan.total_cpu) for mark in end.markers), (end.ended_at_s or end.at_s, 0.0)]
    return sum((then - since) * cpu for (since, cpu), (then, _) in pairwise(marks)) / HOUR_S


def _told(ends: dict[str, JobSnapshot]) -> str:
    return ", ".join(
        f"{name} {end.phase} after {_jct_s(end):.0f} s on {' then '.join(m.plan.short for m in end.markers)}"
        for name, end in ends.items()
    )

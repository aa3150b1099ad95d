"""Jobs of a simulated cluster that would each take all of it."""

from __future__ import annotations

import time

import numpy as np
from support.waiting import LIMIT_S, until

from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.backends.simulated.cluster import SimulatedCluster
from dlrover_nb.core.connect import connect
from dlrover_nb.core.simulator import (
    CALM,
    MemoryGrowth,
    SimulatedJob,
    SimulatedWorld,
    TermsTruth,
    WorldSettings,
)
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds, Quota
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.offers import Allotment
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import QuotaChanged

FOREVER = 10**13  # samples of a job that must not end first, however slow the machine
NOW = ResourcePlan(worker=RolePlan(1, 1.0, 1024), ps=RolePlan(1, 1.0, 1024))


def test_jobs_in_auto_mode_share_a_full_cluster_within_their_quotas():
    """Six jobs that would each take all of it: they come to terms, and none of them stands still."""
    world = SimulatedWorld(
        [NodeShape(4.0, 16_384, 8)],
        rng=np.random.default_rng(3),
        settings=WorldSettings(report_s=15.0, faults=CALM),
    )
    truth = TermsTruth(grad_s=2e-5, lookup_s=1e-6, constant_s=1e-3)
    bounds = PlanBounds(max_workers=24, max_ps=4, worker_cpus=(1.0,), ps_cpus=(1.0,))

    def job(spec: JobSpec) -> SimulatedJob:
        settled = JobSpec(spec.name, plan=NOW, bounds=bounds, mode=Mode.AUTO)
        return SimulatedJob(settled, truth, FOREVER, ps_memory=MemoryGrowth(300.0))

    cluster = SimulatedCluster(world, SETTINGS, job, speed=3000.0)
    try:
        handles = cluster.add_all(job(JobSpec(f"job-{i}")) for i in range(6))
        end_s = time.monotonic() + LIMIT_S
        while not all(any("share beside other jobs" in line for line in h.snapshot().story) for h in handles):
            assert time.monotonic() < end_s, "no quotas were told"
            time.sleep(0.05)
        done = [handle.snapshot().train.n_sample_done for handle in handles]
        while sum(summary.plan.total_cpu for summary in cluster.jobs()) > 32.0:
            assert time.monotonic() < end_s, "what the jobs want together does not come down to the room"
            time.sleep(0.05)
        while not all(h.snapshot().train.n_sample_done > n for h, n in zip(handles, done, strict=True)):
            assert time.monotonic() < end_s, "a job stands still"
            time.sleep(0.05)
    finally:
        cluster.shutdown(force=True)


def test_a_quota_of_its_own_that_waits_comes_before_that_of_a_planner_for_all_jobs():
    """Afterwards it would be one of an earlier term, and its refusal ended the simulation."""
    cluster = connect("sim", machines=1, speed=600.0)
    try:
        job = cluster.submit(JobSpec("ads", n_epoch=1_000_000, mode=Mode.AUTO))

        def own_then_planned():
            cluster._events.append(("ads", QuotaChanged(cluster._world.now_s, Quota(9.0))))
            cluster._allot("ads", Allotment(Quota(5.0), "others need more", "one", 1))

        cluster._commands.ask(own_then_planned)
        then_s = job.snapshot().at_s
        until(lambda: job.snapshot().at_s > then_s, what="the simulation to go on")
        own, planned = (line for line in job.snapshot().story if "share beside other jobs" in line)
        assert "9 cores" in own
        assert "5 cores" in planned
    finally:
        cluster.shutdown(force=True)

"""Laws of sharing a cluster between jobs that decide for themselves."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import LIMIT_S

from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.backends.simulated.cluster import SimulatedCluster
from dlrover_nb.core.planner.cluster import JobBid
from dlrover_nb.core.planner.quotas import UNLIMITED, share
from dlrover_nb.core.simulator import (
    CALM,
    MemoryGrowth,
    SimulatedJob,
    SimulatedWorld,
    TermsTruth,
    WorldSettings,
)
from dlrover_nb.core.structs.bounds import PlanBounds
from dlrover_nb.core.structs.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.decisions import Candidate, Prediction
from dlrover_nb.core.structs.job import JobSpec, Mode
from dlrover_nb.core.structs.resources import ResourcePlan, RolePlan, diff

FOREVER = 10**13  # samples of a job that must not end first, however slow the machine
NOW = ResourcePlan(worker=RolePlan(1, 1.0, 1024), ps=RolePlan(1, 1.0, 1024))


def candidate(workers: int, speed: float) -> Candidate:
    plan = ResourcePlan(worker=RolePlan(workers, 1.0, 1024), ps=NOW.ps)
    told = Prediction(speed, 0.9 * speed, 1.1 * speed, extrapolates=False)
    cost = 0.034 * plan.total_cpu
    return Candidate(plan, told, cost, None, None, diff(NOW, plan), 0.0, speed - 1000.0, (), "")


def bid(name: str, exponent: float, n_left: int) -> JobBid:
    wishes = tuple(candidate(w, 1000.0 * w**exponent) for w in range(1, 9))
    return JobBid(name, wishes[0], wishes, n_left)


def room(cores: int) -> Capacity:
    return Capacity((NodeShape(1.0, 4096, cores),))


@settings(max_examples=50, deadline=None)
@given(
    jobs=st.lists(st.tuples(st.floats(0.2, 1.0), st.integers(10_000, 10_000_000)), min_size=1, max_size=8),
    spare=st.integers(0, 80),
)
def test_quotas_never_exceed_the_room_and_never_fall_below_what_runs(jobs, spare):
    bids = [bid(f"job-{i}", exponent, n_left) for i, (exponent, n_left) in enumerate(jobs)]
    machines = room(2 * len(bids) + spare)
    quotas = share(bids, machines)
    assert set(quotas) == {b.name for b in bids}
    if any(quota == UNLIMITED for quota in quotas.values()):
        assert 9 * len(bids) <= machines.total_cpu
        return
    assert sum(quota.cpu for quota in quotas.values()) <= machines.total_cpu + 0.01 * len(bids)
    assert sum(quota.memory_mib for quota in quotas.values()) <= machines.total_memory_mib
    assert all(quotas[b.name].allows(b.current.plan) for b in bids)


def test_the_job_that_makes_more_of_it_gets_more():
    quotas = share([bid("scales", 1.0, 1_000_000), bid("does-not", 0.2, 1_000_000)], room(10))
    assert quotas["scales"].cpu > quotas["does-not"].cpu


def test_while_a_lost_node_waits_for_room_nobody_grows():
    bids = [bid("a", 1.0, 1_000_000), bid("b", 0.2, 1_000_000)]
    quotas = share(bids, room(3))  # what runs takes 4
    assert all((quotas[b.name].cpu, quotas[b.name].memory_mib) == (2.0, 2048) for b in bids)


def test_with_room_for_all_wishes_nobody_is_limited():
    assert set(share([bid("a", 1.0, 1000), bid("b", 1.0, 1000)], room(18)).values()) == {UNLIMITED}


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
        while not all(any("may plan with" in line for line in h.snapshot().story) for h in handles):
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


@pytest.mark.parametrize("cores", [12, 24, 47])
def test_a_job_alone_may_use_all_of_it(cores):
    quotas = share([bid("alone", 1.0, 1_000_000)], room(cores))
    assert quotas["alone"] == UNLIMITED if cores >= 9 else quotas["alone"].cpu == pytest.approx(cores)

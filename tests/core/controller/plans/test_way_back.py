"""Auto mode ends on the best plan that it measured: no job ends slower than it began."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.job.spec_choices import Mode, Objective
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

BOUNDS = PlanBounds(max_workers=4, max_ps=1, worker_cpus=(0.25,), ps_cpus=(0.25,))


def plan(n_worker):
    return ResourcePlan(RolePlan(n_worker, 0.25, 1024), RolePlan(1, 0.25, 512))


def run(make_job, speeds, *, begin, noise, seed, seconds=300):
    """Return a job in auto mode after some time, by the true speed of each number of workers."""
    rng = np.random.default_rng(seed)
    draws = {}

    def speed(at):
        if not noise:
            return speeds[at.worker.count]
        draws[len(draws)] = float(rng.lognormal(0, noise))
        return speeds[at.worker.count] * draws[len(draws) - 1]

    job = make_job(
        mode=Mode.AUTO, plan=plan(begin), bounds=BOUNDS, objective=Objective.SPEED, speed=speed,
        n_sample_total=int(40_000 * seconds * 1.2),
    )  # fmt: skip
    job.train(seconds)
    return job


@pytest.mark.parametrize("noise", [0.02])
@pytest.mark.parametrize("seed", range(2))
def test_a_job_begun_on_a_plan_that_is_better_by_little_ends_on_it(make_job, noise, seed):
    speeds = {1: 39_200.0, 2: 40_000.0, 3: 39_200.0, 4: 38_800.0}
    job = run(make_job, speeds, begin=2, noise=noise, seed=seed)
    assert job.plan.worker.count == 2


@pytest.mark.more
@pytest.mark.parametrize("seed", range(2))
def test_a_job_neither_tries_for_ever_nor_twice_what_failed(make_job, seed):
    speeds = {1: 30_000.0, 2: 40_000.0, 3: 32_000.0, 4: 28_000.0}
    job = run(make_job, speeds, begin=2, noise=0.02, seed=seed)
    tried = [p.candidate.plan for p in job.view.proposals if p.kind is ProposalKind.EXPLORE]
    assert len(tried) == len(set(tried)) <= 3
    assert job.plan.worker.count == 2


def test_predictions_that_missed_do_not_keep_a_job_on_the_plan_that_missed(make_job):
    speeds = {1: 20_000.0, 2: 39_000.0, 3: 24_000.0, 4: 15_000.0}
    job = run(make_job, speeds, begin=1, noise=0.01, seed=1)
    assert job.plan.worker.count == 2
    times = [marker.at_s for marker in job.view.markers]
    slow = [
        b - a
        for (a, b), marker in zip(pairwise(times), job.view.markers, strict=False)
        if marker.plan.worker.count > 2
    ]
    assert all(seconds < 120 for seconds in slow)

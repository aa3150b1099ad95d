"""Where cost counts, improvements by the same measurements end, and lead through no plan twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dlrover_nb.core.planner.advising.advice import PlannerSettings
from dlrover_nb.core.planner.advising.improvement import advise
from dlrover_nb.core.planner.analysis import analyse, fitted
from dlrover_nb.core.planner.situation import Situation
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.spec_choices import Objective
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample

N_WORKER = 8
SETTINGS = PlannerSettings(min_gain=0.03)
PLANS = tuple(ResourcePlan(RolePlan(w, 1.0, 1024), RolePlan(1, 1.0, 512)) for w in range(1, N_WORKER + 1))


def situation(growth: float, seed: int) -> Situation:
    """Return a job all of whose plans are measured; each worker more makes it faster by `growth`."""
    rng = np.random.default_rng(seed)
    samples = tuple(
        ProfileSample(
            float(i), 15.0, plan, 512, 1000 * (1 + growth) ** w * float(np.exp(rng.normal(0, 0.002)))
        )
        for w, plan in enumerate(PLANS)
        for i in range(12)
    )
    spec = JobSpec("x", bounds=PlanBounds(N_WORKER, 1, (1.0,), (1.0,)), objective=Objective.VALUE)
    return Situation(
        spec=spec,
        capacity=Capacity((NodeShape(32, 64_000, 1),)),
        dense_bytes=100_000,
        embedding_dim=16,
        plan=PLANS[0],
        samples=samples,
        n_sample_left=10**9,
    )


@pytest.mark.more
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("growth", [0.01, 0.02, 0.025, 0.029, 0.05])
@pytest.mark.parametrize("start", [PLANS[0], PLANS[4], PLANS[-1]], ids=lambda plan: plan.short)
def test_no_plan_is_improved_to_twice_by_the_same_measurements(start, growth, seed):
    known = situation(growth, seed)
    model, seen = fitted(known), [start]
    while True:
        analysis = analyse(replace(known, plan=seen[-1]), model=model)
        found = advise(analysis, SETTINGS, rejected_plans={}, may_explore=False)
        if found is None:
            return
        assert found.candidate.plan not in seen, [plan.short for plan in (*seen, found.candidate.plan)]
        seen.append(found.candidate.plan)


@pytest.mark.parametrize("start", PLANS, ids=lambda plan: plan.short)
def test_wherever_a_job_begins_it_ends_near_the_best_speed(start):
    known = situation(0.025, 0)
    model, plan = fitted(known), start
    for _ in PLANS:
        found = advise(
            analyse(replace(known, plan=plan), model=model), SETTINGS, rejected_plans={}, may_explore=False
        )
        plan = plan if found is None else found.candidate.plan
    assert plan.worker.count >= N_WORKER - 2  # 3 % and the noise of the measurements

import importlib
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.simulator.workload import BATCH, JobSampler, random_truth, typical_plan

FOLDER = Path(__file__).parents[2] / "benchmarks"
OWN = ("dlrover_rm", "dlrover_rm_fleet")


@pytest.fixture
def modules(monkeypatch):
    """Return both modules; the folder is on the path for this test only."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return [importlib.import_module(name) for name in OWN]


def test_scaling_a_truth_scales_the_time_of_every_plan(modules):
    truth, bounds = random_truth(np.random.default_rng(3)), JobSampler().bounds
    plan = typical_plan(bounds)
    slower = modules[0].scaled(truth, 2.5)
    assert truth.speed(plan, BATCH) == pytest.approx(2.5 * slower.speed(plan, BATCH))


def test_scaling_ends_with_the_first_plan_near_the_best(modules):
    speeds = [(50.0, 10.0), (200.0, 96.0), (300.0, 100.0)]
    assert modules[0].scaling_s(speeds, 100.0, 900.0) == 150.0
    assert modules[0].scaling_s(speeds[1:], 100.0, 900.0) == 0.0
    assert modules[0].scaling_s(speeds[:1], 100.0, 900.0) == 850.0


def test_a_change_is_of_the_median_job(modules):
    assert modules[0].change_of([80.0, 90.0, 300.0], [100.0, 100.0, 100.0]) == pytest.approx(-0.1)


def test_a_baseline_gets_its_fastest_step_and_the_smaller_of_equal_ones(modules):
    assert modules[0].fastest({1: [4.0, 9.0], 2: [6.0, 6.0], 4: [7.0, 7.0]}) == 1
    assert modules[0].fastest({1: [9.0], 2: [5.0], 4: [7.0]}) == 2


def test_saved_time_is_that_of_the_median_seed_and_none_where_none_was_needed(modules):
    cold = {0: [100.0, 100.0], 1: [50.0, 50.0], 2: [0.0, 0.0]}
    warm = {0: [10.0, 10.0], 1: [40.0, 40.0], 2: [0.0, 0.0]}
    assert modules[0].saved_by_seed(warm, cold) == pytest.approx(-0.2)


@given(st.floats(0.01, 0.4), st.floats(0.1, 0.95))
def test_requests_have_both_shares_that_they_were_drawn_for(too_little, half_used):
    if too_little + half_used > 0.98:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        law = importlib.import_module("dlrover_rm_fleet").request_law
    normal = statistics.NormalDist(*law(too_little, half_used))
    assert normal.cdf(0.0) == pytest.approx(too_little)
    assert 1 - normal.cdf(math.log(2)) == pytest.approx(half_used)


def test_a_request_is_a_multiple_of_what_the_job_needs_at_its_end(modules):
    fleet = modules[1]
    for seed in range(5):
        job = JobSampler().sample("j", np.random.default_rng(seed))
        worker, ps = fleet.needs_mib(job)
        plan = fleet.requested(job, 2.0).spec.plan
        assert 2 * worker <= plan.worker.memory_mib <= 2 * worker + 1
        assert 2 * ps <= plan.ps.memory_mib <= 2 * ps + 1
        assert (plan.worker.count, plan.ps.count) == (job.spec.plan.worker.count, job.spec.plan.ps.count)


def test_figures_of_fleets_are_medians_beside_their_differences(modules):
    used = modules[1].Used
    runs = {
        "without": [used(9, 10, 20.0, 100.0, 10.0, 100.0)] * 3,
        "with": [used(n, 10, 30.0, 100.0, 5.0, 100.0) for n in (10, 10, 8)],
    }
    line = modules[1].beside(runs)
    assert line["completion_rate"] == {"without": 0.9, "with": 1.0}
    assert line["cpu_utilisation_gain"] == pytest.approx(0.1)
    assert line["memory_utilisation_gain"] == pytest.approx(-0.05)
    assert line["n_done_with"] == "28 of 30"

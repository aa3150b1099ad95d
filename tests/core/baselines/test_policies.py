"""Laws of the baseline policies."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plans.loss_curve import fit_loss_curve
from support.plans.optimus_cluster import optimus_cluster
from support.plans.well_tuned import well_tuned

from dlrover_nb.core.baselines import JobState, elastic_scheduling, fit_speed, optimus, static
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample

BATCH = 512


def plan(w, p, worker_cpu=2.0, ps_cpu=2.0):
    return ResourcePlan(worker=RolePlan(w, worker_cpu, 1024), ps=RolePlan(p, ps_cpu, 1024))


def speed(w, p, coefficients=(1e-4, 0.02, 0.05, 0.002, 0.001)):
    """Return samples/s by Optimus's own law."""
    t0, t1, t2, t3, t4 = coefficients
    return w * BATCH / (t0 * BATCH + t1 + t2 * w / p + t3 * w + t4 * p)


def sample(w, p, rate=None):
    return ProfileSample(0.0, 10.0, plan(w, p), BATCH, speed(w, p) if rate is None else rate)


def state(w, p, samples=(), **changes):
    base = JobState(
        plan=plan(w, p),
        samples=tuple(samples),
        n_sample_left=10**7,
        bounds=PlanBounds(max_workers=10, max_ps=6, worker_cpus=(1.0, 2.0), ps_cpus=(1.0, 2.0)),
        capacity=Capacity((NodeShape(16.0, 64 * 1024, 4),)),
        batch_size=BATCH,
    )
    return replace(base, **changes)


def measure(rows):
    return np.array([speed(w, p) * np.sqrt(a * b) for w, p, a, b in rows])


POLICIES = {
    "optimus": optimus,
    "elastic": elastic_scheduling,
    "well tuned": partial(well_tuned, measure=measure),
    "static": static,
}


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 10), st.integers(1, 6), st.floats(1.0, 1e6)), max_size=8),
    st.integers(1, 10),
    st.integers(1, 6),
    st.integers(1, 4),
    st.floats(4.0, 80.0),
)
def test_no_policy_leaves_the_bounds_the_quota_or_the_machines(name, seen, w, p, n_machine, quota):
    job = state(
        w,
        p,
        [sample(*row) for row in (*seen, (w, p, 1000.0))],
        capacity=Capacity((NodeShape(8.0, 64 * 1024, n_machine),)),
    )
    job = replace(job, bounds=replace(job.bounds, quota_cpu=quota))
    found = POLICIES[name](job)
    assert found is None or (job.allows(found) and found != job.plan)


@pytest.mark.parametrize("policy", [optimus, elastic_scheduling])
def test_what_runs_is_measured_before_anything_is_decided(policy):
    assert policy(state(2, 1)) is None
    assert policy(state(2, 1, [sample(1, 1)])) is None


def test_optimus_first_measures_a_few_configurations_worker_first():
    assert optimus(state(1, 1, [sample(1, 1)])) == plan(2, 1)
    assert optimus(state(2, 1, [sample(1, 1), sample(2, 1)])) == plan(2, 2)


def test_optimus_adds_one_node_of_the_role_that_brings_more():
    seen = [sample(1, 1), sample(2, 1), sample(2, 2), sample(4, 2)]
    found = optimus(state(4, 2, seen))
    best = max([(5, 2), (4, 3), (3, 2), (4, 1)], key=lambda c: speed(*c))
    assert found == plan(*best)


def test_optimus_takes_a_node_away_where_it_only_harms():
    seen = [sample(w, p, 1000.0 / w) for w, p in ((1, 1), (2, 1), (2, 2), (4, 2))]
    assert optimus(state(4, 2, seen)).worker.count == 3


def test_in_a_cluster_the_last_node_goes_to_the_job_that_saves_more_time():
    seen = [sample(1, 1), sample(2, 1), sample(2, 2)]
    long, short = state(2, 2, seen, n_sample_left=10**8), state(2, 2, seen, n_sample_left=10**5)
    one_node_left = Capacity((NodeShape(2.0, 64 * 1024, 9),))
    granted = optimus_cluster({"short": short, "long": long}, one_node_left)
    assert list(granted) == ["long"]
    assert optimus_cluster({"short": short, "long": long}, Capacity((NodeShape(2.0, 64 * 1024, 8),))) == {}
    both = optimus_cluster({"short": short, "long": long}, Capacity((NodeShape(2.0, 64 * 1024, 10),)))
    assert list(both) == ["long", "short"]


def test_in_a_cluster_a_probe_goes_before_a_known_gain():
    known = state(2, 2, [sample(1, 1), sample(2, 1), sample(2, 2)], n_sample_left=10**9)
    new = state(1, 1, [sample(1, 1)])
    granted = optimus_cluster({"known": known, "new": new}, Capacity((NodeShape(2.0, 64 * 1024, 7),)))
    assert list(granted) == ["new"]


def test_optimus_recovers_its_own_law():
    seen = [sample(w, p) for w, p in ((1, 1), (2, 1), (1, 3), (4, 2), (8, 3), (3, 5), (10, 6))]
    model = fit_speed(seen)
    for w, p in ((6, 4), (10, 1), (9, 6)):
        assert model.samples_per_s(plan(w, p), BATCH) == pytest.approx(speed(w, p), rel=1e-6)


def test_optimus_knows_a_global_batch_that_workers_share():
    t0, t1 = 1e-3, 0.1
    seen = [sample(w, p, 1024 / (t0 * 1024 / w + t1)) for w, p in ((1, 1), (2, 1), (4, 2), (8, 4))]
    model = fit_speed(seen, global_batch=1024)
    assert model.samples_per_s(plan(6, 2), BATCH) == pytest.approx(1024 / (t0 * 1024 / 6 + t1), rel=1e-6)


def test_fit_without_samples_says_what_to_do():
    with pytest.raises(InvalidValueError, match="let the job run"):
        fit_speed([])


def run(policy, job, truth, limit=60):
    """Let a policy decide until it leaves the job alone; every plan that runs is measured."""
    for _ in range(limit):
        job = replace(job, samples=(*job.samples, sample(*_counts(job), truth(*_counts(job)))))
        found = policy(job)
        if found is None:
            return job
        job = replace(job, plan=found)
    raise AssertionError("the policy never settles")


def _counts(job):
    return job.plan.worker.count, job.plan.ps.count


def test_elastic_scheduling_stops_where_workers_stop_helping_and_never_touches_ps():
    def truth(w, p):
        return 1000.0 * min(w, 5) - 20 * max(w - 5, 0)

    job = run(elastic_scheduling, state(1, 2), truth)
    assert _counts(job) == (5, 2)
    assert {s.plan.worker.count for s in job.samples} == {1, 2, 3, 4, 5, 6}


def test_elastic_scheduling_moves_by_its_step():
    assert elastic_scheduling(state(2, 1, [sample(2, 1)]), step=3) == plan(5, 1)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.0, 0.1), min_size=5, max_size=5).filter(lambda c: sum(c) > 1e-4))
def test_optimus_and_elastic_scheduling_settle_on_a_noiseless_job(coefficients):
    def truth(w, p):
        return speed(w, p, tuple(coefficients))

    for policy in (optimus, elastic_scheduling):
        run(policy, state(1, 1), truth)


def test_the_oracle_finds_the_best_counts_and_sizes():
    job = state(1, 1, bounds=PlanBounds(4, 3, (1.0, 2.0), (1.0, 2.0)))
    job = replace(job, plan=plan(1, 1, 1.0, 1.0))
    counts = max(((w, p) for w in range(1, 5) for p in range(1, 4)), key=lambda c: speed(*c))
    assert well_tuned(job, measure=measure) == plan(*counts, 2.0, 2.0)
    assert well_tuned(replace(job, plan=plan(*counts)), measure=measure) is None


def test_a_measure_that_returns_no_speed_is_an_error(error_words):
    with error_words(InvalidValueError):
        well_tuned(state(1, 1), measure=lambda rows: np.full(len(rows), np.nan))


@pytest.mark.parametrize(("b0", "b1", "b2"), [(1e-3, 1.5, 0.3), (5e-5, 1.0, 0.0), (1e-2, 0.5, 0.45)])
def test_loss_curve_comes_back_from_its_own_points(b0, b1, b2):
    steps = np.linspace(0, 20_000, 40)
    curve = fit_loss_curve([(k, 1 / (b0 * k + b1) + b2) for k in steps])
    later = 30_000.0
    assert curve.loss(later) == pytest.approx(1 / (b0 * later + b1) + b2, rel=0.03)


def test_losses_that_cannot_be_are_refused():
    with pytest.raises(InvalidValueError, match="losses must be finite"):
        fit_loss_curve([(0.0, float("nan"))])
    with pytest.raises(InvalidValueError, match="losses must be finite"):
        fit_loss_curve([(-1.0, 1.0)])
    assert fit_loss_curve([]) is None


def test_a_state_below_zero_is_refused():
    with pytest.raises(InvalidValueError, match="n_sample_left"):
        state(1, 1, n_sample_left=-1)
    with pytest.raises(InvalidValueError, match="batch_size"):
        state(1, 1, batch_size=0)

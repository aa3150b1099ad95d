"""Measured parts of an iteration determine terms, and plans are compared by their means."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.perf.evidence import condense
from dlrover_nb.core.perf.fit_input import read
from dlrover_nb.core.perf.model import ThroughputModel
from dlrover_nb.core.structs.decisions.candidates import Prediction
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.samples import ProfileSample

BATCH, SPEED = 512, 25_600.0
HERE = ResourcePlan(RolePlan(1, 1.0, 1024), RolePlan(1, 1.0, 512))
MORE_CPU = ResourcePlan(RolePlan(1, 2.0, 1024), RolePlan(1, 1.0, 512))
LESS_CPU = ResourcePlan(RolePlan(1, 0.5, 1024), RolePlan(1, 0.5, 512))
share = st.floats(0.0, 1.0)


def fit(compute_share, wait_share):
    """Fit one plan, whose iterations take 20 ms."""
    windows = [ProfileSample(float(i), 2.0, HERE, BATCH, SPEED, compute_share, wait_share) for i in range(8)]
    return ThroughputModel(dense_bytes=1e5, embedding_dim=16).fit(windows)


def test_one_plan_with_its_parts_tells_what_more_cpu_brings():
    unknown, computes, waits = (
        fit(*s).predict_plan(MORE_CPU, BATCH) for s in ((None, None), (0.9, 0.05), (0.05, 0.9))
    )
    assert computes.samples_per_s > 1.5 * SPEED
    assert waits.samples_per_s < 1.2 * SPEED
    for known in (computes, waits):
        assert known.mean_high / known.mean_low < 0.8 * unknown.mean_high / unknown.mean_low


@settings(deadline=None, max_examples=25)
@given(share, share)
def test_any_parts_leave_the_measured_plan_as_measured_and_more_cpu_no_slower(a, b):
    model = fit(a * 1.0, (1 - a) * b)
    here, more = model.predict_plan(HERE, BATCH), model.predict_plan(MORE_CPU, BATCH)
    assert here.samples_per_s == pytest.approx(SPEED)
    assert more.samples_per_s >= here.samples_per_s * (1 - 1e-9)
    less = model.predict_plan(LESS_CPU, BATCH)
    assert less.samples_per_s <= here.samples_per_s * (1 + 1e-9)
    assert more.low <= more.mean_low <= more.samples_per_s <= more.mean_high <= more.high


@pytest.mark.parametrize("bad", [-0.1, 1.1])
def test_a_part_is_within_an_iteration(bad, error_words):
    with error_words(InvalidValueError):
        fit(bad, 0.1)


def noisy(n, noise, seed):
    rng = np.random.default_rng(seed)
    speeds = SPEED * np.exp(rng.normal(0, noise, n))
    return [ProfileSample(float(i), 2.0, HERE, BATCH, float(speed)) for i, speed in enumerate(speeds)]


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 60), st.floats(0.0, 0.3), st.integers(0, 10_000))
def test_the_mean_is_surer_than_a_window_and_with_each_window_more(n, noise, seed):
    windows = noisy(n, noise, seed)
    found = condense(read(windows))
    worth = found.n_window[0]
    assert 1 <= worth <= n
    assert found.mean_half_width[0] >= found.half_width[0] / np.sqrt(worth + 1) * (1 - 1e-9)
    assert found.mean_half_width[0] < found.half_width[0]


def test_one_straggling_window_of_hundreds_moves_neither_the_mean_nor_the_bands():
    windows = noisy(240, 0.02, 1)
    slow = ProfileSample(240.0, 2.0, HERE, BATCH, SPEED / 10)
    calm, struck = (condense(read(w)) for w in (windows, [*windows, slow]))
    assert struck.log_iter[0] == pytest.approx(calm.log_iter[0], abs=0.001)
    assert struck.half_width[0] < 1.05 * calm.half_width[0]


def a_prediction(speed, doubt):
    return Prediction(
        speed, speed * np.exp(-2 * doubt), speed * np.exp(2 * doubt), False,
        speed * np.exp(-doubt), speed * np.exp(doubt),
    )  # fmt: skip


@given(st.floats(1, 1e6), st.floats(1, 1e6), st.floats(0.001, 1), st.floats(0.001, 1))
def test_a_comparison_doubts_both_plans(speed, other, doubt, others_doubt):
    a, b = a_prediction(speed, doubt), a_prediction(other, others_doubt)
    assert a.surely_over(b) <= speed / other * np.exp(-max(doubt, others_doubt)) * (1 + 1e-9)
    assert a.surely_over(b) == pytest.approx(1 / b.possibly_over(a))


def test_a_prediction_of_an_old_record_is_compared_by_its_window():
    old = Prediction(100.0, 90.0, 110.0, extrapolates=False)
    assert old.surely_over(old) == pytest.approx(np.exp(-np.hypot(np.log(100 / 90), np.log(1.1))))


def test_windows_that_are_like_their_neighbors_determine_the_mean_less():
    rng, logs = np.random.default_rng(1), [0.0]
    for _ in range(199):
        logs.append(0.8 * logs[-1] + rng.normal(0, 0.02))
    walk = [ProfileSample(float(i), 2.0, HERE, BATCH, SPEED * np.exp(x)) for i, x in enumerate(logs)]
    alike, apart = condense(read(walk)), condense(read([walk[i] for i in rng.permutation(200)]))
    assert alike.n_window[0] < 60
    assert condense(read(noisy(200, 0.03, 2))).n_window[0] > 150
    assert apart.n_window[0] == alike.n_window[0]  # what counts is when they were measured

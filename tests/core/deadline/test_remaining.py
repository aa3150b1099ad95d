"""Where a job with early stopping ends: laws of the prediction, and golden values of real curves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.deadline.remaining import Extent, fit_curve, forecast
from dlrover_nb.core.deadline.stop_rule import evaluation_step, stops_at
from dlrover_nb.core.structs.job.early_stopping import EarlyStopping, Metric

N_TRAIN, N_EPOCH = 10_000, 12
SERIES = st.lists(st.floats(0.05, 0.95), min_size=1, max_size=11)
RULES = st.builds(
    EarlyStopping,
    st.sampled_from(Metric),
    st.integers(1, 4),
    st.floats(0, 0.05),
    st.none() | st.floats(0.1, 0.9),
    st.floats(0, 0.2),
)
# Log loss on held-out rows of Criteo and iPinYou after each pass of wide & deep (`benchmarks/stopping.py`).
CRITEO = (0.522, 0.4976, 0.4879, 0.482, 0.4777, 0.4744, 0.4718, 0.4698, 0.468, 0.4666, 0.4656, 0.4645)
IPINYOU = (0.3237, 0.2096, 0.1576, 0.1286, 0.1104, 0.0982, 0.0896, 0.0834, 0.0787, 0.0752, 0.0725, 0.0704)


def points(values, rule):
    step = evaluation_step(rule, N_TRAIN, N_EPOCH)
    return [((i + 1) * step, float(value)) for i, value in enumerate(values)]


def told(values, rule, n_done=None):
    known = points(values, rule)
    return forecast(known, rule, Extent(known[-1][0] if n_done is None else n_done, N_TRAIN, N_EPOCH))


@given(st.sampled_from([0.5, 1.0]), st.floats(0.05, 0.9), st.floats(0.01, 5), st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_a_curve_without_noise_is_recovered_and_goes_on_right(power, shift, a, c) -> None:
    k = np.arange(1, 21) * 1000.0
    true = a * (k / 10_000 + shift) ** -power + c
    found = fit_curve(k[:10], true[:10])  # shifts are on a grid
    off = np.abs(found.at(k[10:]) - true[10:])
    assert off.max() <= 0.05 * (true[0] - true[-1])


@pytest.mark.parametrize("passes", [6, 8, 10])
def test_the_end_by_a_target_is_found_on_a_curve_without_noise(passes) -> None:
    curve = 1 / (0.8 * np.arange(1, 13) + 1) + 0.3
    rule = EarlyStopping(Metric.LOG_LOSS, patience=12, target=float(curve[passes - 2 : passes].mean()))
    found = told(curve[:5], rule)
    assert found.low <= passes * N_TRAIN <= found.high
    assert abs(found.at / N_TRAIN - passes) <= 1


@given(SERIES, RULES, st.integers(0, N_TRAIN * N_EPOCH))
@settings(max_examples=60, deadline=None)
def test_the_end_is_between_now_and_the_last_pass_and_the_band_holds_it(values, rule, n_done) -> None:
    found = told(values, rule, n_done)
    assert (
        n_done <= found.low <= found.at <= found.high <= found.n_total == N_TRAIN * N_EPOCH or found.why_not
    )
    assert 0 <= found.n_sample_left <= found.n_total - n_done
    if found.why_not:
        assert found.at == found.low == found.high == found.n_total
        assert not found.is_early


@given(SERIES, RULES, st.floats(0.1, 0.9), st.floats(0.1, 0.9))
@settings(max_examples=60, deadline=None)
def test_a_tighter_target_never_needs_fewer_samples(values, rule, one, other) -> None:
    lax, tight = sorted((one, other), reverse=rule.metric != Metric.AUC)
    less, more = (
        told(values, EarlyStopping(rule.metric, rule.patience, rule.min_gain, target, rule.decline))
        for target in (lax, tight)
    )
    assert less.low <= more.low
    assert less.at <= more.at
    assert less.high <= more.high


@for_each(
    ("values", "why"),
    [
        ((), "it needs 4 evaluations, and has 0"),
        ((0.5, 0.4, 0.3), "it needs 4 evaluations, and has 3"),
        ((0.5, 0.4, math.nan, 0.3), "an evaluation has no finite log loss"),
        ((0.5, 0.4, math.inf, 0.3), "an evaluation has no finite log loss"),
        ((0.5, 0.6, 0.7, 0.8), "its log loss has not become better since the first evaluation"),
        ((0.5, 0.5, 0.5, 0.5), "its log loss has not become better since the first evaluation"),
    ],
)
def test_what_is_not_predictable_says_why(values, why, words) -> None:
    rule = EarlyStopping(Metric.LOG_LOSS, patience=9)
    found = forecast(points(values, rule), rule, Extent(len(values) * N_TRAIN, N_TRAIN, N_EPOCH))
    assert found.why_not == why
    assert found.at == found.n_total
    assert found.words == words


@pytest.mark.parametrize("curve", [CRITEO, IPINYOU])
@pytest.mark.parametrize("passes", [7, 8, 9, 10])
def test_targets_on_real_curves_are_predicted_within_a_pass_or_two_from_half_way(curve, passes) -> None:
    target = (curve[passes - 2] + curve[passes - 1]) / 2
    rule = EarlyStopping(Metric.LOG_LOSS, patience=12, target=target)
    assert int(stops_at(np.array([curve]), rule)[0]) == passes - 1
    found = told(curve[: passes // 2 + 2], rule)
    assert abs(found.at / N_TRAIN - passes) <= 2
    assert found.low <= passes * N_TRAIN <= found.high


def test_the_same_evaluations_give_the_same_words(words) -> None:
    rule = EarlyStopping(Metric.LOG_LOSS, patience=12, target=0.4709)
    assert told(CRITEO[:5], rule) == told(CRITEO[:5], rule)
    assert told(CRITEO[:5], rule).words == words

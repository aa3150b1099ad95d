from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.memory import forecast
from dlrover_nb.core.memory.sawtooth import upper_envelope

LIMIT_MIB = 1500.0
LIKELY = 0.2
SPANS_LEFT = 20.0


def saw(n, rng, *, period, low=200.0, high=600.0, noise=0.0, jitter=0.0):
    """Return memory that climbs from `low` to `high` in about `period` reports, again and again."""
    level, phase = [], rng.uniform(0, 0.5)
    for _ in range(n):
        if not level or phase >= 1:
            phase %= 1
            own = period * np.exp(jitter * rng.normal())
            top = high + 0.3 * jitter * (high - low) * rng.normal()
        level.append(low + (top - low) * phase)
        phase += 1 / own
    return np.maximum(np.array(level) + rng.normal(0, noise, n), 0)


def seen(y):
    x = np.arange(1.0, len(y) + 1)
    return forecast(x, y, limit_mib=LIMIT_MIB, end=len(y) * (1 + SPANS_LEFT), origin=0.0)


def alarms(series):
    return np.mean([seen(y).oom_probability >= LIKELY for y in series])


@for_each("n", [40, 120, 600])
@for_each("share", [0.1, 0.2, 0.35, 0.5])
@for_each(("noise", "jitter"), [(0, 0), (5, 0.2), (20, 0.2)])
def test_a_saw_tooth_is_no_leak(n, share, noise, jitter):
    rng = np.random.default_rng(0)
    ours = [saw(n, rng, period=share * n, noise=noise, jitter=jitter) for _ in range(8)]
    assert alarms(ours) == 0


@pytest.mark.parametrize("high", [500, 800, 1100])
def test_a_saw_tooth_of_any_height_stays_where_it_was(high):
    rng = np.random.default_rng(1)
    for _ in range(10):
        found = seen(saw(240, rng, period=60, high=high, noise=5))
        assert found.law == "as now"
        assert found.at_end.high == pytest.approx(high, rel=0.1)
        assert found.at_end.low == pytest.approx(200, abs=0.15 * high)
        assert found.oom_probability < 0.05


@pytest.mark.parametrize("period", [15, 30, 60])
def test_a_leak_under_a_saw_tooth_is_foreseen(period):
    rng = np.random.default_rng(2)
    leaks = [saw(300, rng, period=period, high=450, noise=5) + 1.5 * np.arange(300) for _ in range(10)]
    assert alarms(leaks) == 1


@for_each("slope", [0.0, 0.2, 2.0])
@for_each("period", [30, 60])
def test_an_envelope_rises_where_later_troughs_lie_clearly_above_earlier_ones(slope, period):
    n = np.arange(240.0)
    found = upper_envelope(n, 200 + 250 * ((n / period + 0.3) % 1) + slope * n)
    assert found.is_rising == (slope > 1)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6), n=st.integers(16, 300), rise=st.floats(20, 2000), scatter=st.floats(0, 0.05)
)
def test_a_leak_alone_has_no_teeth(seed, n, rise, scatter):
    noise = np.random.default_rng(seed).normal(0, scatter * rise, n)
    assert upper_envelope(np.arange(float(n)), 300 + rise * np.arange(n) / n + noise) is None


@pytest.mark.parametrize("kind", ["scatter", "walk"])
def test_noise_has_no_teeth(kind):
    rng, x = np.random.default_rng(3), np.arange(300.0)
    steps = [rng.normal(0, 5, 300) for _ in range(100)]
    found = [upper_envelope(x, 900 + (np.cumsum(s) if kind == "walk" else s)) for s in steps]
    assert np.mean([each is not None for each in found]) <= 0.02


@for_each("slope", [1.0, 2.0, 3.0])
@for_each("first", ["flat", "climb"])
def test_a_leak_after_one_release_is_foreseen(first, slope):
    before = np.full(40, 900.0) if first == "flat" else 300 + 15.0 * np.arange(40)
    y = np.concatenate([before, 250 + slope * np.arange(150)])
    assert seen(y).oom_probability >= LIKELY


def test_a_climb_above_all_peaks_is_a_leak():
    rng = np.random.default_rng(4)
    y = np.concatenate([saw(200, rng, period=40, noise=3), 600 + 8.0 * np.arange(30)])
    assert upper_envelope(np.arange(230.0), y) is None
    assert seen(y).oom_probability >= LIKELY


def test_teeth_that_ended_long_ago_explain_nothing():
    y = np.concatenate([saw(200, np.random.default_rng(5), period=40), np.full(200, 210.0)])
    assert upper_envelope(np.arange(400.0), y) is None


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), period=st.floats(10, 80), noise=st.floats(0, 20))
def test_the_envelope_lies_at_the_peaks_and_ends_at_the_last_trough(seed, period, noise):
    x = np.arange(1.0, 241.0)
    y = saw(240, np.random.default_rng(seed), period=period, noise=noise)
    found = upper_envelope(x, y)
    if found is None:
        return
    assert (np.diff(found.x) >= 0).all()
    assert x[0] <= found.x[0] <= found.x[-1] <= x[-1]
    assert found.y.max() <= 600 + 5 * max(noise, 1) + 400 / period * 2
    assert found.y.min() >= 600 - 5 * max(noise, 1) - 400 / period * 4

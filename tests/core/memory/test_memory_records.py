"""Laws of records: what grows steadily has grown for long, what comes back or came once has not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.memory.judgement import LEAST_REPORTS, LONGER, LOOK_BACK, growth

N_S = 600


def grown_for(at, level, **how):
    return growth(at, level, **how).lasted


def seconds(n: int = N_S):
    return np.arange(1.0, n + 1)


@settings(deadline=None, max_examples=40)
@given(rate=st.floats(1e-3, 100), start=st.floats(0, 1e4), n=st.integers(LEAST_REPORTS, N_S))
def test_a_line_has_grown_since_its_first_report(rate, start, n):
    found = growth(seconds(n), start + rate * seconds(n))
    assert found.lasted == n - 1
    assert found.pace == pytest.approx(rate, rel=0.15)


@settings(deadline=None, max_examples=40)
@given(factor=st.floats(1e-3, 1e3), raised=st.floats(0, 1e4), seed=st.integers(0, 99))
def test_the_unit_of_memory_and_what_is_always_held_change_nothing(factor, raised, seed):
    level = np.cumsum(np.random.default_rng(seed).normal(1, 3, N_S))
    assert grown_for(seconds(), raised + factor * level) == grown_for(seconds(), level)


@settings(deadline=None, max_examples=40)
@given(factor=st.sampled_from([2.0**-12, 0.25, 2.0, 64.0]), began=st.integers(0, N_S - 60))
def test_the_unit_of_time_is_that_of_the_answer(factor, began):
    level = np.maximum(seconds() - began, 0)
    assert grown_for(factor * seconds(), level) == pytest.approx(factor * grown_for(seconds(), level))


@settings(deadline=None, max_examples=40)
@given(began=st.integers(50, N_S - 50))
def test_growth_that_began_late_has_lasted_since_then(began):
    lasted = grown_for(seconds(), np.maximum(seconds() - began, 0))
    true = N_S - began
    assert (
        true / LONGER - 1 <= lasted <= 1.19 * true
    )  # a part may begin before it, with its share of the rise


@settings(deadline=None, max_examples=40)
@given(at=st.integers(1, N_S), size=st.floats(1, 1e4))
def test_a_step_is_no_growth(at, size):
    assert grown_for(seconds(), np.where(seconds() < at, 700.0, 700.0 + size)) == 0


@settings(deadline=None, max_examples=40)
@given(for_s=st.floats(2, 60), waited_s=st.floats(1, 500))
def test_a_start_is_over_once_as_long_as_a_part_has_passed_without_growth(for_s, waited_s):
    n = int(for_s + max(waited_s, 0.5 * for_s)) + 1
    assert grown_for(seconds(n), 300 + 900 * np.minimum(seconds(n) / for_s, 1)) == 0


@settings(deadline=None, max_examples=60)
@given(period_s=st.integers(20, 200), ended=st.floats(1.3, 2.98), height=st.floats(10, 1000))
def test_a_tooth_after_the_first_has_lasted_for_a_small_part_of_it_at_most(period_s, ended, height):
    n = int(ended * period_s)
    level = 600 + height * (np.arange(n) % period_s) / period_s
    assert grown_for(seconds(n), level) <= period_s / LOOK_BACK


@pytest.mark.parametrize("period_s", [30, 60])
def test_a_leak_under_a_saw_has_grown_for_as_many_teeth_as_parts(period_s):
    level = 200 * (seconds() % period_s) / period_s + 0.2 * seconds()
    assert grown_for(seconds(), level) >= 4 * period_s


def test_noise_sets_records_as_rarely_as_chance():
    rng = np.random.default_rng(0)
    grown = [grown_for(seconds(60), rng.normal(0, 5, 60)) > 0 for _ in range(1000)]
    assert np.mean(grown) < 0.03  # 1 in 720 for each of some twenty spans, of which most overlap


def test_only_what_came_after_a_time_is_evidence():
    level = seconds()
    assert grown_for(seconds(), level, begin=500) == N_S - 501
    assert grown_for(seconds(), level, begin=N_S) == 0


def test_growth_below_a_pace_is_none():
    assert (
        grown_for(seconds(), 0.1 * seconds(), least_pace=0.13) == 0
    )  # its first level is up to a fifth older
    assert grown_for(seconds(), 0.1 * seconds(), least_pace=0.09) > 0


def test_reports_without_work_between_them_are_no_growth():
    assert grown_for(np.full(50, 7.0), np.arange(50.0)) == 0

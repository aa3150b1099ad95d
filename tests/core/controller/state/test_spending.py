"""What a job has spent: laws of the sum over time, with and without a master."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.controller.state.job_state import HOUR_S, Spending

PRICES = st.floats(0, 100)
STEPS = st.lists(st.tuples(st.floats(0, HOUR_S), PRICES), max_size=20)


def spent_after(steps, *, by_events=1):
    """Return what is spent after spans of time, each with its price, told of in so many events."""
    spending, at_s = Spending(0.0), 0.0
    for seconds, per_hour in steps:
        spending.change(at_s, per_hour)
        for i in range(1, by_events + 1):
            spending.pass_time(at_s + seconds * i / by_events)
        at_s += seconds
    return spending.spent


@given(STEPS)
def test_spent_is_the_sum_of_prices_over_time_however_often_time_is_told(steps):
    exact = sum(seconds / HOUR_S * per_hour for seconds, per_hour in steps)
    assert spent_after(steps) == pytest.approx(exact, abs=1e-9)
    assert spent_after(steps, by_events=3) == pytest.approx(exact, abs=1e-9)


@given(STEPS, st.floats(0, 50))
def test_what_earlier_runs_spent_is_counted_once(steps, earlier):
    spending = Spending(0.0, earlier)
    at_s = 0.0
    for seconds, per_hour in steps:
        spending.change(at_s, per_hour)
        at_s += seconds
        spending.pass_time(at_s)
    assert spending.spent == pytest.approx(earlier + spent_after(steps), abs=1e-9)


def test_an_event_of_an_earlier_time_changes_nothing():
    spending = Spending(0.0)
    spending.change(0.0, 3600.0)
    spending.pass_time(10.0)
    spending.pass_time(4.0)
    spending.pass_time(11.0)
    assert spending.spent == pytest.approx(11.0)


@given(PRICES, PRICES, st.floats(1, HOUR_S))
def test_without_a_master_the_nodes_that_have_stayed_count_and_no_others(before, after, away_s):
    spending = Spending(0.0)
    spending.change(0.0, before)
    spending.change(away_s, None)
    spending.pass_time(away_s + 1)
    spending.change(away_s + 1, after)
    assert spending.spent == pytest.approx(min(before, after) * (away_s + 1) / HOUR_S, abs=1e-9)
    spending.pass_time(away_s + 1 + HOUR_S)
    assert spending.spent == pytest.approx(min(before, after) * (away_s + 1) / HOUR_S + after, abs=1e-9)


def test_a_second_master_that_dies_before_it_has_looked_loses_no_time():
    spending = Spending(0.0)
    spending.change(0.0, 36.0)
    for at_s in (100.0, 150.0):
        spending.change(at_s, None)
    spending.change(200.0, 36.0)
    assert spending.spent == pytest.approx(2.0)

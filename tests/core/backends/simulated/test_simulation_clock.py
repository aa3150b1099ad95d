import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.backends.simulated.cluster import MAX_TURN_S, SimulationClock
from dlrover_nb.core.errors import InvalidValueError


@given(
    speed=st.floats(0.1, 1e4),
    turns=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1)), max_size=30),
)
def test_virtual_time_never_runs_backwards_nor_faster_than_its_speed(speed, turns):
    pace, real_s = SimulationClock(speed, at_s=1000.0, real_s=5.0), 5.0
    for passed_s, share in turns:
        real_s += passed_s
        goal_s, before_s = pace.goal_s(real_s), pace.reached_s
        assert before_s <= goal_s <= before_s + speed * min(passed_s, MAX_TURN_S) * (1 + 1e-9) + 1e-6
        pace.reach(before_s + share * (goal_s - before_s), real_s)
        assert pace.reached_s >= before_s


def test_what_a_slow_simulation_missed_is_not_caught_up():
    pace = SimulationClock(100.0, at_s=0.0, real_s=0.0)
    assert pace.goal_s(0.5) == 50.0
    pace.reach(10.0, 0.5)  # it came only this far
    assert pace.goal_s(0.6) == pytest.approx(20.0)


def test_a_suspended_notebook_does_not_find_its_jobs_ended():
    pace = SimulationClock(60.0, at_s=0.0, real_s=0.0)
    assert pace.goal_s(8 * 3600.0) == 60.0 * MAX_TURN_S


def test_waiting_is_real_time():
    pace = SimulationClock(60.0, at_s=100.0, real_s=0.0)
    assert pace.wait_s(160.0) == 1.0
    assert pace.wait_s(40.0) == 0.0


@for_each("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_a_speed_that_makes_no_sense_is_refused(speed, error_words):
    with error_words(InvalidValueError):
        SimulationClock(speed, at_s=0.0, real_s=0.0)


def test_time_that_is_run_ahead_waits_for_nothing_and_the_rest_follows_real_time_again():
    pace = SimulationClock(60.0, at_s=100.0, real_s=0.0)
    assert pace.run_ahead(1000.0) == 1100.0
    assert pace.goal_s(0.0) == 1100.0
    assert pace.wait_s(1099.0) == 0.0
    pace.reach(700.0, 1.0)
    assert pace.goal_s(1.0) == 1100.0, "it was not as fast as that"
    pace.reach(1100.0, 2.0)
    assert pace.goal_s(2.1) == 1106.0
    assert pace.wait_s(1160.0) == 1.0

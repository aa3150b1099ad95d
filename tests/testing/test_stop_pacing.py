"""Laws of the stops that stand for a delay, on a process of virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.testing.faults.pacing import BREATH_S, Pacing, longest_stop_s

REPORT_S = 1.0


def played(own_s: float, delay_s: float, *, n_iter: float, late: float = 1.0, longest_s: float = 3.0):
    """Pace a process whose iterations take `own_s` of running until it has done `n_iter`.

    `late` is how many times longer than asked each run takes. Returns the stops and runs after the first tenth.
    """
    pacing, done, reported, at_s, reported_s = Pacing(longest_s, own_s=own_s), 0.0, 0.0, 0.0, 0.0
    stops, runs, counted = [], [], 0.0
    while done < n_iter:
        run_s = pacing.run_for_s(delay_s) * late
        pacing, done = pacing.ran(run_s, delay_s), done + run_s / own_s
        stop_s = pacing.stop_for_s
        pacing = pacing.stopped(stop_s)
        at_s += run_s + stop_s
        if done > n_iter / 10:
            stops.append(stop_s)
            runs.append(run_s)
            counted += run_s / own_s
        if at_s >= reported_s + REPORT_S and done > reported:
            pacing = pacing.reported((at_s - reported_s) / (done - reported))
            reported, reported_s = done, at_s
    return stops, runs, counted


@settings(deadline=None, max_examples=40)
@given(own_s=st.floats(0.005, 2.0), ratio=st.floats(0.01, 100), late=st.floats(1.0, 3.0))
def test_stops_sum_to_the_delay_of_each_iteration_however_late_the_timers_are(own_s, ratio, late):
    delay_s = own_s * ratio
    stops, _, n_iter = played(own_s, delay_s, n_iter=max(2.0, 200 / (own_s + delay_s)), late=late)
    assert sum(stops) == pytest.approx(delay_s * n_iter, rel=0.05, abs=2 * max(stops))


@settings(deadline=None, max_examples=40)
@given(own_s=st.floats(0.005, 2.0), delay_s=st.floats(0, 60), heartbeat_timeout_s=st.floats(0.1, 600))
def test_no_stop_exceeds_a_tenth_of_the_heartbeat_and_the_process_breathes_between(
    own_s, delay_s, heartbeat_timeout_s
):
    longest_s = longest_stop_s(heartbeat_timeout_s)
    stops, runs, _ = played(own_s, delay_s, n_iter=max(0.5, 50 / (own_s + delay_s)), longest_s=longest_s)
    assert max(stops) <= longest_s <= heartbeat_timeout_s / 10
    assert min(runs) >= BREATH_S


@given(run_s=st.floats(0, 1e3), delay_s=st.floats(0, 60))
def test_nothing_is_owed_while_the_iteration_is_unknown_or_there_is_no_delay(run_s, delay_s):
    assert Pacing(3.0).ran(run_s, delay_s).stop_for_s == 0
    assert Pacing(3.0, own_s=0.1).ran(run_s, 0.0).stop_for_s == 0


@given(own_s=st.floats(0.005, 2.0), wrong=st.floats(0.1, 10), share=st.floats(0.05, 1))
def test_reports_teach_the_iteration_without_its_stops(own_s, wrong, share):
    pacing = Pacing(3.0, own_s=own_s * wrong)
    for _ in range(12):
        pacing = pacing.ran(share, 0.0).stopped(1 - share).reported(own_s / share)
    assert pacing.own_s == pytest.approx(own_s, rel=0.01)
    assert pacing.reported(0.0) == pacing  # a report without an iteration

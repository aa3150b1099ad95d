"""Laws of the judgement: when an alarm begins, how long it stands, and that it excludes a smaller request."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.memory import Course, Judgement, Report, judged, shown, work_course
from dlrover_nb.core.memory.judgement import LASTING_S, LEFT, SURE_OF_BEND_S, SURE_S, WITHDRAWN_S, WorkCourse
from dlrover_nb.core.memory.right_size import MARGIN
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import FanPoint, MemoryLine

LIKELY, LIMIT_MIB = 0.2, 1000
FULL = Judgement(Course.FILLS)


def line(chance, full_in_s=None, *, law="linear", now_mib=500.0, end_s=10_000.0):
    fan = (FanPoint(end_s, now_mib, now_mib, now_mib),)
    return MemoryLine(
        Role.PS,
        LIMIT_MIB,
        now_mib,
        0.0,
        0.0,
        full_in_s,
        law,
        oom_probability=chance,
        full_in_low_s=full_in_s,
        fan=fan,
    )


def climb(lasted_s: float) -> WorkCourse:
    work_s = np.linspace(0, lasted_s, 200)
    return WorkCourse(work_s, 100 + work_s, 0)


def flat(mib: float = 500.0) -> WorkCourse:
    return WorkCourse(np.arange(200.0), np.full(200, mib), 0)


def after(forecasts, before=None, course=None):
    """Return the judgement after forecasts (time, line)."""
    judgement = before or Judgement()
    for at_s, forecast in forecasts:
        judgement = judged(judgement, forecast, course or climb(at_s), at_s, likely=LIKELY)
    return judgement


@settings(deadline=None, max_examples=60)
@given(lasted_s=st.floats(10, LASTING_S - 1), full_in_s=st.floats(0.1, 1e4))
def test_young_growth_counts_where_little_is_left_compared_to_what_it_has_lasted(lasted_s, full_in_s):
    found = after([(lasted_s, line(1.0, full_in_s))])
    assert (found.course is Course.FILLS) == (full_in_s <= LEFT * climb(lasted_s).work_s[-1])


@settings(deadline=None, max_examples=60)
@given(end_mib=st.floats(200, 5000), for_s=st.floats(1, 300), share=st.floats(0.1, 1))
def test_no_start_from_nothing_alarms_with_the_margin_of_a_smaller_request(end_mib, for_s, share):
    per_s = end_mib / for_s
    full_in_s = (1.001 * MARGIN * end_mib - share * end_mib) / per_s
    found = after([(share * for_s, line(1.0, full_in_s))], course=climb(share * for_s))
    assert found.course is not Course.FILLS


@pytest.mark.parametrize(("law", "held_s"), [("linear", SURE_S), ("power", SURE_OF_BEND_S)])
def test_a_far_limit_counts_once_growth_has_lasted_and_forecasts_stay_sure(law, held_s):
    far = line(1.0, 9000.0, law=law)
    assert after([(LASTING_S + 1, far)]).course is Course.UNDECIDED
    assert after([(LASTING_S + 1, far), (LASTING_S + held_s, far)]).course is Course.UNDECIDED
    assert after([(LASTING_S + 1, far), (LASTING_S + 1 + held_s, far)]).course is Course.FILLS
    doubt = (LASTING_S + 2, line(0.9, 9000.0, law=law))
    assert after([(LASTING_S + 1, far), doubt, (LASTING_S + 1 + held_s, far)]).course is Course.UNDECIDED


def test_growth_that_has_lasted_longer_than_is_left_need_only_be_likely():
    assert after([(500.0, line(LIKELY, 400.0))]).course is Course.FILLS
    assert after([(500.0, line(LIKELY - 0.01, 400.0))]).course is not Course.FILLS


def test_a_forecast_without_records_is_no_alarm_however_sure():
    sure = [(float(at_s), line(1.0, 300.0)) for at_s in range(10, 2000, 10)]
    assert after(sure, course=flat()).course is Course.UNDECIDED


def test_growth_too_slow_to_fill_a_node_by_the_end_is_no_alarm():
    slow = WorkCourse(np.arange(500.0), 500 + 0.001 * np.arange(500.0), 0)
    sure = [(at_s, line(1.0, 300.0)) for at_s in (500.0, 600.0, 700.0)]
    assert after(sure, course=slow).course is Course.UNDECIDED


def test_readings_that_vary_up_to_the_limit_are_an_alarm_once_that_has_lasted():
    wide = [(0.0, line(0.9, law="as now")), (LASTING_S, line(0.9, law="as now"))]
    assert after(wide, course=flat(950.0)).course is Course.FILLS
    assert after(wide[1:], course=flat(950.0)).course is Course.UNDECIDED
    assert after(wide, course=flat(700.0)).course is Course.UNDECIDED


def test_a_full_node_is_an_alarm_at_once():
    assert after([(1.0, line(None, 0.0))]).course is Course.FILLS


def test_an_alarm_stands_while_a_forecast_loses_it_and_is_withdrawn_when_all_do():
    lost = line(0.0)
    assert after([(0.0, lost), (WITHDRAWN_S - 1, lost)], FULL).course is Course.FILLS
    again = [(0.0, lost), (WITHDRAWN_S - 1, line(LIKELY)), (WITHDRAWN_S, lost)]
    assert after(again, FULL).course is Course.FILLS
    assert after([(0.0, lost), (WITHDRAWN_S, lost)], FULL).course is Course.UNDECIDED


def test_a_forecast_without_a_probability_withdraws_nothing():
    assert after([(0.0, line(None)), (10 * WITHDRAWN_S, line(None))], FULL).course is Course.FILLS


def test_a_withdrawn_alarm_needs_evidence_that_came_later():
    reports = [Report(float(at_s), at_s, 100.0 + at_s) for at_s in range(1000)]
    withdrawn = replace(Judgement(), evidence_s=900.0)
    old = work_course(reports, 1.0, withdrawn.evidence_s)
    assert judged(withdrawn, line(1.0, 80.0), old, 999.0, likely=LIKELY).course is Course.UNDECIDED
    assert (
        judged(Judgement(), line(1.0, 80.0), replace(old, begin=0), 999.0, likely=LIKELY).course
        is Course.FILLS
    )
    assert judged(withdrawn, line(1.0, 16.0), old, 999.0, likely=LIKELY).course is Course.FILLS


@settings(deadline=None, max_examples=60)
@given(
    chances=st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=12),
    full_in_s=st.one_of(st.none(), st.floats(0, 1e4)),
)
def test_a_full_node_is_named_where_that_is_the_judgement_and_nowhere_else(chances, full_in_s):
    judgement, published = Judgement(), None
    for at_s, chance in enumerate(chances):
        forecast = line(chance, full_in_s)
        judgement = judged(judgement, forecast, climb(400.0), 60.0 * at_s, likely=LIKELY)
        published = shown(forecast, judgement, published)
        if judgement.course is not Course.FILLS:
            assert published.full_in_s is None
            assert published.full_in_low_s is None
            assert (published.oom_probability or 0.0) < 0.05
        if judgement.course is Course.STAYS:
            assert published.oom_probability == chance
        assert published.fan == forecast.fan


def test_what_is_published_stands_while_a_forecast_loses_it():
    first = line(1.0, 300.0)
    judgement = judged(FULL, line(0.0), climb(400.0), 10.0, likely=LIKELY)
    assert shown(line(0.0, now_mib=600.0), judgement, first) == replace(
        first, now_mib=600.0, fan=line(0.0, now_mib=600.0).fan
    )


def test_work_counts_in_seconds_at_the_present_speed_and_time_where_none_is_known():
    reports = [Report(10.0 * i, 100 * min(i, 5), 1.0) for i in range(8)]
    course = work_course(reports, 20.0, 35.0)
    assert course.work_s.tolist() == [0, 5, 10, 15, 20, 25, 25, 25]
    assert course.begin == 4
    assert work_course(reports, 0.0, 0.0).work_s.tolist() == [10.0 * i for i in range(8)]


@settings(deadline=None, max_examples=60)
@given(lasted_s=st.floats(20, LASTING_S - 1), pace=st.floats(0.2, 5), part=st.floats(0.5, 2))
def test_a_steep_climb_counts_by_its_own_pace_where_no_law_knows_when_it_is_full(lasted_s, pace, part):
    course = climb(lasted_s)
    course = replace(course, memory_mib=100 + pace * course.work_s)
    now_mib = LIMIT_MIB - part * LEFT * pace * lasted_s  # `part` of what counts, at its pace
    found = after([(lasted_s, line(1.0, None, now_mib=now_mib))], course=course)
    assert abs(part - 1) < 0.05 or (found.course is Course.FILLS) == (part < 1)
